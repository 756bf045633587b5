# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# python.sh - for tests of the Python package; sourced after functions.sh.  python_package builds
# the package below $top_builddir/python, once for all tests, and sets PYTHON and PYTHONPATH.

# shellcheck disable=SC2154
# (variables of functions.sh)

# Python 3.10 or newer that can compile an extension.  Prefer the distribution's Python, which has
# its packages.
find_python() {
	local python
	for python in ${MC_PYTHON:+"$MC_PYTHON"} /usr/bin/python3 python3; do
		command -v "$python" >/dev/null || continue
		"$python" - 2>/dev/null <<-'P' || continue
			import os, sys, sysconfig
			import setuptools
			if sys.version_info < (3, 10):
			    sys.exit(1)
			if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
			    sys.exit(1)
		P
		PYTHON=$python
		return 0
	done
	return 1
}

# A wrapper that preloads AddressSanitizer, since Python is not linked with it.  Leaks of the
# interpreter are ignored.
sanitized_python() {
	local wrapper=$tmp/sanitized-python
	cat >"$wrapper" <<-W
		#!/bin/sh
		export LD_PRELOAD='$(${CC:-cc} -print-file-name=libasan.so)' ASAN_OPTIONS='${ASAN_OPTIONS-}:detect_leaks=0'
		exec '$(command -v "$PYTHON")' "\$@"
	W
	chmod +x "$wrapper"
	PYTHON=$wrapper
}

python_package() {
	find_python || skip "no python3 >= 3.10 with headers and setuptools (apt-get install python3-dev python3-setuptools)"
	case ${SANITIZER-} in
	'' | *address*) ;;
	*) skip "python itself is not sanitized" ;;
	esac
	local dir=$top_builddir/python
	mkdir -p "$dir"
	exec 8>"$dir/.lock"
	flock 8
	# setuptools writes next to its sources, which may be read-only: build from a copy.  The
	# copy keeps the times, so setuptools does not rebuild files that another test may load.
	rm -rf "$tmp/package"
	mkdir "$tmp/package"
	cp -r --preserve=timestamps "$top_srcdir/python" "$top_srcdir/include" "$tmp/package/"
	(cd "$tmp/package/python" && PYTHONDONTWRITEBYTECODE=1 MOONCAKE_BUILD_DIR=$top_builddir \
		CFLAGS="-Wall -Wextra -Wno-unused-parameter -Werror ${CFLAGS-} ${SANITIZER-}" \
		LDFLAGS="${LDFLAGS-} ${SANITIZER-}" "$PYTHON" -W ignore setup.py -q build --build-base "$dir/objects" --build-lib "$dir/lib") \
		>"$tmp/build.log" 2>&1 || fail "the package does not build"
	exec 8>&-
	[ -z "${SANITIZER-}" ] || sanitized_python
	export PYTHON PYTHONPATH=$dir/lib PYTHONDONTWRITEBYTECODE=1
	export PYTHONFAULTHANDLER=1
}
