#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# RDMA between two virtual machines with soft-RoCE NICs, of which the owner's is killed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
unless_sanitized "an emulated machine is slow enough without; test_engine_rdma runs"
requires_vm
requires_memory 3000
shared=$tmp/shared
mkdir "$shared"
# a session, so that the machine dies with it
setsid "$VM" -t 150 -m 1G -c 1 -d rxe=0 -r "$shared" -n "listen:$tmp/link" -- "$top_srcdir/tests/integ/rdma_two_guest.sh" owner \
	"$top_builddir" "$shared" >"$tmp/owner.log" 2>&1 &
owner=$!
cleanup_fn end_pid "$owner"
(
	for ((i = 0; i < 1000; i++)); do
		[ ! -e "$shared/moving" ] || break
		sleep 0.1
	done
	pkill -KILL -s "$owner"
	touch "$shared/killed"
) &
in_vm 140 -m 1G -c 1 -d rxe=0 -r "$shared" -n "connect:$tmp/link" -- "$top_srcdir/tests/integ/rdma_two_guest.sh" driver \
	"$top_builddir" "$shared"
grep '^case ' "$tmp/vm.log"
