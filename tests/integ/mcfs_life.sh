#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcfs starts with a mount that works or with one line that gives the reason, and leaves nothing
# behind, however it ends.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_root
mcfs=$top_builddir/mcfs/mcfs
m=$tmp/mnt
mkdir "$m" "$tmp/sockets"
cleanup_fn unmount_any "$m"
# Daemons have left their parent, so spawn() cannot end them.
end_daemons() {
	local pid
	for pid in $(processes_left | awk '$2 ~ /mcfs$/ { print $1 }'); do
		kill -KILL "$pid"
		wait_for 10 gone "$pid"
	done
}
cleanup_fn end_daemons
flags=(--standalone --global_segment_size=64MiB)

# refused WORDS COMMAND... - the command fails at once, with one line on standard error that has the words
refused() {
	local words=$1
	shift
	fails timeout 20 "$@"
	grep -q -- "$words" "$tmp/fails.out" || fail "no \"$words\" in: $(cat "$tmp/fails.out")"
	equal "lines about: $words" "$(wc -l <"$tmp/fails.out")" 1
	is_mounted "$m" && fail "mounted after: $words"
	return 0
}

# ---- errors
refused "no mount point" "$mcfs"
refused "too many arguments" "$mcfs" a b c
refused "no such file" "$mcfs" "${flags[@]}" "$tmp/missing"
touch "$tmp/file"
refused "not a directory" "$mcfs" "${flags[@]}" "$tmp/file"
refused "runs its own master" "$mcfs" "${flags[@]}" 127.0.0.1:1 "$m"
refused "octal" "$mcfs" "${flags[@]}" --file_mode=rw "$m"
refused 'unknown protocol "rmda", use tcp' "$mcfs" "${flags[@]}" --protocol=rmda "$m"
refused "SSD directory $tmp/none" "$mcfs" "${flags[@]}" --enable_offload --ssd_offload_path="$tmp/none" "$m"
closed=
free_port closed
refused "127.0.0.1:$closed.*is mooncake_master running" "$mcfs" --setup_timeout=1s "127.0.0.1:$closed" "$m"
refused "127.0.0.1:$closed" "$mcfs" -f --log=err --setup_timeout=1s "127.0.0.1:$closed" "$m"

# ---- a daemon
# The guard process has the same name until it renames itself.
daemon_of() {
	local pid
	for pid in $(processes_left | awk '$2 ~ /mcfs$/ { print $1 }'); do
		if tr '\0' '\n' <"/proc/$pid/cmdline" | found -xF "$1"; then echo "$pid"; fi
	done
}
one_daemon() {
	pid=$(daemon_of "$m")
	[ "$(wc -w <<<"$pid")" -eq 1 ]
}
start_daemon() {
	TMPDIR=$tmp/sockets timeout 30 "$mcfs" "${flags[@]}" "$@" "$m" </dev/null >"$tmp/start.out" 2>&1 || {
		cat "$tmp/start.out"
		fail "mcfs does not start"
	}
	is_mounted "$m" || fail "mcfs returned before the mount was there"
	wait_for 10 one_daemon || fail "no daemon, or several: $(processes_left)"
}
nobody() { [ -z "$(processes_left)" ]; }
no_socket() { [ -z "$(ls -A "$tmp/sockets")" ]; }
ended() {
	wait_for 20 gone "$pid" || fail "the daemon does not end"
	no_socket || fail "left: $(find "$tmp/sockets")"
	is_mounted "$m" && fail "the mount is left"
	[ -z "$(processes_left)" ] || fail "processes are left: $(processes_left)"
	return 0
}
# none of the daemon's processes keeps a lock, or a pipe, of the program that started it
start_daemon_under_lock() {
	exec 8>"$tmp/lock"
	flock 8
	start_daemon
	exec 8>&-
	flock -n "$tmp/lock" true || fail "a process of the daemon has the lock: $(processes_left)"
}
mounts_here() { grep -cF "$tmp" /proc/self/mounts || :; }
before=$(mounts_here)
start_daemon_under_lock
echo text >"$m/f"
equal "a file" "$(cat "$m/f")" text
equal "working directory of the daemon" "$(readlink "/proc/$pid/cwd")" /
refused_mounted() {
	fails timeout 20 "$mcfs" "${flags[@]}" "$m"
	grep -q "mounted there already" "$tmp/fails.out" || fail "a second mount: $(cat "$tmp/fails.out")"
}
refused_mounted
equal "the file, after a second mount was refused" "$(cat "$m/f")" text
umount "$m"
ended
equal "mounts" "$(mounts_here)" "$before"

