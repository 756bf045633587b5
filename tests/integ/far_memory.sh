#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Far memory of a node as a rank of its own: by a NUMA node's number and by a path, beside a disk and without, filled
# from near memory and by --enable_cxl; after the end of master and owner.  A machine without a second NUMA node uses
# node 0; a regular file stands for the device (tests/integ/far_vm.sh has real ones).
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires jq
requires_memory 400
export BLOCK=1048576
CTL=$top_builddir/tools/mcctl

# start_far FLAG... - a node with 32 MB of near memory; sets OWNER_PID
start_far() {
	local at
	free_port at
	spawn owner "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" \
		--master_server_address="$MASTER" --global_segment_size=32MB "$@"
	OWNER_PID=$SPAWNED
	started "$OWNER_PID" owner 20 far_is_mounted
}

far_is_mounted() {
	[ "$(segment_count memory)" -ge 1 ] && [ "$(segment_count far)" -ge 1 ]
}

# with_tier TIER - how many of the blocks have their copies exactly there
with_tier() {
	"$CTL" --master="$MASTER" --json ls -l block | jq "[.[] | select(.tier == \"$1\")] | length"
}

in_far() {
	"$CTL" --master="$MASTER" --json df | jq '[.segments[] | select(.medium == "far") | .objects] | add // 0'
}

put_all() {
	blocks put "$1" "$2" >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
}

echo "twice the near memory, in far memory of a NUMA node"
start_master --enable_offload
start_far --far_segment_size=128MB --far_segment_numa_node=0
put_all 0 64
all_blocks 64
equal "lost objects" "$(metric "$MASTER_HTTP" mooncake_master_evicted_without_copy_total)" 0
[ "$(in_far)" -ge 32 ] || fail "only $(in_far) blocks in far memory: $("$CTL" --master="$MASTER" df)"
[ "$(with_tier far)" -ge 20 ] || fail "no blocks in far memory only: $("$CTL" --master="$MASTER" ls -l block)"
"$CTL" --master="$MASTER" stat block/0 | found -E 'tier: +far$' || fail "stat: $("$CTL" --master="$MASTER" stat block/0)"
"$CTL" --master="$MASTER" df | found '^far memory' || fail "df: $("$CTL" --master="$MASTER" df)"
equal "far capacity" "$(metric "$MASTER_HTTP" mooncake_master_far_capacity_bytes)" 134217728

echo "the way back up"
# Until the leases of the gets end, near memory has no room.
up() {
	"$CTL" --master="$MASTER" promote block/0 || fail "no promotion"
	sleep 0.2
	"$CTL" --master="$MASTER" stat block/0 | found -E 'tier: +memory\+far$'
}
wait_for 20 up
all_blocks 64

echo "the master is killed"
kill_pid "$MASTER_PID"
restart_master --enable_offload
all_blocks 64
put_all 64 16
all_blocks 80

echo "the owner is killed: its objects are gone, and none has wrong bytes"
kill_pid "$OWNER_PID"
start_far --far_segment_size=128MB
blocks get 0 80 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
put_all 100 8
got=$(blocks get 100 8)
equal "of 8 new blocks" "$got" "equal 8 miss 0 error 0"
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"

echo "between near memory and a disk: the disk keeps all of them"
start_master --enable_offload
start_far --far_segment_size=48MB --enable_offload --ssd_offload_path="$ssd"
put_all 0 120
all_blocks 120
wait_for 20 offload_idle
equal "lost objects" "$(metric "$MASTER_HTTP" mooncake_master_evicted_without_copy_total)" 0
[ "$(with_tier disk)" -ge 20 ] || fail "no blocks on the disk only: $("$CTL" --master="$MASTER" ls -l block)"
kill_pid "$OWNER_PID"
start_far --far_segment_size=48MB --enable_offload --ssd_offload_path="$ssd"
disk_back() {
	[ "$(segment_count disk)" -ge 1 ] && [ "$(blocks get 0 120)" = "equal 120 miss 0 error 0" ]
}
wait_for 30 disk_back
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"
rm -f "$ssd"/*

echo "new objects in far memory, with upstream's names of the options"
start_master --enable_cxl --cxl_path=/dev/dax1.0 --cxl_size=8589934592 --allocation_strategy=cxl
[ "$(grep -c 'cxl_path' "$tmp/master.log")" -eq 1 ] || fail "cxl_path is not explained once: $(cat "$tmp/master.log")"
truncate -s 64M "$tmp/device"
MC_CXL_DEV_PATH=$tmp/device start_far --protocol=cxl
equal "all of the device" "$("$CTL" --master="$MASTER" --json df | jq '.segments[] | select(.medium == "far") | .size')" 67108864
put_all 0 40
all_blocks 40
equal "blocks in far memory only" "$(with_tier far)" 40
# Full of it: the oldest ones make room there, and near memory stays empty.
put_all 40 100
equal "near blocks" "$(with_tier memory)" 0
blocks get 0 140 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
kill_pid "$OWNER_PID"

echo "a master that does not use it says so"
kill_pid "$MASTER_PID"
start_master
start_far --far_segment_size=32MB
grep -q 'stays unused, start the master with --enable_offload or --allocation_strategy=cxl' "$tmp/master.log" ||
	fail "no warning: $(cat "$tmp/master.log")"
kill_pid "$OWNER_PID"

echo "only far memory"
kill_pid "$MASTER_PID"
start_master --enable_offload
far_alone() { [ "$(segment_count far)" -ge 1 ]; }
free_port at
spawn owner "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" --master_server_address="$MASTER" \
	--global_segment_size=0 --far_segment_size=32MB
started "$SPAWNED" owner 20 far_alone
grep -q 'no near memory: puts fail until' "$tmp/master.log" || fail "no warning: $(cat "$tmp/master.log")"
kill_pid "$SPAWNED"

echo "wrong media"
refused() {
	local what=$1
	shift
	if timeout 20 "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --port=0 "$@" >"$tmp/out" 2>&1; then
		fail "$what was accepted"
	fi
	found "$what" <"$tmp/out" || fail "no '$what': $(cat "$tmp/out")"
}
refused 'neither a regular file nor a DAX device' --far_segment_path=/dev/null
refused 'No such file' --far_segment_path="$tmp/absent"
refused 'too short' --far_segment_path="$tmp/device" --far_segment_size=1GB
refused "no NUMA node 999" --far_segment_size=32MB --far_segment_numa_node=999
refused "are available" --far_segment_size=1TB --far_segment_numa_node=0
