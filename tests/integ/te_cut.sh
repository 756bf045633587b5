#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A link that is cut in the middle of a transfer: a transfer with a deadline ends by it, one without
# when no bytes have moved for MC_TCP_PROGRESS_TIMEOUT_SEC.  When the link is back everything works
# again, with our peers and upstream's.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
. "${top_srcdir:?}/tests/integ/te_mover_functions.sh"
requires_netns
two_nodes
export MC_TCP_PROGRESS_TIMEOUT_SEC=2 MC_TCP_STATUS_TIMEOUT_SEC=2
# a busy machine may be late
late=30000

link() { in_ns "$NS_A" ip link set veth-a "$1"; }

# moves KIND OP - a transfer without a deadline moves bytes.  Upstream's peer may notice the cut of
# a connection late, and bytes written to it meanwhile are lost; a WRITE that has begun there cannot
# be sent again.
moves() {
	told client stream "$2" $((4 << 20)) 0
	[ "$ANSWER" = moving ] || [ "$1/$2" = upstream/write ] || fail "$1, $2: a stream answers $ANSWER at once"
	[ "$ANSWER" = moving ]
}

# cut_during KIND OP - cut the link during transfers; the client has a segment open
cut_during() {
	expect client same echo $((8 << 20))
	# with a deadline
	expect client moving stream "$2" $((4 << 20)) 1500
	link down
	stream_ends client timeout $((1500 + late))
	link up
	wait_for 20 echoes "$1" "$2"
	# without a deadline: the transfer is given up when no bytes move, or when reconnecting fails
	wait_for 20 moves "$1" "$2"
	link down
	stream_ends client failed $((9000 + late))
	link up
	wait_for 20 echoes "$1" "$2"
}
# echoes KIND OP - echo succeeds eventually.  As above, upstream's peer may still receive a
# cancelled WRITE while the first echo is written.
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
	# the first round starts threads and connections that stay
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
# the last part, since upstream's package may be missing
UPSTREAM_PYTHON=''
upstream_python 0.3.13.post1
NS=$NS_A upstream_serves theirs "$ADDR_A" $((64 << 20))
against upstream "$ANSWER"
