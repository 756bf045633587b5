#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# dir_guest.sh BUILD SOURCE [CASE...] - the part of dir_vm.sh that runs in the virtual machine, as root.  Prints "case
# NAME MS" for each case.  The first case starts the programs of the others.
#
# The master, the NFS server and a reader without a mount are in the first namespace.  The nodes a and b are in namespaces
# of their own for network, mounts and host name (the server takes clients of one host name for the same one).  Each has
# two links to the first namespace: one for NFS, at 10.8.N.1, and one for everything else.
set -euo pipefail
build=$1
work=$(mktemp -d)
cd "$work"
# shellcheck source=tests/lib/guest.sh
. "$2/tests/lib/guest.sh"
master=10.9.1.1:50051 dir=/mnt/nfs export=/export
cluster=$export/mooncake_cluster

# ---- the network, the server, the mounts

# The caches of the server that its daemons fill otherwise; so no package is needed.
serve_nfs() {
	local never=2147483647 n
	mkdir -p $export
	mount -t tmpfs -o size=700M,mode=777 export $export
	mount -t nfsd nfsd /proc/fs/nfsd
	echo "-3 +4 +4.2" >/proc/fs/nfsd/versions
	echo 10 >/proc/fs/nfsd/nfsv4leasetime
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
	for n in 1 2; do
		echo "nfsd 10.8.$n.2 $never pool" >/proc/net/rpc/auth.unix.ip/channel
	done
	# insecure, async, no_subtree_check, fsid=0, no_root_squash
	echo "pool $export $never $((0x2000 | 0x400 | 0x10 | 2)) 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
	echo "pool 1 \\x00000000 $never $export" >/proc/net/rpc/nfsd.fh/channel
	echo "tcp 2049" >/proc/fs/nfsd/portlist
	echo 4 >/proc/fs/nfsd/threads
}

# link NS NUMBER NET
link() {
	ip link add "$3$1" type veth peer name "$3$1" netns "$1"
	ip addr add "10.$3.$2.1/24" dev "$3$1"
	ip link set "$3$1" up
	ip -n "$1" addr add "10.$3.$2.2/24" dev "$3$1"
	ip -n "$1" link set "$3$1" up
}

declare -A inside
node_space() {
	local ns=$1 number=$2
	ip netns add "$ns"
	ip -n "$ns" link set lo up
	link "$ns" "$number" 8
	link "$ns" "$number" 9
	ip -n "$ns" route add default via "10.9.$number.1"
	ip netns exec "$ns" unshare -u -m --propagation private sleep 100000 &
	inside[$ns]=$!
	wait_until "no namespace" test -e "/proc/${inside[$ns]}/ns/uts"
	wait_until "unshare is slow" bash -c "[ \$(readlink /proc/${inside[$ns]}/ns/uts) != \$(readlink /proc/self/ns/uts) ]"
	in_node "$ns" hostname "node-$ns"
	in_node "$ns" timeout 60 busybox mount -t nfs4 \
		-o "addr=10.8.$number.1,clientaddr=10.8.$number.2,vers=4.2,proto=tcp,sec=sys" "10.8.$number.1:/" $dir ||
		fail "cannot mount"
}

in_node() {
	local ns=$1
	shift
	nsenter -t "${inside[$ns]}" -n -m -u -- "$@"
}

# ---- programs

start_master() {
	"$build/master/mooncake_master" --rpc_address=0.0.0.0 --default_kv_lease_ttl=0 --journal_dir="$work/journal" \
		--client_ttl=4 --root_fs_dir=$dir --global_file_segment_size=128MB --root_fs_adopt_ttl=2 \
		>>master.log 2>&1 &
	server=$!
	wait_until "no master" bash -c 'exec 3<>/dev/tcp/10.9.1.1/50051'
}

# start_node NS NUMBER LOG FLAG... - a node; sets node
start_node() {
	local ns=$1 number=$2 log=$3
	shift 3
	# nsenter becomes the program, so this is its number
	nsenter -t "${inside[$ns]}" -n -m -u -- "$build/node/mooncake_client" --host="10.9.$number.2" --port=0 \
		--master_server_address=$master "$@" >>"$log.log" 2>&1 &
	node=$!
	wait_until "node $log does not start" grep -q ' is up node=' "$log.log"
}

blocks() {
	"$build/tests/integ/ssd_actor" $master "$1" "$2" "$3" 1048576 "${@:4}"
}

# equal_in NS FIRST N - a reader on a node finds all blocks; NS -: one that cannot open the files
equal_in() {
	local in=(in_node "$1")
	[ "$1" != - ] || in=()
	"${in[@]}" "$build/tests/integ/ssd_actor" $master get "$2" "$3" 1048576 >out 2>>get.log || fail "wrong bytes: $(cat out)"
	[ "$(cat out)" = "equal $3 miss 0 error 0" ] || fail "of $3: $(cat out)"
}

