#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-14 reports no warning in any source file ("make check-clang" builds with it).
set -eu
clang=$(command -v clang-14 || command -v clang) || { echo "SKIP: clang is not installed"; exit 77; }
cd "${top_srcdir:?}"
# Each file on its own, so that all of them are reported.
find common proto meta engine tiers client master node mcfs tools ${PYTHON_CFLAGS:+python} tests -name '*.c' | sort |
	xargs -P 2 -n 8 "$clang" -D_GNU_SOURCE -I include -I . -I "${top_builddir:?}" \
		${LINT_CFLAGS-} ${LINT_WARNINGS-} -Werror -fsyntax-only
