#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The master and its journal are lost: the objects on the disks of its nodes come back, each in its newest version there.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires jq
mcctl=$top_builddir/tools/mcctl
master_flags=(--enable_offload --default_kv_lease_ttl=0 --journal_dir="$tmp/journal")
N=150

# master_lost [FLAG...] - another master with an empty journal at the same address
master_lost() {
	kill_pid "$MASTER_PID"
	rm -rf "$tmp/journal"
	: >"$tmp/owner.log"
	restart_master "${master_flags[@]}" "$@"
}

offered() {
	grep -q "offered the objects of our disk" "$tmp/owner.log"
}

# The log has one such line a second at most.
all_adopted() {
	[ "$(metric "$MASTER_HTTP" mooncake_master_adopted_objects_total)" -ge $((N + 109)) ]
}

# put_versions NAME - version NAME of eight keys of several sizes, on the disk
put_versions() {
	local i
	for ((i = 0; i < 8; i++)); do
		head -c $(((i + 1) * (i + 1) * 1777)) /dev/urandom >"$tmp/v.$i.$1"
		"$mcctl" --master="$MASTER" put --upsert "v/$i" "$tmp/v.$i.$1" || fail "cannot put v/$i"
	done
	wait_for 20 offload_idle
}

all_versions() {
	local i
	for ((i = 0; i < 8; i++)); do
		"$mcctl" --master="$MASTER" get "v/$i" "$tmp/got" || fail "v/$i is lost"
		cmp "$tmp/got" "$tmp/v.$i.$1" || fail "v/$i has not its version $1"
	done
}

all_objects() {
	all_blocks $N
	equal "odd blocks" "$(BLOCK=20017 blocks get 9000 50)" "equal 50 miss 0 error 0"
	equal "small blocks" "$(BLOCK=4096 blocks get 8000 50)" "equal 50 miss 0 error 0"
	equal "one byte" "$(BLOCK=1 blocks get 7000 1)" "equal 1 miss 0 error 0"
	all_versions "$1"
}

removed_are_gone() {
	equal "removed blocks" "$(BLOCK=30000 blocks get 6000 20)" "equal 0 miss 20 error 0"
	if "$mcctl" --master="$MASTER" get r/old "$tmp/got" 2>/dev/null; then fail "a renamed object has its old key"; fi
}

start_master "${master_flags[@]}"
start_owner --global_segment_size=32MB --ssd_offload_size=256MB
put_versions old
put_versions older
BLOCK=20017 blocks put 9000 50 >/dev/null || fail "puts failed"
BLOCK=4096 blocks put 8000 50 >/dev/null || fail "puts failed"
BLOCK=1 blocks put 7000 1 >/dev/null || fail "puts failed"
blocks put 0 $N 5000 >/dev/null || fail "puts failed"
# On the disk, and then removed or renamed; the put that follows shows that the disk's owner knows.
BLOCK=30000 blocks put 6000 20 >/dev/null || fail "puts failed"
"$mcctl" --master="$MASTER" put r/old "$tmp/v.7.old"
wait_for 20 offload_idle
for ((i = 6000; i < 6020; i++)); do
	"$mcctl" --master="$MASTER" rm --force "block/$i"
done
"$mcctl" --master="$MASTER" mv r/old r/new
put_versions new
all_objects new

echo "the node keeps running"
master_lost
wait_for 30 offered || fail "$(cat "$tmp/owner.log")"
grep "offered the objects" "$tmp/owner.log"
all_objects new
removed_are_gone
all_adopted || fail "not all were adopted"
# The disk takes copies again, and new versions replace adopted ones.
put_versions second
all_versions second

echo "the master's machine restarts before the journal was synced"
kill_pid "$MASTER_PID"
MC_FAULTS=journal.boot_id=error:EACCES restart_master "${master_flags[@]}"
wait_for 30 all_adopted || fail "$(cat "$tmp/owner.log")"
all_objects second
removed_are_gone

echo "the node is killed too, and once more while it offers its objects"
kill_pid "$OWNER_PID"
master_lost
free_port at
MC_FAULTS=client.disk.offer=kill@2 spawn owner "$top_builddir/node/mooncake_client" --enable_offload \
	--ssd_offload_path="$ssd" --host=127.0.0.1 --port="$at" --master_server_address="$MASTER" --global_segment_size=32MB
wait_for 30 gone "$SPAWNED" || fail "the fault point was not passed: $(cat "$tmp/owner.log")"
start_owner --global_segment_size=32MB
wait_for 30 offered || fail "$(cat "$tmp/owner.log")"
all_objects second
removed_are_gone

echo "the new journal decides from then on"
"$mcctl" --master="$MASTER" rm v/0 --force
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"
restart_master "${master_flags[@]}"
start_owner --global_segment_size=32MB
all_blocks $N
if "$mcctl" --master="$MASTER" get v/0 "$tmp/got" 2>/dev/null; then fail "a removed object is back"; fi

echo "another cluster"
master_lost --cluster_id=another
wait_for 20 owner_is_mounted
wait_for 20 grep -q "another cluster_id" "$tmp/owner.log"
equal "blocks in another cluster" "$(blocks get 0 $N)" "equal 0 miss $N error 0"
master_lost
wait_for 20 owner_is_mounted
equal "blocks after it" "$(blocks get 0 $N)" "equal 0 miss $N error 0"
blocks put 0 20 >/dev/null || fail "puts failed"
all_blocks 20
