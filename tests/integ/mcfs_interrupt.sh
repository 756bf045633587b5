#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# While the master is stopped, a process that waits for a file can be killed at once, every
# operation ends by its deadline, and afterwards everything works again; a call that returned EINTR
# has changed nothing.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
start_master
start_mcfs "$MASTER" "$tmp/mnt" --global_segment_size=64MiB --timeout=8s --setup_timeout=5s \
	--socket="$tmp/sock"
m=$tmp/mnt
head -c 3000000 /dev/urandom >"$tmp/s"
cp "$tmp/s" "$m/f"
exec 3<"$m/f"

mkdir "$m/many"
timeout 60 "$top_builddir/tests/integ/mcfs_fill" "$MASTER" many/ 200

ms() {
	echo $((${EPOCHREALTIME/./} / 1000))
}
# killed_at_once WHAT COMMAND... - the command waits, and SIGKILL ends it long before its deadline of 8 s
killed_at_once() {
	local what=$1 pid t
	shift
	"$@" >/dev/null 2>&1 &
	pid=$!
	wait_for 5 in_fuse "$pid" || fail "$what does not wait for the mount"
	t=$(ms)
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null || :
	t=$(($(ms) - t))
	[ "$t" -lt 4000 ] || fail "$what took $t ms to be killed"
	echo "$what: killed in $t ms"
}
# in_fuse PID - the process, or its only child, sleeps in the kernel's FUSE code
in_fuse() {
	local task
	for task in $1 $(pgrep -P "$1" || :); do
		grep -qE 'fuse|request_wait' "/proc/$task/wchan" "/proc/$task/stack" 2>/dev/null && return 0
	done
	return 1
}

stop_still "$MASTER_PID"
cleanup_fn kill -CONT "$MASTER_PID"
killed_at_once "cat" cat "$m/f"
killed_at_once "stat" stat "$m/g"
killed_at_once "ls" ls "$m"
killed_at_once "df" df "$m"
killed_at_once "cp" cp "$tmp/s" "$m/new"
killed_at_once "mkdir" mkdir "$m/dir"
# The bytes of an open file are in memory: reading needs no master.
cmp "$tmp/s" - <&3 || fail "an open file cannot be read while the master is stopped"

# SIGALRM does not kill: the call returns EINTR, a little later.
if command -v python3 >/dev/null; then
	python3 - "$m/g" <<'PY' || fail "EINTR"
import os, signal, sys, time
class Alarm(Exception): pass
def on_alarm(*a): raise Alarm
signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, 0.2)
t = time.time()
try:
    os.stat(sys.argv[1])
    sys.exit('stat succeeded')
except Alarm:
    pass
t = time.time() - t
assert t < 4, t
PY
fi

# Without a signal the call ends by its deadline.
t=$(ms)
fails timeout 60 cat "$m/f"
t=$(($(ms) - t))
[ "$t" -ge 4000 ] && [ "$t" -lt 20000 ] || fail "cat ended after $t ms, the deadline is 8000"
grep -q "timed out" "$tmp/fails.out" || fail "no reason: $(cat "$tmp/fails.out")"

# More callers than idle threads, all killed.
pids=()
for i in $(seq 1 100); do
	cat "$m/f$i" 2>/dev/null &
	pids+=($!)
done
all_wait() {
	[ "$(metric_sum mcfs_inflight <"$m/.mcfs/metrics")" -ge 100 ]
}
wait_for 30 all_wait || fail "not all callers wait for the mount"
t=$(ms)
kill -KILL "${pids[@]}"
for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || :; done
t=$(($(ms) - t))
[ "$t" -lt 4000 ] || fail "100 callers took $t ms to be killed"

# After a listing's reader was killed, the mount does not look up the remaining entries.
known() { awk '$1 == "known_inodes" { print $2 }' "$m/.mcfs/stats"; }
if command -v python3 >/dev/null; then
	kill -CONT "$MASTER_PID"
	wait_for 30 test -d "$m/many" || fail "the directory is not there"
	mkfifo "$tmp/go"
	python3 -c 'if True:
		import os, sys
		fd = os.open(sys.argv[1], os.O_RDONLY)
		print("open", flush=True)
		open(sys.argv[2]).read()
		os.listdir(fd)' "$m/many" "$tmp/go" >"$tmp/lister.log" &
	lister=$!
	wait_for 20 grep -q open "$tmp/lister.log" || fail "the directory cannot be opened"
	before=$(known)
	stop_still "$MASTER_PID"
	echo >"$tmp/go"
	wait_for 5 in_fuse "$lister" || fail "a listing does not wait for the mount"
	kill -KILL "$lister"
	wait "$lister" 2>/dev/null || :
	kill -CONT "$MASTER_PID"
	wait_for 30 grep -qE '^operations_under_way +1$' "$m/.mcfs/stats" || fail "the listing does not end"
	[ "$(known)" -le "$before" ] || fail "known inodes: $(known), before the listing that was killed $before"
fi

kill -CONT "$MASTER_PID"
wait_for 30 cmp "$tmp/s" "$m/f" || fail "the file is not readable again"
cp "$tmp/s" "$m/after"
cmp "$tmp/s" "$m/after"
[ "$(metric_sum mcfs_interrupted_total <"$m/.mcfs/metrics")" -ge 100 ] || fail "interrupts are not counted"
exec 3<&-

# A call that returned EINTR has no effect later, and a call that has an effect reports it.
if command -v python3 >/dev/null; then
	interrupted=$top_srcdir/tests/integ/mcfs_interrupt.py
	timeout 60 python3 "$interrupted" "$m" "$tmp/sock" "$MASTER_PID" || fail "calls that were interrupted"
	main=$MCFS_PID
	# the delay counts towards the operation's timeout
	MC_FAULTS=$(printf 'mcfs.op.%s=delay:6000,' unlink rename mkdir rmdir symlink)mcfs.op.create=delay:6000 \
		start_mcfs "$MASTER" "$tmp/slow" --global_segment_size=32MiB --port=0 --timeout=60s
	timeout 60 python3 "$interrupted" "$tmp/slow" "$m" || fail "names whose change was interrupted"
	MCFS_PID=$main
fi
# No operation of a killed caller is left.
wait_for 30 grep -qE '^operations_under_way +1$' "$m/.mcfs/stats" || fail "operations are still running"
unmount "$m"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end"
