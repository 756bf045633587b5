#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No operation of tests/perf/COST costs more instructions than its budget.
#
#	cost.sh			the test: a row may exceed its budget by 1 %
#	cost.sh --print		the table, with any compiler
#	cost.sh --lower		write lower counts as budgets; nothing raises a budget
#
# callgrind counts, so the result depends on the compiler and on libc, but not on the processor or its load.
. "${top_srcdir:-$(dirname "$0")/../..}/tests/lib/functions.sh"

mode=${1-}
budgets=$top_srcdir/tests/perf/COST

# of VARIABLE - its value in the Makefile
of() {
	sed -n "s/^$1 = *//p" "$top_builddir/Makefile" | head -n 1
}

# comparable - skip where the counts are not those of the budgets
comparable() {
	local libc opt
	[ "$(uname -m)" = x86_64 ] || skip "the budgets are those of x86_64"
	[ -z "$(of SANITIZER_CFLAGS)" ] || skip "a sanitizer adds instructions"
	case $($(of CC) --version | head -n 1) in
	*gcc*' 12.'*) ;;
	*) skip "the budgets are those of gcc 12" ;;
	esac
	opt=$(of CFLAGS | grep -oE -- '-O[^ ]*|-fprofile[^ ]*|--coverage|-m(arch|tune)=[^ ]*' | tr '\n' ' ')
	[ "$opt" = '-O2 ' ] || skip "the budgets are those of -O2, not of ${opt:-no optimisation}"
	libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
	[ "$libc" = 'glibc 2.36' ] || skip "the budgets are those of glibc 2.36, not of ${libc:-another libc}"
}

# count PROGRAM - append "ROW INSTRUCTIONS" per operation of each of its rows to $tmp/counts.  libc must not choose
# its functions by the processor.
count() {
	local program=$top_builddir/tests/perf/$1 dumps row n
	mkdir "$tmp/$1"
	cd "$tmp/$1"
	dumps=$("$program" | sed 's/^\([a-z_]*\) .*/--dump-after=row_\1/')
	# shellcheck disable=SC2086
	GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-BMI2 \
		"$top_builddir/libtool" --mode=execute valgrind --tool=callgrind --callgrind-out-file=out \
		--collect-atstart=no '--toggle-collect=row_*' $dumps "$program" >rows 2>err ||
		{ cat err; fail "valgrind: $1"; }
	while read -r row n; do
		awk -v n="$n" -v row="$row" '
			/^desc: Trigger:/ { found = $0 ~ "--dump-after=row_" row "$" }
			/^(summary|totals):/ && found { printf "%s %.0f\n", row, $2 / n; exit }
		' out*
	done <rows >>"$tmp/counts"
	[ "$(wc -l <rows)" -gt 0 ] || fail "$1 has no rows"
}

type valgrind >/dev/null 2>&1 || skip "valgrind is not installed"
[ "$mode" = --print ] || comparable
unset MALLOC_PERTURB_
top_builddir=$(cd "$top_builddir" && pwd)
top_srcdir=$(cd "$top_srcdir" && pwd)
count cost
count cost_mcfs

# budget, count and meaning of each row; "-": none
awk '
	FNR == NR { count[$1] = $2; next }
	/^#/ || NF < 2 { next }
	{ printf "%-14s %8d %8s", $1, $2, $1 in count ? count[$1] : "-"; $1 = $2 = ""; print }
' "$tmp/counts" "$budgets" >"$tmp/table"

case $mode in
--print)
	echo 'row              budget      now'
	cat "$tmp/table"
	;;
--lower)
	awk '
		FNR == NR { count[$1] = $2; next }
		!/^#/ && $1 in count && count[$1] < $2 { sub($1 " *" $2, sprintf("%-14s %8d", $1, count[$1])) }
		{ print }
	' "$tmp/counts" "$budgets" >"$tmp/new"
	diff "$budgets" "$tmp/new" || cat "$tmp/new" >"$budgets"
	;;
*)
	awk '$3 == "-" || $3 > $2 * 1.01' "$tmp/table" >"$tmp/over"
	awk '$3 != "-" && $3 < $2 * 0.99 { print $1 ": " $3 " instructions, the budget is " $2 }' "$tmp/table" >"$tmp/under"
	[ ! -s "$tmp/under" ] || { cat "$tmp/under"; echo 'Commit lower budgets: tests/perf/cost.sh --lower'; }
	[ ! -s "$tmp/over" ] || { cat "$tmp/over"; fail "rows (row, budget, instructions now) cost more than their budget"; }
	awk '{ print $1 }' "$tmp/counts" | sort >"$tmp/counted"
	awk '{ print $1 }' "$tmp/table" | sort >"$tmp/budgeted"
	diff "$tmp/counted" "$tmp/budgeted" || fail "rows without a budget in tests/perf/COST"
	;;
esac
