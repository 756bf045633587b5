#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A directory that two nodes share: objects of both there, read by other processes from the files, also after the end of
# their owners; other nodes that continue with the files; files of another pool, damaged, removed and full ones.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires jq
requires_memory 400
export BLOCK=1048576
CTL=$top_builddir/tools/mcctl
cluster=$ssd/mooncake_cluster

# start_node LOG FLAG... - a node with the directory (in shared); sets NODE_PID, and HTTP to the port of its metrics
shared=(--root_fs_dir="$ssd" --global_file_segment_size=256MB)
start_node() {
	local log=$1 at
	shift
	free_port at
	free_port HTTP
	spawn "$log" "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" \
		--master_server_address="$MASTER" "${shared[@]}" --enable_http_server --http_port="$HTTP" "$@"
	NODE_PID=$SPAWNED
	started "$NODE_PID" "$log" 20 is_up "$log"
}

is_up() {
	grep -q ' is up node=' "$tmp/$1.log"
}

# owner_read - bytes that the node started last has read from its file
owner_read() {
	metric "127.0.0.1:$HTTP" mooncake_ssd_bytes_total 'op="read"'
}

files() {
	find "$ssd" -name '*.data' | wc -l
}

# logged WORDS LOG
logged() {
	wait_for 20 grep -q "$1" "$tmp/$2.log"
}

# no_wrong FIRST N - reads may fail and miss
no_wrong() {
	blocks get "$1" "$2" >"$tmp/out" 2>"$tmp/err" || fail "wrong bytes: $(cat "$tmp/out")"
}

put_all() {
	blocks put "$1" "$2" >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
	wait_for 30 offload_idle
}

echo "two owners"
start_master --root_fs_dir=/mnt/mooncake --cluster_id=mooncake_cluster --global_file_segment_size=1GB --client_ttl=2
[ "$(grep -c root_fs_dir "$tmp/master.log")" -eq 1 ] || fail "not explained once: $(cat "$tmp/master.log")"
start_node a --global_segment_size=32MB
a=$NODE_PID
start_node b --global_segment_size=32MB
b=$NODE_PID
equal "files" "$(files)" 2
put_all 0 100
all_blocks 100
equal "bytes that an owner has read for readers" "$(owner_read)" 0
equal "lost objects" "$(metric "$MASTER_HTTP" mooncake_master_evicted_without_copy_total)" 0
"$CTL" --master="$MASTER" df | found 'directory-' || fail "df: $("$CTL" --master="$MASTER" df)"

echo "one owner is killed, then both"
kill_pid "$a"
all_blocks 100
kill_pid "$b"
all_blocks 100
silent() {
	[ "$(segment_count shared)" -eq 0 ]
}
wait_for 20 silent
all_blocks 100

echo "another node continues with a file, and a second one with the other"
start_node c --global_segment_size=32MB
c=$NODE_PID
logged 'knows the objects of our segment' c
start_node d --global_segment_size=0
d=$NODE_PID
equal "files" "$(files)" 2
all_blocks 100
put_all 100 40
blocks get 0 140 >"$tmp/out"
equal "blocks" "$(cat "$tmp/out")" "equal 140 miss 0 error 0"

echo "a reader that cannot open the files asks the owners"
MC_FAULTS=client.shared.open=error:EACCES all_blocks 140
[ "$(owner_read)" -gt 0 ] || fail "the owner has read nothing"

echo "a reader whose filesystem fails at times, fails always, and is slow"
MC_FAULTS=tiers.ssd.read=error:EIO%30 all_blocks 140
MC_FAULTS=tiers.ssd.read=error:EIO all_blocks 140
MC_FAULTS=tiers.ssd.read=delay:1500 all_blocks 2

echo "an owner whose number in the header was replaced writes no more, and readers need no owner"
# Each file gets the number of the other's owner, with its checksum.
files=("$cluster"/*.data)
for f in "${files[@]}"; do
	dd if="$f" of="$tmp/number.${f##*/}" bs=4 skip=41 count=3 status=none
done
for i in 0 1; do
	dd if="$tmp/number.${files[1 - i]##*/}" of="${files[i]}" bs=4 seek=41 conv=notrunc status=none
done
blocks put 140 10 >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
gives_up() {
	grep -q 'gives the segment up' "$tmp/c.log"
}
wait_for 20 gives_up
all_blocks 140
no_wrong 140 10
kill_pid "$c"
kill_pid "$d"
start_node g --global_segment_size=32MB
c=$NODE_PID
start_node h --global_segment_size=0
d=$NODE_PID
no_wrong 0 150

