#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No test ends a pipe with "grep -q", which exits at the first match: a writer that continues is killed by
# SIGPIPE, which fails the test under pipefail, but not every time.
set -eu
cd "${top_srcdir:?}"
! grep -nE '[^|]\| *grep -[A-Za-z]*q' tests/integ/*.sh tests/fault/*.sh tests/suites/*.sh tests/upgrade/*.sh || {
	echo "FAIL: ... | found (tests/lib/functions.sh)"
	exit 1
}
