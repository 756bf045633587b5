#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each name of docs/COMPATIBILITY_NAMES.tsv exists, has no effect or is absent, as its row says.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
for package in aiohttp numpy; do
	"$PYTHON" -c "import $package" 2>/dev/null || skip "no $package (apt-get install python3-$package)"
done
start_master
timeout 120 "$PYTHON" "$top_srcdir/tests/python/compat.py" ours "$top_srcdir/docs/COMPATIBILITY_NAMES.tsv" "$top_srcdir" \
	"$top_builddir/master/mooncake_master" "$MASTER_HTTP"
