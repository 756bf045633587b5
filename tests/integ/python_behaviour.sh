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
# MC_STORE_CLIENT_METRIC_INTERVAL: a line each second, with the cluster's name; MC_STORE_CLIENT_METRIC=0: none
for on in 1 0; do
	MC_STORE_CLIENT_METRIC=$on MC_STORE_CLIENT_METRIC_INTERVAL=1 MC_STORE_CLUSTER_ID=blue "$PYTHON" - "$MASTER" \
		2>"$tmp/report$on.log" <<-'P'
		import sys, time
		import mooncake.store as ms
		s = ms.MooncakeDistributedStore()
		assert s.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", sys.argv[1]) == 0
		assert s.put("report", b"1" * 5000) == 0 and len(s.get("report")) == 5000 and s.remove("report", True) == 0
		time.sleep(2.8)
	P
done
grep -q 'client: metrics of this process hostname=127.0.0.1:.* cluster=blue .* gets=1 hits=1 .* get_bytes=5000 puts=1 ' "$tmp/report1.log" ||
	fail "no report of metrics: $(cat "$tmp/report1.log")"
equal "reports that are turned off" "$(grep -c metrics "$tmp/report0.log")" 0
timeout 300 "$PYTHON" "$top_srcdir/tests/python/behaviour.py" "$MASTER" "$MASTER_PID"
