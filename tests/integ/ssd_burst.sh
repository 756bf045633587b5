#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Puts at full speed into a memory that is smaller than their bytes: they wait for the disk, and no stored object is
# lost.  Where no disk can take copies, they do not wait, and losses are counted and named once in the log.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires jq
export BLOCK=1048576

lost() {
	metric "$MASTER_HTTP" mooncake_master_evicted_without_copy_total
}

# losses_named TEXT - the log has exactly one line about losses, and it has the text
losses_named() {
	[ "$(grep -c 'is on no disk' "$tmp/master.log")" -eq 1 ] || fail "not one line about losses: $(cat "$tmp/master.log")"
	grep 'is on no disk' "$tmp/master.log" | found "$1" || fail "no '$1': $(grep 'is on no disk' "$tmp/master.log")"
}

# again FLAG... - a new pool, with an empty disk
again() {
	kill_pid "$OWNER_PID"
	kill_pid "$MASTER_PID"
	rm -f "$ssd"/*
	: >"$tmp/master.log"
	start_master --enable_offload "$@"
}

# slow MS COMMAND... - with a disk that needs this time for each write
slow() {
	MC_FAULTS=tiers.ssd.write=delay:$1 "${@:2}"
}

put_all() {
	blocks put "$1" "$2" >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
}

echo "a burst with default settings"
start_master --enable_offload
slow 1 start_owner --global_segment_size=128MB
put_all 0 500
all_blocks 500
equal "lost objects" "$(lost)" 0

echo "after a restart of the master, memory is full of objects that may not be on the disk"
put_all 500 50
kill_pid "$MASTER_PID"
restart_master --enable_offload
put_all 550 100
all_blocks 650
equal "lost objects" "$(lost)" 0
offload_adds_up

echo "offload on eviction"
again --offload_on_evict
slow 1 start_owner --global_segment_size=32MB
put_all 0 100
all_blocks 100
equal "lost objects" "$(lost)" 0

echo "the disk fails"
again
MC_FAULTS=tiers.ssd.write=error:EIO start_owner --global_segment_size=32MB
put_all 0 100
[ "$(lost)" -gt 0 ] || fail "nothing was counted as lost"
losses_named 'fails or is full'
blocks get 0 100 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"

echo "the disk's owner dies, and another one stays"
again
start_owner --global_segment_size=32MB
first=$OWNER_PID
start_owner --global_segment_size=32MB
blocks put 0 200 >"$tmp/put.out" 2>&1 &
put=$!
begun() {
	[ "$(metric "$MASTER_HTTP" master_offload_completed_total)" -gt 40 ]
}
wait_for 20 begun
kill_pid "$first"
wait "$put" || :
put_all 200 100
equal "objects put afterwards" "$(blocks get 200 100)" "equal 100 miss 0 error 0"
blocks get 0 200 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
equal "lost objects" "$(lost)" 0

echo "by force"
again --offload_force_evict
slow 100 start_owner --global_segment_size=32MB
put_all 0 150
[ "$(lost)" -gt 0 ] || fail "the disk is faster than the puts"
losses_named 'offload_force_evict=false'

echo "no disk"
again
free_port at
spawn owner "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" --master_server_address="$MASTER" \
	--global_segment_size=32MB
OWNER_PID=$SPAWNED
memory_is_mounted() {
	[ "$(segment_count memory)" -ge 1 ]
}
started "$OWNER_PID" owner 20 memory_is_mounted
put_all 0 100
[ "$(lost)" -gt 50 ] || fail "only $(lost) are counted as lost"
losses_named 'no disk in service'
