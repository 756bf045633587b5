#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No test ends a pipe with "grep -q", which goes at the first match: under pipefail whoever still writes fails the test by
# SIGPIPE, now and then.
set -eu
cd "${top_srcdir:?}"
! grep -nE '[^|]\| *grep -[A-Za-z]*q' tests/integ/*.sh tests/fault/*.sh tests/suites/*.sh tests/upgrade/*.sh || {
	echo "FAIL: ... | found (tests/lib/functions.sh)"
	exit 1
}
