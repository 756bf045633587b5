#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# RDMA with unmodified nodes of upstream's, over soft-RoCE NICs in a virtual machine: both directions, all sizes, both
# programs for benchmarks, and a node that is killed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
. "$top_srcdir/tests/lib/upstream.sh"
. "$top_srcdir/tests/lib/python.sh"
unless_sanitized "an emulated machine is slow enough without; test_engine_rdma runs"
requires_vm
requires_memory 4000
UPSTREAM_PYTHON='' PYTHON=''
upstream_python 0.3.13.post1
theirs=$("$UPSTREAM_PYTHON" -c 'import mooncake.engine as e, os; print(os.path.dirname(e.__file__))')/transfer_engine_bench
chmod +x "$theirs"
python_package
in_vm 400 -m 3G -c 2 -d rxe=2 -- "$top_srcdir/tests/integ/rdma_interop_guest.sh" "$top_builddir" "$top_srcdir" "$PYTHON" \
	"$UPSTREAM_PYTHON" "$theirs"
grep -E '^(case|bench) ' "$tmp/vm.log"
