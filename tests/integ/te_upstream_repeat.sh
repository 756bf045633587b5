#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Upstream nodes that are found, used and killed, MC_REPEAT times (60): right bytes, running
# transfers end, and no descriptor, thread or registration is leaked.
repeat=${MC_REPEAT:-60}
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
. "${top_srcdir:?}/tests/integ/te_mover_functions.sh"
UPSTREAM_PYTHON=''
upstream_python 0.3.13.post1
export MC_TCP_PROGRESS_TIMEOUT_SEC=10 MC_TCP_STATUS_TIMEOUT_SEC=10
late=20000
warm=12
bytes=$((8 << 20))
talker nursery "$UPSTREAM_PYTHON" "$top_srcdir/tests/integ/te_upstream_nursery.py"
answer nursery 60
mover client P2PHANDSHAKE 127.0.0.1
told client offer $bytes

# settled - no more is held than after the first rounds; connections that have lost their peer are
# closed after a moment
settled() {
	told client held
	read -r fds threads regions <<<"$ANSWER"
	[ "$fds" -le "$fds0" ] && [ "$threads" -le "$threads0" ] && [ "$regions" -eq "$regions0" ]
}

declare -A ends=()
fds0=0 threads0=0 regions0=0
for ((i = 0; i < repeat; i++)); do
	told nursery $bytes
	read -r name pid <<<"$ANSWER"
	told client open "$name"
	[[ $ANSWER == open* ]] || fail "round $i, $name: $ANSWER"
	expect client same echo $((1 << 20))
	case $((i % 4)) in
	0 | 1)
		op='read'
		[ $((i % 4)) -eq 0 ] || op='write'
		expect client moving stream $op $((4 << 20)) 0
		kill -KILL "$pid"
		stream_ends client failed $late >"$tmp/end"
		;;
	2)
		# dead before the next request
		kill -KILL "$pid"
		wait_for 20 gone "$pid"
		told client stream read $((4 << 20)) 0
		[[ $ANSWER == failed* ]] || fail "round $i: a dead node: $ANSWER"
		;;
	3)
		kill -KILL "$pid"
		;;
	esac
	ends[$((i % 4))]=$((${ends[$((i % 4))]-0} + 1))
	expect client ok again $bytes
	if [ "$i" -eq $warm ]; then
		told client held
		read -r fds0 threads0 regions0 <<<"$ANSWER"
	fi
done
echo "killed: ${ends[0]} while read from, ${ends[1]} while written to, ${ends[2]} before a transfer, ${ends[3]} after one"
wait_for 60 settled || fail "held: $fds descriptors, $threads threads, $regions regions; before $fds0, $threads0, $regions0"
echo "descriptors, threads, regions: $fds0 $threads0 $regions0 after $warm rounds, $fds $threads $regions after $repeat"
