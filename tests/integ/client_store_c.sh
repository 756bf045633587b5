#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program written for store_c.h works with its own memory, with memory of another process, and over TCP.
. "${top_srcdir:-.}/tests/lib/functions.sh"
example=$top_builddir/tests/integ/store_c_example
start_master

timeout 120 "$example" "$MASTER" alone
MC_FORCE_TCP=1 timeout 120 "$example" "$MASTER" alone

mkfifo "$tmp/hold"
exec 7<>"$tmp/hold"
"$example" "$MASTER" owner <"$tmp/hold" >"$tmp/owner.log" 2>&1 7>&- &
owner=$!
cleanup_fn end_pid "$owner"
wait_for 20 grep -q ready "$tmp/owner.log" || fail "the owner is not ready"

timeout 120 "$example" "$MASTER" user
MC_FORCE_TCP=1 timeout 120 "$example" "$MASTER" user
alive "$owner" || fail "the owner ended"

# the owner ends when its input ends, without an error
exec 7>&-
wait_for 15 gone "$owner" || fail "the owner does not end"
wait "$owner" || fail "the owner failed"
grep -q "^done" "$tmp/owner.log"

# no master
stop_pid "$MASTER_PID"
status=0
timeout 60 "$example" "$MASTER" alone >"$tmp/none.log" 2>&1 || status=$?
equal "status without a master" "$status" 1
grep -q "$MASTER" "$tmp/none.log" || fail "the error does not name the master: $(cat "$tmp/none.log")"
