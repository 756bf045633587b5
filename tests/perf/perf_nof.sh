#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A disk over NVMe-oF (the kernel's initiator and target in a virtual machine) beside fio on the same device, block size
# and depth, and beside the tier on a file in memory, in one run.  Where the machine is emulated, the processor decides:
# checksums and copies take most of the time, also on the file in memory, and fio does neither.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
requires fio
requires_vm
requires_memory 3000
in_vm 500 -m 2G -c 2 -d nvmet=1 -- "$top_srcdir/tests/perf/perf_nof_guest.sh" "$top_builddir" "$top_srcdir"

# median NAME
median() {
	grep "^$1 " "$tmp/vm.log" | cut -d ' ' -f 2 | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
for op in write read; do
	awk -v op=$op -v a="$(median $op)" -v b="$(median fio_$op)" -v c="$(median memory_$op)" 'BEGIN {
		name = "NVMe over TCP " op ", 1024 KiB, depth 32"
		printf "%-46s %-12s %12.2f  MB/s\n", name, "rate", a
		printf "%-46s %-12s %12.2f  fio %.0f MB/s\n", name, "x fio", a / b, b
		printf "%-46s %-12s %12.2f  memory %.0f MB/s\n", name, "x memory", a / c, c }'
done
