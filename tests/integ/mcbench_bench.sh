#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcbench bench measures each operation for each size together with its reference, and leaves nothing behind.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/integ/mcctl_functions.sh"
start_master
bench() {
	"$top_builddir/tools/mcbench" --master="$MASTER" "$@"
}

bench --segment_size=64MiB --threads=2 --batch=4 --duration=50ms --sizes=4KiB,100000 --working_set=8MiB \
	--json bench >"$tmp/bench.json"
equal "rows" "$(jq -c 'map([.op, .size])' "$tmp/bench.json")" \
	'[["put",4096],["get",4096],["exists",4096],["put",100000],["get",100000],["exists",100000]]'
jq -e 'all(.[]; .objects > 0 and .failed == 0 and .x_socket > 0 and .latency_ns.p50 > 0)' "$tmp/bench.json" >/dev/null ||
	fail "$(cat "$tmp/bench.json")"
jq -e 'all(.[] | select(.op != "exists"); .x_memcpy > 0 and .bytes_per_second > 0)' "$tmp/bench.json" >/dev/null ||
	fail "$(cat "$tmp/bench.json")"

bench --segment_size=64MiB --threads=1 --batch=1 --duration=20ms --sizes=4KiB --working_set=1MiB bench >"$tmp/text"
equal "lines of the table" "$(wc -l <"$tmp/text")" 5

status 3 bench --segment_size=64MiB --working_set=64MiB bench
grep -q 'does not fit' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
status 2 bench --segment_size=64MiB --sizes=4KiB,x bench
status 2 bench --segment_size=64MiB --working_set=1MiB --sizes=1MiB bench
