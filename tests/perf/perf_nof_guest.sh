#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perf_nof_guest.sh BUILD SOURCE - the part of perf_nof.sh that runs in the virtual machine, as root: prints the rates of
# fio, of the tier, and of the tier on a file in memory in MB/s, "fio_write 1.5" and so on, three times each.
set -euo pipefail
build=$1
work=$(mktemp -d)
cd "$work"
# shellcheck source=tests/lib/guest.sh
. "$2/tests/lib/guest.sh"
master=127.0.0.1:50051
device=$(echo /dev/nvme*n1)
[ -b "$device" ] || fail "no NVMe device: $device"
block=1048576 n=64 depth=32

fio_rate() {
	fio --name=x --filename="$device" --rw="rand$1" --bs=$block --iodepth=$depth --ioengine=io_uring --direct=1 \
		--size=$((n * block)) --loops=2 --output-format=json | jq ".jobs[0].$1.bw_bytes / 1e6"
}
# tier DISK - "write" and "read" with a new master
tier() {
	"$build/master/mooncake_master" --enable_offload --offload_on_evict --default_kv_lease_ttl=0 >master.log 2>&1 &
	pid=$!
	wait_until "the master does not start" "$build/tools/mcctl" --master=$master df
	"$build/tests/perf/perf_ssd" $master "$1" $block $n $depth
	kill -9 $pid
	wait $pid || :
}
for _ in 1 2 3; do
	echo "fio_write $(fio_rate write)"
	echo "fio_read $(fio_rate read)"
	# Only a blank device is initialised.
	dd if=/dev/zero of="$device" bs=1M count=$n oflag=direct status=none
	tier "$device"
	mkdir -p /dev/shm/disk
	tier /dev/shm/disk | sed 's/^/memory_/'
	rm -rf /dev/shm/disk
done
