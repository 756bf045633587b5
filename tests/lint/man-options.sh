#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The manual is complete and correct: every option and command of every program is in its page and in
# --help; an option of upstream that a program lacks is refused with the reason; every function and constant
# of mcs.h is in mcs(3), with correct prototypes; the example compiles; and groff prints no warning.
set -eu
cd "${top_builddir:?}"
command -v groff >/dev/null || { echo "SKIP: groff is not installed"; exit 77; }
programs='tools/mcctl tools/mcbench tools/mooncake_http_metadata_server tools/transfer_engine_bench master/mooncake_master node/mooncake_client mcfs/mcfs'
pages='man/mcctl.1 man/mcbench.1 man/mooncake_master.1 man/mooncake_client.1 man/mooncake_http_metadata_server.1 man/mcs.3 man/mcfs.1 man/mcfs.5 man/transfer_engine.7 man/transfer_engine.3 man/transfer_engine_bench.1'
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# CC may be several words, as "ccache gcc".
compile() {
	# shellcheck disable=SC2086
	${CC:?} "$@"
}

bad() {
	echo "$*"
	status=1
}

# check_options PROGRAM PAGE
check_options() {
	"./$1" --print_config >"$tmp/config"
	"./$1" --help >"$tmp/help"
	[ "$(wc -l <"$tmp/config")" -gt 3 ] || bad "$1 --print_config has no options"
	while read -r name _; do
		grep -qE -- "^  --$name(=| |\$)" "$tmp/help" || bad "$1 --help: no --$name"
		grep -qF -- "\\fB\\-\\-$name\\fR" "$2" || bad "$2: no --$name"
	done <"$tmp/config"
}

# SYNOPSIS has each command of --help, and DESCRIPTION describes it.
check_commands() {
	sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' "$tmp/help" >"$tmp/commands"
	while read -r name; do
		sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "$2" | grep -qF "\\fB$name\\fR" ||
			bad "$2: SYNOPSIS has not $name"
		sed -n '/^\.SH DESCRIPTION/,$p' "$2" |
			grep -qE "^(\.B |\\\\fB)$name( |\\\\|\$)" || bad "$2: says nothing of $name"
	done <"$tmp/commands"
}

# Options that a program lacks have a section of their own; setting one fails with the reason.
check_absent() {
	sed -n '/^\.SH .*LACKS/,/^\.SH [^O]/s/^\\fB\\-\\-\(.*\)\\fR$/\1/p' "$2" >"$tmp/absent"
	while read -r name; do
		if "./$1" "--$name=7654321" >"$tmp/out" 2>&1; then
			bad "$1 --$name=7654321: no error, but $2 says that it is absent"
		elif ! grep -q "$name.*not built into this version" "$tmp/out"; then
			bad "$1 --$name=7654321: $(cat "$tmp/out")"
		fi
	done <"$tmp/absent"
	sed -n '/^\.SH UPSTREAM OPTIONS WITHOUT EFFECT/,/^\.SH [^U]/s/^\\fB\\-\\-\(.*\)\\fR$/\1/p' "$2" >"$tmp/idle"
	while read -r name; do
		# a value of an option: master_flags.sh
		case $name in *=*) continue ;; esac
		"./$1" --print_config "--$name=7654321" 2>&1 | grep -q "$name has no effect: " ||
			bad "$1 --$name=7654321: no warning, but $2 says that it has no effect"
	done <"$tmp/idle"
}

check_warnings() {
	groff -t -man -Tutf8 -ww "$1" >"$tmp/page" 2>"$tmp/warnings" || bad "$1: groff fails"
	[ ! -s "$tmp/warnings" ] || bad "$1: $(cat "$tmp/warnings")"
	if command -v man >/dev/null; then
		LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -l "$1" >/dev/null 2>"$tmp/warnings" || :
		[ ! -s "$tmp/warnings" ] || bad "$1: man: $(cat "$tmp/warnings")"
	fi
	if grep -nE '@[A-Z]+@' "$1"; then
		bad "$1: something was not filled in"
	fi
}

