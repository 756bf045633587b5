#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Any key is a file and any file is a key, also with random bytes and with 4096 bytes; a file has
# the same identity on all nodes; names that are too long are refused.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3
requires_memory 2048

start_master
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=64MiB
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=64MiB
a=${tmp:?}/a b=$tmp/b
# maximum length of names in this kernel
name_max=$(stat -f -c %l "$a")
[ "$name_max" -ge 1024 ] || fail "names have up to $name_max bytes"
for seed in 1 77; do
	timeout 120 "$top_builddir/tests/integ/mcfs_keys" "$MASTER" "$a" "$seed" "$name_max" || fail "seed $seed"
	# the paths would be too long, so remove from within the directory; .mcfs is among the dotted names
	(cd "$a" && timeout 60 rm -rf -- * .[!.m]* ..?* .m[!c]*) || fail "rm -rf of odd names"
	equal "what rm -rf leaves" "$(ls -A "$b")" ""
done

python3 - "$a" "$b" "$name_max" <<'PY' || fail "python3"
import errno, os, sys
a, b, name_max = sys.argv[1], sys.argv[2], int(sys.argv[3])

def fails(want, fn, *args):
    try:
        fn(*args)
    except OSError as e:
        assert e.errno == want, (e, want)
        return
    sys.exit("%s%r did not fail" % (fn.__name__, args))

def put(path, text):
    with open(path, "w") as f:
        f.write(text)

# the longest possible name, and one byte more
os.chdir(a)
put("n" * name_max, "long")
os.chdir(b)
assert open("n" * name_max).read() == "long"
fails(errno.ENAMETOOLONG, put, "n" * (name_max + 1), "x")
fails(errno.ENAMETOOLONG, os.stat, "n" * (name_max + 1))
fails(errno.ENAMETOOLONG, os.mkdir, "n" * (name_max + 1))
# a key of 4096 bytes: fifteen directories and a name; one byte more is refused
os.chdir(a)
for i in range(15):
    os.mkdir("d" * 255)
    os.chdir("d" * 255)
put("f" * 256, "deep")
fails(errno.ENAMETOOLONG, put, "f" * 257, "x")
assert os.getxattr("f" * 256, "user.mooncake.key") == (b"d" * 255 + b"/") * 15 + b"f" * 256
assert open("f" * 256).read() == "deep"
os.rename("f" * 256, "g" * 256)
assert os.listdir(".") == ["g" * 256]
os.unlink("g" * 256)
os.chdir("/")

# names that are no keys
for bad in ("%", "a%", "%zz", "%2", "%41"):
    put(a + "/" + bad, bad)
    assert open(b + "/" + bad).read() == bad, bad
for bad in ("%00", "%2E%00"):
    put(a + "/" + bad, "x")
    assert b"\0" in os.getxattr(a + "/" + bad, "user.mooncake.key") or b"%" in \
        os.getxattr(a + "/" + bad, "user.mooncake.key")
fails(errno.EEXIST, os.mkdir, a + "/.mcfs")
# root may pass the mode's check, but not this one
fails(errno.EACCES if os.getuid() else errno.EPERM, put, a + "/.mcfs/new", "x")

# all nodes show the same inode number, size, time and generation
put(a + "/same", "one")
x, y = os.stat(a + "/same"), os.stat(b + "/same")
assert (x.st_ino, x.st_size, x.st_mtime_ns, x.st_nlink) == (y.st_ino, y.st_size, y.st_mtime_ns, 1)
g = os.getxattr(b + "/same", "user.mooncake.generation")
assert g == os.getxattr(a + "/same", "user.mooncake.generation")
where = {os.getxattr(d + "/same", "user.mooncake.locality") for d in (a, b)}
assert where == {b"local", b"remote"}, where
put(b + "/same", "two")
assert os.getxattr(a + "/same", "user.mooncake.generation") != g
assert os.stat(a + "/same").st_ino == x.st_ino
# a name that another node has taken meanwhile cannot be renamed by us
fd = os.open(a + "/mine", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
os.write(fd, b"mine")
put(b + "/mine", "theirs")
fails(errno.EEXIST, os.rename, a + "/mine", a + "/final")
fails(errno.EEXIST, os.close, fd)
assert open(a + "/mine").read() == "theirs"
fails(errno.ENOENT, os.stat, b + "/final")
# directories that exist only because of their keys
os.makedirs(a + "/p/q")
put(a + "/p/q/f", "x")
assert os.stat(b + "/p/q").st_ino == os.stat(a + "/p/q").st_ino
# a removed file disappears at once on the other node, a new one appears at once
for i in range(200):
    fails(errno.ENOENT, os.stat, b + "/comes")
    put(a + "/comes", str(i))
    assert open(b + "/comes").read() == str(i)
    os.unlink(b + "/comes")
    fails(errno.ENOENT, os.stat, a + "/comes")
PY
# a version that is lost with its node gives ESTALE to readers that have it open
put_on_b() {
	echo x >"$b/on-b"
	[ "$(xattr get mooncake.locality "$b/on-b")" = local ]
}
put_on_b || fail "the node that stores an object keeps it in its own memory"
exec 3<"$a/on-b"
stop_pid "$MCFS_PID"
wait_for 10 test ! -e "$a/on-b" || fail "the file is still there after its memory was lost"
fails cat <&3
grep -q "Stale file handle" "$tmp/fails.out" || fail "a lost version: $(cat "$tmp/fails.out")"
exec 3<&-
