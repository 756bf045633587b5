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

echo "gone before the first read, and back"
touch "$tmp/gone"
some_errors 0 300
rm "$tmp/gone"
wait_for 10 back
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
