#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Modes, owners, times and extended attributes of files: kept by the pool, seen by another mount, after a rename, a new
# version and a restart of the master that was killed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_root
requires python3
requires setpriv
requires_memory 2048
start_master --journal_dir="$tmp/journal"
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=64MiB -o allow_other
A_PID=$MCFS_PID
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=64MiB -o allow_other
chmod 755 "$tmp"
a=$tmp/a b=$tmp/b
nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
# is FORMAT NAME WANTED - compare the output of stat(1) on both mounts
is() {
	equal "$1 of $2 on a" "$(stat -c "$1" "$a/$2")" "$3"
	equal "$1 of $2 on b" "$(stat -c "$1" "$b/$2")" "$3"
}

# ---- files
echo text >"$a/f"
is "%A %u %g" f "-rw-r--r-- 0 0"
chmod 751 "$a/f"
chown 5:6 "$b/f"
touch -d "2020-01-02 03:04:05.678901234 UTC" "$a/f"
is "%A %u %g %Y" f "-rwxr-x--x 5 6 1577934245"
is "%y" f "$(TZ=UTC date -d "2020-01-02 03:04:05.678901234 UTC" "+%F %T.%N %z")"
mv "$b/f" "$b/g"
is "%A %u %g %Y" g "-rwxr-x--x 5 6 1577934245"
# A new version keeps all but the times; set-user-ID ends with a write and with a change of the owner.
chmod 4755 "$a/g"
is %a g 4755
echo more >>"$b/g"
is "%a %u %g" g "755 5 6"
[ "$(stat -c %Y "$a/g")" -gt 1577934245 ] || fail "the new version has the old time"
chmod 6755 "$a/g"
chown 7 "$a/g"
is "%a %u" g "755 7"
ln -s target "$a/link"
chown -h 8:9 "$b/link"
touch -h -d @5 "$a/link"
is "%A %u %g %Y" link "lrwxrwxrwx 8 9 5"
mkfifo -m 640 "$a/fifo"
is %A fifo "prw-r-----"
nobody mkdir "$a/none" 2>/dev/null && fail "nobody may write into the root"
fails touch -d 1960-01-01 "$a/g"
fails touch -d 2600-01-01 "$a/g"
is "%a %u" g "755 7"

# ---- directories: setgid and sticky, times, link counts
mkdir -m 2777 "$a/group"
chgrp 50 "$a/group"
(umask 022; nobody touch "$b/group/f"; nobody mkdir "$b/group/d")
is "%A %u %g" group/f "-rw-r--r-- 65534 50"
is "%A %u %g %h" group/d "drwxr-sr-x 65534 50 2"
# The kernel caches attributes of directories for attr_timeout.
has() {
	[ "$(stat -c "$1" "$2")" = "$3" ]
}
wait_for 5 has %h "$a/group" 3
wait_for 5 has %h "$b/group" 3
mkdir -m 1777 "$a/sticky"
touch "$a/sticky/root"
nobody rm -f "$b/sticky/root" 2>/dev/null && fail "a file of another user was removed from a sticky directory"
mkdir -m 700 "$a/private"
echo secret >"$a/private/f"
nobody cat "$b/private/f" 2>/dev/null && fail "a private directory was searched"
for name in by-key local prefix; do
	nobody ls "$b/.mcfs/$name/" >/dev/null 2>&1 && fail "$name shows names of private directories"
done
nobody cat "$b/.mcfs/errors" 2>/dev/null && fail "errors shows names of private directories"
touch -d @7 "$a/group"
wait_for 5 has %Y "$b/group" 7
mkdir "$a/group/e"
[ "$(stat -c %Y "$a/group")" -gt 7 ] || fail "a new child does not change the directory's time"
chmod 755 "$a/group"
[ "$(stat -c %Y "$a/group")" -gt 7 ] || fail "chmod restores the directory's old time"

# ---- through descriptors, extended attributes
python3 - "$a" "$b" <<'PY' || fail "descriptors"
import errno, os, sys, time
a, b = sys.argv[1:]
def fails(number, f, *args):
	try: f(*args)
	except OSError as e: assert e.errno == number, e
	else: raise AssertionError(f)
