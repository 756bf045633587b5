#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Peers without a credential, with wrong ones, and with each role, at each port and HTTP route of a pool with
# --security=on: only the pairs in security.table, security_http.table and security_ports.table are admitted, a refusal
# changes nothing, and each socket is in the tables.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ha.sh"
. "$top_srcdir/tests/lib/python.sh"
requires curl etcd jq openssl python3 ss
table=$top_srcdir/tests/integ/security
probe=$top_builddir/tests/integ/security_probe
peer() { timeout 120 python3 "$top_srcdir/tests/integ/security_peer.py" "$@"; }
dir=$tmp/security secret=$tmp/security/secret
roles='reader client node admin master metrics'
# Where the Python package or FUSE cannot be used, all but the REST service or mcfs is tested.
rest=
case ${SANITIZER-} in
'' | *address*) ! find_python || ! "$PYTHON" -c "import aiohttp" 2>/dev/null || rest=yes ;;
esac
[ -z "$rest" ] || python_package
mount=yes
(requires_fuse >/dev/null) || mount=

start_etcd
masters a b
master=$top_builddir/master/mooncake_master
"$master" --init_security --security_dir="$dir" >"$tmp/init" || fail "no secret"
[ "$(stat -c %a "$secret" "$dir/admin.credential" "$dir" | tr '\n' ' ')" = "600 600 700 " ] || fail "modes of $dir"
fails "$master" --init_security --security_dir="$dir"
"$master" --init_security --security_dir="$tmp/foreign" >"$tmp/init" || fail "no secret"
export MC_CREDENTIAL=$dir/admin.credential
mcctl() { "$top_builddir/tools/mcctl" --master="$MASTERS" --timeout=10 "$@"; }

# ---- the pool: two masters, a node, a mount, a REST service, a metadata server of its own ----
declare -A ADDR=() PIDS=() DATA=()
for name in metadata metadata-b metadata-tool node mcfs rest handle dummy kv-events; do
	free_port number
	ADDR[$name]=127.0.0.1:$number
done
start_secure() { # start_secure NAME METADATA FLAG...
	start_ha "$1" --security=on --security_dir="$dir" --enable_multi_tenants --enable_http_metadata_server \
		--http_metadata_server_host=127.0.0.1 --http_metadata_server_port="${ADDR[$2]##*:}" "${@:3}"
}
# Without libzmq there are no events.
events=(--enable_kv_events --kv_events_backend_id=x --kv_events_bind_endpoint="tcp://${ADDR[kv-events]}")
"$master" --kv_events_curve_keygen="$tmp/kv.key" >"$tmp/kv.clients" 2>"$tmp/out" || events=()
if [ "${#events[@]}" -gt 0 ]; then
	fails timeout 20 "$master" --security=on --security_dir="$dir" --allow_insecure --rpc_port=0 --metrics_port=0 \
		--journal_dir=none "${events[@]}"
	grep -q 'kv_events_bind_endpoint=.*with --security=on use --kv_events_curve' "$tmp/fails.out" ||
		fail "$(cat "$tmp/fails.out")"
	events+=(--kv_events_curve_secret_key_file="$tmp/kv.key" --kv_events_curve_clients="$tmp/kv.clients")
fi
start_secure a metadata --rpc_socket="$tmp/rpc.sock" "${events[@]}"
wait_for 20 mcctl df
start_secure b metadata-b
PIDS[${PID[a]}]=master PIDS[${PID[b]}]=standby
ADDR[master]=${HTTP[a]} ADDR[standby]=${HTTP[b]}
joined() { grep -q 'a standby is in sync' "$tmp/master-a.log"; }
wait_for 20 joined
for tenant in default a; do
	mcctl quota $tenant 64MB >"$tmp/out"
done
for name in 1 2 3; do
	mcctl credential create "$tmp/node$name" --role=node --name=node$name >"$tmp/out"
done
mcctl credential create "$tmp/revoked" --role=client --name=late --tenant='*' >"$tmp/out"
mcctl credential revoke "$(sed 's/.*serial //' "$tmp/out")" >"$tmp/out"
MC_CREDENTIAL=$tmp/node1 spawn node "$top_builddir/node/mooncake_client" --master_server_address="$MASTERS" \
	--host=127.0.0.1 --port="${ADDR[dummy]##*:}" --global_segment_size=32MiB --socket="$tmp/node.sock" \
	--enable_http_server --http_port="${ADDR[node]##*:}"
