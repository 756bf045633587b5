#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Over a link with a delay of 1 ms each way and 1 % loss transfers go on, of our protocol and of upstream's.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/engine_functions.sh"
requires_netns
[ -w /dev/net/tun ] || skip "/dev/net/tun cannot be opened here"
two_nodes
PEER_A=10.78.0.1 PEER_B=10.78.0.2
poor() {
	in_ns "$1" ip tuntap add dev poor mode tun 2>"$tmp/tun.log" ||
		skip "no tun device can be made: $(head -n 1 "$tmp/tun.log")"
	in_ns "$1" ip addr add "$2" peer "$3" dev poor
	in_ns "$1" ip link set poor up
}
poor "$NS_A" "$PEER_A" "$PEER_B"
poor "$NS_B" "$PEER_B" "$PEER_A"
spawn link "$top_builddir/tests/integ/poor_link" "$NS_A" poor "$NS_B" poor 1000 10000
started "$SPAWNED" "the link" 10 grep -q ready "$tmp/link.log"

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
