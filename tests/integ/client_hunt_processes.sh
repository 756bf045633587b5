#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Same as client_hunt.sh between processes: a master and three processes that all own memory, one
# over TCP only.
. "${top_srcdir:-.}/tests/lib/functions.sh"
hunter=$top_builddir/tests/integ/client_hunter
start_master
pids=()
for me in 0 1 2; do
	tcp=
	[ "$me" -ne 2 ] || tcp=tcp
	# shellcheck disable=SC2086
	timeout 120 "$hunter" "$MASTER" 5 5 "$me" 3 $tcp >"$tmp/hunter-$me.log" 2>&1 &
	pids+=($!)
	cleanup_fn end_pid $!
done
for pid in "${pids[@]}"; do
	wait "$pid" || fail "a hunter reported an error"
done
cat "$tmp"/hunter-*.log
