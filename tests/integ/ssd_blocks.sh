#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Three prompts through a memory that holds one: all blocks come back from the SSD, also after kills and damage.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires jq
# 50,000 tokens are 98 blocks of 512 tokens, 24.5 MiB
PROMPT=98

owner_has_more() {
	[ "$(metric "$MASTER_HTTP" master_offload_completed_total)" -gt 50 ]
}

export MOONCAKE_SNAPSHOT_LOCAL_PATH=$tmp/snapshots
snapshots=(--enable_offload --enable_snapshot --enable_snapshot_restore --snapshot_object_store_type=local)
start_master "${snapshots[@]}"
start_owner --global_segment_size=32MB --ssd_offload_size=512MB
# Some of odd length, whose memory is not aligned to the disk's blocks; the others evict them from memory.
odd() { BLOCK=20017 blocks "$1" 9000 50; }
odd put >/dev/null || fail "puts failed"
blocks put 0 $((3 * PROMPT)) 5000 >/dev/null || fail "puts failed"
wait_for 30 offload_idle
all_blocks $((3 * PROMPT))
equal "odd blocks" "$(odd get)" "equal 50 miss 0 error 0"
offload_adds_up
[ "$(metric "$MASTER_HTTP" mooncake_master_evicted_without_copy_total)" -eq 0 ] || fail "objects were evicted without a copy"
[ "$(metric "$MASTER_HTTP" file_cache_hit_nums_)" -gt $PROMPT ] || fail "the blocks did not come from the disk"

echo "owner killed"
kill_pid "$OWNER_PID"
start_owner --global_segment_size=32MB
all_blocks $((3 * PROMPT))
grep -q "objects=$((3 * PROMPT + 50))" "$tmp/owner.log" || fail "the owner did not find its objects: $(cat "$tmp/owner.log")"

echo "master killed"
kill_pid "$MASTER_PID"
restart_master "${snapshots[@]}"
all_blocks $((3 * PROMPT))

echo "the master's journal is lost with it: the owner, then the next one, compares the disk with a snapshot"
"$top_builddir/tools/mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" snapshot create >/dev/null
kill_pid "$MASTER_PID"
restart_master "${snapshots[@]}" --journal_dir="$tmp/journal2"
wait_for 20 grep -q "the owner has compared .*/ssd-.* equal=$((3 * PROMPT + 50)) changed=0 unreadable=0" "$tmp/master.log"
all_blocks $((3 * PROMPT))
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"
restart_master "${snapshots[@]}" --journal_dir="$tmp/journal3"
printf '\xa5' | dd of="$ssd/mooncake-0.ssd" bs=1 seek=$((40 << 20)) conv=notrunc status=none
start_owner --global_segment_size=32MB
wait_for 20 grep -q "the owner has compared .*/ssd-.* changed=1 unreadable=0" "$tmp/master.log"
blocks get 0 $((3 * PROMPT)) >"$tmp/get.out" || fail "wrong bytes: $(cat "$tmp/get.out")"
equal "blocks" "$(cat "$tmp/get.out")" "equal $((3 * PROMPT - 1)) miss 1 error 0"
blocks put 0 $((3 * PROMPT)) 5000 >/dev/null || fail "puts failed"

echo "both killed during puts"
blocks put $((3 * PROMPT)) 1000 2000 >"$tmp/put.out" 2>&1 &
put=$!
wait_for 10 owner_has_more
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"
restart_master --enable_offload --journal_dir="$tmp/journal3"
start_owner --global_segment_size=32MB
wait "$put" || :
all_blocks $((3 * PROMPT))
# Blocks that were put at that moment are whole, or absent.
blocks get $((3 * PROMPT)) 200 >"$tmp/get.out" || fail "wrong bytes: $(cat "$tmp/get.out")"

echo "orderly end, and a start with less memory"
stop_pid "$OWNER_PID"
start_owner --global_segment_size=16MB
all_blocks $((3 * PROMPT))

echo "damaged bytes"
stop_pid "$OWNER_PID"
for ((i = 0; i < 40; i++)); do
	printf '\xa5' | dd of="$ssd/mooncake-0.ssd" bs=1 seek=$((1048576 + i * 1000003)) conv=notrunc status=none
done
start_owner --global_segment_size=16MB
blocks get 0 $((3 * PROMPT)) >"$tmp/get.out" 2>&1 || fail "wrong bytes: $(cat "$tmp/get.out")"
dropped=$(metric "$MASTER_HTTP" mooncake_master_bad_disk_copies_total)
[ "$dropped" -gt 0 ] || fail "no damaged copy was dropped: $(cat "$tmp/get.out")"
# Dropped blocks can be stored again.
blocks put 0 $((3 * PROMPT)) 5000 >/dev/null || fail "puts failed"
all_blocks $((3 * PROMPT))
