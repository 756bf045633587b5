#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A pool with security over real verbs: soft-RoCE and soft-iWARP NICs in a virtual machine.  RDMA needs permission; a
# client of one tenant gets nothing of another one's segment on the same NIC; a revocation ends the access.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
unless_sanitized "an emulated machine is slow enough without; test_engine_rdma_security runs"
requires_vm
requires_memory 3000
# Made here, because an emulated machine needs ten seconds for each command of mcctl.
export RDMA_POOL=$tmp/pool
mkdir "$RDMA_POOL"
master=("$top_builddir/master/mooncake_master" --security_dir="$RDMA_POOL/security")
"${master[@]}" --init_security >"$tmp/init"
free_port rpc
free_port http
spawn master "${master[@]}" --security=on --journal_dir="$RDMA_POOL/journal" --enable_multi_tenants \
	--rpc_address=127.0.0.1 --rpc_port="$rpc" --metrics_host=127.0.0.1 --metrics_port="$http"
mcctl() {
	MC_CREDENTIAL=$RDMA_POOL/security/admin.credential "$top_builddir/tools/mcctl" --master="127.0.0.1:$rpc" "$@"
}
wait_for 20 mcctl df
for name in alice bob; do
	mcctl quota "$name" 32MB
	mcctl credential create "$RDMA_POOL/node-$name" --role=node --name="node-$name" --tenant="$name"
	mcctl credential create "$RDMA_POOL/$name" --role=client --name="$name" --tenant="$name"
done >"$tmp/credentials"
mcctl credential create "$RDMA_POOL/late" --role=client --name=late --tenant=alice | sed 's/.*serial //' >"$RDMA_POOL/serial"
kill_pid "$SPAWNED"

run() { # run KIND
	in_vm 400 -m 2G -c 2 -d "$1=3" -- "$top_srcdir/tests/integ/rdma_guest.sh" "$top_builddir" "$top_srcdir/README.md" "$1" \
		secure_pool
	grep -E '^(case|thief:) ' "$tmp/vm.log"
}
run rxe
! has_siw || run siw
