#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each source file of tests/perf belongs to a program of EXTRA_PROGRAMS, all of which tests/integ/perf_programs.sh runs;
# each script is in the tarball and parses; the programs that scripts name exist.
set -eu
cd "${top_srcdir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0
python=$(command -v "${PYTHON3:-python3}" || :)
complain() {
	echo "$*"
	status=1
}
# words VARIABLE - its words in all fragments, with the path from the top
words() {
	awk -v name="$1" '
		$1 == name && $2 == "+=" { on = 1; $1 = $2 = "" }
		on { more = sub(/\\$/, ""); gsub(/%D%/, "tests"); print; on = more }' tests/*.am | tr -s ' \t' '\n'
}
words EXTRA_PROGRAMS >"$tmp/programs"
words EXTRA_DIST >"$tmp/dist"
# Further source files of these programs.
while read -r program; do
	variable=%C%_$(echo "${program#tests/}" | tr / _)_SOURCES
	awk -v name="$variable" '$1 == name { $1 = $2 = ""; gsub(/%D%/, "tests"); print }' tests/*.am
done <"$tmp/programs" | tr -s ' \t' '\n' >"$tmp/sources"
[ "$(wc -l <"$tmp/programs")" -ge 19 ] || complain "EXTRA_PROGRAMS is not found in tests/*.am"
for file in tests/perf/*; do
	case $file in
	*.c)
		grep -qx "${file%.c}" "$tmp/programs" || grep -qx "$file" "$tmp/sources" ||
			complain "$file: not in EXTRA_PROGRAMS, so nothing runs it"
		;;
	*.h) grep -qxE "$file" "$tmp/dist" "$tmp/sources" || complain "$file: not in EXTRA_DIST" ;;
	*) grep -qx "$file" "$tmp/dist" || complain "$file: not in EXTRA_DIST" ;;
	esac
	case $file in
	*.sh) bash -n "$file" || complain "$file does not parse" ;;
	*.py)
		[ -z "$python" ] || "$python" -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$file" ||
			complain "$file does not parse"
		;;
	esac
done
grep -hoE 'top_(builddir|srcdir)(:\?)?\}?/tests/perf/[a-z_]+(\.(sh|py))?' tests/perf/*.sh tests/integ/*.sh | sed 's,.*}*/tests/,tests/,' |
	sort -u >"$tmp/named"
while read -r file; do
	[ -f "$file" ] || grep -qx "$file" "$tmp/programs" || complain "$file does not exist, but a script names it"
done <"$tmp/named"
exit $status