echo "a file changes under its owner: errors and misses, no wrong bytes"
for f in "$cluster"/*.data; do
	for at in 2 7 20 33; do
		head -c 65536 /dev/urandom | dd of="$f" bs=1M seek=$at conv=notrunc status=none
	done
done
no_wrong 0 140
one=$(find "$cluster" -name '*.data' | head -n 1)
truncate -s 8M "$one"
no_wrong 0 140
rm "$one"
no_wrong 0 140

echo "files of another pool"
kill_pid "$c"
kill_pid "$d"
kill_pid "$MASTER_PID"
left=$(files)
start_master --root_fs_dir=/mnt/mooncake
start_node e --global_segment_size=32MB
logged 'belongs to another pool' e
equal "files" "$(files)" $((left + 1))
put_all 0 40
all_blocks 40
kill_pid "$NODE_PID"

echo "a node with a disk too: copies go from the disk to the directory"
mkdir "$ssd/disk"
start_node disk --global_segment_size=16MB --enable_offload --ssd_offload_path="$ssd/disk" --ssd_offload_size=256MB
put_all 200 40
[ "$(segment_count disk)" -eq 1 ] || fail "df: $("$CTL" --master="$MASTER" df)"
in_directory() {
	[ "$("$CTL" --master="$MASTER" --json df | jq '[.segments[] | select(.medium == "shared") | .objects] | max')" -ge 40 ]
}
wait_for 30 in_directory
kill_pid "$NODE_PID"
blocks get 200 40 >"$tmp/out" 2>"$tmp/err"
equal "blocks" "$(cat "$tmp/out")" "equal 40 miss 0 error 0"

echo "a slow filesystem"
MC_FAULTS=tiers.ssd.write=delay:1500 start_node slow --global_segment_size=32MB
put_all 300 1
kill_pid "$NODE_PID"
blocks get 300 1 >"$tmp/out" 2>"$tmp/err"
equal "blocks" "$(cat "$tmp/out")" "equal 1 miss 0 error 0"

echo "a full filesystem"
MC_FAULTS=tiers.ssd.write=error:ENOSPC start_node f --global_segment_size=32MB
blocks put 40 60 >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
no_wrong 0 100
[ "$(metric "$MASTER_HTTP" master_offload_failed_total)" -gt 0 ] || fail "no copy failed"
kill_pid "$NODE_PID"

echo "the master names the directory"
kill_pid "$MASTER_PID"
shared=()
rm -r "$cluster"
start_master --root_fs_dir="$ssd" --global_file_segment_size=64MiB --root_fs_adopt_ttl=1 --client_ttl=1
start_node none --global_segment_size=32MB --root_fs_dir=none
none=$NODE_PID
MC_FAULTS=client.directory.open=error:EACCES start_node denied --global_segment_size=32MB
denied=$NODE_PID
denied_is_told() {
	grep -q 'works without the shared directory' "$tmp/denied.log"
}
wait_for 20 denied_is_told
blocks put 200 40 >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
blocks get 200 40 >"$tmp/out"
equal "blocks" "$(cat "$tmp/out")" "equal 40 miss 0 error 0"
equal "files" "$(files)" 0
kill_pid "$none"
kill_pid "$denied"
start_node i --global_segment_size=32MB
i=$NODE_PID
has_files() {
	[ "$(files)" -eq "$1" ] && [ "$(segment_count shared)" -eq "$1" ]
}
wait_for 20 has_files 1
equal "size of the file" "$(find "$cluster" -name '*.data' -size $((65 * 2048)) | wc -l)" 1
put_all 0 40
all_blocks 40

echo "a running owner adopts the file of one that was killed, but not that of one that was stopped"
start_node j --global_segment_size=0 --root_fs_dir="$ssd"
j=$NODE_PID
wait_for 20 has_files 2
silent_one() {
	[ "$(segment_count shared)" -eq 1 ]
}
kill -STOP "$i"
wait_for 20 silent_one
asked=$(metric "$MASTER_HTTP" mooncake_rpc_requests_total 'type="orphan"')
asked_more() {
	[ "$(metric "$MASTER_HTTP" mooncake_rpc_requests_total 'type="orphan"')" -ge $((asked + 4)) ]
}
wait_for 30 asked_more
[ "$(metric "127.0.0.1:$HTTP" mooncake_client_shared_files_adopted_total)" -eq 0 ] || fail "adopted: $(cat "$tmp/j.log")"
no_wrong 0 40
kill -CONT "$i"
wait_for 20 has_files 2
all_blocks 40
kill_pid "$i"
adopted() {
	[ "$(metric "127.0.0.1:$HTTP" mooncake_client_shared_files_adopted_total)" -eq 1 ]
}
wait_for 30 adopted
wait_for 20 has_files 2
MC_FAULTS=client.shared.open=error:EACCES all_blocks 40
start_node i --global_segment_size=32MB
i=$NODE_PID
wait_for 20 has_files 3
put_all 40 40
blocks get 0 80 >"$tmp/out"
equal "blocks" "$(cat "$tmp/out")" "equal 80 miss 0 error 0"

echo "the master restarts, then the owner of two files"
kill_pid "$MASTER_PID"
restart_master --root_fs_dir="$ssd" --global_file_segment_size=64MiB --root_fs_adopt_ttl=0 --client_ttl=1
wait_for 20 has_files 3
blocks get 0 80 >"$tmp/out"
equal "blocks" "$(cat "$tmp/out")" "equal 80 miss 0 error 0"
kill_pid "$j"
start_node j --global_segment_size=0 --root_fs_dir="$ssd"
logged 'knows the objects of our segment' j
blocks get 0 80 >"$tmp/out"
equal "blocks" "$(cat "$tmp/out")" "equal 80 miss 0 error 0"
kill_pid "$i"
kill_pid "$NODE_PID"

echo "wrong media"
refused() {
	local what=$1
	shift
	if timeout 20 "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --port=0 "$@" >"$tmp/out" 2>&1; then
		fail "$what was accepted"
	fi
	found "$what" <"$tmp/out" || fail "no '$what': $(cat "$tmp/out")"
}
refused 'No such file or directory (mount the filesystem' --root_fs_dir="$tmp/absent"
touch "$tmp/file"
refused 'cannot make the folder' --root_fs_dir="$tmp/file"
refused 'cannot make the folder' --root_fs_dir=/proc
refused 'must be that of a folder' --root_fs_dir="$ssd" --cluster_id=../up
touch "$ssd/occupied"
refused 'is not a directory' --root_fs_dir="$ssd" --cluster_id=occupied
