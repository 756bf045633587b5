#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Far memory in virtual machines: a DAX device, also over soft-RoCE; a CXL region; a NUMA node without processors.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
unless_sanitized "an emulated machine is slow enough without; far_memory.sh runs"
requires_vm
requires_memory 3000
guest() {
	local kind=$1
	shift
	in_vm 280 -m 2G -c 2 "$@" -- "$top_srcdir/tests/integ/far_guest.sh" "$top_builddir" "$top_srcdir" "$kind"
	grep -E '^case ' "$tmp/vm.log" | sed "s/^case/case $kind/"
}
guest dax -d dax=256,rxe=2
guest cxl -d cxl=256
guest numa -q -object -q memory-backend-ram,id=near,size=1536M -q -object -q memory-backend-ram,id=far,size=512M \
	-q -numa -q node,nodeid=0,cpus=0-1,memdev=near -q -numa -q node,nodeid=1,memdev=far
