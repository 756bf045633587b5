#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two and three masters with a real etcd and a real redis: the leader is killed, stopped longer than its lease, ended in
# an orderly way; all are killed; a standby that is not in sync never leads.  No acknowledged object is lost.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ha.sh"
mcctl=$top_builddir/tools/mcctl
TTL=3

other() {
	local name
	for name in "${!HTTP[@]}"; do [ "$name" = "$1" ] || echo "$name"; done
}

new_leader() {
	local now
	now=$(leader) && [ "$now" != "$1" ]
}

start_node() {
	local at
	free_port at
	spawn node "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" --master_server_address="$MASTERS" \
		--global_segment_size=64MB
	NODE_PID=$SPAWNED
	wait_for 20 eval '"$mcctl" --master="$MASTERS" --json df | found "\"state\": *\"ok\""'
}

# put FROM TO - objects, each acknowledged
put() {
	local i
	for ((i = $1; i < $2; i++)); do
		echo "value $i" >"$tmp/value"
		"$mcctl" --master="$MASTERS" put "k$i" "$tmp/value" || fail "put k$i failed"
	done
}

all_there() {
	local i
	for ((i = 0; i < $1; i++)); do
		[ "$("$mcctl" --master="$MASTERS" get "k$i" -)" = "value $i" ] || fail "k$i: $("$mcctl" --master="$MASTERS" get "k$i" - 2>&1)"
	done
}

check_all() {
	local old begin ms
	masters a b
	start_ha a
	wait_for 20 leader >/dev/null
	start_ha b
	wait_for 20 in_sync a 1
	start_node
	put 0 10

	echo "the leader is killed"
	begin=${EPOCHREALTIME/./}
	kill_pid "${PID[a]}"
	all_there 1
	ms=$(((${EPOCHREALTIME/./} - begin) / 1000))
	echo "first get after $ms ms"
	[ "$ms" -lt 15000 ] || fail "it took $ms ms until a get succeeded"
	all_there 10
	put 10 20
	start_ha a
	wait_for 20 in_sync b 1

	echo "an orderly end"
	stop_pid "${PID[b]}"
	wait_for 20 new_leader b
	all_there 20
	put 20 30
	start_ha b
	wait_for 20 in_sync a 1

	echo "the leader is stopped longer than its lease"
	kill -STOP "${PID[a]}"
	wait_for 20 new_leader a
	put 30 40
	kill -CONT "${PID[a]}"
	# It starts itself again, and becomes a standby.
	wait_for 20 in_sync b 1
	kill_pid "${PID[b]}"
	wait_for 20 new_leader b
	all_there 40

	echo "a standby that is not in sync never leads"
	put 40 50
	kill_pid "${PID[a]}"
	start_ha b
	sleep $((TTL + 2))
	! leader >/dev/null || fail "$(leader) leads without the last objects"
	start_ha a
	wait_for 20 new_leader b
	all_there 50
	wait_for 20 in_sync a 1

	echo "all are killed"
	kill_pid "${PID[a]}"
	kill_pid "${PID[b]}"
	start_ha a
	start_ha b
	wait_for 20 leader >/dev/null
	all_there 50
	old=$(leader)
	wait_for 20 in_sync "$old" 1

	echo "the store is away"
	kill -STOP "${STORE_PIDS[@]}"
	wait_for 20 eval '! leader >/dev/null'
	kill -CONT "${STORE_PIDS[@]}"
	wait_for 30 leader >/dev/null
	all_there 50
	for old in a b; do stop_pid "${PID[$old]}"; done
	kill_pid "$NODE_PID"
	for old in "${STORE_PIDS[@]}"; do kill_pid "$old"; done
	rm -rf "$tmp"/journal-*
}

if command -v etcd >/dev/null; then
	echo "etcd"
	start_etcd 3
	check_all
fi
command -v redis-server >/dev/null || skip "redis-server is not installed"
echo "redis"
start_redis
check_all

# Mistakes.
run() {
	fails "$top_builddir/master/mooncake_master" --enable_ha --rpc_address=127.0.0.1 --rpc_port=0 --metrics_port=0 "$@"
}
run
grep -q 'needs etcd_endpoints or ha_backend_connstring' "$tmp/fails.out"
run --ha_backend_type=k8s
grep -q 'k8s is not built' "$tmp/fails.out"
run "${STORE[@]}" --ha_members=10.0.0.1:50051,10.0.0.2
grep -q 'not a list of HOST:PORT' "$tmp/fails.out"
run "${STORE[@]}" --ha_members=10.0.0.1:50051,10.0.0.2:50051
grep -q 'does not have the address of this master, 127.0.0.1:' "$tmp/fails.out"
run "${STORE[@]}" --journal_dir=none
grep -q 'needs a journal' "$tmp/fails.out"
run "${STORE[@]}" --rpc_address=0.0.0.0 --allow_insecure
grep -q 'needs rpc_address or rpc_interface' "$tmp/fails.out"