no_wrong_in() {
	in_node "$1" "$build/tests/integ/ssd_actor" $master get "$2" "$3" 1048576 >out 2>>get.log || fail "wrong bytes: $(cat out)"
}

segments() {
	"$build/tools/mcctl" --master=$master --json df | jq -e --arg m "$1" --argjson n "$2" \
		'[.segments[] | select(.medium == $m and .state == "ok")] | length == $n'
}

# served N - at least N files, and each has an owner
served() {
	"$build/tools/mcctl" --master=$master --json df | jq -e --argjson n "$1" \
		'[.segments[] | select(.medium == "shared") | .state] | length >= $n and all(. == "ok")'
}

copied() {
	"$build/tools/mcctl" --master=$master --json df | jq -e --argjson n "$1" \
		'[.segments[] | select(.medium == "shared") | .objects] | add >= $n'
}

killed() {
	kill -9 "$1"
	wait "$1" 2>/dev/null || :
}

adopted_in() {
	grep -q 'adopting a file' "$1.log"
}

# ---- cases

both_read_the_files() {
	start_master
	start_node a 1 a --global_segment_size=32MB
	a=$node
	start_node b 2 b --global_segment_size=32MB
	b=$node
	wait_until "no files" segments shared 2
	blocks put 0 60 >out || fail "puts failed: $(cat out)"
	wait_until "no copies" copied 60
	equal_in b 0 60
	equal_in - 0 60
}

owner_killed() {
	killed "$a"
	equal_in b 0 60
	wait_until "b adopts no file" adopted_in b
	wait_until "b serves one file" segments shared 2
	equal_in - 0 60
	start_node a 1 a2 --global_segment_size=32MB
	a=$node
	wait_until "a has no file of its own" segments shared 3
	equal_in a 0 60
}

foreign_pool() {
	killed "$a"
	killed "$b"
	killed $server
	mv journal journal.first
	start_master
	start_node a 1 foreign --global_segment_size=32MB
	wait_until "no file" segments shared 1
	grep -q 'belongs to another pool' foreign.log || fail "the files of another pool are not refused"
	[ "$(find $cluster -name '*.data' | wc -l)" -eq 4 ] || fail "files: $(ls $cluster)"
	killed $node
	killed $server
	rm -r journal
	mv journal.first journal
	start_master
	equal_in a 0 60
	start_node a 1 a3 --global_segment_size=32MB
	a=$node
	start_node b 2 b3 --global_segment_size=32MB
	b=$node
	# One of the three is adopted.  A node that starts before the server has dropped the locks makes a new one.
	wait_until "not all files have an owner" served 3
	equal_in - 0 60
}

# Node a loses all links: its owner lives, and believes that it has the file.  The server gives its lock to b when b asks,
# once the lease has ended.
cut_off() {
	ip link set 8a down
	ip link set 9a down
	wait_until "b adopts no file" adopted_in b3
	equal_in b 0 60
	blocks put 100 20 >out || fail "puts failed: $(cat out)"
	ip link set 8a up
	ip link set 9a up
	wait_until "a does not come back" segments memory 2
	blocks put 200 20 >out || fail "puts failed: $(cat out)"
	equal_in b 0 60
	equal_in b 100 20
	equal_in b 200 20
	wait_until "a has not noticed" grep -q 'gives the segment up' a3.log
	new_file() {
		[ "$(grep -c 'has a file in the shared directory' a3.log)" -ge 2 ] && served 4
	}
	wait_until "a has no new file" new_file
}

# seconds COMMAND... - how long it takes
seconds() {
	local begin=$SECONDS
	"$@" >out 2>&1 || fail "$*: $(cat out)"
	echo $((SECONDS - begin))
}

