#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Over a link with a delay of 1 ms each way and 1 % loss transfers go on, of our protocol and of upstream's.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/engine_functions.sh"
. "${top_srcdir:?}/tests/lib/poor_link.sh"
requires_poor_link
poor_link

NS=$NS_A engine_start "$PEER_A" $((64 << 20))
for kind in ours upstream; do
	for size in 4096 65536 1048576; do
		NS=$NS_B engine_drive "$PEER_B" $kind 2 $size 3
		read -r n _ _ sum < <(rates)
		equal 'clients' "$n" 2
		echo "$kind, blocks of $size: $sum bytes/s"
		# Each of two clients has 8 blocks under way and waits for all; with a time-out of 200 ms for
		# every loss it would be 100 KB/s with blocks of 4 KiB and less than 2 MB/s with the others.
		# Sanitized programs are slow enough to look like that.
		[ -n "${SANITIZER-}" ] || awk -v sum="$sum" -v size=$size 'BEGIN { exit !(sum > (size == 4096 ? 1e6 : 4e6)) }' ||
			fail "$kind: blocks of $size collapse to $sum bytes/s"
	done
done
engine_end
