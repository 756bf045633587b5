#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcctl whatif: the real hit ratio, and the estimates for less and more memory, against pools of these sizes.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/integ/mcctl_functions.sh"
requires python3
python3 "$top_srcdir/tests/perf/make_trace.py" chat --requests 6000 --seed 5 >"$tmp/chat.jsonl"
whole() {
	awk -v v="$1" 'BEGIN { printf "%d", v + 0.5 }'
}

# 1024 blocks of 4 KiB; the background evictor does not run, and no leases keep the blocks that a fast replay has read
start_pool 4MiB --eviction_high_watermark_ratio=1 --default_kv_lease_ttl=0 --index_seed=1 \
	--token_recompute_time=0.001 --tokens_per_object=100
ctl whatif >"$tmp/new"
grep -q 'that is little, ask again later' "$tmp/new" || fail "$(cat "$tmp/new")"
"$top_builddir/tools/mcbench" --master="$MASTER" --threads=1 --block_size=4KiB --json replay "$tmp/chat.jsonl" >"$tmp/run.json"
ctl whatif --json >"$tmp/whatif.json"
jq -e '.policy == "learn" and (.memory | length) == 4 and .disks == [] and .keys_found <= .keys_asked' "$tmp/whatif.json" \
	>/dev/null || fail "$(cat "$tmp/whatif.json")"
# mcbench and the master count the same
equal "real hits, in permille" "$(whole "$(jq '.hit_ratio * 1000' "$tmp/whatif.json")")" \
	"$(whole "$(jq '.hits.block_ratio * 1000' "$tmp/run.json")")"
jq -e '.memory[1] | (.recompute_seconds_saved / .hit_ratio) > 0' "$tmp/whatif.json" >/dev/null || fail "$(cat "$tmp/whatif.json")"
ctl whatif >"$tmp/text"
grep -qE '^memory x 2 +8 MiB +[0-9.]+% +[0-9]+ s$' "$tmp/text" || fail "$(cat "$tmp/text")"
curl -sf "http://$MASTER_HTTP/metrics" >"$tmp/metrics"
for size in real 'memory\*0.5' 'memory\*1' 'memory\*2' 'memory\*4' endless; do
	grep -qE "^mooncake_master_hit_ratio\{size=\"$size\"\} 0\.[0-9]+" "$tmp/metrics" || fail "no metric of $size"
done

# the same requests on pools of the other sizes
"$top_builddir/tools/mcbench" --threads=1 --block_size=4KiB --pool_blocks=512,1024,2048,4096 --policies=learn \
	--csv="$tmp/real.csv" replay "$tmp/chat.jsonl" >"$tmp/table"
for i in 0 1 2 3; do
	real=$(awk -F, -v row=$((i + 2)) 'NR == row { print $8 }' "$tmp/real.csv")
	jq -e --argjson i "$i" --argjson real "$real" '.memory[$i].hit_ratio * 100 - $real | fabs < 2.5' "$tmp/whatif.json" \
		>/dev/null || fail "size $i: real $real, expected $(jq -c .memory "$tmp/whatif.json")"
done

# ---- errors
status 3 ctl --metrics_port=1 whatif
grep -q 'cannot ask the master.s HTTP server: .*--metrics_port' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
status 2 ctl whatif more
