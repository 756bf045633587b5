#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mooncake.store with wrong input, many threads, forks, signals, and at the interpreter's exit: an
# exception or a number, never a crash or a hang.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=2000
timeout 300 "$PYTHON" "$top_srcdir/tests/python/behaviour.py" "$MASTER" "$MASTER_PID"
