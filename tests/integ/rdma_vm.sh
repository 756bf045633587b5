#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Transfers, the store and two nodes with mounts over real verbs: soft-RoCE NICs in a virtual machine, while ports go down
# and packets are lost.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
unless_sanitized "an emulated machine is slow enough without; test_engine_rdma runs"
requires_vm
requires_memory 3000
in_vm 280 -m 2G -c 2 -d rxe=4 -- "$top_srcdir/tests/integ/rdma_guest.sh" "$top_builddir" "$top_srcdir/README.md"
grep -E '^(case|fault) ' "$tmp/vm.log"
