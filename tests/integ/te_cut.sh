#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A link that is cut in the middle of a transfer: what has a deadline ends by it, what has none when nothing has
# moved for MC_TCP_PROGRESS_TIMEOUT_SEC, and when the link is back everything goes on, with our peers and upstream's.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
. "${top_srcdir:?}/tests/integ/te_mover_functions.sh"
requires_netns
two_nodes
export MC_TCP_PROGRESS_TIMEOUT_SEC=2 MC_TCP_STATUS_TIMEOUT_SEC=2
# a machine that does other things too is late now and then
late=30000

link() { in_ns "$NS_A" ip link set veth-a "$1"; }

# moves KIND OP - a transfer without a deadline.  To a peer of upstream's a lane that was cut may be the last to be back,
# and takes what is written over it along when it is dropped: what has begun there cannot be sent again.
moves() {
	told client stream "$2" $((4 << 20)) 0
	[ "$ANSWER" = moving ] || [ "$1/$2" = upstream/write ] || fail "$1, $2: a stream says $ANSWER at once"
	[ "$ANSWER" = moving ]
}

# cut_during KIND OP - the client has a segment open
cut_during() {
	expect client same echo $((8 << 20))
	# with a deadline
	expect client moving stream "$2" $((4 << 20)) 1500
	link down
	stream_ends client timeout $((1500 + late))
	link up
	wait_for 20 echoes "$1" "$2"
	# without: it is given up when nothing moves, or it fails to connect again
	wait_for 20 moves "$1" "$2"
	link down
	stream_ends client failed $((9000 + late))
	link up
	wait_for 20 echoes "$1" "$2"
}
# echoes KIND OP - in the end; as above, upstream's may still be taking what was given up while the first echo is written
echoes() {
	told client echo $((8 << 20))
	[ "$ANSWER" != different ] || [ "$1/$2" = upstream/write ] || fail "$1, $2: wrong bytes after the link came back"
	[ "$ANSWER" = same ]
}

# against KIND SEGMENT
against() {
	local fds='' threads='' op
	NS=$NS_B mover client P2PHANDSHAKE "$ADDR_B"
	told client offer $((64 << 20))
	told client open "$2"
	[[ $ANSWER == open* ]] || fail "$1: $ANSWER"
	# the first round starts what stays
	for op in read write; do
		echo "$1, $op"
		cut_during "$1" $op
		told client count
		[ -n "$fds" ] || read -r fds threads <<<"$ANSWER"
	done
	wait_for 20 no_more client "$fds" "$threads" || fail "descriptors and threads: $ANSWER, before $fds $threads"
	end_pid "${PIDS[client]}"
}

NS=$NS_A mover target P2PHANDSHAKE "$ADDR_A"
told target offer $((64 << 20))
against ours "$ANSWER"
# last, since it may not be there
UPSTREAM_PYTHON=''
upstream_python 0.3.13.post1
NS=$NS_A upstream_serves theirs "$ADDR_A" $((64 << 20))
against upstream "$ANSWER"
