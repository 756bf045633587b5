#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Python engine and transfer_engine_bench with memory of the fake GPU.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
gpu() {
	env LD_LIBRARY_PATH="$top_builddir/tests/lib/.libs" "$@"
}
gpu timeout 200 "$PYTHON" "$top_srcdir/tests/python/gpu_engine.py"
gpu env MC_FORCE_TCP=1 timeout 200 "$PYTHON" "$top_srcdir/tests/python/gpu_engine.py"

bench=$top_builddir/tools/transfer_engine_bench
vram=(--use_vram=true --buffer_size=64MiB --local_server_name=127.0.0.1)
spawn target env LD_LIBRARY_PATH="$top_builddir/tests/lib/.libs" "$bench" --mode=target "${vram[@]}"
wait_for 20 grep -q 'Target is ready' "$tmp/target.log"
name=$(sed -n 's/.*listening on //p' "$tmp/target.log")
for operation in read write; do
	gpu timeout 60 "$bench" --segment_id="$name" --operation=$operation --duration=1s --threads=2 --batch_size=16 \
		"${vram[@]}" >"$tmp/bench.out"
	grep -q 'throughput' "$tmp/bench.out" || fail "no result of $operation"
done
# without a driver, and with a GPU that there is not
fails timeout 20 "$bench" "${vram[@]}"
grep -q 'use_vram=true: the CUDA driver cannot be loaded' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
fails gpu timeout 20 "$bench" "${vram[@]}" --gpu_id=3
grep -q 'there is no GPU 3: the driver has 1' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
