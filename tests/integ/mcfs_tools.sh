#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everyday programs store and find their data: each program's file is compared with its source.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_memory 2048

start_standalone "$tmp/mnt" --global_segment_size=512MiB
m=$tmp/mnt s=$tmp/source b=$tmp/both
head -c 3000000 /dev/urandom >"$s"
cat "$s" "$s" >"$b"

# is WHAT FILE [WANTED-FILE]
is() {
	cmp "$2" "${3-$s}" || fail "$1: the file differs"
}
# holds WHAT FILE TEXT
holds() {
	equal "$1" "$(cat "$2")" "$3"
}
# has PROGRAM - for programs that not every machine has
has() {
	command -v "$1" >/dev/null || { echo "without $1"; return 1; }
}
# comes FILE - wait until the file appears: its last close is asynchronous
comes() {
	wait_for 30 test -e "$1"
}
gone_file() {
	[ ! -e "$2" ] || fail "$1: the file exists"
}

# ---- copying in
cp "$s" "$m/cp"; is cp "$m/cp"
cp "$b" "$m/cp"; is "cp over an existing file" "$m/cp" "$b"
cp -f "$s" "$m/cp"; is "cp -f" "$m/cp"
cp -n "$b" "$m/cp" || :; is "cp -n" "$m/cp"
cp -p "$s" "$m/cp-p"; is "cp -p" "$m/cp-p"
cp -a "$s" "$m/cp-a"; is "cp -a" "$m/cp-a"
cp -a "$m/cp-a" "$tmp/out"; is "cp -a out of the mount" "$tmp/out"
cp -a "$m/cp-a" "$m/cp-a2"; is "cp -a inside the mount" "$m/cp-a2"
cp --sparse=always "$s" "$m/sparse"; is "cp --sparse" "$m/sparse"
cat "$s" >"$m/cat"; is "cat >" "$m/cat"
sh -c "cat $s > $m/sh"; is "sh -c 'cat >'" "$m/sh"
(cat "$s"; cat "$s") >"$m/two"; is "(cat; cat) >" "$m/two" "$b"
{ cat "$s"; cat "$s"; } >"$m/brace"; is "{ cat; cat; } >" "$m/brace" "$b"
exec 3>"$m/exec"; cat "$s" >&3; cat "$s" >&3; exec 3>&-
is "exec 3>" "$m/exec" "$b"
dd if="$s" of="$m/dd" bs=64k status=none; is dd "$m/dd"
dd if="$s" of="$m/dd-fsync" bs=1M conv=fsync status=none; is "dd conv=fsync" "$m/dd-fsync"
dd if="$s" of="$m/dd-odirect" bs=4096 count=700 oflag=direct iflag=fullblock status=none
head -c $((4096 * 700)) "$s" >"$tmp/head"; is "dd oflag=direct" "$m/dd-odirect" "$tmp/head"
dd if="$m/dd-odirect" of="$tmp/out" bs=1M iflag=direct status=none; is "dd iflag=direct" "$tmp/out" "$tmp/head"
printf XYZ | dd of="$m/dd" bs=1 seek=1000 conv=notrunc status=none
{ head -c 1000 "$s"; printf XYZ; tail -c +1004 "$s"; } >"$tmp/patched"
is "dd conv=notrunc" "$m/dd" "$tmp/patched"
tee "$m/tee" <"$s" >/dev/null; is tee "$m/tee"
install -m 600 "$s" "$m/install"; is install "$m/install"
split -b 1M "$s" "$m/split."; cat "$m"/split.* >"$tmp/out"; is split "$tmp/out"
tar cf "$tmp/x.tar" -C "$tmp" source both
mkdir "$m/tar"; tar xf "$tmp/x.tar" -C "$m/tar"; is "tar x" "$m/tar/source"; is "tar x" "$m/tar/both" "$b"
tar cf "$m/own.tar" -C "$m/tar" .; tar df "$m/own.tar" -C "$m/tar" || fail "tar c on the mount"
gzip -c "$s" >"$m/gz"; gzip -dc "$m/gz" >"$tmp/out"; is gzip "$tmp/out"
cp "$s" "$m/keep"; gzip -k "$m/keep"; gzip -dc "$m/keep.gz" >"$tmp/out"; is "gzip -k" "$tmp/out"; is "gzip -k" "$m/keep"
mkdir -p "$m/p/q/r"; cp -r "$m/tar" "$m/p/q/r/"; is "cp -r" "$m/p/q/r/tar/source"; is "cp -r" "$m/p/q/r/tar/both" "$b"
cp "$s" "$m/k"; gzip "$m/k"; gone_file "gzip in place" "$m/k"; gunzip "$m/k.gz"; is gunzip "$m/k"

