#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perf_ha.sh [N] [TTL] - N (30) times: the leader is killed, and changed in an orderly way; the longest get of a client, with
# etcd (three members) and Redis.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ha.sh"
. "$top_srcdir/tests/lib/python.sh"
times=${1:-30} TTL=${2:-2}
python_package

ask() {
	: >"$tmp/ask"
	wait_for 60 eval '! [ -e "$tmp/ask" ]'
	tail -n 1 "$tmp/load.log"
}

# row NAME - from lines "MS FAILED"
row() {
	sort -n | awk -v name="$1" '{ ms[NR] = $1; failed += $2 }
		END { printf "%-28s n=%d  median %d ms  worst %d ms  failed calls %d\n", name, NR, ms[int((NR + 1) / 2)], ms[NR], failed }'
}

other_leads() {
	local now
	now=$(leader) && [ "$now" != "$1" ]
}

check() {
	local i old at
	masters a b
	start_ha a
	wait_for 20 leader >/dev/null
	start_ha b
	wait_for 20 in_sync a 1
	free_port at
	spawn node "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" --master_server_address="$STORE_URL" \
		--global_segment_size=64MB
	rm -f "$tmp/end"
	"$PYTHON" "$top_srcdir/tests/perf/perf_ha.py" "$STORE_URL" "$tmp" >"$tmp/load.log" 2>&1 &
	LOAD=$!
	cleanup_fn end_pid "$LOAD"
	wait_for 30 grep -q ready "$tmp/load.log"
	for kind in kill planned; do
		: >"$tmp/$kind"
		for ((i = 0; i < times; i++)); do
			old=$(leader)
			ask >/dev/null
			if [ "$kind" = kill ]; then
				kill_pid "${PID[$old]}" 2>/dev/null
			else
				curl -sf -X POST "http://${HTTP[$old]}/api/v1/failover" >/dev/null
			fi
			wait_for 30 other_leads "$old"
			sleep 0.3
			ask >>"$tmp/$kind"
			[ "$kind" = planned ] || start_ha "$old"
			wait_for 30 in_sync "$(leader)" 1
		done
	done
	row "$1, kill -9, lease $TTL s" <"$tmp/kill"
	row "$1, mcctl failover" <"$tmp/planned"
	: >"$tmp/end"
	wait "$LOAD" || cat "$tmp/load.log"
	for old in a b; do stop_pid "${PID[$old]}"; done
	for old in "${STORE_PIDS[@]}"; do kill_pid "$old" 2>/dev/null; done
	rm -rf "$tmp"/journal-*
}

start_etcd 3
check etcd
start_redis
check Redis
