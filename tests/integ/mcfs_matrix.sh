#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Failures around a mount, one after the other: no operation hangs beyond its deadline, no byte is
# wrong, no partial file appears under its name, and nothing stays pinned.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_netns
requires python3
requires_memory 2048
two_nodes
limit=12	# seconds: a command sends several requests, and each may wait for up to 1.5 s

now_ms() {
	echo $((${EPOCHREALTIME/./} / 1000))
}
# ends WHAT COMMAND... - the command ends soon, with any status
ends() {
	local what=$1 t status=0
	shift
	t=$(now_ms)
	timeout -s KILL 60 "$@" >"$tmp/ends.out" 2>&1 || status=$?
	t=$(($(now_ms) - t))
	[ "$status" -ne 137 ] || fail "$what hangs"
	[ "$t" -lt $((limit * 1000)) ] || fail "$what took $t ms"
	echo "$what: status $status after $t ms"
	return "$status"
}
# refused WHAT COMMAND... - the command fails soon
refused() {
	ends "$@" && fail "$1 succeeded"
	return 0
}
# each_operation DIR - every kind of operation ends, with any result
each_operation() {
	local d=$1
	ends stat stat "$d/f" || :
	ends read cat "$d/f" || :
	ends ls ls -l "$d" || :
	ends write cp "$tmp/s" "$d/new" || :
	ends rewrite cp "$tmp/s" "$d/f2" || :
	ends mkdir mkdir "$d/dir" || :
	ends rename mv "$d/f3" "$d/f4" || :
	ends rm rm -f "$d/f4" || :
	ends symlink ln -s x "$d/link" || :
	ends truncate truncate -s 10 "$d/f2" || :
	ends df df "$d" || :
	ends xattr python3 -c 'import os, sys; os.getxattr(sys.argv[1], "user.mooncake.where"); os.listxattr(sys.argv[1])' \
		"$d/f" || :
}
# whole FILE... - the files have the bytes of $tmp/s, or do not exist
whole() {
	local f
	for f; do
		[ -e "$f" ] || continue
		cmp -s "$tmp/s" "$f" || fail "$f is not what was written: $(stat -c %s "$f") bytes"
	done
}
stat_of() {
	awk -v name="$2" '$1 == name { print $2 }' "$1/.mcfs/stats"
}
nothing_pinned() {
	# markers of directories and symbolic links are not evicted
	rm -f "$1/link" "$1/ln"
	rmdir "$1/dir" "$1/dirs" 2>/dev/null || :
	[ "$(stat_of "$1" pool_evictable_bytes)" = "$(stat_of "$1" pool_used_bytes)" ] &&
		[ "$(stat_of "$1" staged_bytes)" = 0 ] &&
		# 1: the handle of this file itself
		[ "$(stat_of "$1" open_handles)" -le 1 ]
}
head -c 3000000 /dev/urandom >"$tmp/s"

NS=$NS_A MASTER_HOST=$ADDR_A start_master --client_ttl=4
a=$tmp/a b=$tmp/b
flags=(--timeout=1500ms --setup_timeout=3s --stall_timeout=4s --global_segment_size=128MiB)
mount_a() {
	NS=$NS_A start_mcfs "$MASTER" "$a" --host="$ADDR_A" "${flags[@]}" "$@"
	PID_A=$MCFS_PID
}
mount_b() {
	NS=$NS_B start_mcfs "$MASTER" "$b" --host="$ADDR_B" "${flags[@]}"
	PID_B=$MCFS_PID
}
files() {
	local f
	for f in f f2 f3; do cp "$tmp/s" "$1/$f"; done
}
mount_a
mount_b
files "$b"
cmp "$tmp/s" "$a/f"

echo "=== clients killed in every operation"
cat >"$tmp/client.py" <<'PY'
import os, sys
d, what, n = sys.argv[1], sys.argv[2], 0
data = open(sys.argv[3], "rb").read()
def write(name):
    with open(name, "wb", buffering=0) as f:
        for i in range(0, len(data), 100000):
            f.write(data[i:i + 100000])
def safe(fn, *a):
    try: fn(*a)
    except FileNotFoundError: pass
    except FileExistsError: pass
while True:
    n += 1
    if what == "read": open(d + "/f", "rb").read()
    elif what == "write": write(d + "/k%d" % (n % 7))
    elif what == "rename":
        write(d + "/tmp%d" % os.getpid()); os.rename(d + "/tmp%d" % os.getpid(), d + "/k%d" % (n % 7))
    elif what == "unlink": write(d + "/k7"); safe(os.unlink, d + "/k7")
    elif what == "list": os.listdir(d)
    elif what == "mkdir": safe(os.mkdir, d + "/dirs"); safe(os.rmdir, d + "/dirs")
    elif what == "symlink": safe(os.symlink, "f", d + "/ln"); safe(os.unlink, d + "/ln")
    elif what == "xattr": os.getxattr(d + "/f", "user.mooncake.where"); os.listxattr(d + "/f")
    elif what == "map":
        import mmap
        with open(d + "/f", "rb") as f: mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:]
    elif what == "fsync":
        with open(d + "/k8", "wb") as f: f.write(data); f.flush(); os.fsync(f.fileno())
    elif what == "truncate":
        with open(d + "/k9", "wb") as f: f.write(data); f.truncate(2 * len(data)); f.truncate(len(data))
