#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mooncake.store with wrong input, many threads, forks, signals, and at the interpreter's exit: an
# exception or a number, never a crash or a hang.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=2000
# the library names variables without effect, once in a process
MC_STORE_REPLICA_SCORING=1 MOONCAKE_OFFLOAD_FSDIR=x "$PYTHON" - "$MASTER" 2>"$tmp/inert.log" <<-'P'
	import sys
	import mooncake.store as ms
	for _ in range(2):
	    assert ms.MooncakeDistributedStore().setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1]) == 0
P
equal "the names of inert variables" "$(grep -c 'no effect in this version:.* MC_STORE_REPLICA_SCORING' "$tmp/inert.log")" 1
grep -q 'no effect in this version:.* MOONCAKE_OFFLOAD_FSDIR' "$tmp/inert.log" || fail "$(cat "$tmp/inert.log")"
timeout 300 "$PYTHON" "$top_srcdir/tests/python/behaviour.py" "$MASTER" "$MASTER_PID"
