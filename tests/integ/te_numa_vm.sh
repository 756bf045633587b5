#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a machine of two NUMA nodes, I/O threads, connections and managed memory are on the memory's
# node (te_numa real).  Runs in a virtual machine made by vm-run, emulated if KVM is not available.
. "${top_srcdir:-.}/tests/lib/functions.sh"
unless_sanitized "an emulated machine is slow enough without; te_numa runs"

# vm_run - set $VM_RUN: given, in the PATH, or beside the tree
vm_run() {
	local at
	for at in "${VM_RUN-}" "$(command -v vm-run)" "$top_srcdir"/{../,../../,}shared/vm/vm-run; do
		[ -x "$at" ] || continue
		VM=$at
		return 0
	done
	return 1
}

vm_run || skip "no vm-run: set VM_RUN=PATH"
# vm-run downloads its kernel only with --prepare, never in a test.
compgen -G "${VMRUN_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/vm-run}/1-*/initrd" >/dev/null ||
	skip "vm-run has no kernel yet: vm-run --prepare (170 MB of Debian packages)"
requires_memory 3000

node=(-q -object -q "memory-backend-ram,id=m0,size=1G" -q -numa -q "node,nodeid=0,cpus=0,memdev=m0"
	-q -object -q "memory-backend-ram,id=m1,size=1G" -q -numa -q "node,nodeid=1,cpus=1,memdev=m1")
status=0
timeout 300 "$VM" -t 280 -m 2G -c 2 "${node[@]}" -- "$top_builddir/tests/integ/te_numa" real \
	>"$tmp/vm.log" 2>&1 || status=$?
[ "$status" -ne 125 ] || skip "no virtual machine can be started: $(tail -n 3 "$tmp/vm.log")"
[ "$status" -eq 0 ] || fail "te_numa in a machine of two nodes: status $status"
cat "$tmp/vm.log"