for sig in TERM INT; do
	start_daemon
	echo text >"$m/f"
	kill -"$sig" "$pid"
	ended
done
# SIGHUP does not end it.
start_daemon
kill -HUP "$pid"
echo text >"$m/f"
equal "a file after SIGHUP" "$(cat "$m/f")" text
fusermount3 -u "$m"
ended

# ---- a busy mount
start_daemon
exec 3>"$m/open"
echo unfinished >&3
fails umount "$m"
is_mounted "$m" || fail "a busy mount was unmounted"
kill -TERM "$pid"
ended
# Its descriptor is dead, and writes to it fail.
fails sh -c 'echo more >&3'
exec 3>&-
ls -A "$m" >/dev/null
equal "the directory below" "$(ls -A "$m")" ""

# ---- a lazy unmount keeps working until the last descriptor is closed
start_daemon
exec 3>"$m/open"
umount -l "$m"
echo text >&3 || fail "a write after umount -l"
exec 3>&-
ended

# ---- a daemon never unmounts the next daemon's mount: not when the last file of a lazy unmount is closed,
another() {
	start_standalone "$m" --global_segment_size=64MiB
	echo next >"$m/next"
}
still_there() {
	wait_for 20 gone "$1" || fail "the daemon does not end: $2"
	is_mounted "$m" || fail "the next daemon's mount was taken away: $2"
	equal "the next daemon's file" "$(cat "$m/next")" next
	stop_pid "$MCFS_PID"
	is_mounted "$m" && fail "the mount is left"
	return 0
}
start_daemon --stall_timeout=0
exec 3>"$m/open"
umount -l "$m"
another 3>&-
exec 3>&-
still_there "$pid" "umount -l"
# nor when its mount was unmounted while it was stopped, and the next mount got the same number,
number() { awk -v dir="$1" '$5 == dir { print $3 }' /proc/self/mountinfo; }
mkdir "$tmp/low" "$tmp/guard-logs"
# started_and_gone FLAG... - the kernel assigns the lowest free number; a daemon uses one more if
# its memory is huge pages or a tmpfs of its own
started_and_gone() {
	mount -t tmpfs none "$tmp/low"
	start_daemon "$@"
	was=$(number "$m")
	stop_still "$pid"
	umount -l "$m"
	umount "$tmp/low"
	another
	echo "number of a mount, and of the next one: $was $(number "$m")"
}
started_and_gone --stall_timeout=0
kill -CONT "$pid"
still_there "$pid" "stopped"
# nor by the daemon's guard.
started_and_gone --stall_timeout=5s --log_dir="$tmp/guard-logs"
wait_for 60 grep -q "has stalled" "$tmp/guard-logs/mcfs.INFO" || fail "the guard reports nothing"
equal "the next daemon's file, after our guard's look" "$(cat "$m/next")" next
kill -CONT "$pid"
still_there "$pid" "guarded"

# ---- a killed daemon, and the files that it leaves
for stall in 30s 0; do
	start_daemon --stall_timeout="$stall"
	no_socket && fail "no socket of the master's in TMPDIR"
	kill -KILL "$pid"
	wait_for 10 no_socket || fail "the socket outlives the daemon: $(find "$tmp/sockets")"
	wait_for 10 nobody || fail "processes are left: $(processes_left)"
done
start_daemon
echo text >"$m/f"
kill -KILL "$pid"
wait_for 10 gone "$pid"
is_mounted "$m" || fail "the dead mount is not there"
fails ls "$m"
start_daemon
equal "a new pool is empty" "$(ls -A "$m")" ""
echo again >"$m/f"
equal "a file after a restart" "$(cat "$m/f")" again
# A stopped daemon is neither dead nor alive: no other daemon replaces it.
stop_still "$pid"
fails timeout 20 "$mcfs" "${flags[@]}" "$m"
grep -q "does not answer" "$tmp/fails.out" || fail "a stopped daemon: $(cat "$tmp/fails.out")"
kill -CONT "$pid"
equal "after SIGCONT" "$(cat "$m/f")" again
umount "$m"
ended

