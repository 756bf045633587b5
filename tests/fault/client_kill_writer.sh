#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A writer that is killed at any step of a put leaves nothing behind: no object (or the whole one),
# and no allocated space.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
start_master
start_actor owner own 32
actor_status 0 5000 put base 100000 7
actor 5000 stat used
before=$(cat "$tmp/actor.out")

for point in client.put.after_start client.put.write client.put.after_write client.put.before_end; do
	for tcp in '' 1; do
		export ACTOR_TCP=$tcp
		[ -n "$tcp" ] || unset ACTOR_TCP
		MC_FAULTS=$point=kill actor_status 137 5000 put "k-$point" $((4 * MIB)) 1
		actor_status 1 5000 get "k-$point" $((4 * MIB)) 1
		wait_pool 5 used "$before"
		# after a failed upsert the old value is there
		MC_FAULTS=$point=kill actor_status 137 5000 put base $((4 * MIB)) 1 upsert
		actor_status 0 5000 get base 100000 7
		wait_pool 5 used "$before"
	done
done
# killed in the middle of a transfer
for n in 1 2 5; do
	MC_FAULTS=engine.tcp.send=kill@$n actor_status 137 5000 put cut $((8 * MIB)) 1
	actor_status 1 5000 get cut $((8 * MIB)) 1
	wait_pool 5 used "$before"
done
unset ACTOR_TCP
# after the commit the whole object is there
MC_FAULTS=client.put.after_end=kill actor_status 137 5000 put late $((2 * MIB)) 3
actor_status 0 5000 get late $((2 * MIB)) 3
actor_status 0 5000 rm late
wait_pool 5 used "$before"

# a failing step is retried; a put that keeps failing frees its space
MC_FAULTS=client.put.write=error:EIO@1 actor_status 0 5000 put again $((2 * MIB)) 3
actor_status 0 5000 get again $((2 * MIB)) 3
actor_status 0 5000 rm again
MC_FAULTS=client.put.before_end=error:EIO actor_status 2 5000 put never $((2 * MIB)) 3
actor_status 1 5000 get never $((2 * MIB)) 3
wait_pool 5 used "$before"
