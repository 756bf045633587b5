#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Master or owner is stopped for longer than the client TTL: calls end at their deadline, no object is lost.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
start_master --client_ttl=1
start_actor owner own 32
owner=$ACTOR_PID
actor_status 0 5000 put k $((2 * MIB)) 5
start_actor reader hold k $((2 * MIB)) 5

reads() {
	[ "$(grep -c '^ok' "$tmp/reader.log")" -ge "$1" ]
}

stop_still "$MASTER_PID"
# an open object can still be read: data does not pass through the master
tell reader
wait_for 10 reads 2 || fail "an open object cannot be read while the master is stopped"
# opening gives up after 5 s, five times the TTL
actor_status 2 500 get k $((2 * MIB)) 5
grep -q 'error -1022' "$tmp/actor.out" || fail "not a timeout: $(cat "$tmp/actor.out")"
[ "$(took "$tmp/actor.out")" -lt 7000 ] || fail "late: $(cat "$tmp/actor.out")"
kill -CONT "$MASTER_PID"
actor_status 0 5000 get k $((2 * MIB)) 5
actor_status 0 5000 put after $MIB 6
actor_status 0 5000 get after $MIB 6
wait_pool 5 silent 0

# the owner counts as silent until it continues
stop_still "$owner"
wait_pool 10 silent 1
got=0
actor 1500 get k $((2 * MIB)) 5 || got=$?
[ "$got" -eq 0 ] || [ "$got" -eq 1 ] || [ "$got" -eq 2 ] || fail "status $got"
[ "$(took "$tmp/actor.out")" -lt 4000 ] || fail "late: $(cat "$tmp/actor.out")"
kill -CONT "$owner"
wait_pool 10 silent 0
actor_status 0 5000 get k $((2 * MIB)) 5
ACTOR_TCP=1 actor_status 0 5000 get after $MIB 6
tell reader
wait_for 10 reads 3 || fail "the open object is lost"

# a reader is stopped for longer than its lease, while the memory is reused for another object of
# the same size
stopped() {
	grep -q '^State:.*T' "/proc/$1/status"
}
stop_pid "$MASTER_PID"
restart_master --client_ttl=1 --default_kv_lease_ttl=300
wait_pool 10 capacity $((32 * MIB))
for point in client.get.after_query client.get.before_read client.get.after_read; do
	actor_status 0 5000 put late $((20 * MIB)) 7
	MC_FAULTS=$point=stop@1 "$actor_program" "$MASTER" 10000 get late $((20 * MIB)) 7 >"$tmp/late.log" 2>&1 &
	late=$!
	cleanup_fn end_pid "$late"
	wait_for 10 stopped "$late" || fail "the reader does not reach $point"
	wait_for 5 actor 5000 rm late || fail "the lease of a stopped reader does not expire"
	actor_status 0 5000 put other $((20 * MIB)) 8
	kill -CONT "$late"
	got=0
	wait "$late" || got=$?
	# bytes read before the stop are valid, whatever the clock says; a later read is a miss
	case $point in
	client.get.after_read) [ "$got" -eq 0 ] ;;
	*) [ "$got" -eq 1 ] ;;
	esac || fail "$point: status $got: $(cat "$tmp/late.log")"
	actor_status 0 5000 rm other
done
