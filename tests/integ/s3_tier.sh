#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# S3 as the last rank of a node: objects pass through a small memory into a bucket and come back, also after the end of
# the owner and the master, nothing is left over in the bucket, and another pool imports the objects.  s3_faults.sh has
# the states that take long.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
. "$top_srcdir/tests/lib/s3.sh"
. "$top_srcdir/tests/lib/s3_tier.sh"

start_s3

section "three times the memory, one byte, and the largest object"
start_master --enable_offload --client_ttl=3
start_s3_owner a
put_all 0 48
head -c 14680064 /dev/urandom >"$tmp/large"
printf x >"$tmp/one"
ctl put large "$tmp/large"
ctl put one "$tmp/one"
put_all 48 12
all_blocks 60
ctl get large - | cmp - "$tmp/large"
ctl get one - | cmp - "$tmp/one"
wait_for 30 offload_idle
equal "lost objects" "$(metric "$MASTER_HTTP" mooncake_master_evicted_without_copy_total)" 0
[ "$(in_s3)" -ge 48 ] || fail "only $(in_s3) objects in S3: $(ctl df)"
ctl stat block/0 | found -E 'tier: +shared$' || fail "stat: $(ctl stat block/0)"
ctl df | found '^shared' || fail "df: $(ctl df)"

section "a second node with the same prefix is refused"
refused 'another process uses the prefix' a

section "removed objects leave the bucket"
ctl rm large block/56 block/57 block/58 block/59 >"$tmp/out" || fail "rm: $(cat "$tmp/out")"
wait_for 20 no_orphans a
readable 56 || fail "of 56 blocks: $(blocks get 0 56)"

section "the owner is killed between a put and its commit, and its successor has the objects"
kill_pid "$OWNER_PID"
# few copies: the master pauses S3 for a while after eight that failed
MC_FAULTS=client.offload.before_report=kill@1 start_s3_owner a
spawn putter "$top_builddir/tests/integ/ssd_actor" "$MASTER" put 100 6 "$BLOCK"
putter=$SPAWNED
wait_for 20 gone "$OWNER_PID"
end_pid "$putter"
[ "$(in_bucket a)" -gt "$(in_s3)" ] || fail "the owner was killed, and left nothing"
start_s3_owner a
wait_for 30 no_orphans a
got=$(blocks get 0 56) || fail "wrong bytes: $got"
[[ $got =~ error\ 0$ ]] || fail "blocks in S3 cannot be read: $got"
put_all 0 56
wait_for 30 offload_idle
readable 56 || fail "after the kill: $(blocks get 0 56)"

section "the server and the master are killed: puts go on, and no copy is lost"
kill_pid "$S3_PID"
kill_pid "$MASTER_PID"
restart_master --enable_offload --client_ttl=3
wait_for 20 s3_is_mounted
put_all 200 20
got=$(blocks get 0 20) || fail "wrong bytes: $got"
[[ $got =~ error\ [1-9] ]] || fail "the server does not run, and all blocks can be read: $got"
grep -q 'the copy of an object on a disk is bad' "$tmp/owner.log" && fail "a copy was given up"
restart_s3
wait_for 30 readable 56
wait_for 30 offload_idle
wait_for 30 no_orphans a
stop_pid "$OWNER_PID"
in_a=$(in_bucket a)
[ "$in_a" -ge 57 ] || fail "only $in_a objects in the bucket"
kill_pid "$MASTER_PID"

section "writes that fail now and then, between a disk and S3"
start_master --enable_offload
MC_FAULTS=tiers.objects.write=error:EAGAIN%30,tiers.objects.delete=error:EAGAIN%30 \
	start_s3_owner b --enable_offload --ssd_offload_path="$ssd" --ssd_offload_size=24MB
put_all 0 80
wait_for 40 offload_idle
[ "$(in_s3)" -ge 50 ] || fail "only $(in_s3) blocks in S3: $(ctl df)"
readable 80 || fail "of 80 blocks behind memory and a disk: $(blocks get 0 80)"
wait_for 20 no_orphans b
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"

section "another pool is refused, and brings the objects of a bucket into itself"
start_master --enable_offload
refused 'belongs to another pool' b
start_s3_owner c
ctl import s3://snapshots/none >"$tmp/out" 2>&1 && fail "an import of nothing"
grep -q 'no S3 segment' "$tmp/out" || fail "import of nothing: $(cat "$tmp/out")"
imports a "$in_a imported, 0 were here already, 0 failed"
equal "objects" "$(ctl ls -R | wc -l)" "$in_a"
readable 56 || fail "of the imported blocks: $(blocks get 0 56)"
ctl get one - | cmp - "$tmp/one"
imports a "0 imported, $in_a were here already, 0 failed"
equal "objects in the bucket that was read" "$(in_bucket a)" "$in_a"
# one that was cut off, one with other bytes, and a key with another value
mapfile -t files < <(find "$tmp/s3/snapshots/a" -type f -name '*-*.0' -size +1000k)
truncate -s 1000 "${files[0]}"
printf damaged | dd of="${files[1]}" bs=1 seek=1000 conv=notrunc status=none
wait_for 30 offload_idle
ctl rm -f one >"$tmp/out" || fail "rm: $(cat "$tmp/out")"
ctl rm -f --prefix=block/ --yes >"$tmp/out" || fail "rm: $(cat "$tmp/out")"
ctl put one "$tmp/large"
ctl --json import s3://snapshots/a >"$tmp/out" 2>"$tmp/err" && fail "a damaged import succeeds: $(cat "$tmp/out")"
equal "imported, failed, existed, differ" "$(jq -c '[.imported, .failed, .existed, .differ]' "$tmp/out")" \
	"[$((in_a - 3)),2,0,1]"
grep -q 'the bytes in the bucket are not those of the object' "$tmp/err" || fail "import: $(cat "$tmp/err")"
got=$(blocks get 0 56) || fail "wrong bytes: $got"
[[ $got =~ equal\ 5[456]\ .*error\ 0$ ]] || fail "after a damaged import: $got"
ctl get one - | cmp - "$tmp/large"
end_pool

section "an owner takes over the bucket of another pool, with its objects"
start_master --enable_offload
start_s3_owner b --s3_segment_import
wait_for 30 grep -q 'offered the objects of our disk to the new pool .*refused=0' "$tmp/owner.log"
wait_for 20 no_orphans b
[ "$(in_s3)" -ge 50 ] || fail "only $(in_s3) objects: $(ctl df)"
got=$(blocks get 0 80) || fail "wrong bytes: $got"
[[ $got =~ error\ 0$ ]] || fail "after the import: $got"
end_pool
start_master --enable_offload --cluster_id=other
refused 'another cluster_id' b --s3_segment_import
refused 's3_segment needs s3_segment_size' c --s3_segment_size=0
refused 'invalid name' 'a b'