PY
for what in read write rename unlink list mkdir symlink xattr map fsync truncate; do
	for i in 1 2 3; do
		status=0
		{ timeout -s KILL "0.$((2 + RANDOM % 4))" \
			python3 "$tmp/client.py" "$a" "$what" "$tmp/s" 2>"$tmp/client.err"
		} 2>/dev/null || status=$?
		[ "$status" -eq 137 ] || fail "$what: status $status: $(cat "$tmp/client.err")"
	done
	whole "$a"/f "$a"/k*
done
wait_for 10 nothing_pinned "$a" || fail "something stays pinned: $(cat "$a/.mcfs/stats")"
rm -f "$a"/k* "$a"/tmp* "$a"/ln

echo "=== the owner of the data is killed in mid-read"
head -c 60000000 /dev/urandom >"$tmp/large"
cp "$tmp/large" "$b/large"
cat >"$tmp/slow.py" <<'PY'
import sys
got, want = open(sys.argv[1], "rb", buffering=0), open(sys.argv[2], "rb")
error = None
print("begun", flush=True)
n = 0
while error is None:
    try: data = got.read(1 << 20)
    except OSError as e: error = e; break
    if not data: break
    if data != want.read(len(data)): sys.exit("wrong bytes at %d" % n)
    n += len(data)
    if n == 3 << 20: print("under way", flush=True); sys.stdin.readline()
print("read", n, "then", error, flush=True)
PY
# in_mid_read COMMAND... - run the command while a read of the large file is running, and wait until
# the read has ended
in_mid_read() {
	local in=$tmp/slow.in out=$tmp/slow.out
	rm -f "$in" "$out"
	mkfifo "$in"
	timeout -s KILL 60 python3 "$tmp/slow.py" "$a/large" "$tmp/large" <"$in" >"$out" 2>&1 &
	local pid=$!
	exec 7>"$in"
	wait_for 10 grep -q "under way" "$out" || fail "no read is running: $(cat "$out")"
	"$@"
	local t
	t=$(now_ms)
	echo >&7
	exec 7>&-
	wait "$pid" || fail "in mid-read: $(cat "$out")"
	t=$(($(now_ms) - t))
	[ "$t" -lt $((limit * 1000)) ] || fail "a read took $t ms to end"
	tail -n 1 "$out"
}
in_mid_read kill_pid "$PID_B"
grep -q "then None" "$tmp/slow.out" && fail "a read of lost bytes succeeded"
each_operation "$a"
wait_for 20 nothing_pinned "$a" || fail "something stays pinned: $(cat "$a/.mcfs/stats")"
refused "an operation on a dead mount" stat "$b/f"
umount -l "$b"

