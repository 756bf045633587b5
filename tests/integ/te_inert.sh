#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Upstream's variables that transfer_engine(7) lists as accepted and without effect: with all of
# them set to valid values, and to invalid ones, the engine behaves as without them, and names them in one line.
. "${top_srcdir:-.}/tests/lib/functions.sh"
page=$top_srcdir/man/transfer_engine.7.in
mapfile -t names < <(sed -n '/^\.SS Without effect/,/^Only upstream/p' "$page" |
	grep -oE '\b(MC|NCCL|WITH|MOONCAKE|USE)_[A-Z0-9_]*[A-Z0-9]\b' | sort -u)
# names that are prefixes of a family
mapfile -t prefixes < <(sed -n '/^and all that begin with/,/^Only upstream/p' "$page" | grep -oE '\b[A-Z_]+_\b' | sort -u)
[ "${#names[@]}" -gt 60 ] && [ "${#prefixes[@]}" -ge 10 ] || fail "${#names[@]} names, ${#prefixes[@]} families"
for prefix in "${prefixes[@]}"; do
	names+=("${prefix}ANYTHING")
done
words=$(IFS='|'; echo "${names[*]}")
# with VALUE PROGRAM - run the program with all variables set to VALUE
with() {
	env "${names[@]/%/=$1}" "$top_builddir/tests/integ/$2" >"$tmp/out" 2>&1 ||
		fail "$2 with all of them set to '$1': $(tail -n 3 "$tmp/out")"
	# each process names those that are set and begin with MC_ or MOONCAKE_, and no other message mentions any
	grep -vF 'warn env: these variables are set and have no effect in this version: ' "$tmp/out" >"$tmp/rest" || :
	fails grep -wE "$words" "$tmp/rest"
	equal "different lines that name variables" "$(sed -n 's/^.* warn env: //p' "$tmp/out" | sort -u | wc -l)" \
		"$([ -n "$1" ] && echo 1 || echo 0)"
	! grep -wE 'NCCL_IB_GID_INDEX|WITH_NVIDIA_PEERMEM|USE_BAREX' "$tmp/out" || fail "a variable of other programs is named"
}
for value in 1 0 '' -1 nonsense 99999999999999999999; do
	with "$value" te_nixl
done
# the same paths are used
with 1 te_batches