# The page has all names of mcs.h, and the declarations in its SYNOPSIS agree with the header.
check_library() {
	header=${top_srcdir:?}/include/mooncake/mcs.h
	compile -fpreprocessed -dD -E -P "$header" >"$tmp/header"
	grep -oE '\bmcs_[a-z_]+\(' "$tmp/header" | sort -u >"$tmp/functions"
	[ "$(wc -l <"$tmp/functions")" -gt 30 ] || bad "$header: too few functions were found"
	sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' man/mcs.3 >"$tmp/synopsis"
	sed -n '/^\.SH DESCRIPTION/,/^\.SH EXAMPLES/p' man/mcs.3 >"$tmp/description"
	while read -r name; do
		name=${name%(}
		grep -qF "$name(" "$tmp/synopsis" || bad "mcs.3: SYNOPSIS has not $name()"
		grep -qw "$name" "$tmp/description" || bad "mcs.3: says nothing of $name()"
	done <"$tmp/functions"
	for name in $(grep -oE '\bMCS_[A-Z_]+\b' "$tmp/header" | sort -u); do
		grep -qw "$name" "$tmp/description" || bad "mcs.3: says nothing of $name"
	done
	{
		echo '#include <mooncake/mcs.h>'
		groff -man -Tascii -P-c -P-b -P-u man/mcs.3 |
			sed -n '/^SYNOPSIS/,/^ *Link with/p' | sed -e '1d' -e '/#include/d' -e '/Link with/d'
	} >"$tmp/synopsis.c"
	compile -I"$top_srcdir/include" -fsyntax-only "$tmp/synopsis.c" || bad "mcs.3: wrong prototypes"
}

# The example of the page, as a reader would copy it, compiles.
check_example() {
	sed -n '/^\.SH EXAMPLES/,$p' man/mcs.3 | sed -n '/^\.EX/,/^\.EE/p' |
		sed -e '/^\.EE/,$d' -e 1d -e 's/^\\&//' -e 's/\\e/\\/g' >"$tmp/example.c"
	compile -std=c99 -Wall -Wextra -Werror -I"$top_srcdir/include" -c "$tmp/example.c" \
		-o "$tmp/example.o" || bad "mcs.3: the example does not compile"
	sed 1d "$top_srcdir/man/mcs_example.c" | cmp - "$tmp/example.c" ||
		bad "mcs.3: the example is not that of man/mcs_example.c"
}

# Both sections of the page have all functions of the transfer engine's headers.
check_engine() {
	cat "${top_srcdir:?}/include/mooncake/transfer_engine_c.h" "$top_srcdir/include/mooncake/mce_te.h" >"$tmp/engine.h"
	compile -fpreprocessed -dD -E -P "$tmp/engine.h" |
		grep -oE '\b(mce_te_[a-z_]+|[a-z]+[A-Z][A-Za-z]*)\(' | sort -u >"$tmp/functions"
	[ "$(wc -l <"$tmp/functions")" -ge 60 ] || bad "too few functions of the transfer engine were found"
	sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' man/transfer_engine.3 >"$tmp/synopsis"
	sed -n '/^\.SH DESCRIPTION/,$p' man/transfer_engine.3 >"$tmp/description"
	while read -r name; do
		grep -qF "$name" "$tmp/synopsis" || bad "transfer_engine.3: SYNOPSIS has not $name)"
		grep -qw "${name%(}" "$tmp/description" || bad "transfer_engine.3: says nothing of $name)"
	done <"$tmp/functions"
}

for program in $programs; do
	page=man/${program##*/}.1
	check_options "$program" "$page"
	check_commands "$program" "$page"
	check_absent "$program" "$page"
done
for page in $pages; do
	check_warnings "$page"
done
check_library
check_engine
check_example
exit "$status"
