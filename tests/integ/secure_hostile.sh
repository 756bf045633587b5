#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A secure pool and hosts on the path: recorded connections, changed handshakes and plain bytes have no effect, a flood
# of half handshakes shuts no client out, and secrets are in no log, metric, environment or core dump.
. "${top_srcdir:-.}/tests/lib/functions.sh" || exit 1
. "$top_srcdir/tests/lib/ha.sh"
. "$top_srcdir/tests/lib/python.sh"
requires curl etcd jq openssl python3
[ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 6000 ] || skip "the limit is $(ulimit -Hn) descriptors"
probe=$top_builddir/tests/integ/security_probe
dir=$tmp/security secret=$tmp/security/secret
hostile() { nice -n 10 timeout 120 python3 "$top_srcdir/tests/integ/secure_hostile.py" "$@"; }
mcctl() { timeout 20 "$top_builddir/tools/mcctl" --master="${RPC[a]}" --timeout=10 "$@"; }
export MC_CREDENTIAL=$dir/admin.credential
# A password of another service, which the programs must not pass on.
export MC_REDIS_PASSWORD=0hushhush0hushhush0hushhush0hush

# ---- a pool: master, standby, node, mount, REST service
start_etcd
masters a b
"$top_builddir/master/mooncake_master" --init_security --security_dir="$dir" >"$tmp/init" || fail "no secret"
for name in a b; do
	mkdir "$tmp/log-$name"
	start_ha "$name" --security=on --security_dir="$dir" --audit_log="$tmp/log-$name/audit.log" \
		--default_kv_lease_ttl=0
	wait_for 20 mcctl df
done
joined() { grep -q 'a standby is in sync' "$tmp/master-a.log"; }
wait_for 20 joined
for name in node1 node2; do
	mcctl credential create "$tmp/$name" --role=node --name=$name >"$tmp/out"
done
node_http=''
free_port node_http
spawn node "$top_builddir/node/mooncake_client" --credential="$tmp/node1" --master_server_address="${RPC[a]}" \
	--host=127.0.0.1 --port=0 --global_segment_size=32MiB --enable_http_server --http_port="$node_http"
node=$SPAWNED
programs=("$node")
mounted() { [ "$(mcctl --json df | jq .pool.capacity)" -gt 0 ]; }
wait_for 20 mounted
data=$(mcctl --json df | jq -r '.segments[0].name')
if (requires_fuse) >/dev/null; then
	start_mcfs "${RPC[a]}" "$tmp/mnt" -o "port=0,global_segment_size=16mb,credential=$tmp/node2"
	programs+=("$MCFS_PID")
fi
if (python_package && "$PYTHON" -c "import aiohttp") >/dev/null 2>&1; then
	python_package
	rest=''
	free_port rest
	# The interpreter keeps its environment.
	spawn rest env -u MC_REDIS_PASSWORD "$PYTHON" -m mooncake.mooncake_store_service --local_hostname=127.0.0.1 \
		--master_server="${RPC[a]}" --metadata_server=P2PHANDSHAKE -D global_segment_size=0 --port="$rest"
	started "$SPAWNED" rest 20 connects "127.0.0.1:$rest"
	programs+=("$SPAWNED")
fi
echo value >"$tmp/value"
mcctl put key "$tmp/value"
mcctl put other "$tmp/value"
token=$(mcctl credential token)
scrape() { curl -sf --max-time 5 -H "Authorization: Bearer $token" "http://$1/metrics"; }
master_metric() { scrape "${HTTP[a]}" | metric_sum "$@"; }
dump() { # the state that a refused peer must not change
	mcctl --json ls --recursive
	mcctl --json stat key | jq 'del(.. | .lease_ms?)'
	mcctl --json df | jq '[.segments[].name, .pool.used, .pool.objects]'
	mcctl --json credential list
}