# ---- attributes: copies have those that were set, and no program complains of the pool's own
# quietly COMMAND...
quietly() {
	"$@" >"$tmp/quiet" 2>&1 || fail "$*: $(cat "$tmp/quiet")"
	[ ! -s "$tmp/quiet" ] || fail "$*: $(cat "$tmp/quiet")"
}
# marked WHAT DIR
marked() {
	is "$1" "$2/f"
	equal "attributes after $1" "$(xattr list "$2/f") $(xattr get own "$2/f")" "user.own 1"
}
mkdir "$m/x"; cp "$s" "$m/x/f"; xattr set own 1 "$m/x/f"
quietly cp -a "$m/x" "$m/x-cp"; marked "cp -a" "$m/x-cp"
tar --xattrs -cf "$tmp/x.tar" -C "$m" x 2>"$tmp/quiet"; [ ! -s "$tmp/quiet" ] || fail "tar c --xattrs: $(cat "$tmp/quiet")"
mkdir "$m/x-tar"; quietly tar --xattrs --xattrs-include='user.*' -xf "$tmp/x.tar" -C "$m/x-tar"
marked "tar x --xattrs" "$m/x-tar/x"
if has rsync; then
	quietly rsync -aX "$m/x/" "$m/x-rsync/"; marked "rsync -aX" "$m/x-rsync"
	quietly rsync -aX "$m/x/" "$m/x-rsync/"
fi
quietly mv "$m/x-cp" "$tmp/x-out"; quietly mv "$tmp/x-out" "$m/x-back"; is "mv out and back" "$m/x-back/f"
! xattr set own 1 "$tmp" 2>/dev/null || marked "mv out and back" "$m/x-back"
rm -r "$m"/x*

# ---- changing
cp "$s" "$tmp/moved"; mv "$tmp/moved" "$m/mv-in"; is "mv into" "$m/mv-in"
mv "$m/mv-in" "$m/mv"; is "mv inside" "$m/mv"; gone_file "mv inside" "$m/mv-in"
echo old >"$m/target"; mv "$m/mv" "$m/target"; is "mv over an existing file" "$m/target"
mv "$m/target" "$tmp/mv-out"; is "mv out" "$tmp/mv-out"; gone_file "mv out" "$m/target"
mkdir "$m/dir"; cp "$s" "$m/dir/f"; mv "$m/dir" "$m/dir2"; is "mv of a directory" "$m/dir2/f"
gone_file "mv of a directory" "$m/dir"
echo one >"$m/log"; echo two >>"$m/log"; printf 'three\n' | tee -a "$m/log" >/dev/null
holds append "$m/log" "$(printf 'one\ntwo\nthree')"
sed -i 's/two/2/' "$m/log"; holds "sed -i" "$m/log" "$(printf 'one\n2\nthree')"
sort -o "$m/log" "$m/log"; holds "sort -o" "$m/log" "$(printf '2\none\nthree')"
touch "$m/touch"; comes "$m/touch"; [ ! -s "$m/touch" ] || fail "touch"
touch "$m/log"; holds "touch of a file that exists" "$m/log" "$(printf '2\none\nthree')"
: >"$m/log"; wait_for 30 test ! -s "$m/log"
truncate -s 5000 "$m/trunc"; equal "truncate -s" "$(stat -c %s "$m/trunc")" 5000
truncate -s 10 "$m/cp-p"; head -c 10 "$s" | cmp - "$m/cp-p" || fail "truncate of a file that exists"
fallocate -l 70000 "$m/alloc"; equal fallocate "$(stat -c %s "$m/alloc")" 70000
ln -s log "$m/link"; holds "a symbolic link" "$m/link" ""
ln "$m/cp" "$m/hard"; equal "names of a hard link" "$(stat -c %h "$m/hard")" 2; cmp "$m/cp" "$m/hard"
rm "$m/hard"
rm "$m/link" "$m/log"; gone_file rm "$m/log"