echo "=== the owner stands still in mid-read"
mount_b
rm -f "$a"/*
cp "$tmp/large" "$b/large"
files "$b"
in_mid_read stop_still "$PID_B"
grep -q "then None" "$tmp/slow.out" && fail "a read from a stopped owner succeeded"

echo "=== the daemon stands still: its own callers"
refused "an operation on a mount that stands still" cat "$b/f"
refused "the next one" ls "$b/f"
each_operation "$a"
kill -CONT "$PID_B"
wait_for 15 test -e "$b/large" || fail "the daemon does not mount again after its stall"
cmp "$tmp/large" "$b/large" || fail "the stall of the owner lost its object"
wait_for 15 cmp "$tmp/large" "$a/large" || fail "the other node cannot read the object after the stall"
files "$b"
cmp "$tmp/s" "$a/f"

echo "=== the network is cut"
cp "$tmp/large" "$b/large"
in_mid_read in_ns "$NS_B" ip link set veth-b down
each_operation "$a"
each_operation "$b"
in_ns "$NS_B" ip link set veth-b up
wait_for 30 test -e "$b/f" || fail "the network works again, the mount does not"
cp "$tmp/s" "$b/after-cut"
wait_for 20 cmp "$tmp/s" "$a/after-cut"
whole "$a"/f "$a"/f3 "$a"/f4 "$a"/new
wait_for 30 nothing_pinned "$a" || fail "something stays pinned: $(cat "$a/.mcfs/stats")"

echo "=== the master is gone"
rm -f "$a"/*
files "$a"
exec 5<"$a/f"
kill_pid "$MASTER_PID"
each_operation "$a"
cmp "$tmp/s" - <&5 || fail "reading an open file in own memory needs the master"
exec 5<&-
NS=$NS_A restart_master --client_ttl=4
wait_for 30 cp "$tmp/s" "$a/back" || fail "the mount does not connect to the new master"
cmp "$tmp/s" "$a/back"
wait_for 30 cmp "$tmp/s" "$b/back" || fail "the other mount does not connect to it"
wait_for 30 nothing_pinned "$a" || fail "something stays pinned: $(cat "$a/.mcfs/stats")"

echo "=== the connection is aborted through sysfs"
fuse_connections
number=$(awk -v dir="$a" '$5 == dir { split($3, d, ":"); print d[2] }' /proc/self/mountinfo)
if [ -w "$CONNECTIONS/$number/abort" ]; then
	exec 5>"$a/unfinished"
	echo part >&5
	echo 1 >"$CONNECTIONS/$number/abort"
	fails sh -c 'echo more >&5'
	{ exec 5>&-; } 2>/dev/null || :
	refused "an operation on an aborted mount" stat "$a/f"
	wait_for 15 gone "$PID_A" || fail "a daemon without a connection does not end"
	wait "$PID_A" 2>/dev/null || :
	unmount_any "$a"
	mount_a
	[ ! -e "$b/unfinished" ] || fail "a partial file appears under its name"
fi

echo "=== the daemon is killed, with callers waiting"
stop_still "$MASTER_PID"
timeout -s KILL 60 cat "$a/f" >"$tmp/waiting.out" 2>&1 &
waiting=$!
exec 5>"$a/unfinished" || :
waits() {
	[ "$(ps -o stat= -p "$(pgrep -P "$waiting")" | cut -c 1)" != R ]
}
wait_for 5 waits
kill_pid "$PID_A"
t=$(now_ms)
wait "$waiting" && fail "a caller of a daemon that was killed succeeded"
[ $(($(now_ms) - t)) -lt 2000 ] || fail "a caller of a daemon that was killed still waits"
{ exec 5>&-; } 2>/dev/null || :
kill -CONT "$MASTER_PID"
refused "an operation on a dead mount" ls "$a"
unmount_any "$a"
mount_a
wait_for 30 cp "$tmp/s" "$a/f"
cmp "$tmp/s" "$b/f"
[ ! -e "$b/unfinished" ] || fail "a partial file appears under its name"

# Sanitizers end or stop the daemon when they cannot allocate memory.
without_memory() {
	echo "=== no memory"
	exec 5<"$a/f"
	# mawk prints large products as 1e+10; a process may be unable to raise a lowered hard limit again
	limit_bytes=$(($(awk '$1 == "VmSize:" { print $2 }' "/proc/$PID_A/status") * 1024 + 1000000))
	prlimit --pid "$PID_A" --as="$limit_bytes:"
	equal "the limit" "$(awk '/^Max address space/ { print $4 }' "/proc/$PID_A/limits")" "$limit_bytes"
	each_operation "$a"
	for i in $(seq 1 8); do timeout -s KILL 60 cp "$tmp/large" "$a/big$i" >/dev/null 2>&1 & done
	for job in $(jobs -p); do
		case $job in "$PID_A" | "$PID_B" | "$MASTER_PID") ;; *) wait "$job" || : ;; esac
	done
	alive "$PID_A" || fail "the daemon died without memory"
	prlimit --pid "$PID_A" --as=unlimited:
	for f in "$a"/big*; do
		[ ! -e "$f" ] || cmp -s "$tmp/large" "$f" || [ ! -e "$f" ] || fail "$f is not whole"
	done
	whole "$a/new"
	# Eviction prefers files that were only written: the large files were read, so remove them
	# to make room
	rm -f "$a"/big*
	cp "$tmp/s" "$a/again"
	cmp "$tmp/s" "$b/again"
	exec 5<&-
	wait_for 30 nothing_pinned "$a" || fail "something stays pinned: $(cat "$a/.mcfs/stats")"
}
[ -n "${SANITIZER-}" ] || without_memory

echo "=== the disk of the log is full"
unmount "$a"
wait_for 15 gone "$PID_A"
mkdir "$tmp/logs"
mount -t tmpfs -o size=64k none "$tmp/logs"
cleanup_fn umount "$tmp/logs"
mount_a --log_dir="$tmp/logs" --log=trace
head -c 1000000 /dev/zero >"$tmp/logs/fill" 2>/dev/null || :
files "$a"
whole "$a/f" "$a/f2" "$a/f3"
rm "$tmp/logs/fill"

# ---- after all failures
unmount "$a"
unmount "$b"
wait_for 15 gone "$PID_A"
wait_for 15 gone "$PID_B"
