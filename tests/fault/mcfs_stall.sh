#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A mount whose daemon is stopped for longer than stall_timeout fails its callers. When the daemon continues, it
# keeps its memory and its registration, mounts again, and all objects are readable on all nodes within 3 s.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/stall.sh"
requires_fuse
requires_root
requires python3
cleanup_fn unmount_any "$a"

# program KIND ARG... - run tests/fault/mcfs_stall.py until it has done its first half
program() {
	mkfifo "$tmp/go"
	spawn program sh -c 'exec python3 "$0" "$@" <"'"$tmp/go"'"' "$top_srcdir/tests/fault/mcfs_stall.py" "$@"
	exec {go}>"$tmp/go"
	wait_for 30 grep -q '^half$' "$tmp/program.log" || fail "$1: $(cat "$tmp/program.log")"
}
# goes_on WORDS - let the program continue, and compare its output
goes_on() {
	echo >&"$go"
	exec {go}>&-
	wait_for 30 gone "$SPAWNED" || fail "the program hangs: $(cat "$tmp/program.log")"
	equal "results of the program" "$(sed '0,/^half$/d' "$tmp/program.log" | tr '\n' ' ')" "$1 "
	rm "$tmp/go" "$tmp/program.log"
}

start_master --client_ttl=1
start_mcfs "$MASTER" "$b" "${node_flags[@]}"
start_mcfs "$MASTER" "$a" "${node_flags[@]}"
fill_nodes

# ---- files that are open during the stall: errors, and no half-written version
echo old >"$tmp/data/replaced"
cp "$tmp/data/replaced" "$a/replaced"
program files "$a"
stalls "$MCFS_PID"
reads_all "$b" || : # objects in the other segment, or errors; never wrong bytes
goes_on "read ENOTCONN write ENOTCONN rewrite ENOTCONN list ENOTCONN close ENOTCONN close ENOTCONN"
continues "$MCFS_PID"
for m in "$a" "$b"; do
	[ ! -e "$m/new" ] || fail "a half-written file was published: $m/new"
done

# ---- again, with the files still open when the daemon continues
program files "$a"
stalls "$MCFS_PID"
continues "$MCFS_PID"
goes_on "read ENOTCONN write ENOTCONN rewrite ENOTCONN list ENOTCONN close ENOTCONN close ENOTCONN"
reads_everywhere || fail "a program that was open during the stall changed files"
[ ! -e "$b/new" ] || fail "a half-written file was published"
equal "open handles" "$(awk '$1 == "open_handles" { print $2 }' "$a/.mcfs/stats")" 1

# ---- stalls in the middle of reads and writes
busy=()
for i in 1 2 3; do
	spawn "busy$i" python3 "$top_srcdir/tests/fault/mcfs_stall.py" busy "$a" "$b" "$tmp/stop"
	busy+=("$SPAWNED")
done
for i in 1 2 3; do
	stalls "$MCFS_PID"
	continues "$MCFS_PID"
done
touch "$tmp/stop"
for i in 1 2 3; do
	wait_for 30 gone "${busy[i - 1]}" || fail "a busy program hangs"
	equal "busy program $i" "$(cat "$tmp/busy$i.log")" right
done

# ---- memory that a program has pinned and mapped is not reused, though its descriptors are dead
if { exec {segment}<"$a/.mcfs/segments/0"; } 2>/dev/null; then
	exec {segment}<&-
	keys=("$a/.mcfs/local"/a*)
	pinned=${keys[0]##*/} file=${keys[1]##*/}
	program mapped "$a" "$pinned" "$file"
	stalls "$MCFS_PID"
	continues "$MCFS_PID"
	rm "$tmp/data"/* "$b/$pinned" "$b/$file"
	for i in {1..60}; do
		head -c 4000000 /dev/urandom >"$a/filler$i" || fail "the pool is full of pinned objects"
	done
	[ "$(find "$a" -name 'filler*' | wc -l)" -lt 60 ] || fail "nothing was evicted"
	goes_on "same same"
	rm "$a"/filler*
fi
stop_pid "$MCFS_PID"
is_mounted "$a" && fail "SIGTERM left the mount"

# ---- a daemon in the background
rm -rf "$tmp/data" "${b:?}"/*
timeout 30 "$top_builddir/mcfs/mcfs" "${node_flags[@]}" "$MASTER" "$a"
one_on_a() {
	pid=$(processes_left | awk -v dir="$a" '$2 ~ /mcfs$/ && $NF == dir { print $1 }')
	[ "$(wc -w <<<"$pid")" -eq 1 ]
}
wait_for 10 one_on_a || fail "no daemon, or several: $(processes_left)"
fill_nodes
stalls "$pid"
continues "$pid"
# An operator unmounts while the daemon is stopped: it does not mount again.
stalls "$pid"
umount -l "$a"
kill -CONT "$pid"
wait_for 20 gone "$pid" || fail "the daemon does not end after an unmount during the stall"
is_mounted "$a" && fail "mounted again after an unmount"
exit 0
