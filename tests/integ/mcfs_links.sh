#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Files with several names, and inode numbers: on two mounts, through writes, renames, removals, eviction and a restart
# of the master that was killed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_root
requires python3
requires_memory 1024
# The policy "learn" may keep a file that is looked up all the time.
start_master --journal_dir="$tmp/journal" --eviction_policy=fifo
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=64MiB -o attr_timeout=0 -o entry_timeout=0
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=0 -o attr_timeout=0 -o entry_timeout=0
B_PID=$MCFS_PID
a=$tmp/a b=$tmp/b
ctl() {
	"$top_builddir/tools/mcctl" --master="$MASTER" "$@"
}
# is FORMAT NAME WANTED - compare the output of stat(1) on both mounts
is() {
	equal "$1 of $2 on a" "$(stat -c "$1" "$a/$2")" "$3"
	equal "$1 of $2 on b" "$(stat -c "$1" "$b/$2")" "$3"
}
# same NAME NAME NAMES - both are names of one file, which has that many
same() {
	is "%i %h" "$1" "$(stat -c %i "$a/$2") $3"
	cmp "$a/$1" "$b/$2" || fail "$1 and $2 differ"
}
# ---- inode numbers survive renames, new versions, the other mount and a restart
mkdir -p "$a/d/sub"
echo one >"$a/d/f"
ln -s f "$a/d/l"
mkfifo "$a/d/p"
for n in d d/sub d/f d/l d/p; do
	stat -c %i "$a/$n"
done >"$tmp/numbers"
[ "$(sort -u "$tmp/numbers" | wc -l)" = 5 ] || fail "two files have one number"
mv "$b/d" "$b/e"
mv "$b/e/f" "$b/kept"
echo two >>"$b/kept"
numbers() {
	for n in e e/sub kept e/l e/p; do
		is %i "$n" "$(stat -c %i "$a/$n")"
		stat -c %i "$1/$n"
	done >"$tmp/numbers2"
	cmp "$tmp/numbers" "$tmp/numbers2" || fail "inode numbers have changed"
}
numbers "$a"
equal "numbers of a listing" "$(find "$a/e" -printf '%i %P\n' | sort)" "$(find "$b/e" -printf '%i %P\n' | sort)"
# the old name is another file
echo three >"$a/f"
mv "$a/f" "$a/f.1"
echo four >"$a/f"
[ "$(stat -c %i "$a/f")" != "$(stat -c %i "$b/f.1")" ] || fail "a new file has the number of a renamed one"
rm "$a/f" "$a/f.1"
# an object of the store API, also when it is renamed
printf object | ctl put s -
[ "$(stat -c %i "$a/s")" = "$(stat -c %i "$b/s")" ] || fail "the mounts show other numbers of an object"
mv "$a/s" "$a/s2"
printf object | ctl put s -
[ "$(stat -c %i "$a/s")" != "$(stat -c %i "$b/s2")" ] || fail "a new object has the number of a renamed one"
rm "$a/s" "$a/s2"

# ---- two names
mkdir "$a/dir"
cp "$a/kept" "$a/g"
number=$(stat -c %i "$a/g")
ln "$a/g" "$a/dir/h"
same g dir/h 2
printf 'one\ntwo\n' | cmp - "$b/dir/h" || fail "the link has other bytes"
is %i g "$number"
# a write through one name, an append through the other, attributes
echo rewritten >"$b/dir/h"
echo more >>"$a/g"
printf 'rewritten\nmore\n' | cmp - "$b/g" || fail "a write through the other name is not seen"
same g dir/h 2
chmod 640 "$b/g"
chown 5:6 "$a/dir/h"
touch -d @1234567890 "$b/dir/h"
is "%a %u %g %Y" g "640 5 6 1234567890"
is "%a %u %g %Y" dir/h "640 5 6 1234567890"
truncate -s 4 "$a/g"
equal "the truncated bytes" "$(cat "$b/dir/h")" rewr
ln "$b/dir/h" "$b/third"
same g third 3
fails ln "$a/g" "$a/third"
fails ln "$a/dir" "$a/dir2"
fails ln "$a/g" "$a/.mcfs/x"
fails ln "$a/none" "$a/x"
equal "directories of shared keys in a listing" "$(find "$a" -maxdepth 1 -name '*mcfs-links*')" ""
fails ls "$a/.mcfs-links"
fails mkdir "$a/.mcfs-links"
equal "find -samefile" "$(cd "$a" && find . -samefile g | sort | tr '\n' ' ')" "./dir/h ./g ./third "

# ---- clients of the store API: a read is resolved, a put replaces one name
equal "a name as an object" "$(ctl get third)" rewr
printf replaced | ctl put --upsert third -
equal "the replaced name" "$(cat "$a/third")" replaced
equal "the other names" "$(cat "$b/g")" rewr
is %h g 2
rm "$b/third"

# ---- renames
mv "$a/g" "$a/g2"
same g2 dir/h 2
python3 - "$a" <<'PY'
import os, sys
a = sys.argv[1]
os.rename(a + "/g2", a + "/dir/h")	# does nothing
assert os.path.exists(a + "/g2") and os.stat(a + "/g2").st_nlink == 2
PY
mv "$b/dir" "$b/dir3"
same g2 dir3/h 2
echo other >"$a/other"
mv "$a/other" "$a/g2"
is %h dir3/h 1
equal "the bytes of the other name" "$(cat "$b/dir3/h")" rewr
equal "the bytes of the replaced name" "$(cat "$b/g2")" other
ln "$b/dir3/h" "$a/x" 2>/dev/null && fail "a link into another mount"
ln "$a/dir3/h" "$a/x"
same x dir3/h 2

