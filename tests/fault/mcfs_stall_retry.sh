#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A daemon that cannot mount again after a stall keeps its objects in the pool, repeats the attempt, and still ends
# on SIGTERM.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/stall.sh"
requires_fuse
requires_root
# /dev/fuse is replaced below, for this test only.
if [ -z "${MCFS_STALL_NS-}" ]; then
	unshare -m true 2>/dev/null || skip "no mount namespace can be created"
	rmdir "$tmp"
	MCFS_STALL_NS=1 exec unshare -m bash "$0"
fi
while read -r _ where type _; do
	[ "$type" != fuse.mcfs ] || umount -l "$where" || :
done </proc/self/mounts
start_master --client_ttl=1
start_mcfs "$MASTER" "$b" "${node_flags[@]}"
start_mcfs "$MASTER" "$a" "${node_flags[@]}"
fill_nodes

# cannot_mount - the daemon continues while /dev/fuse is unusable
cannot_mount() {
	stalls "$MCFS_PID"
	mount --bind /dev/null /dev/fuse
	kill -CONT "$MCFS_PID"
	wait_for 10 grep -q "cannot mount again, will retry" "$tmp/mcfs-a.log" || fail "no message"
}
cannot_mount
restore_fuse() { ! mountpoint -q /dev/fuse || umount -l /dev/fuse; }
cleanup_fn restore_fuse
wait_for 3 reads_all "$b" || fail "the objects have left the pool"
is_mounted "$a" && fail "mounted without /dev/fuse"
umount /dev/fuse
wait_for 5 reads_everywhere || fail "not mounted when it is possible again"
: >"$tmp/mcfs-a.log"
cannot_mount
stop_pid "$MCFS_PID"
umount /dev/fuse
exit 0
