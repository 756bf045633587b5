#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A master that restores a snapshot from before a disk's objects: their owner offers them, and none is lost.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires jq
export MOONCAKE_SNAPSHOT_LOCAL_PATH=$tmp/snapshots
master_flags=(--enable_offload --default_kv_lease_ttl=0 --enable_snapshot --enable_snapshot_restore
	--snapshot_object_store_type=local)
N=60

snapshot() {
	"$top_builddir/tools/mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" snapshot create >/dev/null
}

# old_snapshot JOURNAL - the master and its journal are lost, and the next one has the last snapshot only
old_snapshot() {
	kill_pid "$MASTER_PID"
	: >"$tmp/owner.log"
	restart_master "${master_flags[@]}" --journal_dir="$tmp/$1"
	grep -q "pool restored" "$tmp/master.log" || fail "the master has another pool: $(cat "$tmp/master.log")"
}

offered() {
	grep -q "offered the objects of our disk" "$tmp/owner.log"
}

start_master "${master_flags[@]}" --journal_dir="$tmp/journal"
snapshot
start_owner --global_segment_size=32MB --ssd_offload_size=256MB
blocks put 0 $N 5000 >/dev/null || fail "puts failed"
wait_for 20 offload_idle

echo "the snapshot does not know the disk"
old_snapshot journal2
wait_for 30 offered || fail "$(cat "$tmp/owner.log")"
all_blocks $N

echo "it knows the disk, but no object there; the node is killed too"
"$top_builddir/tools/mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" rm --yes --force --prefix block/ >/dev/null
equal "removed blocks" "$(blocks get 0 $N)" "equal 0 miss $N error 0"
snapshot
blocks put 0 $N 5000 >/dev/null || fail "puts failed"
wait_for 20 offload_idle
kill_pid "$OWNER_PID"
old_snapshot journal3
start_owner --global_segment_size=32MB
wait_for 30 offered || fail "$(cat "$tmp/owner.log")"
all_blocks $N
