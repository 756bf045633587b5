#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Faults of disks: each ends in a log line and a count, with a memory tier that works and no wrong bytes.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires jq
start_master --enable_offload --default_kv_lease_ttl=0

# with_faults FAULTS FLAG... - a new owner with an empty disk and these fault points
with_faults() {
	local faults=$1
	shift
	rm -f "$ssd"/*
	: >"$tmp/owner.log"
	MC_FAULTS=$faults start_owner --global_segment_size=32MB "$@"
	"$top_builddir/tools/mcctl" --master="$MASTER" rm --prefix block/ --force --yes >/dev/null
}

# memory_works - blocks that fit into memory are stored and come back
memory_works() {
	blocks put 0 50 >/dev/null || fail "puts failed"
	all_blocks 50
}

# counted NAME - a counter of the master is larger than at the last call
declare -A was
counted() {
	local is
	is=$(metric "$MASTER_HTTP" "$1")
	[ "$is" -gt "${was[$1]-0}" ] || fail "$1 is still $is"
	was[$1]=$is
}

logged() {
	grep -q "$1" "$tmp/owner.log" "$tmp/master.log" || fail "no line about: $1"
}

echo "disk full"
with_faults tiers.ssd.write=error:ENOSPC
memory_works
wait_for 20 offload_idle
counted master_offload_failed_total
logged "a copy failed medium=disk"
# Memory that is full evicts without copies.
blocks put 50 300 >/dev/null || fail "puts failed"
counted mooncake_master_evicted_without_copy_total
stop_pid "$OWNER_PID"

echo "writes fail at times"
with_faults tiers.ssd.write=error:EIO%20
blocks put 0 300 4000 >/dev/null || fail "puts failed"
blocks get 0 300 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
counted master_offload_failed_total
stop_pid "$OWNER_PID"

echo "reads fail at times"
with_faults tiers.ssd.read=error:EIO%30
blocks put 0 300 4000 >/dev/null || fail "puts failed"
wait_for 20 offload_idle
blocks get 0 300 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
grep -q ' error 0$' "$tmp/out" || fail "a read failed although its second try succeeds: $(cat "$tmp/out")"
stop_pid "$OWNER_PID"

echo "a slow disk"
with_faults tiers.ssd.write=delay:1500,tiers.ssd.read=delay:1500
begin=$SECONDS
memory_works
[ $((SECONDS - begin)) -lt 5 ] || fail "memory is as slow as the disk"
kill_pid "$OWNER_PID"

echo "the file system becomes read-only"
with_faults tiers.ssd.write=error:EROFS%50
blocks put 0 300 4000 >/dev/null || fail "puts failed"
blocks get 0 300 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
counted master_offload_failed_total
stop_pid "$OWNER_PID"

echo "the directory is removed"
with_faults ""
blocks put 0 200 4000 >/dev/null || fail "puts failed"
rm -rf "$ssd"
all_blocks 200
stop_pid "$OWNER_PID"
mkdir "$ssd"

echo "no memory may be locked"
owner_by=(prlimit --memlock=0)
[ "$(id -u)" -ne 0 ] || owner_by+=(setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock)
with_faults "" --ssd_offload_size=64MB
owner_by=()
grep -qE 'buffers are not registered|using threads' "$tmp/owner.log" || fail "the limit is not in force"
blocks put 0 200 4000 >/dev/null || fail "puts failed"
wait_for 20 offload_idle
all_blocks 200
stop_pid "$OWNER_PID"

echo "the limit of bytes"
with_faults "" --ssd_offload_size=16MB
blocks put 0 400 3000 >/dev/null || fail "puts failed"
[ "$(du --block-size=1048576 "$ssd" | cut -f1)" -le 18 ] || fail "the disk has $(du -sm "$ssd")"
blocks get 0 400 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
stop_pid "$OWNER_PID"

echo "settings of upstream's environment"
export MOONCAKE_OFFLOAD_FILE_STORAGE_PATH=$ssd MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES=16777216 MOONCAKE_USE_URING=0
export MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR=bucket_storage_backend
with_faults "" --ssd_offload_path=
grep -q "$ssd/.*: size=16 MiB, by threads" "$tmp/owner.log" || fail "$(cat "$tmp/owner.log")"
memory_works
stop_pid "$OWNER_PID"
unset MOONCAKE_OFFLOAD_FILE_STORAGE_PATH MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES MOONCAKE_USE_URING
MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR=other fails "$top_builddir/node/mooncake_client" --enable_offload \
	--ssd_offload_path="$ssd" --master_server_address="$MASTER"
grep -q "MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR=other" "$tmp/fails.out"
unset MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR

echo "wrong settings"
for arg in --ssd_offload_path=/nonexistent --ssd_offload_path=/dev/null; do
	if "$top_builddir/node/mooncake_client" --enable_offload "$arg" --master_server_address="$MASTER" >"$tmp/out" 2>&1; then
		fail "$arg is accepted"
	fi
	grep -q "${arg#*=}" "$tmp/out" || fail "$arg: $(cat "$tmp/out")"
done

echo "a block device"
loop=
loop_detach() { [ -z "$loop" ] || losetup -d "$loop"; }
cleanup_fn loop_detach
truncate -s 32M "$ssd/image"
# device_refused WHY [FLAG...] - the device is refused and does not change
device_refused() {
	local why=$1 before
	shift
	before=$(sha256sum <"$loop")
	fails "$top_builddir/node/mooncake_client" --enable_offload --ssd_offload_path="$loop" \
		--master_server_address="$MASTER" "$@"
	grep -q "$why" "$tmp/fails.out" || fail "$*: $(cat "$tmp/fails.out")"
	equal "bytes of the device" "$(sha256sum <"$loop")" "$before"
}
if loop=$(losetup -f --show "$ssd/image" 2>/dev/null); then
	printf _BHRfS_M | dd of="$loop" bs=1 seek=65600 conv=notrunc status=none
	device_refused "other content: btrfs"
	device_refused "other content: btrfs" --ssd_format
	dd if=/dev/zero of="$loop" bs=64k count=2 conv=notrunc status=none
	device_refused "start once with --ssd_format"
	with_faults "" --ssd_offload_path="$loop" --ssd_format
	blocks put 0 40 >/dev/null || fail "puts failed"
	wait_for 20 offload_idle
	kill_pid "$OWNER_PID"
	start_owner --global_segment_size=32MB --ssd_offload_path="$loop"
	all_blocks 40
	stop_pid "$OWNER_PID"
else
	loop=
	echo "no loop device: tests/unit/test_tiers_blank.c has the check alone"
fi
offload_adds_up
