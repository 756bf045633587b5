#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Options that refuse or cache operations: removal (rm), long listings (list_max), cached listings
# (list_cache).
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3
start_master --default_kv_lease_ttl=1s
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=32MiB --port=0
start_mcfs "$MASTER" "$tmp/unread" --global_segment_size=0 --port=0 --rm=unread
start_mcfs "$MASTER" "$tmp/deny" --global_segment_size=0 --port=0 --rm=deny
start_mcfs "$MASTER" "$tmp/few" --global_segment_size=0 --port=0 --list_max=5
start_mcfs "$MASTER" "$tmp/cached" --global_segment_size=0 --port=0 --list_cache=1h
a=$tmp/a

# said FILE TEXT
said() { grep -q "$2" "$1" || fail "not \"$2\": $(cat "$1")"; }

# ---- removal
for f in read read2 unread kept; do head -c 300000 /dev/urandom >"$a/$f"; done
exec {fd}<"$a/read"
fails rm "$tmp/unread/read"
said "$tmp/fails.out" "resource busy"
[ -e "$a/read" ] || fail "it was removed nevertheless"
rm "$tmp/unread/unread"
exec {fd}<&-
wait_for 10 rm -f "$tmp/unread/read"
[ ! -e "$a/read" ] || fail "it exists although that was refused"
fails rm "$tmp/deny/kept"
said "$tmp/fails.out" "not permitted"
mv "$tmp/deny/kept" "$tmp/deny/renamed"
echo replaced >"$tmp/deny/renamed"
equal "what is not to be removed" "$(cat "$a/renamed")" replaced
mkdir "$tmp/deny/dir" && rmdir "$tmp/deny/dir"
exec {fd}<"$a/renamed"
rm "$a/renamed"
equal "read after its removal" "$(cat <&"$fd")" replaced
exec {fd}<&-
# Same by command.
python3 - "$tmp/deny" "$tmp/unread" <<'EOF'
import errno, fcntl, os, struct, sys

REMOVE = 1 << 30 | 4112 << 16 | ord("M") << 8 | 7

def remove(mount, key):
    ctl = os.open(mount + "/.mcfs/ctl", os.O_RDWR)
    try:
        arg = bytearray(struct.pack("IIII", 1, 1, len(key), 0) + key.ljust(4096, b"\0"))
        return fcntl.ioctl(ctl, REMOVE, arg, True)
    except OSError as e:
        return e.errno
    finally:
        os.close(ctl)

assert remove(sys.argv[1], b"read2") == errno.EPERM
held = os.open(sys.argv[2] + "/read2", os.O_RDONLY)
assert remove(sys.argv[2], b"read2") == errno.EBUSY
os.close(held)
EOF
wait_for 10 rm -f "$tmp/unread/read2"

# ---- long listings
mkdir "$a/d"
for n in 1 2 3 4 5; do echo "$n" >"$a/d/$n"; done
equal "as many as there may be" "$(find "$tmp/few/d" -type f | wc -l)" 5
echo 6 >"$a/d/6"
fails ls "$tmp/few/d"
said "$tmp/fails.out" "File too large"
equal "what is not listed is there" "$(cat "$tmp/few/d/6")" 6
equal "without a limit" "$(find "$a/d" -type f | wc -l)" 6

# ---- cached listings
listed() { find "$tmp/cached/d" -type f -printf "%f "; }
operations() { sed -n 's/^mcfs_ops_total{op="readdir"} //p' "$tmp/cached/.mcfs/metrics"; }
names=$(listed | tr ' ' '\n' | sort | tr '\n' ' ')
before=$(operations)
for _ in 1 2 3; do
	equal "listed again" "$(listed | tr ' ' '\n' | sort | tr '\n' ' ')" "$names"
done
equal "requests for names listed again" "$(operations)" "$before"
echo 7 >"$a/d/7"
equal "another node's new name" "$(listed | wc -w)" 6
equal "by its name" "$(cat "$tmp/cached/d/7")" 7
echo 8 >"$tmp/cached/d/8"
equal "after a change by this mount" "$(listed | wc -w)" 8
rm "$tmp/cached/d/8" "$a/d/7"
equal "after a removal by this mount" "$(listed | wc -w)" 6
equal "a listing that nobody keeps" "$(find "$a/d" -type f | wc -l)" 6

# ---- a listing continues after its caller was interrupted, has closed the directory, and the
# kernel has forgotten it
under_way() { [ "$(awk '$1 == "operations_under_way" { print $2 }' "$tmp/cached/.mcfs/stats")" -eq "$1" ]; }
forgotten() { [ "$(awk '$1 == "known_inodes" { print $2 }' "$tmp/cached/.mcfs/stats")" -le 2 ]; }
if [ -w /proc/sys/vm/drop_caches ]; then
	mkdir "$a/e"
	for n in 1 2 3; do echo "$n" >"$a/e/$n"; done
	mkfifo "$tmp/go"
	spawn lister python3 -c 'if True:
		import os, signal, sys
		fd = os.open(sys.argv[1], os.O_RDONLY)
		print("open", flush=True)
		open(sys.argv[2]).read()
		signal.signal(signal.SIGALRM, lambda *a: None)
		signal.setitimer(signal.ITIMER_REAL, 0.1)
		try:
			os.listdir(fd)
		except InterruptedError:
			print("interrupted", flush=True)' "$tmp/cached/e" "$tmp/go"
	wait_for 20 grep -q open "$tmp/lister.log"
	stop_still "$MASTER_PID"
	cleanup_fn kill -CONT "$MASTER_PID"
	echo >"$tmp/go"
	wait_for 20 gone "$SPAWNED" || fail "a listing cannot be interrupted"
	said "$tmp/lister.log" interrupted
	# 2: the read of this file counts too
	wait_for 20 under_way 2 || fail "the listing does not continue"
	echo 2 >/proc/sys/vm/drop_caches
	wait_for 20 forgotten || fail "the directory is not forgotten: $(cat "$tmp/cached/.mcfs/stats")"
	kill -CONT "$MASTER_PID"
	wait_for 20 under_way 1 || fail "the listing does not end"
fi

# ---- mistakes
for option in rm=maybe list_max=-1 list_cache=soon; do
	fails "$top_builddir/mcfs/mcfs" -f --standalone "--$option" "$tmp/none"
	said "$tmp/fails.out" "${option%=*}"
done
