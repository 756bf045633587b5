#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# After a daemon is killed, no handle stays open that no process has open: neither of a file that
# was being closed, also when the daemon died while answering the close, nor of an open whose answer
# the kernel did not get.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/takeover.sh"
requires_fuse
requires_root
requires python3 strace
m=$tmp/mnt
mkdir "$m"
cleanup_fn unmount_any "$m"
start_master
spawn other "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host=127.0.0.1 \
	--port=0 --global_segment_size=32MiB
start_mcfs "$MASTER" "$m" --global_segment_size=32MiB --port=0 --supervise \
	--entry_timeout=1min --attr_timeout=1min
supervisor=$MCFS_PID
supervised
requires_custom_io "$m"
grep -Eq "^requests_sent_again[[:space:]]+yes" "$m/.mcfs/features" ||
	skip "this kernel (before 6.9) does not resend unanswered requests"
followed() {
	wait_for 60 another_than "$1" || fail "no new daemon: $(cat "$tmp/mcfs-mnt.log")"
	wait_for 60 taken_over "$m" "$2" || fail "not taken over: $(cat "$tmp/mcfs-mnt.log")"
}
echo some >"$m/file"

# ---- a directory of .mcfs/prefix stays a directory
old=$daemon
echo text >"$m/alike"
(
	cd "$m/.mcfs/prefix/ali"
	kill -9 "$old"
	followed "$old" 1
	equal "what begins so" "$(ls)" alike
	equal "read by its name there" "$(cat alike)" text
)
another_than "$old" || fail "no daemon below the supervisor"

# ---- killed while files and directories are being closed
for n in 1 2 3; do
	old=$daemon
	python3 - "$m/file" "$old" <<'EOF'
import os, signal, sys
path, daemon = sys.argv[1], int(sys.argv[2])
files = [os.open(path, os.O_RDONLY) for _ in range(1000)]
directories = [os.open(os.path.dirname(path), os.O_RDONLY) for _ in range(100)]
for fd in directories + files[:-50]:
    os.close(fd)
os.kill(daemon, signal.SIGKILL)
for fd in files[-50:]:
    os.close(fd)
EOF
	followed "$old" $((n + 1))
	wait_for 20 nothing_open "$m" || fail "closed, but still open: $(open_handles "$m")"
done

# ---- killed after the daemon has opened a file and before the kernel gets the answer; the file is
# removed before the kernel resends the request
mkfifo "$tmp/go"
cat >"$tmp/opener.py" <<'EOF'
import os, sys
known = os.open(sys.argv[1], os.O_PATH)
print("ready", flush=True)
open(sys.argv[2]).read()
try:
    os.open(f"/proc/self/fd/{known}", os.O_RDONLY)
except OSError as e:
    print(e.strerror)
