#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fio writes files with a checksum in each block on node A and verifies them on node B: buffered and
# O_DIRECT; write(2), libaio and io_uring; several jobs at a time.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_memory 4096
requires fio
start_master
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=768MiB
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=768MiB
job() {
	# fio leaves files in its working directory
	(cd "$tmp" && timeout 300 fio --output="$tmp/fio.out" --name=v --create_on_open=1 --fallocate=none --size=24m \
		--numjobs="$jobs" --group_reporting --bs="$bs" --ioengine="$engine" --direct="$direct" \
		--verify=crc32c --verify_fatal=1 "$@") || { cat "$tmp/fio.out"; fail "$engine direct=$direct bs=$bs: $*"; }
}
for engine in psync libaio io_uring mmap; do
	for direct in 0 1; do
		[ "$engine$direct" != mmap1 ] || continue
		for bs in 4k 128k 1m; do
			jobs=4
			[ "$bs" != 4k ] || jobs=2
			if [ "$engine" = mmap ]; then
				# fio's mmap engine maps an existing file: write it with write(2)
				engine=psync job --directory="$tmp/a" --rw=write --do_verify=0
			else
				job --directory="$tmp/a" --rw=write --do_verify=0
			fi
			job --directory="$tmp/b" --rw=read --readonly
			rm -f "$tmp/a"/v.*
		done
	done
done
bs=4k engine=psync direct=0 jobs=1
job --directory="$tmp/a" --rw=randwrite --do_verify=1
