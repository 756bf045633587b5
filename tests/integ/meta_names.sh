#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Name servers that do not answer: a call ends at its deadline, abandoned lookups are counted, and a node does not wait
# for them when it ends.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
requires ip python3 unshare

printf 'nameserver 127.0.0.1\nsearch .\noptions timeout:15 attempts:1\n' >"$tmp/resolv.conf"
unnamed() {
	unshare -rnm sh -c 'mount --bind "$1" /etc/resolv.conf && shift && ip link set lo up && exec "$@"' - \
		"$tmp/resolv.conf" "$@"
}
# since US - print the microseconds since then
since() {
	echo $((${EPOCHREALTIME/./} - $1))
}
unnamed true 2>"$tmp/unnamed" || skip "no separate namespaces: $(cat "$tmp/unnamed")"
silent='import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
s.set_inheritable(True)
os.execv(sys.argv[1], sys.argv[1:])'
node_run unnamed unnamed env NODE_MS=50 python3 -c "$silent" "$top_builddir/tests/integ/meta_node" \
	http://meta.example:8080/metadata
begin=${EPOCHREALTIME/./}
expect_error unnamed 'get x' -110 meta.example
[ "$(since "$begin")" -lt 10000000 ] || fail "a call of 50 ms waited for the name servers"
for ((i = 1; i < 64; i++)); do
	expect_error unnamed 'get x' -110 meta.example
done
begin=${EPOCHREALTIME/./}
expect_error unnamed 'get x' -110 meta.example
[ "$(since "$begin")" -ge 10000000 ] || fail "the number of abandoned lookups is not limited"
node_end unnamed 10
