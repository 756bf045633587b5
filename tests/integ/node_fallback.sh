#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program that has found the daemon of its node by itself goes on with an engine of its own when the daemon is
# killed, and with the daemon when that is there again; what it had mapped is not held any more, and says so.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_root
requires_netns
# The port that everybody knows is another host's in a namespace.
two_nodes
NS=$NS_A
MASTER_HOST=$ADDR_A start_master
spawn other "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host="$ADDR_A" --port=0 \
	--global_segment_size=32MiB --segment_kind=memfd
wait_for 30 grep -q "is up" "$tmp/other.log"
start_daemon() {
	http=
	free_port http
	spawn daemon "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host="$ADDR_A" \
		--global_segment_size=0 --enable_http_server --http_port="$http" --hot_cache_size=16MiB
	DAEMON=$SPAWNED
	started "$DAEMON" mooncake_client 30 in_ns "$NS" curl -sf "http://$ADDR_A:$http/health"
}
puts() { metric "$ADDR_A:$http" mooncake_node_ops_total 'op="put"'; }
says() { wait_for 60 grep -q "^$1\$" "$tmp/program.log" || fail "not $1: $(cat "$tmp/program.log")"; }
start_daemon
mkfifo "$tmp/go"
# The fifo is opened by the program's shell when we open it.
spawn program sh -c 'exec "$0" "$1" <"$2"' "$top_builddir/tests/integ/node_fallback" "$MASTER" "$tmp/go"
program=$SPAWNED
exec {go}>"$tmp/go"
says found
[ "$(puts)" -ge 1 ] || fail "no put by the daemon"
kill_pid "$DAEMON"
echo >&"$go"
says alone
start_daemon
# it is looked for again once a second
n=0
used() {
	echo >&"$go"
	says "again $n"
	n=$((n + 1))
	[ "$(puts)" -ge 1 ]
}
wait_for 30 used || fail "the daemon that is back is not used"
echo end >&"$go"
wait_for 30 gone "$program" || fail "the program does not end"
wait "$program" || fail "the program: $(cat "$tmp/program.log")"
