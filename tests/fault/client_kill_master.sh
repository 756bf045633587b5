#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The master is killed: calls soon return an error.  When it is back, owners and open handles
# continue without help.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
start_master
start_actor owner own 32
actor_status 0 5000 put k $((2 * MIB)) 5
start_actor reader hold k $((2 * MIB)) 5

kill_pid "$MASTER_PID"
actor_status 2 3000 get k $((2 * MIB)) 5
grep -q "error -1021 .*$MASTER" "$tmp/actor.out" || fail "the error does not name the master: $(cat "$tmp/actor.out")"
restart_master
wait_pool 10 capacity $((32 * MIB))
actor_status 0 5000 put new $((2 * MIB)) 6
actor_status 0 5000 get new $((2 * MIB)) 6
# right bytes or an error, never wrong bytes
tell reader
wait_for 15 test -s "$tmp/reader.log"

# The master is killed while a writer is stopped at each step, and is back before the writer
# continues: the put is whole.
stopped() {
	grep -q '^State:.*T' "/proc/$1/status"
}
for point in client.put.after_start client.put.after_write client.put.before_end client.put.after_end; do
	MC_FAULTS=$point=stop@1 "$actor_program" "$MASTER" 20000 put "k-$point" $((3 * MIB)) 8 \
		>"$tmp/put.log" 2>&1 &
	put=$!
	cleanup_fn end_pid "$put"
	wait_for 10 stopped "$put" || fail "the writer does not reach $point"
	kill_pid "$MASTER_PID"
	restart_master
	kill -CONT "$put"
	wait "$put" || fail "$point: $(cat "$tmp/put.log")"
	actor_status 0 5000 get "k-$point" $((3 * MIB)) 8
	wait_pool 10 capacity $((32 * MIB))
done
