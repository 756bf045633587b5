#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two mounts of one pool, and a client without a mount: a file closed by one is visible to the
# others at once, and whole; keys of other clients are files and directories.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3
requires_memory 2048
mcctl() {
	timeout 60 "$top_builddir/tools/mcctl" --master="$MASTER" "$@"
}

start_master
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=128MiB
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=128MiB
a=$tmp/a b=$tmp/b
head -c 5000000 /dev/urandom >"$tmp/s"
head -c 4000000 /dev/urandom >"$tmp/s2"

# ---- files
for i in $(seq 1 20); do
	fails test -e "$b/f$i"
	cp "$tmp/s" "$a/f$i"
	cmp "$tmp/s" "$b/f$i" || fail "a file that was closed on a is not whole on b"
done
equal "names on b" "$(find "$b" -name 'f*' | wc -l)" 20
cp "$tmp/s2" "$b/f1"
cmp "$tmp/s2" "$a/f1" || fail "a rewritten file"
rm "$b/f2"
fails test -e "$a/f2"
mv "$a/f3" "$a/g"
cmp "$tmp/s" "$b/g" || fail "a renamed file"
fails test -e "$b/f3"
mv "$b/g" "$b/f1"
cmp "$tmp/s" "$a/f1" || fail "a file that was replaced by a rename"
# A directory, in one step: its files have their new names, and only these; a reader on b continues.
mkdir -p "$a/tree/s"
cp "$tmp/s" "$a/tree/s/f"
cp "$tmp/s2" "$a/tree/f"
cmp "$tmp/s" "$b/tree/s/f" || fail "a file in a directory"
generation=$(xattr get mooncake.generation "$b/tree/s/f")
exec 3<"$b/tree/s/f"
mv "$a/tree" "$a/moved"
cmp "$tmp/s" "$b/moved/s/f" || fail "a file of a renamed directory"
equal "version of a file of a renamed directory" "$(xattr get mooncake.generation "$b/moved/s/f")" "$generation"
fails test -e "$b/tree/s/f"
fails test -e "$b/tree/f"
equal "names of a renamed directory" "$(ls "$b/moved" "$b/moved/s" | tr '\n' ' ')" "$b/moved: f s  $b/moved/s: f "
cmp "$tmp/s" - <&3 || fail "a reader in a renamed directory"
exec 3<&-
mkdir -p "$a/tree/s"
cp "$tmp/s2" "$a/tree/s/f"
cmp "$tmp/s2" "$b/tree/s/f" || fail "another file under the old name"
cmp "$tmp/s" "$b/moved/s/f" || fail "a file of a renamed directory, beside one under its old name"
fails mcctl mv tree/ moved/
mcctl mv tree/ moved/tree/
cmp "$tmp/s2" "$a/moved/tree/s/f" || fail "a directory that mcctl renamed"
rm -r "$a/moved"
# A reader keeps the version that it has opened.
exec 3<"$a/f4"
cp "$tmp/s2" "$b/f4"
cmp "$tmp/s" - <&3 || fail "a reader's version changed under it"
exec 3<"$a/f5"
rm "$b/f5"
cmp "$tmp/s" - <&3 || fail "a reader's version disappeared with its name"
exec 3<&-
echo text >"$tmp/text"
# A file that is not closed is invisible to others.
exec 3>"$a/open"
# written by another process, whose closes publish nothing
cat "$tmp/text" >&3
fails test -e "$b/open"
exec 3>&-
equal "a file, after its close" "$(cat "$b/open")" text

# A replaced version that is opened through /proc/self/fd must not stay in a cache: a name that is
# removed afterwards does not exist.
cp "$tmp/text" "$a/f6"
python3 - "$a/f6" "$a/f7" <<'PY' || fail "a name that was removed"
import errno, os, sys
name, other = sys.argv[1:]
known = os.open(name, os.O_PATH)
with open(other, "w") as f: f.write("another")
os.rename(other, name)
try:
    os.open(f"/proc/self/fd/{known}", os.O_RDONLY)
    sys.exit("a version that was replaced is opened")
except OSError as e:
    assert e.errno == errno.ESTALE, e
os.unlink(name)
try:
    os.stat(name)
    sys.exit("a removed file is there")
except FileNotFoundError:
    pass
PY

# A name that both nodes replace continuously can always be opened.
cat >"$tmp/replace.py" <<'PY'
import os, sys, time
d, end, n = sys.argv[1], time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    with open(d + "/tmp" + sys.argv[3], "wb") as f:
        f.write(b"%d" % n * 100)
    os.rename(d + "/tmp" + sys.argv[3], d + "/busy")
    n += 1
