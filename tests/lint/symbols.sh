#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared libraries export exactly the functions that their installed headers declare, and
# transfer_engine(3) has those of the transfer engine.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# CC may be several words, as "ccache gcc".
compile() {
	# shellcheck disable=SC2086
	${CC:?} "$@"
}

# check ROOM LIBRARY NAME-PATTERN HEADER...
check() {
	so=$(find "${top_builddir:?}/$1" -name "$2.so" | head -n 1)
	[ -n "$so" ] || { echo "$2.so is not built"; status=1; return; }
	pattern=$3 library=$2
	shift 3
	# The preprocessor removes comments; a declared name is the one before a parenthesis.
	for h; do
		echo "#include <mooncake/$h>"
	done | compile -E -P -I "${top_srcdir:?}/include" -x c - |
		grep -oE "\b($pattern) *\(" | tr -d ' (' | sort -u >"$tmp/declared"
	nm -D --defined-only "$so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
		grep -v '^__' | sort -u >"$tmp/exported"
	[ -s "$tmp/declared" ] && [ -s "$tmp/exported" ] || { echo "$library: no functions"; status=1; }
	diff -u "$tmp/declared" "$tmp/exported" || status=1
}

check client libmooncake_store '(mcs|mooncake_store)_[a-z0-9_]+' mcs.h mcs_credential.h store_c.h
# No function of the system's headers matches these patterns.
check engine libtransfer_engine 'mce_te_[a-z_]+|[a-z]+[A-Z][A-Za-z]*' transfer_engine_c.h mce_te.h
while read -r name; do
	grep -qw -- "$name" "$top_srcdir/man/transfer_engine.3.in" || { echo "transfer_engine(3) lacks $name"; status=1; }
done <"$tmp/declared"
exit "$status"
