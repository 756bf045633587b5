#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcbench replays a trace against a pool that is smaller than the trace's working set: every byte
# read is right, the number of hits is possible for a pool of that size, and nothing is left behind.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/integ/mcctl_functions.sh"
start_pool 64MiB --default_kv_lease_ttl=200ms
bench() {
	"$top_builddir/tools/mcbench" --master="$MASTER" "$@"
}

# Alternating conversations: each turn repeats its conversation so far and extends it; all have a
# common prefix.
awk 'BEGIN {
	srand(7)
	for (i = 0; i < 600; i++) {
		c = int(rand() * 40)
		turns[c] += 1 + int(rand() * 3)
		printf "{\"timestamp\": %d, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0, 1", i * 5
		for (j = 0; j < turns[c]; j++)
			printf ", %d", 1000 * (c + 1) + j
		print "]}"
	}
}' >"$tmp/trace.jsonl"

# in a pool that holds everything, each repeated block is a hit, since no other client removes it
bench --threads=1 --block_size=1KiB --json replay "$tmp/trace.jsonl" >"$tmp/all.json"
jq -e '.requests == 600 and .wrong_bytes == 0 and .errors == 0 and .hits.gone == 0' "$tmp/all.json" >/dev/null ||
	fail "$(cat "$tmp/all.json")"
jq -e '.hits.prefix == .hits.present and .hits.prefix_ratio == .hits.endless_pool_ratio' "$tmp/all.json" >/dev/null ||
	fail "too few hits for a large pool: $(cat "$tmp/all.json")"
equal "objects left" "$(ctl ls -R)" ""

# working set about three times the pool
distinct=$(jq .distinct_blocks "$tmp/all.json")
block=$(((64 << 20) * 3 / distinct / 4096 * 4096))
bench --threads=4 --block_size="$block" --batch=8 --json replay "$tmp/trace.jsonl" >"$tmp/small.json" ||
	fail "status $?: $(cat "$tmp/small.json")"
jq -e '.requests == 600 and .wrong_bytes == 0 and .errors == 0' "$tmp/small.json" >/dev/null ||
	fail "$(cat "$tmp/small.json")"
jq -e '.hits.prefix > 0 and .hits.prefix_ratio < .hits.endless_pool_ratio' "$tmp/small.json" >/dev/null ||
	fail "too many hits for a small pool: $(jq .hits "$tmp/small.json")"
jq -e '.get.latency_ns.p50 > 0 and .get.latency_ns.max >= .get.latency_ns["p99.9"]' "$tmp/small.json" >/dev/null ||
	fail "latencies: $(jq .get.latency_ns "$tmp/small.json")"
[ "$(ctl --json df | jq .pool.evictions)" -gt 0 ] || fail "nothing was evicted"
equal "objects left" "$(ctl ls -R)" ""

# the next run finds blocks kept by --keep, also over TCP, and only blocks with its own names
bench --requests=50 --block_size=4KiB --keep replay "$tmp/trace.jsonl" >"$tmp/text"
grep -q '^wrong bytes: 0 in 0 of' "$tmp/text" || fail "$(cat "$tmp/text")"
bench --requests=50 --block_size=4KiB --force_tcp --json replay "$tmp/trace.jsonl" >"$tmp/again.json"
jq -e '.hits.block_ratio == 1 and .put.objects == 0 and .wrong_bytes == 0' "$tmp/again.json" >/dev/null ||
	fail "$(cat "$tmp/again.json")"

# wrong bytes are detected and set the exit status
echo 'not what mcbench would put' | ctl put mcbench/4096-1/0
status 1 bench --requests=1 --block_size=4KiB replay "$tmp/trace.jsonl" >"$tmp/text"
grep -q 'WRONG BYTES: mcbench/4096-1/0' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
grep -q '^wrong bytes: 4096 in 1 of' "$tmp/text" || fail "$(cat "$tmp/text")"

# on a terminal there is a progress bar, which is erased at the end
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
	script -qec "$(printf '%q ' "$top_builddir/tools/mcbench" --master="$MASTER" --requests=100 --speed=0.5 \
		--block_size=1KiB replay "$tmp/trace.jsonl")" /dev/null </dev/null >"$tmp/screen"
	grep -qE '\[#{3,}\.{3,}\] +[1-9][0-9]% of 100 requests' "$tmp/screen" || fail "no bar: $(cat -v "$tmp/screen")"
	[ "$(grep -oE '\[#*\.*\]' "$tmp/screen" | sort -u | wc -l)" -ge 3 ] || fail "the bar does not move"
fi

# timestamps; end by --duration and by signal
begun=${EPOCHREALTIME/./}
bench --requests=100 --speed=1 --block_size=1KiB replay "$tmp/trace.jsonl" >/dev/null
[ $((${EPOCHREALTIME/./} - begun)) -ge 495000 ] || fail "timestamps were not followed"
bench --duration=100ms --speed=0.001 --json replay "$tmp/trace.jsonl" >"$tmp/short.json"
jq -e '.requests < 600' "$tmp/short.json" >/dev/null || fail "--duration has no effect"
stop_pid "$DONOR_PID"
tail -n +1 "$tmp/donor.log" | jq -e '.requests == 1' >/dev/null || fail "no report after SIGTERM"

# mistakes
status 3 bench replay "$tmp/day.jsonl"
grep -q 'the pool has no memory' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
echo '{"timestamp": 0}' >>"$tmp/trace.jsonl"
status 2 bench --segment_size=16MiB replay "$tmp/trace.jsonl"
grep -q 'trace.jsonl:601: no array hash_ids' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
status 3 bench --segment_size=16MiB replay "$tmp/none"
status 2 bench replay
status 2 bench --sizes=4KiB replay "$tmp/trace.jsonl"
status 2 bench --block_sise=4KiB replay "$tmp/trace.jsonl"
