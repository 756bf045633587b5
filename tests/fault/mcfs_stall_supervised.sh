#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A supervised daemon mounts again after a stall, and is taken over as before: under our own supervisor and under
# systemd's descriptor store. A daemon that is killed during the stall loses its mount, but not its objects.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/stall.sh"
. "$top_srcdir/tests/lib/takeover.sh"
requires_fuse
requires_root
requires python3
mkdir "$a"
cleanup_fn unmount_any "$a"
start_master --client_ttl=1
start_mcfs "$MASTER" "$b" "${node_flags[@]}"

# life NAME - stalls and kills of the daemon below $supervisor
life() {
	local old
	another_than none || fail "$1: no daemon"
	fill_nodes
	old=$daemon
	stalls "$old"
	continues "$old"
	another_than "$old" && fail "$1: another daemon was started after a stall"
	stalls "$old"
	continues "$old"
	# the new mount's descriptors are with the supervisor
	exec {reader}<"$a/a0"
	kill -9 "$old"
	wait_for 60 another_than "$old" || fail "$1: no new daemon"
	wait_for 60 taken_over "$a" 1 || fail "$1: not taken over"
	cmp "$tmp/data/a0" - <&"$reader" || fail "$1: an open file is not continued"
	exec {reader}<&-
	# a daemon that has taken over stalls too
	old=$daemon
	stalls "$old"
	continues "$old"
	# killed before it can mount again, as by the kernel when memory is short
	stalls "$old"
	kill -9 "$old"
	wait_for 60 another_than "$old" || fail "$1: no new daemon after a kill in a stall"
	wait_for 60 taken_over "$a" 0 || fail "$1: a dead mount was taken over"
	wait_for 10 reads_everywhere || fail "$1: the objects of a daemon killed in a stall are lost"
	rm -f "$a"/*
}

start_mcfs "$MASTER" "$a" "${node_flags[@]}" --supervise
supervisor=$MCFS_PID
supervised
requires_custom_io "$a"
life supervisor
stop_pid "$supervisor"

spawn manager python3 "$top_srcdir/tests/integ/mcfs_takeover.py" manager "$tmp/notify" \
	"$top_builddir/mcfs/mcfs" --foreground --supervise "${node_flags[@]}" "$MASTER" "$a"
supervisor=$SPAWNED
wait_for 60 grep -q '^ready$' "$tmp/manager.log" || fail "not ready: $(cat "$tmp/manager.log")"
life systemd
kill -TERM "$supervisor"
wait_for 30 gone "$supervisor" || fail "the daemon does not end"
is_mounted "$a" && fail "SIGTERM left the mount"
exit 0
