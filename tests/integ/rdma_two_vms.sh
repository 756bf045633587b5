#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# RDMA between two virtual machines with soft-RoCE NICs, then with soft-iWARP NICs; the owner's machine is cut off and
# killed.  RDMA_LOSSES: how often it is cut off.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
unless_sanitized "an emulated machine is slow enough without; test_engine_rdma runs"
requires_vm
requires_memory 3000

# pair KIND - both machines, with NICs of this kind
pair() {
	local kind=$1 shared=$tmp/$1 owner
	mkdir "$shared"
	# a session, so that the machine dies with it
	setsid "$VM" -t 900 -m 1G -c 1 -d "$kind=0" -r "$shared" -n "listen:$tmp/$kind.link" -- \
		"$top_srcdir/tests/integ/rdma_two_guest.sh" owner "$top_builddir" "$shared" "$kind" "${RDMA_LOSSES:-5}" \
		>"$tmp/owner.log" 2>&1 &
	owner=$!
	cleanup_fn end_pid "$owner"
	(
		for ((i = 0; i < 9000; i++)); do
			[ ! -e "$shared/moving" ] || break
			sleep 0.1
		done
		pkill -KILL -s "$owner"
		touch "$shared/killed"
	) &
	in_vm 890 -m 1G -c 1 -d "$kind=0" -r "$shared" -n "connect:$tmp/$kind.link" -- \
		"$top_srcdir/tests/integ/rdma_two_guest.sh" driver "$top_builddir" "$shared" "$kind" "${RDMA_LOSSES:-5}"
	grep -E '^(case|noticed) ' "$tmp/vm.log" | sed "s/^/$kind: /"
	wait
}

pair rxe
! has_siw || pair siw