# ---- descriptors
python3 - "$a" "$b" <<'PY' || fail "descriptors"
import errno, os, sys
a, b = sys.argv[1:]
def fails(number, f, *args):
	try: f(*args)
	except OSError as e: assert e.errno == number, e
	else: raise AssertionError(f)
def read(p): return open(p).read()
# a file that its own process is still writing
f = os.open(a + "/w", os.O_CREAT | os.O_RDWR); os.write(f, b"first")
os.link(a + "/w", a + "/w2")
assert read(b + "/w2") == "first" and os.stat(b + "/w").st_nlink == 2
os.write(f, b" second"); os.close(f)
assert read(b + "/w") == read(b + "/w2") == "first second"
# a path that was looked up before the second name: a writer must not make the first name a file of its own
for ln in a, b:
	open(a + "/o", "wb").write(b"old")
	p = os.open(a + "/o", os.O_PATH)
	os.link(ln + "/o", ln + "/o2")
	for flags in os.O_WRONLY, os.O_WRONLY | os.O_TRUNC:
		try:
			os.close(os.open("/proc/self/fd/%d" % p, flags))
			assert read(a + "/o") == read(a + "/o2")
		except OSError as e:
			assert e.errno == errno.ESTALE, e
	os.close(p)
	assert os.stat(a + "/o").st_nlink == os.stat(b + "/o2").st_nlink == 2
	os.unlink(a + "/o"); os.unlink(a + "/o2")
# a reader and a writer that had it open before its second name, and after its first name was removed
open(a + "/r", "w").write("bytes")
f = os.open(a + "/r", os.O_RDONLY); g = os.open(a + "/r", os.O_WRONLY)
os.link(a + "/r", a + "/r2"); os.unlink(a + "/r")
assert os.read(f, 100) == b"bytes" and os.fstat(f).st_nlink == 1 and not os.path.exists(b + "/r")
os.write(g, b"BYTES"); os.close(g)
assert read(b + "/r2") == "BYTES" and read(a + "/r2") == "BYTES" and os.listdir(b).count("r") == 0
os.close(f)
# all names are removed while it is open
f = os.open(a + "/r2", os.O_RDONLY); g = os.open(a + "/r2", os.O_WRONLY); os.write(g, b"lost")
os.link(a + "/r2", a + "/r3"); os.unlink(a + "/r2"); os.unlink(a + "/r3")
assert os.fstat(f).st_nlink == 0 and os.read(f, 100) == b"BYTES"
os.close(g); os.close(f)
assert not os.path.exists(b + "/r2") and not os.path.exists(b + "/r3")
# removed on the other node: the commit does not bring the file back under a key without a name
open(a + "/q", "w").write("q"); os.link(a + "/q", a + "/q2")
g = os.open(a + "/q", os.O_WRONLY); os.write(g, b"late")
os.unlink(b + "/q"); os.unlink(b + "/q2")
try: os.close(g)
except OSError as e: assert e.errno == errno.ESTALE, e
assert not os.path.exists(a + "/q") and not os.path.exists(a + "/q2")
# the longest name of a key
long = "/".join(["n" * 250] * 14)
os.makedirs(a + "/" + long)
open(a + "/" + long + "/f", "w").write("deep"); os.link(a + "/" + long + "/f", a + "/" + long + "/g")
assert read(b + "/" + long + "/g") == "deep"
# other kinds
os.symlink("target", a + "/sl"); os.link(a + "/sl", a + "/sl2", follow_symlinks=False)
assert os.readlink(b + "/sl2") == "target" and os.lstat(b + "/sl").st_nlink == 2
os.mkfifo(a + "/ff", 0o640); os.link(a + "/ff", a + "/ff2")
assert os.stat(b + "/ff2").st_mode == 0o10640 and os.path.samefile(b + "/ff", b + "/ff2")
open(a + "/empty", "w").close(); os.link(a + "/empty", a + "/empty2"); open(b + "/empty2", "w").write("full")
assert read(a + "/empty") == "full"
PY
grep -v "all names of the file were removed" "$a/.mcfs/errors" | grep . && fail "errors were recorded"

# ---- programs
cp -al "$a/e" "$a/e-linked"
equal "links of cp -al" "$(stat -c %h "$b/e-linked/l" "$b/e-linked/p" | tr '\n' ' ')" "2 2 "
mkdir "$a/t"
tar cf - -C "$a" x dir3 | tar xf - -C "$a/t"
same t/x t/dir3/h 2
rm -r "$a/e-linked" "$a/t"

# ---- a master that was killed, and a second start of a mount
names=$(stat -c '%i %h' "$a/x")
kill_pid "$MASTER_PID"
restart_master --journal_dir="$tmp/journal" --eviction_policy=fifo
wait_for 20 cmp "$a/x" "$a/dir3/h"
is "%i %h" dir3/h "$names"
numbers "$b"
end_pid "$B_PID"
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=0 -o attr_timeout=0 -o entry_timeout=0
wait_for 20 test -e "$b/x"
numbers "$b"
rm "$b/x"
is %h dir3/h 1

# ---- eviction takes all names; the object goes with the last one
head -c 5M /dev/urandom >"$a/big"
mkdir "$a/links"
ln "$a/big" "$a/links/big2"
rm -r "$a/dir3"
i=0
while [ -e "$a/big" ]; do
	[ $((i += 1)) -le 60 ] || fail "the file is not evicted"
	head -c 5M /dev/zero | ctl put "fill/$i" -
done
fails cat "$b/links/big2"
wait_for 10 rmdir "$b/links"
ctl rm --yes --prefix fill/ >"$tmp/removed"
rm -r "${a:?}"/*
no_shared() {
	ctl ls -R >"$tmp/keys"
	! grep -q mcfs-links "$tmp/keys"
}
wait_for 10 no_shared
unmount "$b"
unmount "$a"
