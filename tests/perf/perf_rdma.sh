#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# RDMA over soft-RoCE NICs in a virtual machine, beside perftest's programs and upstream's engine, in one run: transfers of
# 1 MiB with two queue pairs, and of 4 KiB one at a time.  The figures of such a machine say nothing about real NICs; their
# ratios say what the engine adds.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
. "$top_srcdir/tests/lib/upstream.sh"
requires_vm
requires_memory 4000
UPSTREAM_PYTHON=''
upstream_python 0.3.13.post1
theirs=$("$UPSTREAM_PYTHON" -c 'import mooncake.engine as e, os; print(os.path.dirname(e.__file__))')/transfer_engine_bench
chmod +x "$theirs"
in_vm 600 -m 3G -c 2 -d rxe=2 -- "$top_srcdir/tests/perf/perf_rdma_guest.sh" "$top_builddir" "$theirs"

# medians KIND OP - of the three columns
medians() {
	for column in 4 5 6; do
		grep "^$1 $2 " "$tmp/vm.log" | cut -d ' ' -f $column | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
	done
}
for op in write read; do
	mapfile -t m < <(medians rate $op)
	awk -v op=$op -v a="${m[0]}" -v b="${m[1]}" -v c="${m[2]}" 'BEGIN {
		printf "%-40s MB/s   %10.1f  x ib_%s_bw %.2f, x upstream %.2f\n", op " 1 MiB", a / 1e6, op, a / b, c ? a / c : 0 }'
	mapfile -t m < <(medians latency $op)
	awk -v op=$op -v a="${m[0]}" -v b="${m[1]}" -v c="${m[2]}" 'BEGIN {
		printf "%-40s us     %10.1f  x ib_%s_lat %.2f, x upstream %.2f\n", op " 4 KiB one at a time", a, op, a / b, c ? a / c : 0 }'
done
