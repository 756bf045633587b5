#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# nof_guest.sh BUILD SOURCE - the part of nof_vm.sh that runs in the virtual machine, as root, where vm-run has connected
# the disks nqn.vm-run:pool0 and pool1 of a target at 127.0.0.1.  Prints "case NAME MS" for each case: over TCP, then over
# RDMA with soft-RoCE.
set -euo pipefail
build=$1
ports=/sys/kernel/config/nvmet/ports
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
# controller - of the disk
controller() {
	grep -lx "$nqn" /sys/class/nvme/nvme*/subsysnqn | cut -d/ -f5
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
# The kernel says that the disk is reached over a network.
shown() {
	"$build/tools/mcctl" --master=$master --json df |
		jq -e --arg state "$1" '[.segments[] | select(.medium == "nof" and .state == $state)] | length == 1' >/dev/null
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
	nof connect --transport=$transport $nqn $address
	[ ! -s err ] || fail "$(cat err)"
	[ "$(cat "/sys/class/nvme/$(controller)/fast_io_fail_tmo")" = 5 ] || fail "I/O would wait for a link that is away"
	link_device
	"$build/master/mooncake_master" --enable_offload --default_kv_lease_ttl=0 --journal_dir="$work/journal-$transport" \
		>>master.log 2>&1 &
	server=$!
	start_owner --ssd_format
	shown ok || fail "no NoF disk: $("$build/tools/mcctl" --master=$master --json df)"
	blocks put 0 80 >out || fail "puts failed: $(cat out)"
	wait_until "copies are not written" offload_idle
	all_blocks || fail "objects are not equal"
}

disconnected_and_connected() {
	nof disconnect $nqn
	unreadable
	nof connect --transport=$transport $nqn $address
	link_device
	wait_until "objects are not readable after the device is back" all_blocks
}

# The connection is cut, and refused until the target is back.
target_away_and_back() {
	rm "$target"
	unreadable
	wait_until "the disk is not shown as paused" shown paused
	ln -s /sys/kernel/config/nvmet/subsystems/$nqn "$target"
	wait_until "objects are not readable after the target is back" all_blocks
	wait_until "the disk is still shown as paused" shown ok
}

owner_killed() {
	kill -9 "$owner"
	wait "$owner" || :
	start_owner
	wait_until "objects are not readable after a kill" all_blocks
}

end() {
	[ "$(metric mooncake_master_bad_disk_copies_total)" = 0 ] || fail "copies were dropped"
	grep -E 'pausing|works again' owner.log
	kill "$owner" "$server"
	wait "$owner" "$server" || :
	mv owner.log "owner-$transport.log"
}

# over TRANSPORT NQN ADDRESS PORT CASE...
over() {
	transport=$1 nqn=$2 address=$3 target=$ports/$4/subsystems/$2
	shift 4
	cases "$@"
}

# Each port has one subsystem: without it, the port refuses connections, as a target that is away.  One that still
# answered would say that it has no such subsystem, and the kernel would not try again.
nof disconnect nqn.vm-run:pool1
rm $ports/1/subsystems/nqn.vm-run:pool1
nof disconnect nqn.vm-run:pool0
nof list
[ ! -s out ] || fail "still connected: $(cat out)"
over tcp nqn.vm-run:pool0 127.0.0.1 1 connect disconnected_and_connected target_away_and_back owner_killed end

modprobe -a nvmet-rdma nvme-rdma || fail "the machine's kernel has no nvmet-rdma or nvme-rdma"
rdma_address=$(ip -4 -br addr show dev nic0 | awk '{ sub("/.*", "", $3); print $3 }')
mkdir $ports/2
echo rdma >$ports/2/addr_trtype
echo ipv4 >$ports/2/addr_adrfam
echo "$rdma_address" >$ports/2/addr_traddr
echo 4421 >$ports/2/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/nqn.vm-run:pool1 $ports/2/subsystems/
# Without a case for nic0 down and up: with both ends on one soft-RoCE device, this kernel's initiator does not come back.
over rdma nqn.vm-run:pool1 "$rdma_address:4421" 2 connect disconnected_and_connected target_away_and_back owner_killed end
