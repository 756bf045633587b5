#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The programs of mooncake.examples: objects that one role of the benchmark puts are read by the other, in the memory of a
# provider; failures are counted.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=500
export MASTER_SERVER=$MASTER
spawn provider env GLOBAL_SEGMENT_SIZE=64mb "$PYTHON" -m mooncake.examples.object_store_provider
provider=$SPAWNED
wait_for 20 grep -q "contributing memory as" "$tmp/provider.log"

# benchmark ROLE FLAG...
benchmark() {
	local role=$1
	shift
	ROLE=$role timeout 60 "$PYTHON" -m mooncake.examples.stress_cluster_benchmark --global-segment-size=0 --max-requests=20 \
		--value-length=1000000 --wait-time=0 --num-workers=2 --batch-size=3 "$@" >"$tmp/$role.log" 2>&1
}
benchmark prefill || fail "prefill failed: $(cat "$tmp/prefill.log")"
benchmark decode --detailed-stats || fail "decode failed: $(cat "$tmp/decode.log")"
for words in "=== COMBINED PERFORMANCE STATISTICS" "Total operations: 20" "Succeeded: 20 (100.00%)" "transferred: 19.07 MB" \
	"Test completed successfully"; do
	grep -qF "$words" "$tmp/decode.log" || fail "the report has no \"$words\": $(cat "$tmp/decode.log")"
done
equal "reports" "$(grep -c "PERFORMANCE STATISTICS" "$tmp/decode.log")" 3
# an object that is missing, and an object with other bytes
"$PYTHON" - "$MASTER" <<-'P'
	import mooncake.store as ms, sys
	s = ms.MooncakeDistributedStore()
	assert s.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1]) == 0
	assert s.upsert("key7", bytes(1000000)) == 0
P
! benchmark decode --max-requests=21 || fail "wrong objects count as success"
grep -q "Code -704: 1 times" "$tmp/decode.log"
grep -q "Code wrong bytes: 1 times" "$tmp/decode.log"
! ROLE=both timeout 20 "$PYTHON" -m mooncake.examples.stress_cluster_benchmark >"$tmp/role.log" 2>&1
grep -q "ROLE is 'both'" "$tmp/role.log"
stop_pid "$provider"
