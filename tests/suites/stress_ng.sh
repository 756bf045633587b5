#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The file stressors of stress-ng, one after the other and then together: those that a pool supports
# succeed.  Afterwards the mount still works and no bytes stay staged.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_memory 3072
requires stress-ng
seconds=${STRESS_SECONDS:-3}
# access, chmod, link, mknod, utime and similar ones need modes, links or times that a pool does not keep
must="chdir dentry dir dirdeep dirmany dup file-ioctl filename flock fstat getdent handle hdd io lockf open seek"
may="access chmod chown copy-file fallocate fiemap fpunch iomix lease link locka mknod mmap readahead rename
	sendfile symlink sync-file touch unlink utime xattr"

start_standalone "$tmp/mnt" --global_segment_size=1GiB
stress() {
	timeout 120 stress-ng --temp-path "$tmp/mnt" --timeout "$seconds" --verify "$@" >"$tmp/stress.out" 2>&1
}
works() {
	head -c 3000000 /dev/urandom >"$tmp/file"
	cp "$tmp/file" "$tmp/mnt/file" && cmp "$tmp/file" "$tmp/mnt/file" || fail "after $1 the mount does not work"
	rm "$tmp/mnt/file"
	alive "$MCFS_PID" || fail "the daemon ended in $1"
}
for s in $must; do
	stress "--$s" 2 --"$s"-ops 2000 || { cat "$tmp/stress.out"; fail "$s"; }
	works "$s"
done
refused=
for s in $may; do
	stress "--$s" 2 --"$s"-ops 500 || refused+=" $s"
	works "$s"
done
echo "refused by design, in part:$refused"
stress --hdd 2 --dentry 2 --open 2 --dup 1 --seek 1 || { cat "$tmp/stress.out"; fail "all together"; }
works "all together"
quiet() { grep -qE '^staged_bytes +0$' "$tmp/mnt/.mcfs/stats"; }
wait_for 20 quiet || fail "staged bytes are left"