PIDS[$SPAWNED]=node
new_segment() { # the one that is not in DATA yet
	mcctl --json df | jq -r --arg known "${DATA[*]}" '.segments[].name | select(inside($known) | not)'
}
segments() { [ "$(mcctl --json df | jq '.segments | length')" = "$1" ]; }
wait_for 20 segments 1
DATA[node]=$(mcctl --json df | jq -r '.segments[0].name')
echo value >"$tmp/value"
mcctl put key "$tmp/value"
if [ -n "$mount" ]; then
	MC_CREDENTIAL=$tmp/node2 start_mcfs "$MASTERS" "$tmp/mnt" --host=127.0.0.1 --port=0 --socket="$tmp/mcfs.sock" \
		--global_segment_size=16MiB --enable_http_server --http_port="${ADDR[mcfs]##*:}"
	PIDS[$MCFS_PID]=mcfs
	wait_for 20 segments 2
	DATA[mcfs]=$(new_segment)
fi
if [ -n "$rest" ]; then
	cat >"$tmp/rest.json" <<-J
	{"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_addr": "$MASTERS",
	 "global_segment_size": "16mb", "enable_client_http_server": true, "client_http_port": ${ADDR[handle]##*:}}
	J
	MC_CREDENTIAL=$tmp/node3 spawn rest "$PYTHON" -m mooncake.mooncake_store_service --config "$tmp/rest.json" \
		--port "${ADDR[rest]##*:}"
	PIDS[$SPAWNED]=rest
	started "$SPAWNED" rest 20 connects "${ADDR[rest]}"
	DATA[rest]=$(new_segment)
fi
MC_METADATA_HTTP_TOKEN='of this server' spawn metadata-tool "$top_builddir/tools/mooncake_http_metadata_server" \
	--host 127.0.0.1 --port "${ADDR[metadata-tool]##*:}"
PIDS[$SPAWNED]=metadata-tool
started "$SPAWNED" metadata-tool 20 connects "${ADDR[metadata-tool]}"

# ---- tokens; the state that a refused peer must not change ----
bad=wrong-key,expired,other-pool,future-secret,unknown,ticket
"$probe" "$secret" - "$bad,${roles// /,},client@a,file:$tmp/revoked,file:$tmp/foreign/admin.credential" token |
	sed -e "s,^file:$tmp/revoked,revoked," -e "s,^file:$tmp/foreign/admin.credential,foreign," >"$tmp/tokens"
admin=$(awk '$1 == "admin" { print $2 }' "$tmp/tokens")
metadata() {
	curl -sf --noproxy '*' --max-time 10 -H "$1" "${@:3}" "http://${ADDR[$2]}/metadata?key=k"
}
metadata "Authorization: Bearer $admin" metadata -X PUT -d text >"$tmp/out"
metadata 'Authorization: Bearer of this server' metadata-tool -X PUT -d text >"$tmp/out"
dump() {
	mcctl --json ls --recursive
	mcctl --json stat key | jq 'del(.. | .lease_ms?)'
	mcctl --json df | jq '[.segments[].name, .segments[].state, .pool.used, .pool.objects]'
	mcctl --json credential list
	mcctl --json tenants
	mcctl --json tasks
	metadata "Authorization: Bearer $admin" metadata
	metadata 'Authorization: Bearer of this server' metadata-tool
	etcdctl --endpoints="${STORE#*=}" get --prefix mooncake 2>/dev/null || :
}
dump >"$tmp/before"

# ---- proofs of identity at the ports of masters and nodes ----
# proofs COLUMN ADDRESS HOW - compare with that column of the table
proofs() {
	local names
	awk -v c="$1" '$1 == "proof" { print $2, $c }' "$table"_ports.table >"$tmp/wanted"
	names=$(awk '{ print $1 }' "$tmp/wanted" | grep -vx plain | sed -e "s,^revoked$,file:$tmp/revoked," \
		-e "s,^foreign$,file:$tmp/foreign/admin.credential," -e "s,^node1$,file:$tmp/node1," \
		-e "s,^ticket-revoked$,ticket-of:$tmp/revoked," | paste -sd,)
	[ "$3" = connect ] || names=plain,$names
	"$probe" "$secret" "$2" "$names" "$3" >"$tmp/proofs" || fail "probe of $2"
	# A connection without TLS gets an answer to its first message.
	[ "$3" != connect ] ||
		"$probe" "$secret" "$2" plain client ,STATS, | sed 's/^refused.*/plain refused/' >>"$tmp/proofs"
	sed -e "s,^file:$tmp/foreign/admin.credential,foreign," -e "s,^file:$tmp/,," \
		-e "s,^ticket-of:$tmp/revoked,ticket-revoked," "$tmp/proofs" | sort >"$tmp/got"
	diff <(sort "$tmp/wanted") "$tmp/got" >"$tmp/differ"
}
wanted() { "$@" || fail "$*: $(cat "$tmp/differ")"; }
wanted proofs 3 "${RPC[a]}" connect
wanted proofs 4 "${RPC[b]}" connect
# The node learns with a heartbeat which credentials were revoked.
wait_for 20 proofs 5 "${DATA[node]}" greet || fail "proofs at the data port: $(cat "$tmp/differ")"
# At other nodes all of these are refused.
for name in mcfs rest; do
	[ -n "${DATA[$name]-}" ] || continue
	"$probe" "$secret" "${DATA[$name]}" "plain,$bad,${roles// /,},ticket-admin,file:$tmp/node1" greet >"$tmp/got"
	grep -v ' refused$' "$tmp/got" && fail "proofs at the data port of $name"
done
for addr in "${RPC[a]}" "${RPC[b]}" "${DATA[@]}"; do
	openssl s_client -connect "$addr" </dev/null >"$tmp/out" 2>&1 && fail "TLS without an identity at $addr"
	openssl s_client -tls1_2 -connect "$addr" </dev/null >"$tmp/out" 2>&1 && fail "TLS 1.2 at $addr"
done

# ---- clients that know no credentials are told what to do ----
advice='the server asks for a credential, and there is none: name its file in MC_CREDENTIAL'
advised() { # advised COMMAND... - the command fails, and one line of it says so, beside the log
	fails env -u MC_CREDENTIAL timeout 20 "$@"
	equal "lines of $*" "$(grep -v ' info ' "$tmp/fails.out" | grep -c "$advice")" 1
}
advised "$top_builddir/tools/mcctl" --master="${RPC[a]}" df
advised "$top_builddir/node/mooncake_client" --master_server_address="${RPC[a]}" --host=127.0.0.1 --port=0
[ -z "$rest" ] || advised "$PYTHON" -c 'if True:
	import sys
	from mooncake.store import MooncakeDistributedStore
	store = MooncakeDistributedStore()
	sys.exit(-store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]))' "${RPC[a]}"
