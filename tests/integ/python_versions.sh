#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The package compiles without warnings for every installed Python from 3.10 to 3.13, and gives the
# same results in each.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
unless_sanitized "python itself is not sanitized"

# all of them: those on the PATH, or those of pyenv
pythons=()
for minor in 10 11 12 13; do
	for python in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python3; do
		command -v "$python" >/dev/null && "$python" - "$minor" 2>/dev/null <<-'P' || continue
			import os, sys, sysconfig, venv
			header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
			sys.exit(sys.version_info[:2] != (3, int(sys.argv[1])) or not os.path.exists(header))
		P
		pythons+=("$python")
		break
	done
done
[ ${#pythons[@]} -gt 1 ] || skip "no second Python from 3.10 to 3.13 with headers"

start_master --default_kv_lease_ttl=2000
cp -r "$top_srcdir/python" "$top_srcdir/include" "$tmp/"
for python in "${pythons[@]}"; do
	version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	if ! "$python" -c 'import setuptools' 2>/dev/null; then
		"$python" -m venv "$tmp/venv-$version" >"$tmp/venv.log" 2>&1 || { echo "# $version: no virtual environment"; continue; }
		python=$tmp/venv-$version/bin/python
		timeout 120 "$python" -m pip -q install --timeout 10 --retries 0 setuptools >"$tmp/pip.log" 2>&1 ||
			{ echo "# $version: no setuptools"; continue; }
	fi
	(cd "$tmp/python" && PYTHONDONTWRITEBYTECODE=1 MOONCAKE_BUILD_DIR=$top_builddir \
		CFLAGS="-Wall -Wextra -Wno-unused-parameter -Werror ${CFLAGS-}" "$python" -W ignore setup.py -q build \
		--build-base "$tmp/objects-$version" --build-lib "$tmp/lib-$version") >"$tmp/build-$version.log" 2>&1 ||
		fail "the package cannot be built for $version"
	PYTHONPATH=$tmp/lib-$version timeout 200 "$python" "$top_srcdir/tests/python/observe.py" "$MASTER" \
		>"$tmp/$version.json" 2>"$tmp/observe-$version.log" || fail "observe.py fails in $version"
	"$python" "$top_srcdir/tests/python/compare.py" "$top_srcdir/tests/python/upstream.json" "$tmp/$version.json"
	echo "$version: same results"
done