PY
cat >"$tmp/reopen.py" <<'PY'
import os, sys, time
end, n = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    with open(sys.argv[1] + "/busy", "rb") as f:
        data = f.read()
        size = os.fstat(f.fileno()).st_size
    if len(data) != size or data != data[:size // 100] * 100:
        sys.exit("%d bytes of a file of %d" % (len(data), size))
    n += 1
print("opened", n)
PY
python3 - "$a" <<'PY'
import sys
open(sys.argv[1] + "/busy", "wb").write(b"0" * 100)
PY
timeout 60 python3 "$tmp/replace.py" "$a" 4 a &
replacers=($!)
timeout 60 python3 "$tmp/replace.py" "$b" 4 b &
replacers+=($!)
timeout 60 python3 "$tmp/reopen.py" "$a" 3.5 || fail "a file that is being replaced cannot be opened"
for pid in "${replacers[@]}"; do wait "$pid" || fail "replacing a file"; done
rm "$a/busy"

# RENAME_NOREPLACE works between two nodes, although neither kernel knows the other node's file.
cat >"$tmp/noreplace.py" <<'PY'
import ctypes, errno, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def rename(old, new):
    return 0 if libc.renameat2(-100, old.encode(), -100, new.encode(), 1) == 0 else ctypes.get_errno()
dirs, lost = sys.argv[1:3], 0
for i in range(60):
    opened = i % 2		# by the renaming process, which is still writing
    gate, results = threading.Barrier(2), [None, None]
    def one(k):
        old, text = "%s/old%d" % (dirs[k], k), b"%d" % k * 10
        f = open(old, "wb", buffering=0)
        f.write(text)
        if not opened:
            f.close()
        gate.wait()
        results[k] = rename(old, dirs[k] + "/to")
        f.close()
    threads = [threading.Thread(target=one, args=(k,)) for k in (0, 1)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    if sorted(results) != [0, errno.EEXIST]:
        sys.exit("round %d, open=%d: %s" % (i, opened, results))
    won = results.index(0)
    for d in dirs:
        assert open(d + "/to", "rb").read() == b"%d" % won * 10, i
        assert os.path.exists(d + "/old%d" % (1 - won)) and not os.path.exists(d + "/old%d" % won), i
    os.unlink(dirs[0] + "/to")
    os.unlink(dirs[1] + "/old%d" % (1 - won))
PY
timeout 120 python3 "$tmp/noreplace.py" "$a" "$b" || fail "RENAME_NOREPLACE of two nodes"

# ---- directories
mkdir "$a/dir"
[ -d "$b/dir" ] || fail "a new directory"
fails mkdir "$b/dir"
cp "$tmp/s" "$b/dir/x"
fails rmdir "$a/dir"
rm "$a/dir/x"
rmdir "$b/dir"
gone_dir() {
	[ ! -e "$a/dir" ]
}
wait_for 30 gone_dir || fail "a directory that was removed"
ln -s f1 "$a/link"
cmp "$tmp/s" "$b/link" || fail "a symbolic link"

# ---- keys put by other clients
echo value >"$tmp/v"
mcctl put meta-llama/Llama-3@1/ab.data "$tmp/v" >/dev/null
equal "a key's file" "$(cat "$a/meta-llama/Llama-3@1/ab.data")" value
[ -d "$b/meta-llama" ] || fail "a directory that a key implies"
equal "names of an implied directory" "$(ls "$b/meta-llama")" Llama-3@1
equal "find" "$(cd "$a" && find meta-llama | sort | tr '\n' ' ')" \
	"meta-llama meta-llama/Llama-3@1 meta-llama/Llama-3@1/ab.data "
fails rmdir "$a/meta-llama/Llama-3@1"
rm -r "$a/meta-llama"
wait_for 30 test ! -e "$b/meta-llama" || fail "an implied directory is still there after its last key was removed"
# A directory hides an object with the same name.
mcctl put both "$tmp/v" >/dev/null
mcctl put both/below "$tmp/v" >/dev/null
[ -d "$a/both" ] || fail "an object hides a directory"
equal "entries of one name" "$(find "$a" -maxdepth 1 -name both | wc -l)" 1
# Escaped names reach keys that are not valid paths.
printf x >"$tmp/v"
mcctl put "odd//key/./.." "$tmp/v" >/dev/null
equal "an odd key" "$(cat "$a/odd/%_/key/%2E/%2E%2E")" x
equal "odd names" "$(cd "$a" && find odd | sort | tr '\n' ' ')" \
	"odd odd/%_ odd/%_/key odd/%_/key/%2E odd/%_/key/%2E/%2E%2E "
echo 'by the mount' >"$a/100%"
equal "a file's key" "$(mcctl get '100%' -)" 'by the mount'

# ---- a node leaves with its memory: its files disappear, they do not become wrong
cp "$tmp/s" "$b/on-b"
exec 3<"$a/on-b"
stop_pid "$MCFS_PID"
wait_for 10 test ! -e "$a/on-b" || fail "a file is still there after its memory was lost"
fails cmp "$tmp/s" - <&3
exec 3<&-
cp "$tmp/s" "$a/new" && cmp "$tmp/s" "$a/new" || fail "the remaining node"