def mode(p): return os.stat(p).st_mode & 0o7777
# a new file has its attributes when it appears, and keeps those of a change by path that came later
f = os.open(a + "/n", os.O_CREAT | os.O_RDWR, 0o640)
os.write(f, b"x"); os.fchmod(f, 0o600); os.utime(f, ns=(0, 10**9)); os.setxattr(f, "user.k", b"early")
assert os.getxattr(f, "user.k") == b"early" and not os.path.exists(b + "/n")
os.fsync(f)
assert mode(b + "/n") == 0o600 and os.stat(b + "/n").st_mtime == 1 and os.getxattr(b + "/n", "user.k") == b"early"
os.chmod(b + "/n", 0o444); os.write(f, b"y"); os.close(f)
assert mode(b + "/n") == 0o444 and open(b + "/n").read() == "xy"
# a reader's descriptor, also after a rename
f = os.open(a + "/n", os.O_RDONLY)
os.rename(b + "/n", b + "/n2")
f2 = os.open(a + "/n2", os.O_RDONLY); os.rename(a + "/n2", a + "/n3"); os.fchmod(f2, 0o604)
assert mode(b + "/n3") == 0o604 and os.fstat(f2).st_nlink == 1
os.unlink(b + "/n3")
# a's kernel caches attributes for attr_timeout, 1 s
end = time.monotonic() + 10
while os.fstat(f2).st_nlink and time.monotonic() < end: time.sleep(0.01)
assert os.fstat(f2).st_nlink == 0
fails(errno.ESTALE, os.fchmod, f2, 0o777)
os.close(f); os.close(f2)
# the old name is another file
open(a + "/o1", "w").write("one"); os.rename(a + "/o1", a + "/o2"); open(a + "/o1", "w").write("two")
assert not os.path.samefile(a + "/o1", a + "/o2") and not os.path.samefile(b + "/o1", b + "/o2")
# the descriptor of a file that was replaced does not change the new file
open(a + "/p", "w").write("mine")
f = os.open(a + "/p", os.O_RDWR)
open(b + "/p", "w").write("theirs"); os.chmod(b + "/p", 0o600)
os.fchmod(f, 0o666); os.setxattr(b + "/p", "user.theirs", b"1")
assert mode(a + "/p") == 0o600
fails(errno.ESTALE, os.setxattr, f, "user.mine", b"1")
os.close(f)
# an unlinked file
f = os.open(a + "/u", os.O_CREAT | os.O_RDWR); os.unlink(a + "/u")
open(b + "/u", "w").write("another")
fails(errno.ESTALE, os.setxattr, f, "user.k", b"1")
os.fchmod(f, 0o601); assert os.fstat(f).st_nlink == 0 and os.fstat(f).st_mode & 0o777 == 0o601
os.close(f)
assert mode(a + "/u") == 0o644 and os.listxattr(a + "/u") == []
# extended attributes of files and directories
os.setxattr(a + "/u", "user.k", b"v" * 4000, os.XATTR_CREATE)
assert os.getxattr(b + "/u", "user.k") == b"v" * 4000 and os.listxattr(b + "/u") == ["user.k"]
fails(errno.EEXIST, os.setxattr, a + "/u", "user.k", b"", os.XATTR_CREATE)
fails(errno.ENODATA, os.setxattr, a + "/u", "user.l", b"", os.XATTR_REPLACE)
fails(errno.ENOSPC, os.setxattr, a + "/u", "user.l", b"v" * 100)
fails(errno.EOPNOTSUPP, os.setxattr, a + "/u", "trusted.k", b"")
open(b + "/u", "w").write("new version")
assert os.getxattr(a + "/u", "user.k") == b"v" * 4000
os.removexattr(b + "/u", "user.k"); fails(errno.ENODATA, os.getxattr, a + "/u", "user.k")
os.setxattr(a + "/group", "user.k", b"v"); assert os.listxattr(b + "/group") == ["user.k"]
fails(errno.EPERM, os.chmod, a, 0o700)
PY
# The owner is checked again by the master: b's kernel has checked the owner that it knows.
touch "$a/given"
chown 65534 "$a/given"
python3 - "$b/given" "$tmp/opened" "$tmp/go" <<'PY' &
import errno, os, sys, time
name, opened, go = sys.argv[1:]
mark = os.open(opened, os.O_CREAT | os.O_WRONLY)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
f = os.open(name, os.O_RDONLY)
os.fchmod(f, 0o640)
os.write(mark, b"x")
end = time.monotonic() + 30
while not os.path.exists(go) and time.monotonic() < end: time.sleep(0.001)
try: os.fchmod(f, 0o4777)
except OSError as e: sys.exit(0 if e.errno in (errno.EPERM, errno.ESTALE) else 1)
sys.exit(2)
PY
given=$!
wait_for 10 test -s "$tmp/opened"
chown 0 "$a/given"
touch "$tmp/go"
wait "$given" || fail "a former owner changed the mode ($?)"
is "%a %u" given "640 0"

