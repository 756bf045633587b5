#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Over a link with 1 ms delay each way and 1 % loss, transfers continue in our protocol and in
# upstream's, and do not wait for a retransmission timeout of 200 ms after each loss.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/engine_functions.sh"
. "${top_srcdir:?}/tests/lib/poor_link.sh"
requires_poor_link
poor_link

# lost - print the number of retransmitted segments, and of those that only a timeout detected
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
		# a slow machine sends little in one round, so it loses little
		for ((round = 0; round < 20 && n < 20; round++)); do
			NS=$NS_B engine_drive "$PEER_B" $kind 2 $size 3
			read -r n_now late_now < <(lost)
			n=$((n_now - n_before)) late=$((late_now - late_before))
			read -r clients _ _ sum < <(rates)
			equal 'clients' "$clients" 2
		done
		echo "$kind, blocks of $size: $sum bytes/s, after $round rounds $n losses, $late timeouts"
		[ "$n" -ge 5 ] || fail "no segment was lost on this link"
		# Each of two clients has 8 blocks in flight and waits for all of them.  If the last
		# segment is lost, only the timeout of 200 ms detects it.  Most losses must be
		# repaired earlier.
		[ $((2 * late)) -le $((n + 4)) ] || fail "$kind: of $n losses $late wait for a timeout with blocks of $size"
	done
done
engine_end
