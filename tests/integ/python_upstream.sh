#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/python/upstream.json is right: upstream's package is installed from PyPI and gives the same
# results again.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
find_python || skip "no python3 >= 3.10"
"$PYTHON" -m venv "$tmp/venv" >"$tmp/venv.log" 2>&1 || skip "no virtual environment can be made"
timeout 300 "$tmp/venv/bin/pip" -q install --timeout 10 --retries 0 \
	mooncake-transfer-engine-non-cuda==0.3.13.post1 >"$tmp/pip.log" 2>&1 || skip "the wheel cannot be installed"
wheel=$(echo "$tmp"/venv/lib/python3*/site-packages/mooncake)
"$tmp/venv/bin/python" -c "import mooncake.store" 2>"$tmp/import.log" ||
	skip "upstream's package does not start: $(tail -n 1 "$tmp/import.log")"
rpc='' http=''
free_port rpc
free_port http
spawn master "$wheel/mooncake_master" --rpc_port="$rpc" --metrics_port="$http" --default_kv_lease_ttl=2000
started "$SPAWNED" master 20 connects "127.0.0.1:$rpc"
timeout 300 "$tmp/venv/bin/python" "$top_srcdir/tests/python/observe.py" "127.0.0.1:$rpc" >"$tmp/now.json" \
	2>"$tmp/observe.log" || fail "observe.py failed"
"$PYTHON" "$top_srcdir/tests/python/compare.py" --same "$top_srcdir/tests/python/upstream.json" "$tmp/now.json"
