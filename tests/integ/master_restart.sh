#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A mount whose master is killed or stopped, or whose journal's disk is full: the files stay.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
mkdir "$tmp/disk"
flags=(--journal_dir="$tmp/disk/journal" --client_ttl=2)
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=512k none "$tmp/disk" 2>/dev/null; then
	cleanup_fn umount "$tmp/disk"
fi
start_master "${flags[@]}"
start_mcfs "$MASTER" "$tmp/mnt" --global_segment_size=64mb
head -c 3000000 /dev/urandom >"$tmp/file"
cp "$tmp/file" "$tmp/mnt/file"
mkdir "$tmp/mnt/dir"
same() { cmp -s "$1" "$tmp/mnt/$2"; }

exec 5<"$tmp/mnt/file"
kill_pid "$MASTER_PID"
restart_master "${flags[@]}"
wait_for 10 same "$tmp/file" file || fail "the file is missing after kill -9"
cmp "$tmp/file" /dev/fd/5 || fail "an open file cannot be read"
exec 5<&-
[ -d "$tmp/mnt/dir" ] || fail "the directory is missing"
wait_for 10 cp "$tmp/file" "$tmp/mnt/dir/second"

# stopped for longer than the TTL: no client expires
stop_still "$MASTER_PID"
# the kernel keeps the time: wait until the mount has missed more heartbeats than the TTL allows
read -rt 3 <> <(:) || :
kill -CONT "$MASTER_PID"
same "$tmp/file" file || fail "the file is missing after a stall"
equal "segments that fell silent" "$(grep -c 'owner is silent' "$tmp/master.log" || :)" 0

stop_pid "$MASTER_PID"
restart_master "${flags[@]}"
wait_for 10 same "$tmp/file" dir/second || fail "the second file is missing after SIGTERM"

is_mounted "$tmp/disk" || exit 0
# the disk of the journal fills up, and later has space again
losses() { [ "$(metric "$MASTER_HTTP" mooncake_master_journal_losses_total)" -ge 1 ]; }
safe() { ls "$tmp/disk/journal"/checkpoint-*[0-9] >/dev/null 2>&1; }
dd if=/dev/zero of="$tmp/disk/fill" bs=1k 2>/dev/null || :
for ((i = 0; i < 400; i++)); do
	echo "$i" >"$tmp/mnt/dir/small$i"
	losses && break
done
losses || fail "the disk was never full"
same "$tmp/file" file || fail "the pool fails when the disk is full"
echo late >"$tmp/mnt/late"
rm "$tmp/disk/fill"
wait_for 10 safe || fail "the journal does not resume"
kill_pid "$MASTER_PID"
restart_master "${flags[@]}"
wait_for 10 same "$tmp/file" file || fail "the file is missing after the disk was full"
equal late "$(cat "$tmp/mnt/late")" late
