#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The program written for store_c.h runs on one node and uses memory of another.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_netns
example=$top_builddir/tests/integ/store_c_example
two_nodes
MASTER_HOST=$ADDR_A NS=$NS_A start_master

mkfifo "$tmp/hold"
exec 7<>"$tmp/hold"
in_ns "$NS_A" "$example" "$MASTER" owner "$ADDR_A" <"$tmp/hold" >"$tmp/owner.log" 2>&1 7>&- &
owner=$!
cleanup_fn end_pid "$owner"
wait_for 20 grep -q ready "$tmp/owner.log" || fail "the owner is not ready"
in_ns "$NS_B" timeout 120 "$example" "$MASTER" user "$ADDR_B" || fail "the other node cannot use the pool"
# both contribute memory, so objects are stored on both
in_ns "$NS_B" timeout 120 "$example" "$MASTER" alone "$ADDR_B" || fail "two owners do not work together"
exec 7>&-
wait_for 15 gone "$owner" || fail "the owner does not end"
