#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A reader that is killed at any step holds nothing afterwards: its leases and pins are released
# with its connection.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
# the TTLs are longer than the waits below, so no TTL releases anything here
start_master --default_kv_lease_ttl=60000 --client_ttl=60
start_actor owner own 32

for point in client.get.after_query client.get.before_read client.get.after_read; do
	actor_status 0 5000 put k $((3 * MIB)) 1
	MC_FAULTS=$point=kill actor_status 137 5000 get k $((3 * MIB)) 1
	# the lease would last a minute
	wait_for 30 actor 5000 rm k || fail "$point: the lease of a dead reader is kept"
	wait_pool 5 used 0
done

# killed in the middle of a transfer
for n in 1 2 5; do
	actor_status 0 5000 put k $((8 * MIB)) 1
	ACTOR_TCP=1 MC_FAULTS=engine.tcp.recv=kill@$n actor_status 137 5000 get k $((8 * MIB)) 1
	wait_for 30 actor 5000 rm k || fail "the lease of a dead reader is kept"
	wait_pool 5 used 0
done
# connections that break: retries bring the whole object
actor_status 0 5000 put k $((8 * MIB)) 1
ACTOR_TCP=1 MC_FAULTS=engine.tcp.recv=error:ECONNRESET@2 actor_status 0 5000 get k $((8 * MIB)) 1
actor_status 0 5000 rm k

actor_status 0 5000 put k $((3 * MIB)) 1
MC_FAULTS=client.object.after_open=kill actor_status 137 5000 hold k $((3 * MIB)) 1
wait_for 30 actor 5000 rm k || fail "the pin of a dead reader is kept"
wait_pool 5 used 0

# a reader that holds an object for a long time
actor_status 0 5000 put k $((3 * MIB)) 1
start_actor reader hold k $((3 * MIB)) 1
tell reader
wait_for 30 grep -q ok "$tmp/reader.log"
actor_status 2 5000 rm k
kill_pid "$ACTOR_PID"
wait_for 30 actor 5000 rm k || fail "the pin of a killed holder is kept"
wait_pool 5 used 0

# a read that fails once is retried, a read that always fails returns an error
actor_status 0 5000 put k $((3 * MIB)) 1
MC_FAULTS=client.get.after_read=error:EIO@1 actor_status 0 5000 get k $((3 * MIB)) 1
MC_FAULTS=client.get.after_read=error:EIO actor_status 2 5000 get k $((3 * MIB)) 1