# ---- a host on the path
changes='none old-version no-version psk_ke early-data ciphers no-share no-key plain'
# proxy_to TARGET NAME - a proxy with all changes
proxy_to() {
	mkfifo "$tmp/end.$2"
	# shellcheck disable=SC2086  # words
	hostile proxy "$tmp/ports.$2" "$1" "$tmp/$2" $changes <"$tmp/end.$2" >"$tmp/proxy.$2" 2>&1 &
	PROXY_PID=$!
}
over() { # over NAME CHANGE COMMAND... - with the address of that proxy in $PROXY
	PROXY=127.0.0.1:$(awk -v how="$2" '$1 == how { print $2 }' "$tmp/ports.$1")
	"${@:3}" >"$tmp/fails.out" 2>&1
}
over_end() { # over_end NAME - no client has sent plain bytes, and none was missed
	! grep -v 'tls$' "$tmp/proxy.$1" || fail "plain bytes of a client, or a broken proxy: $(cat "$tmp/proxy.$1")"
	equal "changes of the proxy $1" "$(sort -u "$tmp/proxy.$1" | wc -l)" "$(wc -w <<<"$changes")"
}
remove() { timeout 20 "$top_builddir/tools/mcctl" --master="$PROXY" --timeout=5 rm "$1"; }
connect_to() { [ "$("$probe" "$secret" "$PROXY" "file:$tmp/ticket" connect)" = "file:$tmp/ticket connected" ]; }
"$probe" "$secret" "$tmp/ticket" ticket save
proxy_to "${RPC[a]}" rpc
rpc_proxy=$PROXY_PID
exec 8>"$tmp/end.rpc"
proxy_to "$data" data
data_proxy=$PROXY_PID
exec 7>"$tmp/end.data"
wait_for 10 test -s "$tmp/ports.rpc" || fail "no proxy: $(cat "$tmp/proxy.rpc")"
wait_for 10 test -s "$tmp/ports.data" || fail "no proxy: $(cat "$tmp/proxy.data")"
over rpc none remove other || fail "not through a proxy: $(cat "$tmp/fails.out")"
over data none connect_to || fail "not to the data port through a proxy"
mcctl put other "$tmp/value"
dump >"$tmp/before"
# Each change by a proxy that has no key.
for change in ${changes#none}; do
	! over data "$change" connect_to || fail "$change by a proxy at the data port"
	! over rpc "$change" remove other || fail "$change by a proxy: the client continues"
	case $change in
	plain | *version) why='does not speak TLS 1.3' ;;
	*) why='refused the credential' ;;
	esac
	grep -q "$why" "$tmp/fails.out" || fail "$change: $(cat "$tmp/fails.out")"
done
exec 8>&- 7>&-
wait "$rpc_proxy" "$data_proxy" || fail "a proxy failed: $(cat "$tmp/proxy.rpc" "$tmp/proxy.data")"
over_end rpc
over_end data
# Each change by a peer that has a key, but early data, which is ignored.
hello=$(awk '$2 ~ /^MCP_(MAGIC|VERSION|MIN_VERSION)$/ { sub(/u$/, "", $3); printf "%s%s", sep, $3; sep = "," }' \
	"$top_srcdir/proto/msg.h")
for target in "${RPC[a]} $MC_CREDENTIAL" "$data $tmp/ticket"; do
	# shellcheck disable=SC2086  # words
	hostile hello $target old-version no-version psk_ke ciphers no-share no-key >"$tmp/said"
	equal "answers" "$(wc -l <"$tmp/said")" 6
	! grep -v ' alert [0-9]*$\|no-share retry' "$tmp/said" || fail "at $target: $(cat "$tmp/said")"
	# Plain bytes are answered with a refusal, of the header alone, or not at all.
	said=$(hostile plain "${target% *}" "$hello")
	[[ $said = 'alert'* || $said = 'plain 16'* || $said = 'closed 0'* ]] || fail "plain bytes at $target: $said"
done
# The client's bytes of whole connections, once more.
refused_before=$(master_metric mooncake_tls_refused_total)
replays=0
for record in "$tmp"/rpc.none.*; do
	hostile replay "${RPC[a]}" "$record" >"$tmp/out"
	replays=$((replays + 1))
done
hostile replay "$data" "$tmp"/data.none.* >"$tmp/out"
dump >"$tmp/after"
cmp -s "$tmp/before" "$tmp/after" || fail "refused peers changed: $(diff "$tmp/before" "$tmp/after")"
mcctl get key - | cmp -s - "$tmp/value" || fail "the value is lost"
refused() { [ "$(master_metric mooncake_tls_refused_total)" -ge $((refused_before + replays)) ]; }
wait_for 10 refused || fail "replays are not counted as refused"
scrape "127.0.0.1:$node_http" >"$tmp/node.metrics"
[ "$(metric_sum mooncake_tls_refused_total <"$tmp/node.metrics")" -gt 0 ] || fail "the node counts no refusal"
grep -q connect-refused "$tmp/log-a/audit.log" || fail "no line in the audit log"
# No tickets of TLS: nothing to resume.
identity=$(awk '$1 == "identity" { print $2 }' "$MC_CREDENTIAL") key=$(awk '$1 == "key" { print $2 }' "$MC_CREDENTIAL")
# The server ends the connection after these bytes, which are no message.
printf '%040d' 0 | timeout 20 openssl s_client -connect "${RPC[a]}" -tls1_3 -msg -ign_eof -psk_identity "$identity" \
	-psk "$key" -sess_out "$tmp/session" >"$tmp/s_client" 2>&1 || :
