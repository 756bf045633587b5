#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# S3 as the last rank of a node: objects pass through a small memory into a bucket and come back, also after the end of
# the owner and the master, with a server that stops or is slow, and nothing is left over in the bucket.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
. "$top_srcdir/tests/lib/s3.sh"
requires jq
requires_memory 300
export BLOCK=1048576 MC_S3_SWEEP_SECONDS=1
CTL=$top_builddir/tools/mcctl

# start_s3_owner PREFIX FLAG... - a node with 16 MB of memory, and S3; sets OWNER_PID
start_s3_owner() {
	local at prefix=$1
	shift
	free_port at
	spawn owner "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" \
		--master_server_address="$MASTER" --global_segment_size=16MB --s3_segment="s3://snapshots/$prefix" \
		--s3_segment_size=512MB "$@"
	OWNER_PID=$SPAWNED
	started "$OWNER_PID" owner 30 s3_is_mounted
}

# refused TEXT PREFIX FLAG... - a further node with that prefix does not start, and says why
refused() {
	local at what=$1 prefix=$2
	shift 2
	free_port at
	if timeout 60 "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" --master_server_address="$MASTER" \
		--global_segment_size=16MB --s3_segment="s3://snapshots/$prefix" --s3_segment_size=512MB "$@" \
		>"$tmp/refused" 2>&1; then
		fail "the node started: $(cat "$tmp/refused")"
	fi
	found "$what" <"$tmp/refused" || fail "no '$what': $(cat "$tmp/refused")"
}

s3_is_mounted() {
	[ "$(segment_count memory)" -ge 1 ] && [ "$(segment_count shared)" -ge 1 ]
}

put_all() {
	blocks put "$1" "$2" >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
}

# in_bucket PREFIX - how many ranges the bucket has there (a range of 1 MiB has one part)
in_bucket() {
	find "$tmp/s3/snapshots/$1" -type f -name '*-*.*' 2>/dev/null | wc -l
}

in_s3() {
	"$CTL" --master="$MASTER" --json df | jq '[.segments[] | select(.medium == "shared") | .objects] | add // 0'
}

# no_orphans PREFIX - bucket and master have equally many ranges
no_orphans() {
	[ "$(in_bucket "$1")" -eq "$(in_s3)" ]
}

readable() {
	[ "$(blocks get 0 "$1" 2>/dev/null)" = "equal $1 miss 0 error 0" ]
}

start_s3

echo "four times the memory"
start_master --enable_offload
start_s3_owner a
put_all 0 64
all_blocks 64
wait_for 30 offload_idle
equal "lost objects" "$(metric "$MASTER_HTTP" mooncake_master_evicted_without_copy_total)" 0
[ "$(in_s3)" -ge 48 ] || fail "only $(in_s3) blocks in S3: $("$CTL" --master="$MASTER" df)"
wait_for 20 no_orphans a
"$CTL" --master="$MASTER" stat block/0 | found -E 'tier: +shared$' || fail "stat: $("$CTL" --master="$MASTER" stat block/0)"
"$CTL" --master="$MASTER" df | found '^shared' || fail "df: $("$CTL" --master="$MASTER" df)"

echo "a second node with the same prefix is refused"
refused 'another process uses the prefix' a
readable 64 || fail "of 64 blocks: $(blocks get 0 64)"

echo "removed objects leave the bucket"
"$CTL" --master="$MASTER" rm block/60 block/61 block/62 block/63 >"$tmp/out" || fail "rm: $(cat "$tmp/out")"
wait_for 20 no_orphans a
readable 60 || fail "of 60 blocks: $(blocks get 0 60)"

echo "the owner is killed, and its successor has the objects"
kill_pid "$OWNER_PID"
start_s3_owner a
before=$(in_s3)
equal "blocks in S3 that come back" "$(blocks get 0 60 | sed 's/ .*error/ error/; s/equal //')" "error 0"
[ "$(blocks get 0 60 | cut -d' ' -f2)" -ge "$((before - 4))" ] || fail "of $before blocks in S3: $(blocks get 0 60)"
put_all 0 60
wait_for 30 offload_idle
readable 60 || fail "after new puts: $(blocks get 0 60)"

