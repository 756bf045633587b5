#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Send every request of the admin HTTP service to upstream's released master and to ours: same
# status codes, same fields of the same types in the same order, same words.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/upstream.sh"
requires curl jq
upstream_python 0.3.14
theirs=$(dirname "$("$UPSTREAM_PYTHON" -c 'import mooncake; print(list(mooncake.__path__)[0])')")/mooncake/mooncake_master
[ -x "$theirs" ] || chmod +x "$theirs"
printf 'version: 1\ntenants:\n  - name: default\n    quota: 8MB\n  - name: blue\n    quota: 4MB\n' >"$tmp/policy.yaml"
tenants=(--enable_multi_tenants --tenant_quota_connector_uri="$tmp/policy.yaml")
head -c 100000 /dev/urandom >"$tmp/value"
has_segment() { [ -n "$(curl -sf "http://$MASTER_HTTP/get_all_segments")" ]; }
has_object() { curl -sf "http://$MASTER_HTTP/get_all_keys" | found -x plain; }

# routes NAME [tenants]
routes() {
	wait_for 30 has_segment || fail "no segment"
	wait_for 30 has_object || fail "no object"
	timeout 200 python3 "$top_srcdir/tests/integ/admin_routes.py" "http://$MASTER_HTTP" "${@:2}" >"$tmp/$1"
}

ask_ours() {
	start_master "${@:3}"
	rm -f "$tmp/stays"
	mkfifo "$tmp/stays"
	exec 9<>"$tmp/stays"
	spawn owner bash -c "exec '$top_builddir/tests/fault/client_actor' $MASTER 20000 own 32 <'$tmp/stays'"
	wait_for 20 has_segment
	"$top_builddir/tools/mcctl" --master="$MASTER" put plain "$tmp/value"
	routes "$1" ${2:+"$2"}
	end_pid "$SPAWNED"
	stop_pid "$MASTER_PID"
}

ask_theirs() {
	local rpc='' http='' master
	free_port rpc
	free_port http
	MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
	spawn upstream env LD_LIBRARY_PATH="$UPSTREAM_LIBRARIES" "$theirs" --rpc_port="$rpc" --metrics_port="$http" "${@:3}"
	master=$SPAWNED
	started "$master" "upstream's master" 30 curl -sf "http://$MASTER_HTTP/health"
	spawn their_owner env LD_LIBRARY_PATH="$UPSTREAM_LIBRARIES" "$UPSTREAM_PYTHON" -c '
import sys, time
from mooncake.store import MooncakeDistributedStore
s = MooncakeDistributedStore()
assert s.setup("127.0.0.1", "P2PHANDSHAKE", 32 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
assert s.put("plain", open(sys.argv[2], "rb").read()) == 0
time.sleep(600)' "$MASTER" "$tmp/value"
	routes "$1" ${2:+"$2"}
	kill_pid "$SPAWNED"
	end_pid "$master"
}

ask_theirs theirs ''
ask_ours ours ''
diff "$tmp/theirs" "$tmp/ours" || fail "upstream's answers (<) and ours (>) differ"
ask_theirs theirs_tenants tenants "${tenants[@]}"
ask_ours ours_tenants tenants "${tenants[@]}"
diff "$tmp/theirs_tenants" "$tmp/ours_tenants" ||
	fail "upstream's answers about tenants (<) and ours (>) differ"
[ "$(wc -l <"$tmp/ours")" -ge 70 ] || fail "only $(wc -l <"$tmp/ours") requests were compared"