grep -q 'TLS_AES_128_GCM_SHA256' "$tmp/s_client" || fail "openssl does not connect: $(cat "$tmp/s_client")"
! grep -q NewSessionTicket "$tmp/s_client" || fail "a session ticket"
[ ! -s "$tmp/session" ] || fail "a session that can be resumed"

# ---- secrets in core dumps
to_hex() { od -An -v -tx1 | tr -d ' \n'; }
{
	awk '$1 == "secret" { print "secret", $3 }' "$secret"
	awk '$1 ~ /key/ { print "admin-" $1, $2 }' "$MC_CREDENTIAL"
	awk '$1 ~ /key/ { print "node1-" $1, $2 }' "$tmp/node1"
	awk '$1 ~ /key/ { print "node2-" $1, $2 }' "$tmp/node2"
	echo "token ${token##*.}"
	echo "password $(printf %s "$MC_REDIS_PASSWORD" | to_hex)"
} >"$tmp/secrets"
# A server of HTTP has received the token.
grep -v '^token' "$tmp/secrets" >"$tmp/keys"
# The search itself: this is in the memory of each process.
echo "address $(printf %s "${RPC[a]}" | to_hex)" >>"$tmp/keys"
# Sanitizers keep memory that was freed.
[ -n "${SANITIZER-}" ] || hostile find "$tmp/keys" "memory:$node" ${MCFS_PID:+"memory:$MCFS_PID"} \
	>"$tmp/found"
! grep -v ': address as bytes$' "$tmp/found" || fail "a secret is in memory that a core dump has"
# Only the owner of a process may read its memory.
[ "$(id -u)" -ne 0 ] || [ -n "${SANITIZER-}" ] || found address "$tmp/found" ||
	fail "the search of memory does not find the address of the master"

