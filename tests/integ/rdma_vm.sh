#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Transfers, the store and two nodes with mounts over real verbs: soft-RoCE and soft-iWARP NICs in virtual machines, while
# ports go down, packets are lost, and an owner is killed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
unless_sanitized "an emulated machine is slow enough without; test_engine_rdma runs"
requires_vm
requires_memory 3000
guest=$top_srcdir/tests/integ/rdma_guest.sh
in_vm 290 -m 2G -c 2 -d rxe=4 -- "$guest" "$top_builddir" "$top_srcdir/README.md" rxe \
	one_nic four_nics links faults loss killed by_rdma_cm store_and_mounts
grep -E '^(case|fault) ' "$tmp/vm.log"
has_siw || exit 0
in_vm 200 -m 2G -c 2 -d siw=4 -- "$guest" "$top_builddir" "$top_srcdir/README.md" siw one_nic four_nics links killed \
	store_and_mounts
grep -E '^(case|fault) ' "$tmp/vm.log" | sed 's/^/siw: /'
in_vm 100 -m 2G -c 2 -d rxe=1,siw=2 -- "$guest" "$top_builddir" "$top_srcdir/README.md" siw mixed
grep -E '^(case|fault) ' "$tmp/vm.log" | sed 's/^/mixed: /'
