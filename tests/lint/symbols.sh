#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libmooncake_store.so exports exactly the functions that mcs.h and store_c.h declare.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
so=$(find "${top_builddir:?}/client" -name libmooncake_store.so | head -n 1)
[ -n "$so" ] || { echo "libmooncake_store.so is not built"; exit 1; }

# The preprocessor takes the comments away; a declared name is the one before a parenthesis.
printf '#include <mooncake/mcs.h>\n#include <mooncake/store_c.h>\n' |
	${CC:?} -E -P -I "${top_srcdir:?}/include" -x c - |
	grep -oE '\b(mcs|mooncake_store)_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u >"$tmp/declared"
nm -D --defined-only "$so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
	grep -v '^__' | sort -u >"$tmp/exported"
[ -s "$tmp/declared" ] && [ -s "$tmp/exported" ]
diff -u "$tmp/declared" "$tmp/exported"