# ---- the mount point is found through paths of all kinds
mkdir "$tmp/odd dir"
cleanup_fn unmount_any "$tmp/odd dir"
ln -s "odd dir" "$tmp/link"
(cd "$tmp" && timeout 30 "$mcfs" "${flags[@]}" link//)
is_mounted "$tmp/odd\\\\040dir" || fail "not mounted through a link: $(tail -n 1 /proc/self/mounts)"
wait_for 10 one_mcfs || fail "no daemon, or several: $(processes_left)"
kill -KILL "$pid"
wait_for 10 gone "$pid"
(cd "$tmp" && timeout 30 "$mcfs" "${flags[@]}" "./odd dir/")
echo x >"$tmp/odd dir/f"
umount "$tmp/odd dir"
wait_for 10 nobody || fail "processes are left: $(processes_left)"

# ---- log files
mkdir "$tmp/logs"
start_daemon --log_dir="$tmp/logs"
grep -q "mounted dir=$m" "$tmp/logs/mcfs.INFO" || fail "the log lacks the start"
umount "$m"
ended
# Relative names refer to the directory in which it was started, also after it has left that directory.
rm -r "$tmp/logs"
mkdir "$tmp/logs"
echo "timeout: 7s" >"$tmp/conf.yaml"
cd "$tmp"
start_daemon --log_dir=logs --config_path=conf.yaml
cd "$OLDPWD"
timeout_is() { grep -q "^timeout = $1 " "$m/.mcfs/config"; }
timeout_is 7s || fail "config: $(grep timeout "$m/.mcfs/config")"
echo "timeout: 9s" >"$tmp/conf.yaml"
rm "$tmp/logs"/*
kill -HUP "$pid"
wait_for 20 timeout_is 9s || fail "not reloaded: $(cat "$tmp/logs"/*)"
wait_for 20 grep -q "configuration reloaded" "$tmp/logs/mcfs.INFO" || fail "no new log file"
echo "timeout: soon" >"$tmp/conf.yaml"
rm "$tmp/logs"/*
kill -HUP "$pid"
wait_for 20 grep -q "cannot reload" "$tmp/logs/mcfs.INFO" || fail "no new log file after an invalid option"
umount "$m"
ended
refused "cannot create the directory of the log" "$mcfs" "${flags[@]}" --log_dir="$tmp/none/where" "$m"
# ---- read-only, immutable
start_daemon -o ro
for call in "touch $m/f" "mkdir $m/d" "ln -s x $m/l"; do
	# several words
	# shellcheck disable=SC2086
	fails $call
	grep -q "Read-only file system" "$tmp/fails.out" || fail "$call: $(cat "$tmp/fails.out")"
done
umount "$m"
ended
start_daemon -o rw,noexec,nosuid,nodev,noatime
[ ! -s "$tmp/start.out" ] || { cat "$tmp/start.out"; fail "words of mount(8) are warned about"; }
grep -qE "^standalone $m fuse.mcfs rw,nosuid,nodev,noexec" /proc/self/mounts || fail "noexec"
umount "$m"
ended
start_daemon -o immutable
echo one >"$m/f"
fails sh -c "echo two >'$m/f'"
fails sh -c "echo two >>'$m/f'"
echo two >"$m/g"
fails mv -f "$m/g" "$m/f"
equal "an immutable file" "$(cat "$m/f")" one
rm "$m/f" "$m/g"
# Two processes create one file: the first one that closes it wins.
exec 3>"$m/h" 4>"$m/h"
echo one >&3
echo two >&4
exec 3>&- 4>&-
equal "a file of two creators" "$(cat "$m/h")" one
rm "$m/h"
umount "$m"
ended

# the memory of a standalone mount ends with it, and so does its index
[ ! -e "$XDG_STATE_HOME" ] || fail "a standalone mount keeps a journal: $(find "$XDG_STATE_HOME")"
