#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdma_two_guest.sh owner|driver BUILD SHARED - the part of rdma_two_vms.sh that runs in each of two virtual machines, as
# root, with the NIC rxe_eth0; the directory SHARED is common to both.  The owner is killed with its machine.
set -euo pipefail
role=$1 build=$2 shared=$3
work=$(mktemp -d)
cd "$work"
ulimit -l unlimited
export ENGINE_ACTOR_RDMA=rxe_eth0
# shellcheck source=tests/lib/guest.sh
. "$(dirname "$0")/../lib/guest.sh"
actor=$build/tests/integ/engine_actor

if [ "$role" = owner ]; then
	mkfifo in
	exec 9<>in
	"$actor" serve 10.78.0.1 $((16 << 20)) <in >"$shared/where.new" 2>owner.log &
	wait_until "the owner does not start" test -s "$shared/where.new"
	mv "$shared/where.new" "$shared/where"
	wait
	exit
fi

drive() {
	# shellcheck disable=SC2086  # several arguments
	"$actor" drive 10.78.0.2 ours 1 $where $((16 << 20)) 65536 "$1" 2>>drive.log
}

two_machines() {
	wait_until "no owner" test -s "$shared/where"
	read -r _ where <"$shared/where"
	drive 3 >out || fail "transfers failed: $(cat out)"
	read -r rate others _ <out
	[ "$rate" -gt 0 ] && [ "$others" -eq 0 ] || fail "$rate bytes/s, $others transfers over other paths"
}

# The host stops the owner's machine when "moving" appears.
machine_killed() {
	drive 60 >out &
	local driver=$! begin
	sleep 2
	touch "$shared/moving"
	wait_until "the machine is not killed" test -e "$shared/killed"
	begin=$SECONDS
	if wait "$driver"; then fail "transfers to a dead machine succeed"; fi
	[ $((SECONDS - begin)) -lt 20 ] || fail "the end of the machine was noticed only after $((SECONDS - begin)) s"
}

cases two_machines machine_killed
