#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perf_rdma_guest.sh BUILD UPSTREAM_BENCH - the part of perf_rdma.sh that runs in the virtual machine, with rxe0 and rxe1.
set -uo pipefail
ours=$1/tools/transfer_engine_bench theirs=$2
work=$(mktemp -d)
cd "$work" || exit 1
ulimit -l unlimited
unset PYTHONPATH
export MC_RDMA_SAME_HOST=1
base=(--metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 --protocol=rdma --buffer_size=67108864)
rounds=${MC_PERF_ROUNDS:-3}

# tool COMMAND... - run a program of perftest, server and client; its output is in out
tool() {
	"$@" -d rxe0 >server.log 2>&1 &
	sleep 2
	"$@" -d rxe1 10.77.0.10 >out 2>&1
	wait
}

# A rate in bytes per second, with two queue pairs; the average time of one direction in microseconds.
tool_rate() {
	tool "$1" -x 1 -q 2 -s 1048576 -D 4 -F --report_gbits
	awk '$1 == 1048576 { print $4 * 125000000; exit }' out
}
tool_latency() {
	tool "$1" -x 1 -s 4096 -n 3000 -F
	awk '$1 == 4096 { print $6; exit }' out
}

# bench PROGRAM OPERATION BLOCK BATCH - "SECONDS BATCHES" of it
bench() {
	timeout 60 "$1" "${base[@]}" --device_name=rxe1 --operation="$2" --block_size="$3" --batch_size="$4" --duration=4 \
		--threads=1 --segment_id="$segment" >bench.log 2>&1
	sed -n 's/.*duration \([0-9.]*\), batch count \([0-9]*\),.*/\1 \2/p' bench.log | tail -n 1
}
bench_rate() { bench "$@" | awk -v bytes="$(($3 * $4))" '{ print $2 * bytes / $1 }'; }
bench_latency() { bench "$@" | awk '{ print $1 / $2 * 1e6 }'; }

segment_of() { sed -n 's/.*listening on \([^ ]*:[0-9]*\).*/\1/p' "$1" | head -n 1; }

# target PROGRAM LOG - start a target in the background
target() {
	"$1" "${base[@]}" --device_name=rxe0 --mode=target >"$2" 2>&1 &
	for _ in $(seq 100); do
		[ -z "$(segment_of "$2")" ] || return
		sleep 0.2
	done
}
target "$ours" ours.log
our_pid=$! our_segment=$(segment_of ours.log)
target "$theirs" theirs.log
their_pid=$! their_segment=$(segment_of theirs.log)

for round in $(seq "$rounds"); do
	for op in write read; do
		segment=$our_segment
		mine=$(bench_rate "$ours" $op 1048576 8)
		segment=$their_segment
		echo "rate $op $round $mine $(tool_rate ib_${op}_bw) $(bench_rate "$theirs" $op 1048576 8)"
		segment=$our_segment
		mine=$(bench_latency "$ours" $op 4096 1)
		segment=$their_segment
		echo "latency $op $round $mine $(tool_latency ib_${op}_lat) $(bench_latency "$theirs" $op 4096 1)"
	done
done
kill "$our_pid" "$their_pid"
wait
