#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# nof_guest.sh BUILD SOURCE - the part of nof_vm.sh that runs in the virtual machine, as root, where vm-run has connected
# the disk nqn.vm-run:pool0 of a target at 127.0.0.1.  Prints "case NAME MS" for each case.
set -euo pipefail
build=$1
nqn=nqn.vm-run:pool0
target=/sys/kernel/config/nvmet/ports/1/subsystems/$nqn
work=$(mktemp -d)
cd "$work"
# shellcheck source=tests/lib/guest.sh
. "$2/tests/lib/guest.sh"
master=127.0.0.1:50051
# nvme-cli has no other identity of the host in this machine.
mkdir -p /etc/nvme
echo 5d0b7ee5-4b8e-4a8e-9f5c-6f9d5a7c1e11 >/etc/nvme/hostid
echo "nqn.2014-08.org.nvmexpress:uuid:$(cat /etc/nvme/hostid)" >/etc/nvme/hostnqn

nof() {
	"$build/tools/mcctl" nof "$@" >out 2>err || fail "nof $*: $(cat err)"
}
# link_device - as udev does: the same name, whatever number the kernel gives the device
link_device() {
	local device
	device=$(awk '$1 ~ /^\/dev\/nvme/ { print $1 }' out)
	[ -b "$device" ] || fail "no device: $(cat out)"
	ln -sfn "$device" "$work/disk"
}
blocks() {
	"$build/tests/integ/ssd_actor" $master "$1" "$2" "$3" 1048576
}
all_blocks() {
	[ "$(blocks get 0 80 2>>get.log)" = "equal 80 miss 0 error 0" ]
}
owner_up() {
	"$build/tools/mcctl" --master=$master --json df | jq -e '[.segments[] | select(.state == "ok")] | length == 2'
}
metric() {
	curl -sf http://127.0.0.1:9003/metrics | awk -v name="$1" '$1 == name { print $2 }'
}
offload_idle() {
	[ "$(metric mooncake_master_offload_pending)" = 0 ]
}
start_owner() {
	"$build/node/mooncake_client" --enable_offload --ssd_offload_path="$work/disk" --host=127.0.0.1 \
		--global_segment_size=32MB --master_server_address=$master "$@" >>owner.log 2>&1 &
	owner=$!
	wait_until "the owner does not start" owner_up
}
# unreadable - some objects cannot be read now, and none is missing
unreadable() {
	local got
	got=$(blocks get 0 80 2>>get.log) || fail "wrong bytes: $got"
	[[ $got == "equal "*" miss 0 error "[1-9]* ]] || fail "no error, or a miss: $got"
}

connect() {
	nof disconnect $nqn
	nof list
	[ ! -s out ] || fail "still connected: $(cat out)"
	nof connect $nqn 127.0.0.1
	[ ! -s err ] || fail "$(cat err)"
	[ "$(cat /sys/class/nvme/nvme*/fast_io_fail_tmo)" = 5 ] || fail "I/O would wait for a link that is away"
	link_device
	"$build/master/mooncake_master" --enable_offload --default_kv_lease_ttl=0 --journal_dir="$work/journal" >master.log 2>&1 &
	start_owner --ssd_format
	blocks put 0 80 >out || fail "puts failed: $(cat out)"
	wait_until "copies are not written" offload_idle
	all_blocks || fail "objects are not equal"
}

disconnected_and_connected() {
	nof disconnect $nqn
	unreadable
	nof connect $nqn 127.0.0.1
	link_device
	wait_until "objects are not readable after the device is back" all_blocks
}

link_away_and_back() {
	rm "$target"
	unreadable
	[ "$(grep -c 'pausing the disk' owner.log)" -eq 2 ] || fail "the disk is not paused"
	ln -s /sys/kernel/config/nvmet/subsystems/$nqn "$target"
	wait_until "objects are not readable after the link is back" all_blocks
}

owner_killed() {
	kill -9 "$owner"
	wait "$owner" || :
	start_owner
	wait_until "objects are not readable after a kill" all_blocks
}

cases connect disconnected_and_connected link_away_and_back owner_killed
[ "$(metric mooncake_master_bad_disk_copies_total)" = 0 ] || fail "copies were dropped"
grep -E 'pausing|works again' owner.log
