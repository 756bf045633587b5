#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shrink.sh DIR SEED SECONDS MODE [TRIES] - make the failed run that nemesis.sh has kept in DIR smaller: repeat its plan
# with half of the keys while that fails, then without parts of its actions.  Threads interleave differently each time, so
# a smaller run counts as right only after TRIES (3) runs.  The result is DIR/plan.small.
set -euo pipefail
: "${top_srcdir:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${top_builddir:=$top_srcdir/build}"
export top_srcdir top_builddir
dir=${1:?usage: shrink.sh DIR SEED SECONDS MODE [TRIES]} seed=$2 seconds=$3 mode=$4 tries=${5:-3}

# fails PLAN KEYS
fails() {
	local try
	for ((try = 0; try < tries; try++)); do
		HIST_PLAN=$1 HIST_KEYS=$2 HIST_OUT=$dir/small "$top_srcdir/tests/history/nemesis.sh" "$seed" "$seconds" "$mode" \
			>"$dir/shrink.log" 2>&1 || ! grep -q '^VIOLATION' "$dir/shrink.log" || return 0
	done
	return 1
}

keys=${HIST_KEYS:-24}
cp "$dir/plan" "$dir/plan.small"
fails "$dir/plan.small" "$keys" || { echo "not reproduced in $tries runs"; exit 1; }
while [ "$keys" -gt 1 ] && fails "$dir/plan.small" $((keys / 2)); do
	keys=$((keys / 2))
	echo "keys: $keys"
done
# leave out halves, then quarters, ... of the actions
part=$(($(wc -l <"$dir/plan.small") / 2))
while [ "$part" -ge 1 ]; do
	first=1
	while [ "$first" -le "$(wc -l <"$dir/plan.small")" ]; do
		sed "$first,$((first + part - 1))d" "$dir/plan.small" >"$dir/plan.less"
		if fails "$dir/plan.less" "$keys"; then
			mv "$dir/plan.less" "$dir/plan.small"
			echo "actions: $(wc -l <"$dir/plan.small")"
		else
			first=$((first + part))
		fi
	done
	part=$((part / 2))
done
rm -f "$dir/plan.less"
echo "again with: HIST_PLAN=$dir/plan.small HIST_KEYS=$keys $top_srcdir/tests/history/nemesis.sh $seed $seconds $mode"
cat "$dir/plan.small"
