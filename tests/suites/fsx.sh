#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fsx: 100,000 random reads, writes, truncations and mappings of one file, with several seeds, on a mount
# with direct I/O and on one with the page cache.
. "${top_srcdir:-.}/tests/lib/functions.sh"
PATH=$PATH:/opt/mc-suites/bin:$HOME/.cargo/bin
requires_fuse
requires_memory 3072
requires fsx
ops=${FSX_OPS:-100000}

for mode in true false; do
	start_standalone "$tmp/$mode" --global_segment_size=512MiB -o "direct_io=$mode"
	[ "$mode" = false ] || grep -qE '^shared_mmap +yes$' "$tmp/$mode/.mcfs/stats" || {
		echo "shared mappings need Linux 6.6 here: not with direct I/O"
		continue
	}
	for seed in 1 77 4242; do
		(cd "$tmp" && timeout 1500 fsx -q -N "$ops" -S "$seed" "$tmp/$mode/file") >"$tmp/fsx.out" 2>&1 || {
			tail -n 40 "$tmp/fsx.out"
			fail "seed $seed, direct_io=$mode"
		}
	done
	unmount "$tmp/$mode"
	wait_for 15 gone "$MCFS_PID"
done
