#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A master that is killed and started with the same command line keeps the pool, without any option: no object is
# lost, and none is reported missing before its owner has returned.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
objects=40
size=100000
mcctl=$top_builddir/tools/mcctl

start_master --client_ttl=8
port=${MASTER##*:}
state=$XDG_STATE_HOME/mooncake/$port
[ -e "$state/lock" ] || fail "no journal in $state"
equal "mode of the directory" "$(stat -c %a "$state")" 700
start_actor owner own 32
owner=$ACTOR_PID
for ((i = 0; i < objects; i++)); do
	actor_status 0 5000 put "k$i" "$size" "$i"
done
all_there() {
	for ((i = 0; i < objects; i++)); do
		actor_status 0 5000 get "k$i" "$size" "$i"
	done
}

kill_pid "$MASTER_PID"
restart_master --client_ttl=8
grep -q "pool restored" "$tmp/master.log" || fail "the master has another identity"
all_there

# The owner stands still during the restart: requests wait for it, and do not fail with a miss.
stop_still "$owner"
kill_pid "$MASTER_PID"
restart_master --client_ttl=8
"$actor_program" "$MASTER" 10000 get k7 "$size" 7 >"$tmp/get.log" 2>&1 &
get=$!
cleanup_fn end_pid "$get"
"$mcctl" --master="$MASTER" ls >"$tmp/ls.log" 2>&1 &
list=$!
cleanup_fn end_pid "$list"
# time for both to ask; they must not have ended
read -rt 1 <> <(:) || :
alive "$get" || fail "a get did not wait for the owner: $(cat "$tmp/get.log")"
alive "$list" || fail "a listing did not wait for the owner: $(cat "$tmp/ls.log")"
# a key that is not in the index is missing at once
actor_status 1 3000 get none "$size" 1
kill -CONT "$owner"
wait "$get" || fail "get: $(cat "$tmp/get.log")"
wait "$list" || fail "ls: $(cat "$tmp/ls.log")"
equal "number of listed keys" "$(grep -c '^k' "$tmp/ls.log")" "$objects"
all_there

# --journal_dir=none: nothing is kept, and the directory stays as it is
kill_pid "$MASTER_PID"
: >"$tmp/master.log"
restart_master --client_ttl=8 --journal_dir=none
grep -q "new pool" "$tmp/master.log" || fail "the pool has the old identity"
wait_pool 10 capacity $((32 * MIB))
actor_status 1 3000 get k0 "$size" 0

# A directory that cannot be created: one warning, and the master serves.
stop_pid "$MASTER_PID"
: >"$tmp/file"
: >"$tmp/master.log"
XDG_STATE_HOME=$tmp/file restart_master
equal "warnings" "$(grep -c ' warn ' "$tmp/master.log")" 1
grep -q "warn journal: running without a journal.*loses all objects.*$tmp/file" "$tmp/master.log" ||
	fail "no warning: $(cat "$tmp/master.log")"
stop_pid "$MASTER_PID"

# With the first journal again: its objects are not found in memory that may have been reused.
restart_master --client_ttl=8
wait_pool 10 capacity $((32 * MIB))
actor_status 1 10000 get k0 "$size" 0
