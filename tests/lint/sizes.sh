#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files have at most 800 lines, functions at most 100, lines of C at most 120 columns
# (a tab is 8).
set -eu
cd "${top_srcdir:?}"
found=$(mktemp)
trap 'rm -f "$found"' EXIT
files=$(find common proto meta engine tiers client master node mcfs tools python include init tests quickstart \
	-name '*.[ch]' -o -name '*.def' -o -name '*.sh' -o -name '*.py' -o -name quickstart)
# shellcheck disable=SC2086
awk -v long=100 -v wide=120 '
function width(s,    n, i, c) {
	n = 0
	for (i = 1; i <= length(s); i++) {
		c = substr(s, i, 1)
		n = c == "\t" ? n + 8 - n % 8 : n + 1
	}
	return n
}
function too_long() {
	if (lines > 800)
		print last ": " lines " lines, 800 are allowed"
}
FNR == 1 { too_long(); last = FILENAME; start = 0 }
{ lines = FNR }
FILENAME ~ /\.(c|h|def)$/ && (length($0) > wide || (/\t/ && length($0) > 12)) {
	if (width($0) > wide)
		print FILENAME ":" FNR ": " width($0) " columns"
}
# Kernel style: only the body of a function opens with a brace in the first column.
FILENAME ~ /\.[ch]$/ && /^\{/ { start = FNR; name = before }
FILENAME ~ /\.[ch]$/ && /^\}/ {
	if (start && FNR - start - 1 > long)
		print FILENAME ":" start ": " FNR - start - 1 " lines in " name
	start = 0
}
# a shell function
FILENAME !~ /\.[ch]$/ && /^[a-z_]+\(\) *\{$/ { start = FNR; name = $0 }
FILENAME !~ /\.[ch]$/ && /^\}/ && start {
	if (FNR - start - 1 > long)
		print FILENAME ":" start ": " FNR - start - 1 " lines in " name
	start = 0
}
/^[a-z].*\(/ { before = $0 }
END { too_long() }
' $files >"$found"
cat "$found"
[ ! -s "$found" ]
