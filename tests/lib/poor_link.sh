# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# poor_link.sh - connect the namespaces NS_A and NS_B by a link with 1 ms delay each way and 1 %
# loss; the addresses are PEER_A and PEER_B.  Not every kernel has netem.
# shellcheck disable=SC2154,SC2034  # variables of functions.sh, and variables for the tests
PEER_A=10.78.0.1 PEER_B=10.78.0.2

requires_poor_link() {
	requires_netns
	[ -w /dev/net/tun ] || skip "/dev/net/tun cannot be opened here"
}

# poor_end NAMESPACE ADDRESS PEER
poor_end() {
	in_ns "$1" ip tuntap add dev poor mode tun 2>"$tmp/tun.log" ||
		skip "no tun device can be created: $(head -n 1 "$tmp/tun.log")"
	in_ns "$1" ip addr add "$2" peer "$3" dev poor
	in_ns "$1" ip link set poor up
}

poor_link() {
	two_nodes
	poor_end "$NS_A" "$PEER_A" "$PEER_B"
	poor_end "$NS_B" "$PEER_B" "$PEER_A"
	spawn link "$top_builddir/tests/integ/poor_link" "$NS_A" poor "$NS_B" poor 1000 10000
	started "$SPAWNED" "the link" 10 grep -q ready "$tmp/link.log"
}