# ---- operations that a pool does not support fail at once, with the reason
# refused MESSAGE COMMAND...
refused() {
	local message=$1
	shift
	fails timeout 10 "$@"
	grep -q "$message" "$tmp/fails.out" || fail "$*: $(cat "$tmp/fails.out")"
}
refused "not allowed" ln "$m" "$m/hard"
refused "unsupported" fallocate -p -o 0 -l 4096 "$m/cp"
refused "File too large" truncate -s 1P "$m/cp"
! has python3 || refused "Invalid argument" python3 -c "import ctypes, os, sys
r = ctypes.CDLL(None, use_errno=True).renameat2(-100, b'$m/cp', -100, b'$m/dd', 2)
sys.exit(0 if r == 0 else os.strerror(ctypes.get_errno()))"
[ ! -e "$m/hard" ] || fail "a refused file exists"
is "after refusals" "$m/cp"

# ---- writers that do not finish
status=0; timeout -s KILL 0.3 dd if=/dev/zero of="$m/killed" bs=1 status=none || status=$?
equal "status of a killed dd" "$status" 137
# timeout kills itself as well, perhaps a moment before dd has ended
wait_for 30 test ! -e "$m/killed" || fail "kill -9 of dd: the file exists"
status=0; timeout 10 bash -c "exec 3>'$m/exit1'; cat '$s' >&3; exit 1" || status=$?
equal "status of a script that fails" "$status" 1
wait_for 30 test ! -e "$m/exit1" || fail "a script that fails with the file open: the file exists"
timeout 10 bash -c "exec 3>'$m/exit0'; cat '$s' >&3; exit 0"
comes "$m/exit0"; is "a script that ends with the file open" "$m/exit0"
exec 3<"$m/exit0"; rm "$m/exit0"; cmp "$s" - <&3 || fail "unlink while open"; exec 3<&-
timeout -s TERM 0.3 cat /dev/zero >"$m/two" && fail "cat was not stopped"
is "SIGTERM to a cat that rewrites" "$m/two" "$b"

# ---- programs that may be missing
if has rsync; then
	rsync "$s" "$m/rsync"; is rsync "$m/rsync"
	rsync -a "$s" "$m/rsync-a"; is "rsync -a" "$m/rsync-a"
	rsync -a --inplace "$b" "$m/rsync-a"; is "rsync --inplace" "$m/rsync-a" "$b"
fi
if has curl; then
	curl -s -o "$m/curl" "file://$s"; is "curl -o" "$m/curl"
fi
if has sqlite3; then
	timeout 120 sqlite3 "$m/db" 'create table t(a, b); begin; insert into t values (1, "x"), (2, "y"); commit;' ||
		fail "sqlite3 create"
	timeout 120 sqlite3 "$m/db" 'begin; delete from t where a = 1; rollback; update t set b = "z" where a = 2;' ||
		fail "sqlite3 update"
	equal sqlite3 "$(sqlite3 "$m/db" 'select a || b from t order by a' | tr '\n' ' ')" "1x 2z "
	equal "sqlite3 integrity" "$(sqlite3 "$m/db" 'pragma integrity_check')" ok
fi
# ---- ways in which editors save a file: in place, or by a new file with or without the old one as a backup
printf 'one\ntwo\nthree\n' >"$tmp/text"
if has ed; then
	cp "$tmp/text" "$m/ed"; printf '2s/two/2/\nw\nq\n' | timeout 20 ed -s "$m/ed"
	holds ed "$m/ed" "$(printf 'one\n2\nthree')"
fi
if has vim; then
	for how in backupcopy=yes backupcopy=no "backup|set backupcopy=no" "nowritebackup"; do
		cp "$tmp/text" "$m/vim"
		timeout 60 vim -u NONE -N -es -c "set $how" -c '2s/two/2/' -c wq "$m/vim" </dev/null >/dev/null 2>&1 ||
			fail "vim with $how"
		holds "vim with $how" "$m/vim" "$(printf 'one\n2\nthree')"
	done
fi
if has python3; then
	python3 - "$m" <<'PY' || fail "an editor's save"