greeted() { # greeted NAME - also the master's log says what to do, where a line is repeated once a second only
	# Versions 1 and 2 cannot have a credential: "peer speaks an incompatible version".  3: "permission denied".
	equal "old greetings" "$(peer hello "${RPC[$1]}" | tr '\n' ' ')" '1 -300 2 -300 3 -20013 '
	grep -q 'the peer speaks no TLS: give it a credential, --credential=FILE' "$tmp/master-$1.log"
}
wait_for 10 greeted a
wait_for 10 greeted b

# ---- HTTP ----
servers=(SEGMENT="${DATA[node]}")
for name in master standby metadata metadata-tool node ${mount:+mcfs} ${rest:+rest handle}; do
	servers+=("$name=${ADDR[$name]}")
done
http() { # http refused|admitted
	peer http "$table"_http.table "$tmp/tokens" "$1" "${servers[@]}" >"$tmp/http" || fail "HTTP: $(cat "$tmp/http")"
	[ "$(cat "$tmp/http")" -gt 300 ] || fail "only $(cat "$tmp/http") requests"
}
http refused

# ---- each message with each role ----
column() { awk -v c="$1" '!/^#/ { print $1, $c }' "$table.table"; }
at=2
for role in $roles; do
	column $at >"$tmp/wanted"
	# First the messages that are refused: they change nothing.
	denied=,$(awk '$2 == "denied" { printf "%s,", $1 }' "$tmp/wanted")
	"$probe" "$secret" "${RPC[a]}" "$role" client "$denied" >"$tmp/got" || fail "probe of $role"
	diff <(awk '$2 == "denied"' "$tmp/wanted") "$tmp/got" >"$tmp/differ" || fail "$role: $(cat "$tmp/differ")"
	at=$((at + 1))
done
# A standby, for a peer that claims to be the leader.
for role in $roles; do
	"$probe" "$secret" "${RPC[b]}" "$role" leader ,FEED, >"$tmp/got"
	[ "$role" = master ] && want=taken || want=denied
	[ "$(cat "$tmp/got")" = "FEED $want" ] || fail "FEED of $role: $(cat "$tmp/got")"
done

