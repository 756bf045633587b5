#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An unprivileged user mounts, uses and unmounts through fusermount3; operations for root only are
# refused with a reason.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires fusermount3 setpriv
[ -u "$(command -v fusermount3)" ] || skip "fusermount3 is not set-uid root"
# If only root may open the device, other users cannot mount: for this test they may, in a separate
# mount namespace.
if [ "$(id -u)" -eq 0 ] && [ -z "${MCFS_USER_NS-}" ] && [ "$(stat -c %a /dev/fuse)" != 666 ]; then
	# unshare(1) makes all mounts private, which cannot be done where / is no mount (a bare chroot).
	unshare -m true 2>/dev/null ||
		skip "/dev/fuse is for root only, and no mount namespace can be created to change that"
	rmdir "$tmp"
	MCFS_USER_NS=1 exec unshare -m bash "$0"
fi
if [ -n "${MCFS_USER_NS-}" ]; then
	# Mounts of concurrent tests would stay mounted until this namespace ends.
	while read -r _ where type _; do
		[ "$type" != fuse.mcfs ] || umount -l "$where" || :
	done </proc/self/mounts
	mknod -m 666 "$tmp/fuse" c 10 229 && mount --bind "$tmp/fuse" /dev/fuse ||
		skip "/dev/fuse is for root only, and cannot be replaced"
	cleanup_fn umount /dev/fuse
fi
user=65534
if [ "$(id -u)" -eq 0 ]; then
	as_user() { setpriv --reuid="$user" --regid="$user" --clear-groups "$@"; }
	as_user test -x "$top_builddir/mcfs/mcfs" 2>/dev/null || skip "others cannot read the build directory"
else
	as_user() { "$@"; }
	user=$(id -u)
fi
chmod 755 "$tmp"
m=$tmp/mnt
mkdir "$m"
cleanup_fn unmount_any "$m"
flags=(--standalone --global_segment_size=32MiB)

# the mount point must belong to the user
if [ "$(id -u)" -eq 0 ]; then
	fails as_user timeout 20 "$top_builddir/mcfs/mcfs" "${flags[@]}" "$m"
	grep -q "not writable" "$tmp/fails.out" || fail "no reason: $(cat "$tmp/fails.out")"
	chown "$user" "$m"
fi
if ! grep -qs '^user_allow_other' /etc/fuse.conf && [ "$user" -ne 0 ]; then
	fails as_user timeout 20 "$top_builddir/mcfs/mcfs" "${flags[@]}" -o allow_other "$m"
	grep -q "allow_other" "$tmp/fails.out" || fail "no reason: $(cat "$tmp/fails.out")"
	is_mounted "$m" && fail "mounted nevertheless"
fi

as_user timeout 30 "$top_builddir/mcfs/mcfs" "${flags[@]}" "$m" || fail "mcfs does not start for a user"
is_mounted "$m" || fail "not mounted"
as_user sh -c "echo text >'$m/f'"
equal "a file" "$(as_user cat "$m/f")" text
equal "its owner" "$(as_user stat -c %u "$m/f")" "$user"
as_user mkdir "$m/d"
as_user cp /bin/sh "$m/d/"
as_user cmp /bin/sh "$m/d/sh"
# The daemon sees the exit status of a writer of the same user.  One byte at a time, or a fast
# machine would fill the pool before the kill.
status=0
as_user timeout -s KILL 0.3 dd if=/dev/zero of="$m/killed" bs=1 status=none || status=$?
equal "status of a killed dd" "$status" 137
wait_for 30 as_user test ! -e "$m/killed" || fail "a killed writer's file exists"
as_user sh -c "exec 3>'$m/g'; echo x >&3; exit 0"
equal "a file that exit closed" "$(as_user cat "$m/g")" x
wait_for 10 one_mcfs || fail "no daemon, or several: $(processes_left)"
as_user fusermount3 -u "$m"
wait_for 15 gone "$pid" || fail "the daemon does not end"

# SIGTERM, and the dead mount after SIGKILL
as_user timeout 30 "$top_builddir/mcfs/mcfs" "${flags[@]}" "$m"
wait_for 10 one_mcfs || fail "no daemon, or several: $(processes_left)"
kill -KILL "$pid"
wait_for 10 gone "$pid"
is_mounted "$m" || fail "the dead mount is not there"
as_user timeout 30 "$top_builddir/mcfs/mcfs" "${flags[@]}" "$m" || fail "a dead mount prevents the next one"
wait_for 10 one_mcfs || fail "no daemon, or several: $(processes_left)"
as_user sh -c "echo again >'$m/f'"
kill -TERM "$pid"
wait_for 15 gone "$pid" || fail "the daemon does not end after SIGTERM"
is_mounted "$m" && fail "the mount is left"

# a stall: the guard aborts the user's mount through sysfs, and the daemon mounts again
connections=/sys/fs/fuse/connections
if [ "$(id -u)" -eq 0 ] && [ -n "${MCFS_USER_NS-}" ] && ! mountpoint -q "$connections"; then
	mount -t fusectl none "$connections" && cleanup_fn umount "$connections"
fi
if mountpoint -q "$connections"; then
	as_user timeout 30 "$top_builddir/mcfs/mcfs" "${flags[@]}" --stall_timeout=1s "$m"
	wait_for 10 one_mcfs || fail "no daemon, or several: $(processes_left)"
	as_user sh -c "echo kept >'$m/f'"
	stop_still "$pid"
	fails as_user timeout 20 cat "$m/f"
	kill -CONT "$pid"
	is_kept() { [ "$(as_user cat "$m/f")" = kept ]; }
	wait_for 5 is_kept || fail "a user's mount does not return after a stall"
	as_user fusermount3 -u "$m"
	wait_for 15 gone "$pid" || fail "the daemon does not end"
fi
exit 0
