#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# master_stall.sh [MINUTES] - stop the master for that long (default 1/12) under load: no client
# expires, no object is lost, no byte is wrong.  Then stop an owner: its objects are misses, but the
# master keeps them for the time to forget, counted only while the master runs.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
ms=$(awk -v m="${1:-0.0833}" 'BEGIN { printf "%d", m * 60000 }')
ttl=2
[ "$ms" -le 60000 ] || ttl=10
OBJECTS=40

now_ms() {
	echo $((${EPOCHREALTIME/./} / 1000))
}

# pass MS - let time pass
pass() {
	read -rt "$(awk -v ms="$1" 'BEGIN { print ms / 1000 }')" <> <(:) || :
}

keys_are() {
	[ "$(metric "$MASTER_HTTP" master_key_count)" -eq "$1" ]
}

keys_at_least() {
	[ "$(metric "$MASTER_HTTP" master_key_count)" -ge "$1" ]
}

keys_below() {
	[ "$(metric "$MASTER_HTTP" master_key_count)" -lt "$1" ]
}

start_master --client_ttl=$ttl --journal_dir="$tmp/journal" --client_forget_ttl=600
start_actor owner own 64
start_actor second own 32
second=$ACTOR_PID
wait_pool 10 capacity $((96 * MIB))
"$top_builddir/tests/fault/master_load" "$MASTER" 7 100000 keep "$tmp/enough" >"$tmp/load.log" 2>&1 &
load=$!
cleanup_fn end_pid "$load"
wait_for 20 grep -q ready "$tmp/load.log"
for ((i = 0; i < OBJECTS; i++)); do
	actor_status 0 5000 put "before/$i" $((10000 + i * 3001)) "$i"
done
wait_for 20 keys_at_least $((OBJECTS + 20))

# ---- the master
stop_still "$MASTER_PID"
began=$(now_ms)
pass "$ms"
kill -CONT "$MASTER_PID"
stood=$(($(now_ms) - began))
for ((i = 0; i < OBJECTS; i++)); do
	actor_status 0 10000 get "before/$i" $((10000 + i * 3001)) "$i"
done
pass 3000
touch "$tmp/enough"
status=0
wait "$load" || status=$?
[ "$status" -eq 0 ] || fail "after a stall of $stood ms: $(cat "$tmp/load.log")"
equal "clients that expired" "$(grep -c 'owner is silent' "$tmp/master.log" || :)" 0
equal "segments that were dropped" "$(grep -c 'dropping segment' "$tmp/master.log" || :)" 0
noticed=$(metric "$MASTER_HTTP" mooncake_master_stalled_ms_total)
[ "$noticed" -ge $((ms * 9 / 10)) ] || fail "stopped for $stood ms, the master noticed $noticed"
echo "stopped for $stood ms under load, $noticed ms noticed: $(tail -n 1 "$tmp/load.log")"

# ---- stop an owner, and the master as well: only the time counts in which the master runs
stop_pid "$MASTER_PID"
restart_master --client_ttl=1 --client_forget_ttl=6 --journal_dir="$tmp/journal"
wait_pool 10 capacity $((96 * MIB))
wait_pool 10 silent 0
count=$(metric "$MASTER_HTTP" master_key_count)
stop_still "$second"
wait_pool 10 silent 1
keys_are "$count" || fail "a silent owner's objects were deleted"
stop_still "$MASTER_PID"
pass 8000
kill -CONT "$MASTER_PID"
wait_pool 5 silent 1
keys_are "$count" || fail "the master counted the time for which it was stopped"
kill -CONT "$second"
wait_pool 10 silent 0
keys_are "$count" || fail "objects are missing when their owner is back"
for ((i = 0; i < OBJECTS; i++)); do
	actor_status 0 10000 get "before/$i" $((10000 + i * 3001)) "$i"
done

# ---- stop an owner for good
stop_still "$second"
began=$(now_ms)
wait_for 20 keys_below "$count" || fail "a silent owner's objects are never deleted"
after=$(($(now_ms) - began))
[ "$after" -ge 6000 ] || fail "forgotten after $after ms, not 6000"
echo "forgotten after $after ms"
