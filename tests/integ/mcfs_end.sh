#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A daemon ends whatever operations are running: afterwards none of its resources is used or left.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_netns
m=$tmp/mnt

# ---- a read from a stopped owner; the reader is killed, the mount is unmounted
two_nodes
NS=$NS_A MASTER_HOST=$ADDR_A start_master
NS=$NS_B spawn owner "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host="$ADDR_B" \
	--port=0 --global_segment_size=64MiB
owner=$SPAWNED
head -c 20000000 /dev/urandom >"$tmp/large"
stored() { in_ns "$NS_A" timeout 20 "$top_builddir/tools/mcctl" --master="$MASTER" put --upsert large "$tmp/large"; }
wait_for 30 stored || fail "mcctl put"
NS=$NS_A start_mcfs "$MASTER" "$m" --host="$ADDR_A" --global_segment_size=0 --timeout=10s
cmp "$tmp/large" "$m/large"
stop_still "$owner"
cat "$m/large" >/dev/null 2>&1 &
reader=$!
under_way() { [ "$(metric_sum mcfs_inflight <"$m/.mcfs/metrics")" -ge 2 ]; }
wait_for 10 under_way || fail "no read is running"
kill -KILL "$reader"
wait "$reader" 2>/dev/null || :
umount "$m"
wait_for 60 gone "$MCFS_PID" || fail "the daemon does not end"
status=0
wait "$MCFS_PID" || status=$?
equal "status of a daemon whose reader was killed" "$status" 0
grep -q "giving up" "$tmp/mcfs-mnt.log" && fail "the daemon gave up"
kill -CONT "$owner"

# ---- a commit that does not end in time: the daemon gives up, and leaves no file of its pool
mkdir "$tmp/sockets"
MC_FAULTS=client.put.before_end=delay:60000 TMPDIR=$tmp/sockets start_standalone "$m" --global_segment_size=64MiB \
	--umount_timeout=300ms --timeout=1min
[ -n "$(ls -A "$tmp/sockets")" ] || fail "no socket of the master's in TMPDIR"
: >"$tmp/mcfs-mnt.log"
(echo text >"$m/f") 2>/dev/null &
writer=$!
# a request before the commit runs for less time
stays_under_way() { under_way && sleep 0.5 && under_way; }
wait_for 20 stays_under_way || fail "no commit is running"
kill -TERM "$MCFS_PID"
wait_for 30 gone "$MCFS_PID" || fail "the daemon does not give up"
wait "$MCFS_PID" && fail "it gave up, and returned status 0"
wait "$writer" || :
grep -q "giving up" "$tmp/mcfs-mnt.log" || fail "it did not give up"
no_socket() { [ -z "$(ls -A "$tmp/sockets")" ]; }
wait_for 20 no_socket || fail "left: $(find "$tmp/sockets")"
is_mounted "$m" && fail "the mount is left"
exit 0
