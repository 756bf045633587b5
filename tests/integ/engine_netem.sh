#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Over a link with a delay of 1 ms each way and 1 % loss transfers go on, of our protocol and of upstream's, and are
# not held up by each loss for the 200 ms of a time-out.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/engine_functions.sh"
. "${top_srcdir:?}/tests/lib/poor_link.sh"
requires_poor_link
poor_link

# lost - segments sent again until now, and those of them that only the end of a time-out has told of
lost() {
	local ns
	for ns in "$NS_A" "$NS_B"; do in_ns "$ns" nstat -asz TcpRetransSegs TcpExtTCPTimeouts; done |
		awk '$1 == "TcpRetransSegs" { n += $2 } $1 == "TcpExtTCPTimeouts" { late += $2 } END { print n, late }'
}

NS=$NS_A engine_start "$PEER_A" $((64 << 20))
for kind in ours upstream; do
	for size in 4096 65536 1048576; do
		read -r n_before late_before < <(lost)
		n=0 late=0
		# a slow machine sends, and loses, little in one round
		for ((round = 0; round < 20 && n < 20; round++)); do
			NS=$NS_B engine_drive "$PEER_B" $kind 2 $size 3
			read -r n_now late_now < <(lost)
			n=$((n_now - n_before)) late=$((late_now - late_before))
			read -r clients _ _ sum < <(rates)
			equal 'clients' "$clients" 2
		done
		echo "$kind, blocks of $size: $sum bytes/s, after $round rounds $n losses, $late time-outs"
		[ "$n" -ge 5 ] || fail "nothing was lost on this link"
		# Each of two clients has 8 blocks under way and waits for all of them: a last one that is lost and not
		# asked for again stands still for 200 ms.  Most losses must be made good before that.
		[ $((2 * late)) -le $((n + 4)) ] || fail "$kind: of $n losses $late wait for a time-out with blocks of $size"
	done
done
engine_end
