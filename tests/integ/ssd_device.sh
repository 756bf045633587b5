#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A disk whose device fails as a whole keeps its objects, and they can be read again when it is back; a bad range costs
# the objects in it.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires jq
start_master --enable_offload --default_kv_lease_ttl=0
# Each fault lasts as long as its file.
faults=
for op in read write; do
	faults+="tiers.ssd.$op=error:ENODEV?$tmp/gone,tiers.ssd.$op=error:EIO?$tmp/eio,tiers.ssd.$op=delay:1500?$tmp/slow,"
done
MC_FAULTS=${faults%,} start_owner --global_segment_size=32MB
blocks put 0 300 4000 >/dev/null || fail "puts failed"
wait_for 20 offload_idle

bad_copies() {
	metric "$MASTER_HTTP" mooncake_master_bad_disk_copies_total
}
# back - all blocks of the first part are read again
back() {
	[ "$(blocks get 0 300 2>/dev/null)" = "equal 300 miss 0 error 0" ]
}
# some_errors FIRST N - some of these blocks cannot be read, none is missing or wrong
some_errors() {
	blocks get "$1" "$2" >"$tmp/out" 2>"$tmp/err" || fail "wrong bytes: $(cat "$tmp/out")"
	grep -qE '^equal [0-9]+ miss 0 error [1-9]' "$tmp/out" || fail "no error, or a miss: $(cat "$tmp/out")"
	grep -q "does not work now; the object stays" "$tmp/err" || fail "no clear error: $(cat "$tmp/err")"
}

# shown STATE - mcctl df shows the disk in this state
shown() {
	"$top_builddir/tools/mcctl" --master="$MASTER" df | grep "/ssd-" | found " $1\$"
}

echo "gone before the first read, and back"
shown ok || fail "$("$top_builddir/tools/mcctl" --master="$MASTER" df)"
touch "$tmp/gone"
some_errors 0 300
wait_for 3 shown paused
rm "$tmp/gone"
wait_for 10 back
wait_for 3 shown ok
grep -q 'pausing the disk: no such device' "$tmp/owner.log" || fail "no line about the pause"
grep -q 'the device works again after' "$tmp/owner.log" || fail "no line about the return"

echo "EIO always, and back"
touch "$tmp/eio"
some_errors 0 300
rm "$tmp/eio"
wait_for 10 back

echo "gone during writes, and back"
written() { metric "$MASTER_HTTP" master_offload_completed_total; }
before=$(written)
more_written() { [ "$(written)" -gt "$before" ]; }
blocks put 300 200 10000 >"$tmp/puts" &
putter=$!
wait_for 10 more_written
touch "$tmp/gone"
wait "$putter" || fail "puts failed: $(cat "$tmp/puts")"
rm "$tmp/gone"
wait_for 10 back
wait_for 20 offload_idle
blocks get 300 200 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
grep -q ' error 0$' "$tmp/out" || fail "$(cat "$tmp/out")"

echo "slow: 1.5 s for each transfer"
touch "$tmp/slow"
all_blocks 1
rm "$tmp/slow"
equal "copies that were reported as bad" "$(bad_copies)" 0

echo "half of the file cannot be read, the rest can"
truncate -s $(($(du --block-size=1 "$ssd"/mooncake-0.ssd | cut -f1) / 2)) "$ssd"/mooncake-0.ssd
blocks get 0 300 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
grep -qE '^equal [1-9][0-9]* miss [1-9][0-9]* error 0$' "$tmp/out" || fail "$(cat "$tmp/out")"
[ "$(bad_copies)" -ge 1 ] || fail "no copy was dropped"

echo "copies on a NoF disk of another owner outlive that of the objects, and the master"
nof_segments() { [ "$(segment_count nof)" -eq 1 ]; }
nof_idle() { [ "$(metric "$MASTER_HTTP" mooncake_master_nof_pending)" -eq 0 ]; }
mkdir "$ssd/nof"
free_port at
spawn nof "$top_builddir/node/mooncake_client" --enable_offload --ssd_offload_path="$ssd/nof" --ssd_offload_nof=yes \
	--host=127.0.0.1 --port="$at" --global_segment_size=0 --master_server_address="$MASTER"
started "$SPAWNED" nof 20 nof_segments
for size in 1 70001 262144; do
	BLOCK=$size NOF=2 blocks put $((size + 1000)) 8 >/dev/null || fail "puts failed"
done
wait_for 20 nof_idle
equal "copies" "$(metric "$MASTER_HTTP" 'mooncake_master_nof_copies_total{result="ok"}')" 24
equal "copies for which there is no disk" "$(metric "$MASTER_HTTP" mooncake_master_nof_missing_total)" 24
kill_pid "$MASTER_PID"
restart_master --enable_offload --default_kv_lease_ttl=0
wait_for 20 nof_segments
kill_pid "$OWNER_PID"
for size in 1 70001 262144; do
	equal "blocks" "$(BLOCK=$size blocks get $((size + 1000)) 8)" "equal 8 miss 0 error 0"
done
