#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No call of any client sees wrong bytes, or a history that no pool could have, while processes are killed, stopped in
# the middle of a call, and cut from each other.  Fixed seeds; with HIST_SECONDS=N (make check-history SECONDS=N)
# random seeds for that time, until one fails.
set -euo pipefail
: "${top_srcdir:=$(cd "$(dirname "$0")/../.." && pwd)}"
here=$top_srcdir/tests/history

if [ -z "${HIST_SECONDS-}" ]; then
	"$here/nemesis.sh" 1 20 cache
	"$here/nemesis.sh" 2 20 keep
	"$here/nemesis.sh" 5 15 tiers
	"$here/nemesis.sh" 4 20 secure-disk
	exit 0
fi

results=$(mktemp)
trap 'rm -f "$results"' EXIT
status=0 begun=$SECONDS
while [ $((SECONDS - begun)) -lt "$HIST_SECONDS" ] && [ "$status" -eq 0 ]; do
	seed=$((RANDOM % 32768))
	mode=cache
	[ $((seed % 4)) -ne 0 ] || mode=keep
	[ $((seed % 4)) -ne 1 ] || mode=disk
	[ $((seed % 8)) -ne 2 ] || mode=tiers
	[ $((seed % 16)) -ne 6 ] || mode=tiers-keep
	[ $((seed % 16)) -ne 14 ] || mode=tiers-shared
	[ $((seed % 3)) -ne 0 ] || mode=secure-$mode
	mode=${HIST_MODE:-$mode}
	"$here/nemesis.sh" "$seed" "${HIST_RUN_SECONDS:-60}" "$mode" >"$results.run" || status=1
	cat "$results.run"
	grep '^seed=' "$results.run" >>"$results" || :
done
rm -f "$results.run"
# In some runs over ranks together, objects came back from each.
for from in far disk shared; do
	if [ "$(grep -c 'mode=tiers' "$results")" -ge 4 ] && ! grep -q " from_$from=[1-9]" "$results"; then
		echo "no value came back from rank $from"
		status=1
	fi
done
# sums of all numbers, in the order of their first appearance
awk '{
	for (i = 1; i <= NF; i++) {
		split($i, kv, "=")
		if (kv[1] == "seed" || kv[2] !~ /^[0-9]+$/)
			continue
		if (!(kv[1] in sum))
			order[++n] = kv[1]
		sum[kv[1]] += kv[2]
	}
}
END {
	printf "history: runs=%d", NR
	for (i = 1; i <= n; i++)
		printf " %s=%d", order[i], sum[order[i]]
	print ""
}' "$results"
exit "$status"
