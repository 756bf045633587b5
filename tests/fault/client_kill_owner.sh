#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An owner is killed: its objects give a miss or an error within the deadline, later they are gone.
# Objects of other owners are untouched.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
start_master --client_ttl=1 --client_forget_ttl=2
start_actor owner own 32
owner=$ACTOR_PID
actor_status 0 5000 put k $((2 * MIB)) 5
start_actor other own 16
start_actor reader hold k $((2 * MIB)) 5

kill_pid "$owner"
for tcp in '' 1; do
	export ACTOR_TCP=$tcp
	[ -n "$tcp" ] || unset ACTOR_TCP
	got=0
	actor 3000 get k $((2 * MIB)) 5 || got=$?
	[ "$got" -eq 1 ] || [ "$got" -eq 2 ] || fail "status $got: $(cat "$tmp/actor.out")"
	[ "$(took "$tmp/actor.out")" -lt 4000 ] || fail "late: $(cat "$tmp/actor.out")"
done
unset ACTOR_TCP
# a reader with an open object gets right bytes or an error
tell reader
wait_for 15 test -s "$tmp/reader.log"
# puts use the living owner, also before the master has noticed the death
for i in 1 2 3; do
	actor_status 0 20000 put "new-$i" $MIB "$i"
	actor_status 0 5000 get "new-$i" $MIB "$i"
done
wait_pool 20 capacity $((16 * MIB))
actor_status 1 3000 get k $((2 * MIB)) 5
wait_pool 5 objects 3

# an owner that dies while it mounts its segment
for point in client.open.before_mount client.open.after_mount; do
	MC_FAULTS=$point=kill actor_status 137 5000 own 16
	wait_pool 20 capacity $((16 * MIB))
done
