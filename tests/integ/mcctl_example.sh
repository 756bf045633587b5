#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The example program of mcs(3) links with the library and has the described result.
. "${top_srcdir:-.}/tests/lib/functions.sh"
start_master
cd "$top_builddir"
# shellcheck disable=SC2086
./libtool --quiet --tag=CC --mode=link $CC ${SANITIZER-} -o "$tmp/example" -I"$top_srcdir/include" \
	"$top_srcdir/man/mcs_example.c" client/libmooncake_store.la
equal "output" "$(MOONCAKE_MASTER=$MASTER "$tmp/example")" '12 bytes: hello, pool'
