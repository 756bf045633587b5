#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# far_guest.sh BUILD SOURCE dax|cxl|numa - the part of far_vm.sh that runs in the virtual machine, as root, with far memory
# of 256 MiB: /dev/dax0.0, or node 1.  Prints "case NAME MS" for each case.
set -euo pipefail
build=$1 kind=$3
work=$(mktemp -d)
cd "$work"
ulimit -l unlimited
# shellcheck source=tests/lib/guest.sh
. "$2/tests/lib/guest.sh"
master=127.0.0.1:50051
case $kind in
numa) far=(--far_segment_size=192MB --far_segment_numa_node=1) ;;
*) far=(--far_segment_path=/dev/dax0.0) ;;
esac

blocks() {
	"$build/tests/integ/ssd_actor" $master "$1" "$2" "$3" 1048576
}
all_blocks() {
	[ "$(blocks get 0 "$1" 2>>get.log)" = "equal $1 miss 0 error 0" ]
}
owner_up() {
	"$build/tools/mcctl" --master=$master --json df | jq -e '[.segments[] | select(.state == "ok")] | length == 2'
}
in_far() {
	"$build/tools/mcctl" --master=$master --json df | jq '[.segments[] | select(.medium == "far") | .objects] | add // 0'
}
start_master() {
	"$build/master/mooncake_master" --default_kv_lease_ttl=0 --journal_dir="$work/journal" "$@" >>master.log 2>&1 &
	server=$!
	wait_until "no master" bash -c 'exec 3<>/dev/tcp/127.0.0.1/50051'
}
start_owner() {
	"$build/node/mooncake_client" --host=127.0.0.1 --global_segment_size=32MB --master_server_address=$master "$@" \
		>>owner.log 2>&1 &
	owner=$!
	wait_until "the owner does not start" owner_up
}
killed() {
	kill -9 "$1"
	wait "$1" || :
}

twice_the_near_memory() {
	start_master --enable_offload
	start_owner "${far[@]}"
	blocks put 0 100 >out || fail "puts failed: $(cat out)"
	all_blocks 100 || fail "objects are not equal"
	[ "$(in_far)" -ge 68 ] || fail "only $(in_far) objects in far memory"
}

# The memory is on the node, whatever the processors that touch it first.
on_its_node() {
	[ "$kind" = numa ] || return 0
	local pages
	pages=$(grep -o 'N1=[0-9]*' "/proc/$owner/numa_maps" | awk -F= '{ sum += $2 } END { print sum + 0 }')
	[ "$pages" -gt 1000 ] || fail "only $pages pages on node 1"
}

master_killed() {
	killed $server
	start_master --enable_offload
	wait_until "objects are not equal after a kill of the master" all_blocks 100
}

# One process at a time has a device.
second_owner() {
	[ "$kind" != numa ] || return 0
	if timeout 60 "$build/node/mooncake_client" --host=127.0.0.1 --port=0 --master_server_address=$master \
		--global_segment_size=32MB "${far[@]}" >second.log 2>&1; then
		fail "two owners of one device"
	fi
	grep -q 'is in use by another process' second.log || fail "no reason: $(cat second.log)"
	all_blocks 100 || fail "objects are not equal after that"
}

owner_killed() {
	killed $owner
	start_owner "${far[@]}"
	blocks get 0 100 >out 2>>get.log || fail "wrong bytes: $(cat out)"
	blocks put 200 40 >out || fail "puts failed: $(cat out)"
	[ "$(blocks get 200 40 2>>get.log)" = "equal 40 miss 0 error 0" ] || fail "objects are not equal"
	killed $owner
	killed $server
}

puts_go_to_far_memory() {
	rm -rf journal
	start_master --enable_cxl
	if [ "$kind" = numa ]; then
		start_owner "${far[@]}"
	else
		MC_CXL_DEV_PATH=/dev/dax0.0 MC_CXL_DEV_SIZE=134217728 start_owner --protocol=cxl
	fi
	blocks put 0 100 >out || fail "puts failed: $(cat out)"
	all_blocks 100 || fail "objects are not equal"
	[ "$(in_far)" -eq 100 ] || fail "only $(in_far) objects in far memory"
	killed $owner
	killed $server
}

# Another mount reads the device over soft-RoCE.
over_rdma() {
	[ "$kind" = dax ] || return 0
	rm -rf journal
	start_master --enable_cxl
	export MC_RDMA_SAME_HOST=1
	start_owner --protocol=rdma --device_names=rxe0 "${far[@]}"
	blocks put 0 40 >out || fail "puts failed: $(cat out)"
	[ "$(in_far)" -eq 40 ] || fail "only $(in_far) objects in far memory"
	mkdir a
	"$build/mcfs/mcfs" -f --protocol=rdma --device_names=rxe1 --global_segment_size=0 --port=0 $master a >a.log 2>&1 &
	local a=$!
	wait_until "no mount" mountpoint -q a
	for i in $(seq 0 39); do
		"$build/tools/mcctl" --master=$master get "block/$i" "want" || fail "no block $i"
		cmp "a/block/$i" want || fail "block $i differs"
		rm want
	done
	awk '$1 ~ /^mooncake_transfer_bytes_total.*op="read"/ { if (/"rdma"/) rdma = $2; else others += $2 }
		END { exit rdma < 40 * 1048576 || others }' a/.mcfs/metrics ||
		fail "not read over RDMA: $(grep ^mooncake_transfer_bytes_total a/.mcfs/metrics)"
	umount a
	wait "$a" || :
}

cases twice_the_near_memory on_its_node master_killed second_owner owner_killed puts_go_to_far_memory over_rdma
