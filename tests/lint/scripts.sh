#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The scripts pass shellcheck without errors and warnings; and no test ends a pipe with "grep -q", which goes at the first
# match: under pipefail who still writes fails the test by SIGPIPE, now and then.
set -eu
cd "${top_srcdir:?}"
command -v shellcheck >/dev/null || { echo "SKIP: shellcheck is not installed"; exit 77; }
scripts=$(find tests init -name '*.sh' -type f)
for f in quickstart .ci/run init/*; do
	[ -f "$f" ] && head -n 1 "$f" | grep -q '^#!.*sh' && scripts="$scripts $f"
done
# shellcheck disable=SC2086
shellcheck -S warning -x -P SCRIPTDIR -e SC1091 $scripts
! grep -nE '[^|]\| *grep -[A-Za-z]*q' tests/integ/*.sh tests/fault/*.sh tests/suites/*.sh tests/upgrade/*.sh || {
	echo "FAIL: ... | found (tests/lib/functions.sh)"
	exit 1
}
