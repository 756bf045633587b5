#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A killed daemon is followed by another one that continues its mount: readers get the rest of their
# bytes, writers an error, and the mount never appears dead; under our own supervisor and under
# systemd's descriptor store.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/takeover.sh"
requires_fuse
requires_root
requires python3
m=$tmp/mnt
mkdir "$m"
cleanup_fn unmount_any "$m"
head -c 8000000 /dev/urandom >"$tmp/data"
head -c 3000 /dev/urandom >"$tmp/small"
start_master
# another node with some memory, which stays alive when ours does not
spawn other "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host=127.0.0.1 \
	--port=0 --global_segment_size=32MiB
flags=(--global_segment_size=64MiB --port=0)

# set by program()
pid_steady='' fd_steady='' pid_watcher='' fd_watcher=''
# program KIND PATH EXPECTED [THEN] - run tests/integ/mcfs_takeover.py with a pipe as standard
# input, and wait until the program has done its first half
program() {
	local kind=$1
	mkfifo "$tmp/$kind.go"
	spawn "$kind" sh -c 'exec python3 "$0" "$@" <"'"$tmp/$kind.go"'"' \
		"$top_srcdir/tests/integ/mcfs_takeover.py" "$@"
	eval "pid_$kind=\$SPAWNED"
	exec {fd}>"$tmp/$kind.go"
	eval "fd_$kind=$fd"
	wait_for 30 grep -q '^half$' "$tmp/$kind.log" || fail "$kind: $(cat "$tmp/$kind.log")"
}
# goes_on KIND WORDS - let the program continue, and compare its output
goes_on() {
	local fd=fd_$1 pid=pid_$1
	echo >&"${!fd}"
	eval "exec ${!fd}>&-"
	wait_for 60 gone "${!pid}" || fail "$1 hangs: $(cat "$tmp/$1.log")"
	equal "$1" "$(tail -n +2 "$tmp/$1.log" | tr '\n' ' ')" "$2 "
	rm "$tmp/$1.go"
}

refused_standalone() {
	fails timeout 20 "$top_builddir/mcfs/mcfs" -f --standalone --supervise "$m"
	grep -q "ends with its daemon" "$tmp/fails.out" || fail "standalone: $(cat "$tmp/fails.out")"
}
refused_standalone

# ---- our own supervisor
start_mcfs "$MASTER" "$m" "${flags[@]}" --supervise
supervisor=$MCFS_PID
supervised
requires_custom_io "$m"
# Any local process can find the supervisor's socket: descriptors that strangers send are not kept,
# however many they are.
fds_of() { find "/proc/$1/fd" -type l | wc -l; }
was=$(fds_of "$supervisor")
python3 - "$supervisor" <<'PY' || fail "no datagrams to the supervisor"
import re, socket, sys
name = re.search(rf"@(mcfs-supervisor-{sys.argv[1]}-\w+)", open("/proc/net/unix").read()).group(1)
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + name)
for n in [1, 2, 3] * 20:
    socket.send_fds(s, [b"FDSTORE=1\nFDNAME=theirs"], [0] * n)
PY
as_before() { [ "$(fds_of "$supervisor")" -eq "$was" ]; }
wait_for 20 as_before || fail "descriptors from strangers are kept: $(fds_of "$supervisor") instead of $was"
mkdir "$m/d"
long=$(printf 'k%.0s' {1..240})/$(printf 'l%.0s' {1..240})
mkdir "$m/${long%/*}"
cp "$tmp/data" "$m/big"
cp "$tmp/data" "$m/replaced"
cp "$tmp/data" "$m/removed"
cp "$tmp/small" "$m/d/in"
cp "$tmp/small" "$m/$long"
program reader "$m/big" "$tmp/data"
program writer "$m/half" "$tmp/data"
program closer "$m/whole" "$tmp/small"
program maker "$m/made" "$tmp/small"
program directory "$m/d" "$tmp/small"
exec {longfd}<"$m/$long"
program watcher "$m/big" "$tmp/data" "$tmp/stop"
program steady "$m/big" "$tmp/data" "$tmp/stop"
# the segment's memory as a file, if the kernel supports passthrough
{ exec {segment}<"$m/.mcfs/segments/0"; } 2>/dev/null || segment=

old=$daemon
kill -9 "$old"
wait_for 60 another_than "$old" || fail "no new daemon: $(cat "$tmp/mcfs-mnt.log")"
wait_for 60 taken_over "$m" 1 || fail "not taken over: $(cat "$tmp/mcfs-mnt.log")"
goes_on reader "equal same"
goes_on writer "EIO EIO EIO"
goes_on closer "ok"
goes_on maker "0 b'' None"
goes_on directory "equal in"
equal "a file of a long name" "$(cat <&"$longfd" | cmp - "$tmp/small" && echo equal)" equal
exec {longfd}<&-
if [ -n "$segment" ]; then
	# opened again while it is open: the kernel accepts only the same backing file
	cat "$m/.mcfs/segments/0" >"$tmp/segment" || fail "the segment's file cannot be opened any more"
	equal "size of the memory" "$(stat -c %s "$tmp/segment")" 67108864
	cmp "$tmp/segment" - <&"$segment"
	cmp -s -n 8000000 "$tmp/segment" /dev/zero && fail "the memory is empty"
	exec {segment}<&-
	rm "$tmp/segment"