# ---- floods of half handshakes
works() {
	{
		mcctl put --upsert work "$tmp/value" && mcctl get work - | cmp - "$tmp/value" &&
			{ [ ! -d "$tmp/mnt" ] || cmp "$tmp/mnt/key" "$tmp/value"; }
	} >"$tmp/works" 2>&1
}
freed() { # freed METRICS - the connections of a flood are closed
	scrape "$1" >"$tmp/freed" && [ "$(metric_sum mooncake_tls_unproven <"$tmp/freed")" = 0 ] &&
		[ $(($(metric_sum mooncake_rpc_connections <"$tmp/freed") +
			$(metric_sum mooncake_transfer_lanes direction=\"in\" <"$tmp/freed"))) -lt 50 ]
}
# flood PID METRICS TARGET CREDENTIAL SOURCE... - 5000 connections from these addresses, while clients work
flood() {
	local slowest=0 began took calls=0 peak before
	rm -f "$tmp/end.flood" "$tmp/flood"
	mkfifo "$tmp/end.flood"
	before=$(awk '/^VmRSS:/ { print $2 }' "/proc/$1/status")
	nice -n 19 timeout 120 python3 "$top_srcdir/tests/integ/secure_hostile.py" flood "$3" "$4" 5000 "${@:5}" \
		<"$tmp/end.flood" >"$tmp/flood" 2>&1 &
	flooder=$!
	exec 8>"$tmp/end.flood"
	while [ ! -s "$tmp/flood" ]; do
		began=${EPOCHREALTIME/./}
		works || fail "during the flood of ${*:3}: $(cat "$tmp/works")"
		took=$(((${EPOCHREALTIME/./} - began) / 1000))
		slowest=$((took > slowest ? took : slowest)) calls=$((calls + 1))
	done
	scrape "$2" >"$tmp/flood.metrics"
	left=$(metric_sum mooncake_tls_unproven <"$tmp/flood.metrics")
	peak=$(($(awk '/^VmHWM:/ { print $2 }' "/proc/$1/status") - before))
	exec 8>&-
	wait "$flooder" || fail "the flood failed: $(cat "$tmp/flood")"
	echo "flood from ${*:5}: $(tr '\n' ' ' <"$tmp/flood")$calls calls, slowest $slowest ms, $left open, $peak KiB"
	# A client that is shut out waits for the deadline of the handshakes, 10 s.
	[ -n "${SANITIZER-}" ] || [ "$slowest" -lt 8000 ] || fail "a client waited $slowest ms"
	[[ $left -gt 0 && $left -le $LIMIT ]] || fail "$left connections without an identity"
	[ -n "${SANITIZER-}" ] || [ "$peak" -lt 196608 ] || fail "the flood takes $peak KiB"
	[ "$(awk '$1 == "opened" { print $2 }' "$tmp/flood")" -ge 4000 ] || fail "few are accepted: $(cat "$tmp/flood")"
	wait_for 10 freed "$2" || fail "connections of the flood are left"
}
# One address alone may reach the limit of its rate; the clients have another one.
LIMIT=512 flood "${PID[a]}" "${HTTP[a]}" "${RPC[a]}" "$MC_CREDENTIAL" 127.0.0.5
LIMIT=1024 flood "${PID[a]}" "${HTTP[a]}" "${RPC[a]}" "$MC_CREDENTIAL" 127.0.0.1 127.0.0.2 127.0.0.3
LIMIT=1024 flood "$node" "127.0.0.1:$node_http" "$data" "$tmp/ticket" 127.0.0.1 127.0.0.2 127.0.0.3
[ "$(grep -c 'closing the oldest connections in a handshake' "$tmp/master-a.log")" -le 60 ] || fail "too many lines"

# ---- secrets
mkdir "$tmp/seen" "$tmp/bin"
cp -r "$tmp"/*.log "$tmp/log-a" "$tmp/log-b" "$tmp/seen"
for addr in "${HTTP[a]}" "${HTTP[b]}" "127.0.0.1:$node_http"; do
	scrape "$addr" >"$tmp/seen/metrics-${addr##*:}" || [ "$addr" = "${HTTP[b]}" ] || fail "no metrics of $addr"
done
[ ! -d "$tmp/mnt" ] || cp "$tmp/mnt/.mcfs/metrics" "$tmp/seen/metrics-mcfs"
# A program that mcctl starts.
printf '#!/bin/sh\ncat /proc/self/environ >>"%s"\n' "$tmp/seen/environ-nvme" >"$tmp/bin/nvme"
chmod +x "$tmp/bin/nvme"
PATH=$tmp/bin:$PATH mcctl nof list >"$tmp/out" 2>&1 || :
found -z '^MC_CREDENTIAL=' <"$tmp/seen/environ-nvme" || fail "mcctl started no program: $(cat "$tmp/out")"
# The search itself: it finds all of them where they are.
mkdir "$tmp/there"
cp "$secret" "$MC_CREDENTIAL" "$tmp/node1" "$tmp/node2" "$tmp/there"
{
	echo "$token"
	awk '$1 == "password" { print $2 }' "$tmp/secrets"
} >"$tmp/there/others"
equal "secrets that the search finds" "$(hostile find "$tmp/secrets" "$tmp/there" | wc -l)" 8
hostile find "$tmp/secrets" "$tmp/seen" "${programs[@]}" "${PID[@]}" >"$tmp/found"
for pid in "${programs[@]}"; do
	[ "$(awk '/^Max core file size/ { print $5 }' "/proc/$pid/limits")" = 0 ] ||
		fail "process $pid would write a core dump"
done
[ ! -s "$tmp/found" ] || fail "secrets: $(cat "$tmp/found")"

# ---- a rotation of the secret: the standby reads it, too
"$top_builddir/master/mooncake_master" --rotate_security --security_dir="$dir" >"$tmp/out"
read_again() { grep -q 'the secret was read again newest=2' "$tmp/master-$1.log"; }
for name in a b; do
	wait_for 10 read_again $name || fail "master $name does not read the new secret"
done
# A node that has read its new credential admits tickets of the one before, which peers still have.
tickets() { "$probe" "$secret" "$data" ticket,ticket-before greet | tr '\n' ' '; }
equal "tickets before" "$(tickets)" 'ticket refused ticket-before connected '
mcctl credential create "$tmp/node1-new" --role=node --name=node1 >"$tmp/out"
mv "$tmp/node1-new" "$tmp/node1"
kill_pid "${PID[a]}"
both() { [ "$(tickets)" = 'ticket connected ticket-before connected ' ]; }
wait_for 30 both || fail "tickets after the node has a new credential: $(tickets)"
exit 0
