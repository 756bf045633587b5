#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every kind of client finds the leader through etcd:// and redis://; a planned change and the end of the leader's process
# fail no call, with the default lease and deadlines; HTTP of a standby.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ha.sh"
. "$top_srcdir/tests/lib/python.sh"
mcctl=$top_builddir/tools/mcctl
# the default
TTL=5
python_package

# health NAME QUERY - the status of /health?QUERY
health() {
	curl -s -o "$tmp/health" -w '%{http_code}' --max-time 5 "http://${HTTP[$1]}/health${2:+?$2}"
}

# The program runs until $tmp/stop exists.
load() {
	rm -f "$tmp/stop"
	timeout 200 "$PYTHON" "$top_srcdir/tests/python/ha.py" "$STORE_URL" "$tmp/stop" >"$tmp/load.log" 2>&1 &
	LOAD=$!
	cleanup_fn end_pid "$LOAD"
	wait_for 20 grep -q ready "$tmp/load.log" || fail "the client does not start: $(cat "$tmp/load.log")"
}

load_ends() {
	: >"$tmp/stop"
	wait "$LOAD" || fail "the client failed: $(cat "$tmp/load.log")"
	tail -n 1 "$tmp/load.log"
	grep -q 'calls=.* failed=0 ' "$tmp/load.log" || fail "calls failed: $(cat "$tmp/load.log")"
}

leads() {
	[ "$(leader)" = "$1" ]
}

check() {
	local node number dir longest
	masters a b
	fails "$mcctl" --master="$STORE_URL" --timeout=1 df
	grep -q 'no master leads cluster mooncake_cluster' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
	start_ha a
	wait_for 20 leader >/dev/null
	equal "ready without a standby" "$(health a ready)" 200
	fails "$mcctl" --master="$STORE_URL" failover
	grep -q 'no standby is in sync' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
	start_ha b
	wait_for 20 in_sync a 1
	wait_for 20 eval '[ "$(health b ready)" = 200 ]'
	grep -q "\"role\":\"standby\",\"ha_state\":\"standby\",\"service_ready\":false,\"leader_address\":\"${RPC[a]}\"" \
		"$tmp/health" || fail "$(cat "$tmp/health")"
	equal "role" "$(curl -s "http://${HTTP[a]}/role") $(curl -s "http://${HTTP[b]}/role")" "leader standby"
	curl -s "http://${HTTP[b]}/get_all_keys" | found "the leader is ${RPC[a]}"

	free_port number
	spawn node "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$number" \
		--master_server_address="$STORE_URL" --global_segment_size=64MB
	node=$SPAWNED
	wait_for 20 eval '"$mcctl" --master="$STORE_URL" --json df | found "\"state\": *\"ok\""'
	timeout 120 "$top_builddir/tests/integ/store_c_example" "$STORE_URL" user
	echo one >"$tmp/value"
	"$mcctl" --master="$STORE_URL" put k "$tmp/value"
	dir=
	if may_mount; then
		dir=$tmp/mnt
		mkdir -p "$dir"
		start_mcfs "$STORE_URL" "$dir"
		equal "file" "$(cat "$dir/k")" one
	fi

	echo "a planned change"
	load
	sleep 1
	"$mcctl" --master="$STORE_URL" failover | found "${RPC[b]} leads instead of ${RPC[a]}"
	wait_for 20 in_sync b 1
	load_ends

	echo "the leader is killed"
	load
	kill_pid "${PID[b]}"
	wait_for 20 leads a
	start_ha b
	wait_for 20 in_sync a 1
	load_ends
	# About 0.2 s; one that waits for the end of the lease takes 3.75 s at least, for a long promise 2 s.
	longest=$(sed -n 's/.*longest_ms=//p' "$tmp/load.log")
	[ "$longest" -lt 1500 ] || fail "a call took $longest ms"
	equal "object" "$("$mcctl" --master="$STORE_URL" get k -)" one
	[ -z "$dir" ] || {
		equal "file" "$(cat "$dir/k")" one
		stop_pid "$MCFS_PID"
	}
	kill_pid "$node"
	for number in a b; do stop_pid "${PID[$number]}"; done
	for number in "${STORE_PIDS[@]}"; do kill_pid "$number"; done
	rm -rf "$tmp"/journal-*
}

if command -v etcd >/dev/null; then
	echo "etcd"
	start_etcd 3
	check
fi
command -v redis-server >/dev/null || skip "redis-server is not installed"
echo "redis"
start_redis
check
