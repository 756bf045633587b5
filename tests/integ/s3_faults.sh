#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Faults of an S3 server, by a proxy before a real one: errors, lost answers, slow and hanging requests, a server that
# does not run or refuses, in each also a restart of the owner; two pools with one prefix; a bucket that is full.  No
# wrong bytes, no copy that is given up, and nothing left over in the bucket.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
. "$top_srcdir/tests/lib/s3.sh"
. "$top_srcdir/tests/lib/s3_tier.sh"
requires_fuse
# A server that is silent for that long has failed.
export MOONCAKE_AWS_REQUEST_TIMEOUT_MS=600

start_s3
start_s3_proxy
MASTER_FLAGS=(--enable_offload --client_ttl=4)

# errors_but_equal - some of the first blocks cannot be read, and the others are equal
errors_but_equal() {
	local got
	got=$(blocks get 0 4) || fail "wrong bytes: $got"
	[[ $got =~ error\ [1-9] ]] || fail "the server fails, and all blocks can be read: $got"
	grep -q 'the copy of an object on a disk is bad' "$tmp"/owner*.log && fail "a copy was given up"
	return 0
}

# heals N - the server works again: the first N blocks can be read, and nothing is left over
heals() {
	s3_fault ok
	wait_for 30 readable "$1"
	wait_for 40 offload_idle
	wait_for 30 no_orphans a
}

memory_without_s3() {
	[ "$(segment_count memory)" -ge 1 ] && [ "$(segment_count shared)" -eq 0 ]
}

start_master "${MASTER_FLAGS[@]}"
start_s3_owner a
put_all 0 40
wait_for 30 offload_idle
readable 40

section "each request fails"
s3_fault status 500
put_all 100 20
errors_but_equal
refused 'HTTP status 500' x
heals 40

section "some requests fail, and some answers are lost"
s3_fault some 30
put_all 200 40
wait_for 60 offload_idle
heals 40

section "a slow server: 1.5 s for each request"
s3_fault delay 1.5
MOONCAKE_AWS_REQUEST_TIMEOUT_MS=5000 refused 'another process uses the prefix' a
kill_pid "$OWNER_PID"
MOONCAKE_AWS_REQUEST_TIMEOUT_MS=5000 start_s3_owner a
blocks put 300 6 >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
blocks get 300 6 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
equal "blocks" "$(cat "$tmp/out")" "equal 6 miss 0 error 0"
blocks get 0 2 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
equal "blocks" "$(cat "$tmp/out")" "equal 2 miss 0 error 0"
heals 40

section "a server that hangs, and a master that restarts meanwhile"
s3_fault hang
put_all 400 10
kill_pid "$MASTER_PID"
restart_master "${MASTER_FLAGS[@]}"
wait_for 20 s3_is_mounted
put_all 410 10
errors_but_equal
refused 'no progress in 600 ms' x
heals 40

section "a server that was stopped, and one that does not run"
stop_still "$S3_PID"
put_all 420 10
errors_but_equal
kill -CONT "$S3_PID"
heals 40
kill_pid "$S3_PID"
MOONCAKE_S3_ENDPOINT=http://127.0.0.1:$S3_PORT refused 'cannot connect|[Cc]onnect' a
put_all 430 10
kill_pid "$OWNER_PID"
restart_s3
start_s3_owner a
heals 40

section "wrong keys, and no bucket"
MOONCAKE_S3_SECRET_ACCESS_KEY=wrong refused 'SignatureDoesNotMatch.*check the keys' a
S3_BUCKET=none refused 'NoSuchBucket.*create the bucket' a
mv "$tmp/s3/snapshots" "$tmp/s3/away"
errors_but_equal
mv "$tmp/s3/away" "$tmp/s3/snapshots"
heals 40
kill_pid "$MASTER_PID"

section "a new pool: the owner goes on without S3"
restart_master "${MASTER_FLAGS[@]}" --journal_dir=none
wait_for 20 memory_without_s3
wait_for 20 grep -q 'S3 segment is not mounted.*belongs to another pool' "$tmp/owner.log"
put_all 0 4
readable 4
end_pool

