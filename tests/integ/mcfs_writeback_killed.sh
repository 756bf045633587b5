#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The daemon is killed while writeback stores large files, and another daemon continues: each file
# is one whole version that was written under its name, or its writer got an error; unfinished
# versions use no memory.
. "${top_srcdir:-.}/tests/lib/functions.sh"
export PYTHONDONTWRITEBYTECODE=1
requires_fuse
requires_root
requires python3
requires_memory 2048
prog=$top_srcdir/tests/integ/mcfs_writeback_killed.py
m=$tmp/mnt

start_master
start_mcfs "$MASTER" "$m" --global_segment_size=320MiB --port=0 --supervise
supervisor=$MCFS_PID
# the current daemon, which is the supervisor's child
another_than() {
	local child
	for child in $(cat "/proc/$supervisor/task/$supervisor/children" 2>/dev/null); do
		[ "$(cat "/proc/$child/comm" 2>/dev/null)" != mcfs ] || daemon=$child
	done
	[ -n "$daemon" ] && [ "$daemon" != "$1" ]
}
carried() {
	timeout 5 awk '$1 == "mcfs_carried_bytes_total" { n = $2 } END { exit !(n > 0) }' "$m/.mcfs/metrics"
}
taken_over() {
	timeout 5 grep -q "^takeovers  *$1$" "$m/.mcfs/stats"
}
# kill_daemon N - kill it for the Nth time
kill_daemon() {
	local old=$daemon
	kill -9 "$old"
	wait_for 60 another_than "$old" || fail "no new daemon: $(cat "$tmp/mcfs-mnt.log")"
	wait_for 60 taken_over "$1" || fail "not taken over: $(cat "$tmp/mcfs-mnt.log")"
}
daemon=''
another_than none || fail "no daemon below the supervisor"
requires_custom_io "$m"

# ---- one writer that waits in the middle, of a file that has a version already
python3 "$prog" one "$m/old" first </dev/null
mkfifo "$tmp/go"
timeout 300 python3 "$prog" one "$m/old" second <"$tmp/go" >"$tmp/one.out" 2>&1 &
one=$!
exec 4>"$tmp/go"
wait_for 60 grep -q half "$tmp/one.out" || fail "one writer: $(cat "$tmp/one.out")"
wait_for 60 carried || fail "nothing was stored before the close"
kill_daemon 1
echo >&4
exec 4>&-
wait "$one" || fail "one writer: $(cat "$tmp/one.out")"
equal "one writer" "$(tr '\n' ' ' <"$tmp/one.out")" "half EIO EIO "
python3 "$prog" check "$m/old" first || fail "a partial file replaced a whole one"

# ---- several writers that never wait
pids=()
for seed in 1 2; do
	timeout 600 python3 "$prog" write "$m" "$seed" "$tmp/journal$seed" "$tmp/stop" \
		>"$tmp/write$seed.out" 2>&1 &
	pids+=($!)
done
for n in 2 3 4; do
	wait_for 120 carried || fail "nothing was stored: $(cat "$tmp"/write*.out)"
	kill_daemon "$n"
done
touch "$tmp/stop"
for pid in "${pids[@]}"; do
	wait "$pid" || fail "a writer: $(cat "$tmp"/write*.out)"
done
cat "$tmp"/write*.out
for seed in 1 2; do
	python3 "$prog" verify "$m" "$seed" "$tmp/journal$seed" || fail "a file of writer $seed"
done
grep -q '^failed' "$tmp"/journal? || fail "no writer was interrupted in the middle"
grep -q '^stored' "$tmp"/journal? || fail "nothing was ever stored"

# ---- no memory is lost
rm "$m"/*
empty() { grep -qE '^pool_used_bytes +0$' "$m/.mcfs/stats" && grep -qE '^staged_bytes +0$' "$m/.mcfs/stats"; }
wait_for 90 empty || { cat "$m/.mcfs/stats"; fail "memory is not freed"; }
umount "$m"
wait_for 30 gone "$supervisor" || fail "the supervisor does not end"
