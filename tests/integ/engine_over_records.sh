#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unit tests of the engine's TCP and of its RDMA control connections pass over streams that behave as TLS does
# (tests/lib/xor_net.h), also when requests are cancelled and peers stop or die.
set -eu
cd "${top_builddir:?}/tests/unit"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export TEST_NET=xor
declare -A pid
tests='rdma fence failure'
# With a sanitizer the large transfers take minutes.
[ -n "${SANITIZER-}" ] || tests="transfer $tests"
for t in $tests; do
	./"test_engine_$t" >"$tmp/$t" 2>&1 &
	pid[$t]=$!
done
status=0
for t in "${!pid[@]}"; do
	wait "${pid[$t]}" || { echo "test_engine_$t failed:"; cat "$tmp/$t"; status=1; }
done
exit $status