hung_server() {
	local took
	ip link set 8a down
	ip link set 8b down
	start_node a 1 hung --global_segment_size=32MB --root_fs_dir=$dir --global_file_segment_size=64MB
	hung=$node
	grep -q 'does not answer; this process works without it' hung.log || fail "it is not said"
	in_node a "$build/mcfs/mcfs" $master /mnt/pool --host=10.9.1.2 --port=0 --global_segment_size=32MB \
		>>mcfs.log 2>&1 || fail "no mount"
	echo one >in.txt
	in_node a timeout 30 sh -c "cat $work/in.txt >/mnt/pool/one && cat /mnt/pool/one" >out || fail "the mount hangs"
	cmp out in.txt || fail "other bytes"
	blocks put 300 4 >out || fail "puts failed: $(cat out)"
	took=$(seconds blocks get 300 4)
	[ "$took" -le 15 ] || fail "reads of objects in memory take $took s"
	took=$(seconds "$build/tools/mcctl" --master=$master df)
	[ "$took" -le 15 ] || fail "the master answers after $took s"
	# Objects in the directory only: errors, within a limit.
	took=$(SECONDS=0; no_wrong_in b 0 4; echo $SECONDS)
	echo "reads of the directory: $(cat out), $took s"
	ip link set 8a up
	ip link set 8b up
	wait_until "no file after the return of the server" grep -q 'has a file in the shared directory' hung.log
	again() {
		[ "$(in_node b "$build/tests/integ/ssd_actor" $master get 0 60 1048576)" = "equal 60 miss 0 error 0" ]
	}
	wait_until "objects are not equal after that" again
	in_node a umount /mnt/pool
	killed $hung
}

# A reader has the files open while they are removed and others take their names: errors, no other bytes.
stale_file() {
	local f reader first
	# More than all memory: some of these objects are in the files only.
	blocks put 500 64 >out || fail "puts failed: $(cat out)"
	wait_until "no copies" copied 124
	in_node b "$build/tests/integ/ssd_actor" $master get 500 64 1048576 100000 >stale.out 2>>get.log &
	reader=$!
	wait_until "the reader opens no file" bash -c "ls -l /proc/[0-9]*/fd 2>/dev/null | grep 'nfs.*data'"
	for f in "$cluster"/*.data; do
		head -c 8388608 /dev/urandom >"$f.new"
		truncate -r "$f" "$f.new"
		dd if="$f" of="$f.new" bs=4096 count=1 conv=notrunc status=none
		mv "$f.new" "$f"
	done
	wait $reader || fail "wrong bytes: $(cat stale.out)"
	# While they are open, the server keeps the removed files.
	killed "$a"
	killed "$b"
	no_wrong_in b 0 60
	first=$(cat out)
	no_wrong_in b 500 64
	echo "stale files: $(cat stale.out); then $first; $(cat out)"
	[ "$first $(cat out)" != "equal 60 miss 0 error 0 equal 64 miss 0 error 0" ] || fail "the files were not read"
	killed $server
}

# start_here LOG FLAG... - a node in the first namespace, with a small filesystem that is no NFS
start_here() {
	local log=$1
	shift
	"$build/node/mooncake_client" --host=10.9.1.1 --port=0 --master_server_address=$master --root_fs_dir=/small \
		--global_segment_size=32MB --global_file_segment_size=128MB "$@" >>"$log.log" 2>&1 &
	node=$!
	wait_until "node $log does not start" grep -q ' is up node=' "$log.log"
}

as_other() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

full_read_only_and_another_user() {
	rm -rf journal
	mkdir -p /small
	mount -t tmpfs -o size=24M,mode=777 small /small
	start_master
	start_here full
	blocks put 0 60 >out || fail "puts into a full filesystem failed: $(cat out)"
	blocks get 0 60 >out 2>>get.log || fail "wrong bytes: $(cat out)"
	grep -q 'no space left on device' master.log || fail "it was not full"
	as_other "$build/tests/integ/ssd_actor" $master get 0 60 1048576 >other 2>>get.log || fail "wrong bytes: $(cat other)"
	[ "$(cat other)" = "$(cat out)" ] || fail "another user reads $(cat other), not $(cat out)"
	killed $node
	mount -o remount,ro /small
	if timeout 60 "$build/node/mooncake_client" --host=10.9.1.1 --port=0 --master_server_address=$master \
		--root_fs_dir=/small --global_segment_size=32MB >refused.log 2>&1; then
		fail "a read-only directory is accepted"
	fi
	grep -qi 'read-only file system' refused.log || fail "no reason: $(cat refused.log)"
	mount -o remount,rw /small
	# The folder belongs to the first user.
	if as_other timeout 60 "$build/node/mooncake_client" --host=10.9.1.1 --port=0 --master_server_address=$master \
		--root_fs_dir=/small --global_segment_size=32MB >user.log 2>&1; then
		fail "a directory of another user is accepted"
	fi
	grep -qi 'permission denied' user.log || fail "no reason: $(cat user.log)"
	start_here again
	blocks get 0 60 >out 2>>get.log || fail "wrong bytes: $(cat out)"
	killed $node
	killed $server
}

mkdir -p $dir /mnt/pool
echo 1 >/proc/sys/net/ipv4/ip_forward
serve_nfs
node_space a 1
node_space b 2
all=(both_read_the_files owner_killed foreign_pool cut_off hung_server stale_file full_read_only_and_another_user)
[ $# -le 2 ] || all=("${@:3}")
cases "${all[@]}"
