#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Locks between the processes of a node that read, write or create a file: waiting, release when a
# process is killed, and locks that survive the daemon's death.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/takeover.sh"
requires_fuse
requires python3
locks=$top_srcdir/tests/integ/mcfs_locks.py

# stands_in_line DIR - a process waits for a lock; an operation seen only once may be a close
stands_in_line() {
	local i
	for i in 1 2 3 4 5; do
		[ "$(sed -n 's/^operations_under_way //p' "$1/.mcfs/stats")" -gt 1 ] || return 1
		sleep 0.01
	done
}

for direct in true false; do
	start_standalone "$tmp/$direct" --global_segment_size=32MiB --direct_io="$direct"
	timeout 120 python3 "$locks" "$tmp/$direct" || fail "direct_io=$direct"
	equal "locks on what is no file of the pool" "$(flock "$tmp/$direct/.mcfs/version" true 2>&1 || :)" \
		"flock: $tmp/$direct/.mcfs/version: Operation not supported"
	# flock(1) opens the file that it creates for reading
	spawn "first-$direct" flock -F "$tmp/$direct/made" python3 -c 'import signal; print("begun", flush=True); signal.pause()'
	wait_for 20 grep -q begun "$tmp/first-$direct.log"
	status=0
	flock -n "$tmp/$direct/made" true || status=$?
	equal "flock of a file that is locked" "$status" 1
	end_pid "$SPAWNED"
	# a waiting process does not keep the mount alive
	: >"$tmp/$direct/last"
	spawn "holder-$direct" python3 "$locks" "$tmp/$direct" hold last
	holder=$SPAWNED
	wait_for 20 grep -q begun "$tmp/holder-$direct.log"
	spawn "waiter-$direct" python3 "$locks" "$tmp/$direct" want last
	wait_for 20 grep -q begun "$tmp/waiter-$direct.log"
	wait_for 20 stands_in_line "$tmp/$direct"
	kill "$MCFS_PID"
	wait_for 20 gone "$MCFS_PID" || fail "the daemon does not end while a process waits for a lock"
	kill_pid "$holder"
	wait_for 20 gone "$SPAWNED"
	grep -q ENOLCK "$tmp/waiter-$direct.log" || fail "a waiting process at the end: $(cat "$tmp/waiter-$direct.log")"
done

start_master
start_mcfs "$MASTER" "$tmp/m" --global_segment_size=32MiB --port=0 --supervise
supervisor=$MCFS_PID
supervised
old=$daemon
: >"$tmp/m/lock"
spawn holder2 python3 "$locks" "$tmp/m" hold lock
holder=$SPAWNED
wait_for 20 grep -q begun "$tmp/holder2.log"
kill -9 "$old"
wait_for 60 another_than "$old" || fail "no new daemon"
wait_for 60 taken_over "$tmp/m" 1 || fail "not taken over"
fails flock -n "$tmp/m/lock" true
fails python3 -c "import fcntl, sys
fcntl.lockf(open(sys.argv[1], 'rb+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)" "$tmp/m/lock"
spawn waiter2 python3 "$locks" "$tmp/m" want lock
wait_for 20 grep -q begun "$tmp/waiter2.log"
kill_pid "$holder"
wait_for 20 grep -q "got it" "$tmp/waiter2.log" || fail "the waiting process does not get the lock"
wait_for 20 gone "$SPAWNED"
