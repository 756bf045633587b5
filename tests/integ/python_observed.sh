#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every method of mooncake.store returns the same as upstream's package for the same call, except
# for the differences in tests/python/differences.py.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=2000
timeout 120 "$PYTHON" "$top_srcdir/tests/python/observe.py" "$MASTER" >"$tmp/ours.json" 2>"$tmp/observe.log" ||
	fail "observe.py failed"
"$PYTHON" "$top_srcdir/tests/python/compare.py" "$top_srcdir/tests/python/upstream.json" "$tmp/ours.json"
