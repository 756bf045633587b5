#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A disk over NVMe-oF, by the kernel's initiator and target in a virtual machine, over TCP and over RDMA on soft-RoCE:
# connected by mcctl nof, disconnected, target away and back, owner killed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
unless_sanitized "an emulated machine is slow enough without; test_tiers_health runs"
requires_vm
requires_memory 3000
in_vm 500 -m 2G -c 2 -d nvmet=2,rxe=1 -- "$top_srcdir/tests/integ/nof_guest.sh" "$top_builddir" "$top_srcdir"
grep -E '^case ' "$tmp/vm.log"