echo "the master is killed"
kill_pid "$MASTER_PID"
restart_master --enable_offload
wait_for 20 s3_is_mounted
wait_for 20 readable 60
wait_for 20 no_orphans a

echo "the owner is killed between the put and its commit"
kill_pid "$OWNER_PID"
MC_FAULTS=client.offload.before_report=kill@2 start_s3_owner a
spawn putter "$top_builddir/tests/integ/ssd_actor" "$MASTER" put 100 40 "$BLOCK"
wait_for 20 gone "$OWNER_PID"
kill_pid "$SPAWNED"
orphans=$(($(in_bucket a) - $(in_s3)))
[ "$orphans" -gt 0 ] || fail "the owner was killed, and left nothing"
start_s3_owner a
wait_for 30 no_orphans a
blocks get 0 140 >"$tmp/out" || fail "wrong bytes: $(cat "$tmp/out")"
put_all 0 60
wait_for 30 offload_idle
readable 60 || fail "after the kill: $(blocks get 0 60)"

echo "the server stops: puts go on, and no copy is lost"
stop_pid "$S3_PID"
put_all 200 40
got=$(blocks get 0 20) || fail "wrong bytes: $got"
[[ $got =~ error\ [1-9] ]] || fail "the server does not run, and all blocks can be read: $got"
grep -q 'the copy of an object on a disk is bad' "$tmp/owner.log" && fail "a copy was given up"
restart_s3
wait_for 30 readable 60
put_all 0 60
wait_for 30 offload_idle
wait_for 30 no_orphans a

echo "a server that hangs for a while"
stop_still "$S3_PID"
blocks put 300 20 >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
sleep 2
kill -CONT "$S3_PID"
wait_for 30 readable 60
wait_for 40 offload_idle
wait_for 30 no_orphans a
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"

echo "writes that fail now and then"
start_master --enable_offload
MC_FAULTS=tiers.objects.write=error:EAGAIN%30,tiers.objects.delete=error:EAGAIN%30 start_s3_owner errors
put_all 0 60
wait_for 40 offload_idle
all_blocks 60
wait_for 20 no_orphans errors
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"

echo "a slow server"
start_master --enable_offload
MC_FAULTS=tiers.objects.write=delay:1500,tiers.objects.read=delay:1500 start_s3_owner slow
BLOCK=4194304
put_all 0 6
all_blocks 6
wait_for 30 offload_idle
wait_for 20 no_orphans slow
BLOCK=1048576
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"

echo "between a disk and S3"
start_master --enable_offload
start_s3_owner b --enable_offload --ssd_offload_path="$ssd" --ssd_offload_size=24MB
put_all 0 100
wait_for 40 offload_idle
[ "$(in_s3)" -ge 70 ] || fail "only $(in_s3) blocks in S3: $("$CTL" --master="$MASTER" df)"
readable 100 || fail "of 100 blocks behind memory and a disk: $(blocks get 0 100)"
kill_pid "$OWNER_PID"

echo "another pool is refused, unless it imports the objects"
kill_pid "$MASTER_PID"
start_master --enable_offload
refused 'belongs to another pool' b
before=$(in_bucket b)
start_s3_owner b --s3_segment_import
imported() {
	[ "$(in_s3)" -eq "$before" ]
}
wait_for 30 imported
got=$(blocks get 0 100) || fail "wrong bytes: $got"
equal "of the imported blocks" "$got" "equal $before miss $((100 - before)) error 0"
wait_for 20 no_orphans b
kill_pid "$OWNER_PID"
kill_pid "$MASTER_PID"
start_master --enable_offload --cluster_id=other
refused 'another cluster_id' b --s3_segment_import
equal "objects in the refused bucket" "$(in_bucket b)" "$before"
refused 's3_segment needs s3_segment_size' c --s3_segment_size=0
refused 'invalid name' 'a b'
