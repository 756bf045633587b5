#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdma_two_guest.sh owner|driver BUILD SHARED KIND LOSSES - the part of rdma_two_vms.sh that runs in each of two virtual
# machines, as root, with the NIC KIND_eth0 (rxe or siw); the directory SHARED is common to both.  The owner's machine is
# cut off LOSSES times, which to the driver looks like its end, and then killed.
set -euo pipefail
role=$1 build=$2 shared=$3 kind=$4 losses=$5
work=$(mktemp -d)
cd "$work"
ulimit -l unlimited
export ENGINE_ACTOR_RDMA=${kind}_eth0
# shellcheck source=tests/lib/guest.sh
. "$(dirname "$0")/../lib/guest.sh"
actor=$build/tests/integ/engine_actor

if [ "$role" = owner ]; then
	mkfifo in
	exec 9<>in
	"$actor" serve 10.78.0.1 $((16 << 20)) <in >"$shared/where.new" 2>owner.log &
	wait_until "the owner does not start" test -s "$shared/where.new"
	mv "$shared/where.new" "$shared/where"
	for ((i = 1; i <= losses; i++)); do
		until [ -e "$shared/down.$i" ]; do sleep 0.1; done
		ip link set eth0 down
		touch "$shared/is_down.$i"
		until [ -e "$shared/up.$i" ]; do sleep 0.1; done
		ip link set eth0 up
		touch "$shared/is_up.$i"
	done
	wait
	exit
fi

drive() {
	# shellcheck disable=SC2086  # several arguments
	"$actor" drive 10.78.0.2 ours 1 $where $((16 << 20)) 65536 "$1" 2>>drive.log
}

# over_rdma SECONDS - transfers succeed, over RDMA
over_rdma() {
	local rate others
	drive "$1" >out || fail "transfers failed: $(cat out)"
	read -r rate others _ <out
	[ "$rate" -gt 0 ] && [ "$others" -eq 0 ]
}

two_machines() {
	wait_until "no owner" test -s "$shared/where"
	echo "owner there at $SECONDS s"
	read -r _ where <"$shared/where"
	over_rdma 3 || fail "rate, transfers over other paths: $(cat out)"
}

# ends_within LIMIT DRIVER FROM - transfers to a peer that is gone since FROM (microseconds) end in time, with an error.
# The driver's process ends later: soft-RoCE destroys a queue pair only when the packets that its dead link holds are gone.
ends_within() {
	wait_until "transfers to a dead machine do not end: $(cat out)" test -s out
	local ms=$(((${EPOCHREALTIME/./} - $3) / 1000))
	echo "noticed $ms ms"
	grep -q '^transfer: ' out || fail "transfers to a dead machine succeed: $(cat out)"
	[ "$ms" -le "$1" ] || fail "the end of the machine was noticed only after $ms ms"
	if [ "$i" = killed ]; then return; fi
	touch "$shared/up.$i"
	wait_until "the machine is not back" test -e "$shared/is_up.$i"
	wait "$2" || :
}

# The longest time is 3 s; the emulated machine adds its own.
cut_off() {
	local i driver
	for ((i = 1; i <= losses; i++)); do
		drive 60 >out &
		driver=$!
		sleep 2
		touch "$shared/down.$i"
		wait_until "the machine is not cut off" test -e "$shared/is_down.$i"
		ends_within 3300 "$driver" "${EPOCHREALTIME/./}"
		over_rdma 1 || over_rdma 2 || fail "RDMA does not come back: $(cat out)"
	done
}

# The host stops the owner's machine when "moving" appears.
machine_killed() {
	drive 60 >out &
	local driver=$! i=killed
	sleep 2
	touch "$shared/moving"
	wait_until "the machine is not killed" test -e "$shared/killed"
	ends_within 3300 "$driver" "${EPOCHREALTIME/./}"
}

cases two_machines cut_off machine_killed
