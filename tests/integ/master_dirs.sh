#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A pool that has directories but no object with bytes: its master starts again and again, and outlives the grace period
# of each start.  The check of its journal counts the objects that the next master finds, and names faults of the files.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
journal=$tmp/journal

# check STATUS TEXT - of the journal, without serving
check() {
	local status=0
	"$top_builddir/master/mooncake_master" --check_journal="$journal" >"$tmp/check" 2>&1 || status=$?
	equal "status of the check" "$status" "$1"
	grep -q "$2" "$tmp/check" || { cat "$tmp/check"; fail "the check does not say: $2"; }
}

start_master --journal_dir="$journal"
start_mcfs "$MASTER" "$tmp/m" --global_segment_size=64MiB
mkdir "$tmp/m/dir"
# beside a running master
check 0 '^directories 1$'
for start in 1 2; do
	stop_pid "$MASTER_PID"
	check 0 '^ended yes$'
	: >"$tmp/master.log"
	restart_master --journal_dir="$journal"
	wait_for 20 grep -q "grace period after the start is over" "$tmp/master.log"
	wait_for 20 test -d "$tmp/m/dir"
	alive "$MASTER_PID" || fail "the master died after start $start"
done
kill_pid "$MASTER_PID"
check 0 '^directories 1$'
rm "$journal"/checkpoint-*
check 1 '^fault .*no checkpoint can be read'
journal=$tmp/none
check 2 "cannot read the directory"
