#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every header compiles without a warning, alone and when it is included twice; the installed ones also
# as strict C99 and as C++.
set -eu
cd "${top_srcdir:?}"
status=0
one=$(mktemp --suffix=.c)
trap 'rm -f "$one"' EXIT
: "${LINT_CFLAGS:=}"

# try COMPILER-AND-FLAGS HEADER
try() {
	printf '#include "%s"\n#include "%s"\nextern int lint_not_empty;\n' "$2" "$2" >"$one"
	# Word splitting is wanted: $1 and LINT_CFLAGS are words of a command line.
	# shellcheck disable=SC2086
	$1 $LINT_CFLAGS -Wall -Wextra -Werror -Wno-unused-parameter -I include -I . \
		-I "${top_builddir:?}" -fsyntax-only "$one" || {
		echo "$2 does not compile alone with: $1"
		status=1
	}
}

for h in */*.h */*/*.h; do
	# Python.h may be missing; headers that need it are checked only if it was found.
	case $h in python/*) [ -n "${PYTHON_CFLAGS-}" ] || continue ;; esac
	try "${CC:?} -D_GNU_SOURCE -std=gnu11 -x c" "$h"
done
for h in include/mooncake/*.h; do
	h=${h#include/}
	try "${CC:?} -std=c99 -pedantic -x c" "$h"
	if command -v c++ >/dev/null; then
		try "c++ -std=c++11 -pedantic -x c++" "$h"
	fi
done
if [ "$status" -eq 0 ] && ! command -v c++ >/dev/null; then
	echo "SKIP: no C++ compiler for the installed headers"
	exit 77
fi
exit "$status"