# ---- users against each other
mkdir -m 1777 "$a/tmp"
python3 - "$a/tmp" "$b/tmp" <<'PY' || fail "users"
import errno, os, sys
a, b = sys.argv[1:]
def fails(numbers, f, *args):
	try: f(*args)
	except OSError as e: assert e.errno in numbers, e
	else: raise AssertionError(f)
def as_root(f):
	os.seteuid(0); os.setegid(0)
	try: return f()
	finally: os.setegid(65534); os.seteuid(65534)
def root_puts(path, mode, data):
	def put():
		f = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode); os.write(f, data); os.close(f)
	as_root(put)
def state(path):
	return as_root(lambda: (oct(os.stat(path).st_mode & 0o7777), os.stat(path).st_uid, open(path).read()))
os.umask(0o022); os.setgroups([]); os.setegid(65534); os.seteuid(65534)
# a file of mode 0600 stays one when a second descriptor publishes it
f = os.open(a + "/own", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
g = os.open(a + "/own", os.O_WRONLY); os.fchmod(f, 0o620); os.write(g, b"secret"); os.close(g); os.close(f)
assert state(b + "/own") == ("0o620", 65534, "secret"), state(b + "/own")
# a former owner, whose kernel does not know the change
f = os.open(a + "/own", os.O_RDWR); os.write(f, b"SECRET")
as_root(lambda: (os.chown(b + "/own", 0, 0), os.chmod(b + "/own", 0o700)))
for i in range(3): fails([errno.EPERM, errno.ESTALE], os.fchmod, f, 0o4755)
os.close(f)
assert state(a + "/own")[:2] == ("0o700", 0), state(a + "/own")
# a commit does not replace the file of another user, a truncation neither
f = os.open(a + "/two", os.O_CREAT | os.O_RDWR, 0o666); os.write(f, b"mine")
root_puts(b + "/two", 0o600, b"root's")
fails([errno.EPERM], os.close, f)
assert state(a + "/two") == ("0o600", 0, "root's"), state(a + "/two")
f = os.open(a + "/three", os.O_CREAT | os.O_RDWR, 0o666); os.write(f, b"mine"); os.close(f)
f = os.open(a + "/three", os.O_RDONLY)
root_puts(a + "/new", 0o600, b"root's"); as_root(lambda: os.rename(a + "/new", a + "/three"))
for size in 0, 3: fails([errno.ESTALE], os.truncate, "/proc/self/fd/%d" % f, size)
os.close(f)
assert state(a + "/three") == ("0o600", 0, "root's"), state(a + "/three")
# attributes of a version that was replaced
f = os.open(a + "/four", os.O_CREAT | os.O_RDWR); os.write(f, b"1"); os.close(f)
f = os.open(a + "/four", os.O_RDWR); open(b + "/four", "w").write("2")
for i in range(3): fails([errno.ESTALE], os.getxattr, f, "user.k")
os.close(f)
PY
# ---- the master is killed after a change
mkdir -m 711 "$a/d"
echo x >"$a/d/f"
chmod 4751 "$a/d/f"
chown 3:4 "$a/d"
chmod 711 "$a/d"
touch -d @99 "$a/d/f"
kill_pid "$MASTER_PID"
restart_master --journal_dir="$tmp/journal"
wait_for 20 test -e "$a/d/f"
is "%a %Y" d/f "4751 99"
wait_for 5 has "%a %u %g" "$b/d" "711 3 4"
equal "a directory on a" "$(stat -c "%a %u %g" "$a/d")" "711 3 4"
stop_pid "$MASTER_PID"
restart_master --journal_dir="$tmp/journal"
wait_for 20 test -e "$b/d/f"
is "%a %Y" d/f "4751 99"

# ---- noattrs
stop_pid "$A_PID"
start_mcfs "$MASTER" "$tmp/c" --global_segment_size=64MiB -o allow_other,noattrs
is_refused() {
	"$@" 2>"$tmp/err" && fail "accepted with noattrs: $*"
	grep -q "Operation not permitted" "$tmp/err" || { cat "$tmp/err"; fail "another error: $*"; }
}
wait_for 20 test -e "$tmp/c/p"
equal "mode with noattrs" "$(stat -c %a "$tmp/c/p")" 600
is_refused chmod 777 "$tmp/c/p"
is_refused chown 1 "$tmp/c/p"
is_refused touch -d @1 "$tmp/c/p"
is_refused mkfifo "$tmp/c/fifo2"
truncate -s 2 "$tmp/c/p"
equal "mode after a truncation" "$(stat -c '%a %s' "$tmp/c/p")" "600 2"