# ---- each socket is one of the table ----
# listening - "PROCESS NAME" of each socket that waits for peers, of the processes of this test but etcd
listening() {
	local kind addr users pid name
	ss -Hlnp -tuxw0 | while read -r kind _ _ _ addr _ users; do
		for pid in $(grep -o 'pid=[0-9]*' <<<"$users" | sort -u); do
			pid=${pid#pid=}
			grep -qzxF "MC_TEST_ID=$tmp" "/proc/$pid/environ" 2>/dev/null || continue
			! grep -qx etcd "/proc/$pid/comm" || continue
			case " ${DATA[*]} " in *" $addr "*) addr="data" ;; esac
			case " ${RPC[*]} " in *" $addr "*) addr="rpc" ;; esac
			case " ${HTTP[*]} " in *" $addr "*) addr="admin" ;; esac
			case $kind in tcp | u_*) ;; *) addr=$kind:$addr ;; esac
			name=$(sed -E -e "s,^$tmp/,,; s/^${ADDR[dummy]}\$/dummy/; s/^${ADDR[rest]}\$/rest/" \
				-e "s/^${ADDR[kv-events]}\$/kv-events/" \
				-e "s/^(${ADDR[metadata]}|${ADDR[metadata-tool]})\$/metadata/" \
				-e "s/^(${ADDR[node]}|${ADDR[mcfs]}|${ADDR[handle]})\$/http/" \
				-e "s/${ADDR[dummy]##*:}\.sock/PORT.sock/" \
				-e "s/^(@mooncake-engine-)[0-9a-f]+\$/\1NONCE/" <<<"$addr")
			echo "${PIDS[$pid]-process $pid} $name"
			[ "${name#@}" = "$name" ] || echo "$addr" >>"$tmp/abstract"
		done
	done
}
listening | sort >"$tmp/listening"
awk '$1 == "socket" { print $2, $3 }' "$table"_ports.table | grep -v -e "^${mount:+x}mcfs " -e "^${rest:+x}rest " \
	-e " ${events:+x}kv-events\$" | sort >"$tmp/wanted"
diff "$tmp/wanted" "$tmp/listening" >"$tmp/differ" || fail "sockets that wait for peers: $(cat "$tmp/differ")"
[ "${#events[@]}" -eq 0 ] || equal "a subscriber without a key" "$(peer events "${ADDR[kv-events]}")" refused
# Other users of this host.
as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if [ "$(id -u)" -eq 0 ] && "${as_nobody[@]}" /usr/bin/python3 -c '' 2>/dev/null; then
	chmod 755 "$tmp"
	chmod 666 "$tmp/rpc.sock"
	cp "$top_srcdir/tests/integ/security_peer.py" "$tmp"
	mapfile -t doors <"$tmp/abstract"
	doors+=("${ADDR[dummy]}" "$tmp/node.sock" ${mount:+"$tmp/mcfs.sock"})
	timeout 60 "${as_nobody[@]}" /usr/bin/python3 "$tmp/security_peer.py" user "${doors[@]}" >"$tmp/got"
	equal "doors" "$(wc -l <"$tmp/got")" "${#doors[@]}"
	grep -v ' refused$' "$tmp/got" && fail "another user is admitted"
	if "${as_nobody[@]}" test -x "$top_builddir/tools/mcctl"; then
		fails timeout 20 "${as_nobody[@]}" env -u MC_CREDENTIAL "$top_builddir/tools/mcctl" \
			--master="unix:$tmp/rpc.sock" df
		grep -q 'does not admit this user' "$tmp/fails.out" || fail "rpc.sock: $(cat "$tmp/fails.out")"
	fi
fi

dump >"$tmp/after"
cmp -s "$tmp/before" "$tmp/after" || fail "refused peers changed: $(diff "$tmp/before" "$tmp/after")"
mcctl get key - | cmp -s - "$tmp/value" || fail "the value is lost"

# ---- the messages and requests that are admitted, last: they change the pool ----
at=2
for role in $roles; do
	column $at >"$tmp/wanted"
	"$probe" "$secret" "${RPC[a]}" "$role" client >"$tmp/got" || fail "probe of $role"
	cmp -s "$tmp/wanted" "$tmp/got" || fail "$role: $(diff "$tmp/wanted" "$tmp/got")"
	at=$((at + 1))
done
http admitted
# No secret is in a log.
key=$(awk '$1 == "key" { print $2 }' "$MC_CREDENTIAL")
secret_key=$(awk '$1 == "secret" { print $3 }' "$secret")
grep -l -e "$key" -e "$secret_key" -e "${admin##*.}" "$tmp"/*.log && fail "a secret is in a log"
exit 0
