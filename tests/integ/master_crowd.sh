#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# More connections than a master has descriptors for: the master accepts as many as possible and
# refuses each of the others at once with the reason.  Accepted clients are answered meanwhile, and
# afterwards new clients are accepted.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl python3
constant() { awk -v name="$1" '$2 == name { sub(/u$/, "", $3); print $3 }' "$top_srcdir/proto/msg.h"; }
hello=$(constant MCP_MAGIC),$(constant MCP_VERSION),$(constant MCP_MIN_VERSION)
[ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 4000 ] || skip "the limit is $(ulimit -Hn) descriptors"
crowd() {
	timeout 300 python3 "$top_srcdir/tests/integ/master_crowd.py" "${MASTER%:*}" "${MASTER#*:}" "$1" "$hello" >"$tmp/crowd"
	read -r welcome refused closed slowest codes <"$tmp/crowd"
	echo "$1 connections: $welcome accepted, $refused refused ($codes), $closed closed, slowest answer $slowest ms"
}

# the master raises its limit to the hard limit only, and accepts as many connections as that allows
limit=3500
ulimit -Sn "$limit"
rpc='' http=''
free_port rpc
free_port http
MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
spawn few bash -c "ulimit -Hn $limit; ulimit -Sn 300; exec '$top_builddir/master/mooncake_master' \
	--max_peer_connections=10000 --rpc_address=127.0.0.1 --rpc_port=$rpc --metrics_host=127.0.0.1 --metrics_port=$http"
master=$SPAWNED
started "$master" "the master" 30 master_serves "$MASTER_HTTP"
[ "$(awk '/^Max open files/ { print $4 }' "/proc/$master/limits")" -ge "$limit" ] || fail "it has not raised its limit"
# root may raise the hard limit
room=$(awk '/^Max open files/ { print $4 }' "/proc/$master/limits")
if [ "$room" = "$limit" ]; then
	wait_for 10 grep -q "max_connections lowered.* connections=2000" "$tmp/few.log" ||
		fail "the log does not have the connection limit: $(cat "$tmp/few.log")"
	ulimit -Sn "$limit"
	crowd 2600
	equal "welcome" "$welcome" 2000
	equal "told" "$refused" 600
	equal "closed without a word" "$closed" 0
	equal "refusals" "$(metric "$MASTER_HTTP" mooncake_rpc_connections_refused_total)" 600
	[ "$slowest" -lt 3000 ] || fail "an answer took $slowest ms"
	no_connections() { [ "$(metric "$MASTER_HTTP" mooncake_rpc_connections)" = 0 ]; }
	wait_for 60 no_connections || fail "$(metric "$MASTER_HTTP" mooncake_rpc_connections) connections are left"
	crowd 1500
	equal "welcome" "$welcome" 1500
fi
stop_pid "$master"
