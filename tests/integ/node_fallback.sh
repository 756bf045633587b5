#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program that has found its node's daemon automatically uses its own engine after the daemon is
# killed, and the daemon again when that is back.  Its mapping is then no longer held, and the
# library reports so.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_root
requires_netns
# Use a namespace: on the host, another daemon may have the well-known port.
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
# The program's shell waits at the fifo until the test opens it.
spawn program sh -c 'exec "$0" "$1" <"$2"' "$top_builddir/tests/integ/node_fallback" "$MASTER" "$tmp/go"
program=$SPAWNED
exec {go}>"$tmp/go"
says found
[ "$(puts)" -ge 1 ] || fail "no put by the daemon"
kill_pid "$DAEMON"
echo >&"$go"
says alone
start_daemon
# the library looks for the daemon once a second
n=0
used() {
	echo >&"$go"
	says "again $n"
	n=$((n + 1))
	[ "$(puts)" -ge 1 ]
}
wait_for 30 used || fail "the daemon is not used after its restart"
echo end >&"$go"
wait_for 30 gone "$program" || fail "the program does not end"
wait "$program" || fail "the program: $(cat "$tmp/program.log")"
