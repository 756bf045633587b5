#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The unit tests of proto/ pass over streams that behave as TLS does (tests/lib/xor_net.h), without a change to callers.
set -eu
cd "${top_builddir:?}/tests/unit"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export TEST_NET=xor
declare -A pid
# test_proto_stream uses these streams always.  The tests mostly wait, so they run together.
for t in rpc session durable faults budget unread nomem; do
	./test_proto_$t >"$tmp/$t" 2>&1 &
	pid[$t]=$!
done
status=0
for t in "${!pid[@]}"; do
	wait "${pid[$t]}" || { echo "test_proto_$t failed:"; cat "$tmp/$t"; status=1; }
done
exit $status
