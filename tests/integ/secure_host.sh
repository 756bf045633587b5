#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two tenants, each with a user, a node and valid credentials, on one host: neither reaches memory, objects or sockets of
# the other one; a reader and another user map nothing to write; their own objects work.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_root
requires jq setpriv python3
dir=$tmp/security probe=$top_builddir/tests/integ/security_probe
declare -A ID=([alice]=4001 [bob]=4002)
as() { # as USER CREDENTIAL COMMAND...
	MC_CREDENTIAL=$tmp/$2 setpriv --reuid="${ID[$1]}" --regid="${ID[$1]}" --clear-groups "${@:3}"
}
chmod 755 "$tmp"
as alice none test -x "$top_builddir/tools/mcctl" || skip "others cannot read the build directory"
# The first python3 may be in a directory of root's.
python=$(type -ap python3 | while read -r python; do as alice none "$python" -c '' 2>/dev/null && echo "$python" && break; done)
[ "$python" ] || skip "others cannot run python3"
mcctl=("$top_builddir/tools/mcctl" --timeout=5)
"$top_builddir/master/mooncake_master" --init_security --security_dir="$dir" >"$tmp/out"
export MC_CREDENTIAL=$dir/admin.credential
rpc='' http=''
free_port rpc
free_port http
mcctl+=(--master=127.0.0.1:"$rpc")
spawn master "$top_builddir/master/mooncake_master" --security=on --security_dir="$dir" --rpc_address=127.0.0.1 \
	--rpc_port="$rpc" --metrics_host=127.0.0.1 --metrics_port="$http" --enable_multi_tenants --default_kv_lease_ttl=0 \
	--journal_dir="$tmp/journal"
started "$SPAWNED" mooncake_master 20 "${mcctl[@]}" df
segments() { [ "$("${mcctl[@]}" --json df | jq '.segments | length')" = "$1" ]; }
credential() { # credential FILE USER ARG...
	"${mcctl[@]}" credential create "$tmp/$1" "${@:3}" >"$tmp/out"
	chown "${ID[$2]}" "$tmp/$1"
}
declare -A DATA=()
for tenant in alice bob; do
	"${mcctl[@]}" quota $tenant 16MB >"$tmp/out"
	# Both nodes have the same name.
	credential node-$tenant $tenant --role=node --name=node1 --tenant=$tenant
	credential $tenant $tenant --role=client --name=$tenant --tenant=$tenant
	mkdir "$tmp/of-$tenant"
	chown "${ID[$tenant]}" "$tmp/of-$tenant"
	MC_CREDENTIAL='' spawn node-$tenant setpriv --reuid="${ID[$tenant]}" --regid="${ID[$tenant]}" --clear-groups \
		"$top_builddir/node/mooncake_client" --credential="$tmp/node-$tenant" --host=127.0.0.1 --port=0 \
		--master_server_address=127.0.0.1:"$rpc" --global_segment_size=16MiB --socket="$tmp/of-$tenant/node.sock"
	n=${#DATA[@]}
	wait_for 20 segments $((n + 1)) || fail "no node of $tenant"
	DATA[$tenant]=$("${mcctl[@]}" --json df | jq -r '.segments[].name' | grep -vxF "${DATA[alice]-}")
done
credential reader alice --role=reader --name=reader --tenant=alice
credential guest bob --role=client --name=guest --tenant=alice

# ---- the own objects, and those of the other tenant under the same key
for tenant in alice bob; do
	echo "of $tenant" >"$tmp/$tenant.value"
	as $tenant $tenant "${mcctl[@]}" put key "$tmp/$tenant.value"
done
for tenant in alice bob; do
	as $tenant $tenant "${mcctl[@]}" get key - | cmp - "$tmp/$tenant.value"
done
as bob bob "${mcctl[@]}" put only-bobs "$tmp/bob.value"
fails as alice alice "${mcctl[@]}" get only-bobs -
fails as alice alice "${mcctl[@]}" rm only-bobs

# ---- the data ports: a ticket of one tenant for a node of that name does not open the other one's node
for tenant in alice bob; do
	equal "tickets at the node of $tenant" \
		"$("$probe" "$dir/secret" "${DATA[$tenant]}" ticket-at@alice,ticket-at@bob greet | sort | tr '\n' ' ')" \
		"ticket-at@alice $([ $tenant = alice ] && echo connected || echo refused) ticket-at@bob $(
			[ $tenant = bob ] && echo connected || echo refused) "
done

# ---- sockets of the other user: its node and its engine
engines=$(awk '$NF ~ /^@mooncake-engine-/ { print $NF }' /proc/net/unix | sort -u)
[ "$engines" ] || fail "no engine listens"
for address in "$tmp/of-bob/node.sock" $engines; do
	said=$(as alice alice "$python" "$top_srcdir/tests/integ/security_peer.py" user "$address")
	[[ $said = *" refused" ]] || fail "alice at $address: $said"
done

# ---- mappings of segments
maps() { # maps PID - the rights of its mappings of a segment of 16 MiB
	python3 - "/proc/$1/maps" <<'PY'
import sys
for line in open(sys.argv[1]):
    at, rights = line.split()[:2]
    begin, end = (int(x, 16) for x in at.split('-'))
    if end - begin == 16 << 20 and rights[3] == 's':
        print(rights)
PY
}
# reads_and_writes USER CREDENTIAL - puts and gets; prints the rights of mappings that the process had in the end or before
reads_and_writes() {
	local pid seen=''
	# No function: each program replaces the one before, so this is the process.
	MC_CREDENTIAL=$tmp/$2 setpriv --reuid="${ID[$1]}" --regid="${ID[$1]}" --clear-groups "$top_builddir/tools/mcbench" \
		--master=127.0.0.1:"$rpc" --threads=1 --duration=700ms --sizes=64KiB --working_set=2MiB --batch=2 bench \
		>"$tmp/bench" 2>&1 &
	pid=$!
	while alive "$pid"; do
		seen+=$(maps "$pid" 2>/dev/null)
	done
	wait "$pid" || fail "$2 as $1: $(cat "$tmp/bench")"
	grep -o 'rw-s\|r--s' <<<"$seen" | sort -u | tr '\n' ' '
}
equal "a client's mappings" "$(reads_and_writes alice alice)" 'rw-s '
# Another user with a valid credential of the tenant uses TCP.
as bob guest "${mcctl[@]}" get key - | cmp - "$tmp/alice.value"
equal "mappings of another user" "$(reads_and_writes bob guest)" ''
as alice reader "${mcctl[@]}" get key - | cmp - "$tmp/alice.value"
exit 0
