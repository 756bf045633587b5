# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Read after functions.sh.
# shellcheck disable=SC2154
# upstream.sh - install upstream's wheels from PyPI with pip, each in a virtual environment that is
# created once and kept in the build tree.

# upstream_python VERSION - set $UPSTREAM_PYTHON to a Python that can import that release; skip the
# test if it cannot be installed
upstream_python() {
	local dir=$top_builddir/tests/wheels/$1 package=mooncake-transfer-engine-non-cuda==$1
	unless_sanitized "upstream's programs are not sanitized"
	requires python3 flock
	mkdir -p "$top_builddir/tests/wheels"
	# several tests may install it at the same time
	exec 9>"$dir.lock"
	flock 9
	if ! [ -e "$dir/complete" ]; then
		rm -rf "$dir"
		python3 -m venv "$dir" >"$tmp/venv.log" 2>&1 ||
			skip "no virtual environment can be created: $(tail -n 1 "$tmp/venv.log")"
		timeout 300 "$dir/bin/pip" --disable-pip-version-check install --timeout 20 --retries 1 \
			"$package" >"$tmp/pip.log" 2>&1 ||
			skip "$package cannot be installed: $(grep -i error "$tmp/pip.log" | tail -n 1)"
		touch "$dir/complete"
	fi
	exec 9>&-
	UPSTREAM_PYTHON=$dir/bin/python
	"$UPSTREAM_PYTHON" -c 'import mooncake.engine' >"$tmp/import.log" 2>&1 ||
		skip "$package does not run here: $(tail -n 1 "$tmp/import.log")"
}