EOF
spawn opener python3 "$tmp/opener.py" "$m/file" "$tmp/go"
opener=$SPAWNED
wait_for 20 grep -q ready "$tmp/opener.log" || fail "no opener: $(cat "$tmp/opener.log")"
stop_still "$supervisor"
# The opener has looked up the file already, so the kernel's first request is the open.
spawn strace strace -f -qq -p "$daemon" -o "$tmp/trace" -e trace=writev -e inject=writev:signal=SIGKILL:when=1
traced() {
	local thread
	for thread in /proc/"$daemon"/task/*/status; do
		grep -q "^TracerPid:[[:space:]]*[1-9]" "$thread" || return 1
	done
}
wait_for 20 traced || fail "not traced: $(cat "$tmp/strace.log")"
timeout 20 sh -c 'echo >"$0"' "$tmp/go"
wait_for 20 gone "$daemon" || fail "not killed: $(cat "$tmp/trace")"
alive "$opener" || fail "the kernel got the answer to the open: $(cat "$tmp/trace")"
# the master releases the dead daemon's pin when it notices the death
removed() { "$top_builddir/tools/mcctl" --master="$MASTER" rm file >/dev/null 2>&1; }
wait_for 20 removed || fail "mcctl rm"
old=$daemon
kill -CONT "$supervisor"
followed "$old" 5
wait_for 20 gone "$opener" || fail "the open hangs"
grep -q "No such file" "$tmp/opener.log" || fail "a removed file: $(cat "$tmp/opener.log")"
wait_for 20 nothing_open "$m" || fail "open, although no process got the answer: $(open_handles "$m")"

# ---- killed while a directory is renamed: a process whose working directory it is gets ESTALE, and
# does not end up in the root
unmount "$m"
wait_for 30 gone "$supervisor" || fail "the supervisor does not end"
MC_FAULTS=mcfs.handoff.set_key=kill start_mcfs "$MASTER" "$m" --global_segment_size=32MiB --port=0 --supervise
supervisor=$MCFS_PID
another_than none || fail "no daemon below the supervisor"
old=$daemon
mkdir "$m/d"
(
	cd "$m/d"
	timeout 60 mv "$m/d" "$m/e" || :
	followed "$old" 1
	fails sh -c ': >x'
	grep -q "Stale file handle" "$tmp/fails.out" || fail "in a lost directory: $(cat "$tmp/fails.out")"
)
[ ! -e "$m/x" ] || fail "a file of a lost directory appears in the root"
[ -d "$m/e" ] || fail "the directory has neither name"

# ---- same while a process has the directory open: closing it releases the handle
another_than "$old" || fail "no daemon below the supervisor"
old=$daemon
mkdir "$m/held"
exec {fd}<"$m/held"
timeout 60 mv "$m/held" "$m/moved" || :
followed "$old" 2
exec {fd}<&-
wait_for 20 nothing_open "$m" || fail "a lost directory was closed, but is still open: $(open_handles "$m")"
unmount "$m"
wait_for 30 gone "$supervisor" || fail "the supervisor does not end"

# ---- without the master: the daemon waits for all files together, not for one after the other
start_mcfs "$MASTER" "$m" --global_segment_size=32MiB --port=0 --supervise --timeout=1s
supervisor=$MCFS_PID
another_than none || fail "no daemon below the supervisor"
files=()
for n in 1 2 3 4 5; do
	echo text >"$m/open$n"
	exec {fd}<"$m/open$n"
	files+=("$fd")
done
old=$daemon
stop_still "$MASTER_PID"
cleanup_fn kill -CONT "$MASTER_PID"
kill -9 "$old"
continued() { grep -q "open files are continued files=5 " "$tmp/mcfs-mnt.log"; }
wait_for 60 continued || fail "open files are not taken over"
grep -q "open files are continued files=5 gone=0 later=5" "$tmp/mcfs-mnt.log" ||
	fail "$(grep "are continued" "$tmp/mcfs-mnt.log")"
kill -CONT "$MASTER_PID"
for fd in "${files[@]}"; do exec {fd}<&-; done
wait_for 60 another_than "$old" || fail "no new daemon"
wait_for 20 nothing_open "$m" || fail "closed, but still open: $(open_handles "$m")"
unmount "$m"
wait_for 30 gone "$supervisor" || fail "the supervisor does not end"

# ---- data that a thread writes while the close by another thread is being answered does not count as saved
MC_FAULTS=mcfs.handle.saved=delay:8000 start_mcfs "$MASTER" "$m" --global_segment_size=32MiB --port=0 --supervise \
	--timeout=60s
supervisor=$MCFS_PID
another_than none || fail "no daemon below the supervisor"
old=$daemon
python3 - "$m/two" "$old" <<'EOF' || fail "written beside a close"
import errno, os, signal, sys, threading, time
path, daemon = sys.argv[1], int(sys.argv[2])
changes = (lambda fd: os.write(fd, b"second"), lambda fd: os.ftruncate(fd, 100),
           lambda fd: os.posix_fallocate(fd, 0, 300), lambda fd: None)
files = [os.open(path + str(i), os.O_RDWR | os.O_CREAT) for i in range(len(changes))]
threads = []
for fd in files:
    os.write(fd, b"first")
    threads.append(threading.Thread(target=os.close, args=(os.dup(fd),)))
for t in threads:
    t.start()
time.sleep(3)
for change, fd in zip(changes, files):
    threads.append(threading.Thread(target=change, args=(fd,)))
    threads[-1].start()
for t in threads:
    t.join()
os.kill(daemon, signal.SIGKILL)
for i, fd in enumerate(files):
    try:
        os.close(fd)
        said = 0
    except OSError as e:
        said = e.errno
    wanted = errno.EIO if i + 1 < len(files) else 0
    if said != wanted:
        sys.exit(f"close of file {i} said {said}, not {wanted}")
EOF
followed "$old" 1
