# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# te_meta_upstream.sh RELEASE - our engine and that release of upstream's find each other by metadata
# servers and move each other's memory; what the tests te_meta_0_3_*.sh have in common.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
. "${top_srcdir:?}/tests/integ/meta_servers.sh"
requires curl
upstream_python "$1"
export no_proxy=127.0.0.1

# their redis support is not in the wheel
for kind in http etcd; do
	server_use "$kind" || continue
	engine_start ours "${ours[@]}"
	engine_start theirs "$UPSTREAM_PYTHON" "$top_srcdir/tests/integ/te_meta_node.py"
	both_ways ours theirs
	both_ways theirs ours
	engine_start more "${ours[@]}"
	both_ways more theirs
	for node in ours theirs more; do
		node_end "$node"
	done
	end_pid "$SERVER_PID"
done
