# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# mcctl_functions.sh - for the tests of the tools: a pool, and mcctl configured for it.
: "${tmp:?}" "${top_builddir:?}"
requires jq

# start_pool SIZE [MASTER-FLAG...] - start a master and a process that only contributes memory:
# mcbench waiting between two requests with timestamps one day apart
start_pool() {
	local size=$1
	shift
	start_master "$@"
	printf '{"timestamp": 0, "hash_ids": [1]}\n{"timestamp": 86400000, "hash_ids": [1]}\n' >"$tmp/day.jsonl"
	spawn donor "$top_builddir/tools/mcbench" --master="$MASTER" --segment_size="$size" --speed=1 \
		--threads=1 --block_size=1 --seed=4711 --json replay "$tmp/day.jsonl"
	DONOR_PID=$SPAWNED
	started "$DONOR_PID" donor 20 ctl stat mcbench/1-4711/1
	ctl rm -f mcbench/1-4711/1
}

ctl() {
	"$top_builddir/tools/mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" "$@"
}

# status WANTED COMMAND... - check the exit status; standard error is in $tmp/stderr
status() {
	local wanted=$1 got=0
	shift
	"$@" 2>"$tmp/stderr" || got=$?
	[ "$got" -eq "$wanted" ] || fail "status $got instead of $wanted: $*: $(cat "$tmp/stderr")"
}
