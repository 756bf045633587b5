#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a machine of two NUMA nodes, I/O threads, connections and managed memory are on the memory's
# node (te_numa real).  Runs in a virtual machine made by vm-run, emulated if KVM is not available.
. "${top_srcdir:-.}/tests/lib/functions.sh"
unless_sanitized "an emulated machine is slow enough without; te_numa runs"

. "$top_srcdir/tests/lib/vm.sh"
requires_vm
requires_memory 3000

node=(-q -object -q "memory-backend-ram,id=m0,size=1G" -q -numa -q "node,nodeid=0,cpus=0,memdev=m0"
	-q -object -q "memory-backend-ram,id=m1,size=1G" -q -numa -q "node,nodeid=1,cpus=1,memdev=m1")
in_vm 280 -m 2G -c 2 "${node[@]}" -- "$top_builddir/tests/integ/te_numa" real
cat "$tmp/vm.log"