section "files and their attributes come with an import"
# Copies when they are asked for, not before all attributes are set: a record has those of the time of the copy.
start_master "${MASTER_FLAGS[@]}" --offload_on_evict
start_s3_owner files
mkdir "$tmp/mnt"
start_mcfs "$MASTER" "$tmp/mnt" --global_segment_size=0
head -c 100000 /dev/urandom >"$tmp/file"
cp "$tmp/file" "$tmp/mnt/f"
chmod 640 "$tmp/mnt/f"
touch -d @1700000000 "$tmp/mnt/f"
python3 -c 'import os, sys
os.setxattr(sys.argv[1], "user.note", b"kept")
os.setxattr(sys.argv[1], "user.other", b"too")' "$tmp/mnt/f"
ln -s f "$tmp/mnt/link"
ctl put --soft_pin pinned "$tmp/file"
files_are_in_s3() {
	ctl offload f pinned && [ "$(ctl stat f pinned | grep -cE '^tier: .*shared$')" -eq 2 ]
}
wait_for 20 files_are_in_s3
ctl offload f pinned # they are there
fusermount3 -u "$tmp/mnt"
wait_for 10 gone "$MCFS_PID"
end_pool
start_master "${MASTER_FLAGS[@]}"
start_s3_owner d
imports files ' 0 were here already, 0 failed'
start_mcfs "$MASTER" "$tmp/mnt" --global_segment_size=0
cmp "$tmp/file" "$tmp/mnt/f"
equal "mode and time" "$(stat -c '%a %Y' "$tmp/mnt/f")" "640 1700000000"
equal "attributes" "$(python3 -c 'import os, sys
print([os.getxattr(sys.argv[1], "user." + n) for n in ("note", "other")])' "$tmp/mnt/f")" "[b'kept', b'too']"
ctl --json stat pinned >"$tmp/out"
grep -q soft "$tmp/out" || fail "pin: $(cat "$tmp/out")"
fusermount3 -u "$tmp/mnt"
wait_for 10 gone "$MCFS_PID"
end_pool

section "an import from a server with faults, into a pool with large objects"
start_master "${MASTER_FLAGS[@]}"
start_s3_owner b --global_segment_size=64MB
s3_fault some 20
in_a=$(in_bucket a)
ctl import s3://snapshots/a >"$tmp/out" 2>"$tmp/err" || ctl import s3://snapshots/a >"$tmp/out" 2>"$tmp/err" ||
	fail "import: $(cat "$tmp/out" "$tmp/err")"
s3_fault ok
readable 40 || fail "of the imported blocks: $(blocks get 0 40)"
head -c 41943041 /dev/urandom >"$tmp/large"
ctl put large "$tmp/large"
put_all 500 40
next=2000
left_memory() {
	blocks put $next 10 >/dev/null
	next=$((next + 10))
	ctl stat large | found -E 'tier: +shared$'
}
wait_for 30 left_memory || fail "the large object is not in S3 only: $(ctl stat large)"
ctl get large - | cmp - "$tmp/large"
equal "objects in the bucket that was read" "$(in_bucket a)" "$in_a"
wait_for 40 offload_idle
readable 40

section "another pool takes the prefix over while its owner runs, which gives it up"
pool_1=$MASTER pool_1_http=$MASTER_HTTP pool_1_owner=$OWNER_PID pool_1_master=$MASTER_PID
mv "$tmp/owner.log" "$tmp/owner-1.log"
start_master "${MASTER_FLAGS[@]}"
refused 'belongs to another pool' b
start_s3_owner b --s3_segment_import
wait_for 30 grep -q 'another process has taken over .*gives the segment up' "$tmp/owner-1.log"
wait_for 30 grep -q 'offered the objects of our disk to the new pool .*refused=0' "$tmp/owner.log"
wait_for 30 no_orphans b
readable 40 || fail "of the blocks that were taken over: $(blocks get 0 40)"
pool_2=$MASTER pool_2_http=$MASTER_HTTP
MASTER=$pool_1 MASTER_HTTP=$pool_1_http
wait_for 20 memory_without_s3
put_all 600 4
got=$(blocks get 600 4)
equal "blocks of the first pool" "$got" "equal 4 miss 0 error 0"
kill_pid "$pool_1_owner"
kill_pid "$pool_1_master"
MASTER=$pool_2 MASTER_HTTP=$pool_2_http
sleep 2 # two sweeps
wait_for 30 no_orphans b
readable 40 || fail "after the end of the first pool: $(blocks get 0 40)"
end_pool

section "a segment that is full"
start_master "${MASTER_FLAGS[@]}"
start_s3_owner c --s3_segment_size=16MB
put_all 0 60
got=$(blocks get 0 60) || fail "wrong bytes: $got"
[[ $got =~ error\ 0$ ]] || fail "in a full pool: $got"
[ "$(in_s3)" -le 16 ] || fail "$(in_s3) objects in 16 MB"
wait_for 40 no_orphans c