fi
cmp "$tmp/data" "$m/big"
cmp "$tmp/small" "$m/whole"
[ ! -e "$m/half" ] || fail "a partial file was published"
# the new daemon works as usual
cp "$tmp/data" "$m/new"
cmp "$tmp/data" "$m/new"

# ---- repeated kills during continuous reads; and files that were replaced or removed meanwhile
exec {replaced}<"$m/replaced"
exec {removed}<"$m/removed"
head -c 1000 <&"$replaced" | cmp - <(head -c 1000 "$tmp/data")
for n in 2 3 4; do
	old=$daemon
	[ "$n" != 2 ] || stop_still "$supervisor"
	kill -9 "$old"
	if [ "$n" = 2 ]; then
		# by another node, while no daemon runs
		echo other >"$tmp/other"
		"$top_builddir/tools/mcctl" --master="$MASTER" put --upsert replaced "$tmp/other" >/dev/null ||
			fail "mcctl put"
		"$top_builddir/tools/mcctl" --master="$MASTER" rm removed >/dev/null || fail "mcctl rm"
		kill -CONT "$supervisor"
	fi
	wait_for 60 another_than "$old" || fail "no new daemon after kill ${n}"
	wait_for 60 taken_over "$m" "$n" || fail "not taken over for the ${n}th time"
done
touch "$tmp/stop"
wait_for 60 gone "$pid_steady" || fail "a reader hangs"
equal "a steady reader" "$(tail -n 1 "$tmp/steady.log")" equal
exec {fd_steady}>&-
wait_for 60 gone "$pid_watcher" || fail "a stat hangs"
equal "errors of stat" "$(tail -n 1 "$tmp/watcher.log")" "[]"
exec {fd_watcher}>&-
head -c 100 <&"$replaced" >/dev/null 2>"$tmp/why" && fail "a replaced file can still be read"
grep -q "Stale file handle" "$tmp/why" || fail "replaced: $(cat "$tmp/why")"
cat <&"$removed" >/dev/null 2>"$tmp/why" && fail "a removed file can still be read"
grep -q "Stale file handle" "$tmp/why" || fail "removed: $(cat "$tmp/why")"
exec {replaced}<&- {removed}<&-
equal "the new version" "$(cat "$m/replaced")" other
[ ! -e "$m/removed" ] || fail "a removed file still exists"
# closed files leave no handle
wait_for 10 nothing_open "$m" || fail "handles are left: $(open_handles "$m")"

# ---- the end: by umount and by SIGTERM, and a daemon that dies too often
umount "$m"
wait_for 30 gone "$supervisor" || fail "the supervisor does not end"
start_mcfs "$MASTER" "$m" "${flags[@]}" --supervise
stop_pid "$MCFS_PID"
is_mounted "$m" && fail "SIGTERM left the mount"
start_mcfs "$MASTER" "$m" "${flags[@]}" --supervise
supervisor=$MCFS_PID
# A daemon that dies before it has served is not replaced.
supervised
echo x >"$m/served"
for n in 1 2 3 4 5 6; do
	old=$daemon
	kill -9 "$old"
	[ "$n" = 6 ] || wait_for 60 another_than "$old" || fail "gave up after $n deaths"
done
wait_for 30 gone "$supervisor" || fail "the supervisor never gives up"
grep -q "giving up" "$tmp/mcfs-mnt.log" || fail "it does not log that"
unmount_any "$m"

# ---- under systemd, which stores descriptors of services: a few lines of Python replace it here
rm -f "$tmp/stop"
spawn manager python3 "$top_srcdir/tests/integ/mcfs_takeover.py" manager "$tmp/notify" \
	"$top_builddir/mcfs/mcfs" -f --supervise "${flags[@]}" "$MASTER" "$m"
supervisor=$SPAWNED
wait_for 60 grep -q '^ready$' "$tmp/manager.log" || fail "not ready: $(cat "$tmp/manager.log")"
is_mounted "$m" || fail "ready before the mount is there"
another_than none || fail "the daemon has a supervisor of its own"
cp "$tmp/data" "$m/big2"
: >"$tmp/reader.log"
program reader "$m/big2" "$tmp/data"
old=$daemon
kill -9 "$old"
wait_for 60 another_than "$old" || fail "no new daemon"
wait_for 60 taken_over "$m" 1 || fail "not taken over: $(cat "$tmp/manager.log")"
goes_on reader "equal same"
# an aborted mount is created anew
old=$daemon
connection=$(mountpoint -d "$m")
stop_still "$supervisor"
kill -9 "$old"
# without this file in sysfs nothing can be tested
echo 1 2>/dev/null >"/sys/fs/fuse/connections/${connection#*:}/abort" || aborted=no
kill -CONT "$supervisor"
wait_for 60 another_than "$old" || fail "no new daemon after the mount was aborted"
[ "${aborted-yes}" = no ] || wait_for 60 taken_over "$m" 0 ||
	fail "an aborted mount was taken over: $(cat "$tmp/manager.log")"
cp "$tmp/data" "$m/big3"
cmp "$tmp/data" "$m/big3"
kill -TERM "$supervisor"
wait_for 30 gone "$supervisor" || fail "the daemon does not end"
is_mounted "$m" && fail "SIGTERM left the mount"
exit 0
