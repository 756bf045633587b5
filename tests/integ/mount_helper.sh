#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mount.mcfs passes mount(8)'s arguments to mcfs, without those that the filesystem does not know.
. "${top_srcdir:-.}/tests/lib/functions.sh"

printf '#!/bin/sh\nprintf "<%%s>" "$@"\nexit 32\n' >"$tmp/mcfs"
sed "s|@bindir@|$tmp|" "$top_srcdir/init/mount.mcfs.in" >"$tmp/mount.mcfs"
chmod +x "$tmp/mcfs" "$tmp/mount.mcfs"

# gives WANTED-ARGUMENTS WANTED-STATUS ARG... - mcfs gets these arguments for those of mount(8)
gives() {
	local wanted=$1 status=0 out
	wanted_status=$2
	shift 2
	out=$("$tmp/mount.mcfs" "$@" 2>"$tmp/err") || status=$?
	equal "arguments for: $*" "$out" "$wanted"
	equal "status for: $*" "$status" "$wanted_status"
}

gives '<m:1></mnt/x>' 32 m:1 /mnt/x
gives '<m:1></mnt/x>' 32 m:1 /mnt/x -o rw
gives '<m:1></mnt/x><-o><ro>' 32 m:1 /mnt/x -o ro,noatime
gives '<m:1,n:2></mnt/a b><-o><noexec,allow_other,global_segment_size=64gb>' 32 \
	m:1,n:2 '/mnt/a b' \
	-o rw,noexec,nosuid,nodev,_netdev,nofail,user,allow_other,global_segment_size=64gb,x-systemd.requires=a.target
gives '<m:1></mnt/x>' 32 m:1 /mnt/x -o defaults,_netdev,auto,noauto,users,nouser,owner,group,user=me,comment=c
gives '<m:1></mnt/x><-o><a=1,b>' 32 m:1 /mnt/x -s -n -o a=1 -N 7 -t fuse.mcfs -ob
gives '' 0 m:1 /mnt/x -f -o rw
gives '' 1 m:1
gives '' 1
gives '' 1 m:1 /mnt/x extra
gives '' 1 m:1 /mnt/x -Q
gives '' 1 m:1 /mnt/x -o
out=$("$tmp/mount.mcfs" m:1 /mnt/x -vf -o ro)
equal "verbose line" "$out" "$tmp/mcfs m:1 /mnt/x -o ro"
"$tmp/mount.mcfs" --help | found '^usage: mount.mcfs'

# With the real programs, called by mount(8).
requires_fuse
requires_root
start_master
sed "s|@bindir@|$top_builddir/mcfs|" "$top_srcdir/init/mount.mcfs.in" >"$tmp/mount.mcfs"
mkdir "$tmp/mnt"
cleanup_fn unmount_any "$tmp/mnt"
timeout 60 "$tmp/mount.mcfs" "$MASTER" "$tmp/mnt" \
	-o rw,noexec,nosuid,nodev,_netdev,nofail,user,global_segment_size=64mb >"$tmp/mount.log" 2>&1
is_mounted "$tmp/mnt"
if grep 'unknown' "$tmp/mount.log"; then
	fail "mcfs got an option of fstab that it does not know"
fi
findmnt -n -o OPTIONS "$tmp/mnt" | grep -w noexec
echo hello >"$tmp/mnt/greeting"
equal "contents" "$(cat "$tmp/mnt/greeting")" hello
unmount "$tmp/mnt"
