#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --journal_sync=fdatasync on a slow disk: a put waits for the sync, requests of other clients on
# the same RPC thread do not; acknowledged puts are there after a kill.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl
mcctl=$top_builddir/tools/mcctl
export MC_FAULTS=journal.sync=delay:3000
start_master --rpc_thread_num=1 --journal_dir="$tmp/journal" --journal_sync=fdatasync
unset MC_FAULTS
mkfifo "$tmp/stays"
exec 9<>"$tmp/stays"
spawn owner bash -c "exec '$top_builddir/tests/fault/client_actor' $MASTER 20000 own 16 <'$tmp/stays'"
has_segment() { [ -n "$(curl -sf "http://$MASTER_HTTP/get_all_segments")" ]; }
wait_for 30 has_segment
spawn put "$mcctl" --master="$MASTER" put slow "$0"
put=$SPAWNED
answered=0
while alive "$put"; do
	"$mcctl" --master="$MASTER" ls >/dev/null
	answered=$((answered + 1))
done
wait "$put"
# start and end wait for one sync each: three seconds, in which other requests would have got two answers
[ "$answered" -ge 4 ] || fail "while a put waited for the disk, other requests got $answered answers"
kill_pid "$MASTER_PID"
restart_master --rpc_thread_num=1 --journal_dir="$tmp/journal" --journal_sync=fdatasync
back() { "$mcctl" --master="$MASTER" get slow >"$tmp/copy" 2>/dev/null; }
wait_for 20 back
cmp "$tmp/copy" "$0"
