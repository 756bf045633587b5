#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Upstream's transfer_engine_bench against our target, and ours against upstream's.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
UPSTREAM_PYTHON=''
upstream_python 0.3.13.post1
# the program itself: the script of that name starts it as a child, which would outlive a signal
theirs=$("$UPSTREAM_PYTHON" -c 'import mooncake.engine as e, os; print(os.path.dirname(e.__file__))')/transfer_engine_bench
chmod +x "$theirs"
ours=$top_builddir/tools/transfer_engine_bench
base=(--metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 --protocol=tcp --buffer_size=33554432)
export MC_FORCE_TCP=1

# target PROGRAM - gives SEGMENT
target() {
	rm -f "$tmp/target.log"
	spawn target "$1" "${base[@]}" --mode=target
	started "$SPAWNED" target 60 grep -q 'listening on [^ ]*:[0-9]' "$tmp/target.log"
	SEGMENT=$(sed -n 's/.*listening on \([^ ]*:[0-9]*\).*/\1/p' "$tmp/target.log" | head -n 1)
	wait_for 20 connects "$SEGMENT"
}

# run PROGRAM OPERATION BLOCK
run() {
	timeout 120 "$1" "${base[@]}" --segment_id="$SEGMENT" --operation="$2" --block_size="$3" --batch_size=16 \
		--duration=1 --threads=2 >"$tmp/run.log" 2>&1 || fail "$1 $2 $3: $(tail -n 5 "$tmp/run.log")"
	grep -qE 'Test completed: duration [0-9.]+, batch count [1-9]' "$tmp/run.log" ||
		fail "$1 $2 $3: $(tail -n 5 "$tmp/run.log")"
}

SEGMENT=''
for pair in "$ours $theirs" "$theirs $ours"; do
	target "${pair% *}"
	for operation in read write; do
		run "${pair#* }" "$operation" 4096
		run "${pair#* }" "$operation" 1048576
	done
done