import os, sys, tempfile
m = sys.argv[1]
def put(p, text, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    fd = os.open(p, flags, 0o600)
    os.write(fd, text)
    os.fsync(fd)
    os.close(fd)
def get(p):
    with open(p, 'rb') as f:
        return f.read()
p = m + '/edited'
put(p, b'old')
# emacs: the old file becomes the backup, a new file is written; its lock file is a symbolic link
os.symlink('user@host.1234:1', m + '/.#edited')
os.rename(p, p + '~')
put(p, b'emacs', os.O_WRONLY | os.O_CREAT | os.O_EXCL)
os.unlink(m + '/.#edited')
assert (get(p), get(p + '~')) == (b'emacs', b'old')
# nano, kate and most other editors: truncate and write
put(p, b'nano')
assert get(p) == b'nano'
# gedit, sublime: a new file is synced and replaces the old one; the mode is copied
fd, tmp = tempfile.mkstemp(dir=m, prefix='.goutputstream-')
os.write(fd, b'gedit')
os.fchmod(fd, 0o644)
os.fsync(fd)
os.close(fd)
os.rename(p, p + '.bak')
os.rename(tmp, p)
assert (get(p), get(p + '.bak')) == (b'gedit', b'nano')
# LibreOffice: in place, shorter
fd = os.open(p, os.O_RDWR)
os.pwrite(fd, b'lo', 0)
os.ftruncate(fd, 2)
os.close(fd)
assert get(p) == b'lo'
# the directory is synced too
d = os.open(m, os.O_RDONLY | os.O_DIRECTORY)
os.fsync(d)
os.close(d)
PY
fi
if has git; then
	git init -q "$m/repo" && cp "$s" "$m/repo/f" && git -C "$m/repo" add f &&
		git -C "$m/repo" -c user.name=a -c user.email=a@b commit -qm c || fail "git commit"
	git -C "$m/repo" fsck --strict >/dev/null || fail "git fsck"
	git clone -q --bare "$m/repo" "$m/bare.git" || fail "git clone"
	git -C "$m/bare.git" show HEAD:f | cmp - "$s" || fail "git show"
fi
if has python3; then
	python3 - "$m" "$s" <<'PY' || fail "python3"
import io, os, shutil, sys, tempfile, zipfile
m, s = sys.argv[1:]
data = open(s, 'rb').read()
with open(m + '/py', 'wb') as f:
    f.write(data)
assert open(m + '/py', 'rb').read() == data
shutil.copy2(s, m + '/copy2')
shutil.move(m + '/copy2', m + '/moved')
assert open(m + '/moved', 'rb').read() == data
with open(m + '/py', 'r+b') as f:
    f.seek(10)
    f.write(b'patched')
    f.seek(0)
    assert f.read(20) == data[:10] + b'patched' + data[17:20]
with zipfile.ZipFile(m + '/z.zip', 'w') as z:
    z.write(s, 'f')
assert zipfile.ZipFile(m + '/z.zip').testzip() is None
with tempfile.NamedTemporaryFile(dir=m, delete=False) as f:
    f.write(data)
    f.flush()
    os.replace(f.name, m + '/replaced')
    assert open(m + '/replaced', 'rb').read() == data
names = {e.name: e.is_file() for e in os.scandir(m)}
assert names['py'] and not names['tar'], names
try:
    open(m + '/py', 'xb')
    sys.exit('open of an existing file with x')
except FileExistsError:
    pass
PY
	is "python, at its exit" "$m/moved"
fi

# ---- looking
equal "wc -c" "$(wc -c <"$m/cp")" 3000000
equal sha256sum "$(sha256sum <"$m/cp")" "$(sha256sum <"$s")"
equal "du of a file" "$(du -b "$m/cp" | cut -f1)" 3000000
equal "find -type d" "$(cd "$m/tar" && find . -type d | sort | tr '\n' ' ')" ". "
equal "find -size" "$(cd "$m/tar" && find . -size +5000000c)" ./both
df "$m" | found "$m\$" || fail df
grep -q . "$m/.mcfs/version"
rm -rf "${m:?}"/*
equal "what rm -rf leaves" "$(ls -A "$m")" ""
[ ! -s "$m/.mcfs/errors" ] || { cat "$m/.mcfs/errors"; fail "errors were recorded"; }
