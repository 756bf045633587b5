#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The master killed at each step of its journal and its checkpoints, under load, and started again: what
# was acknowledged is there, nothing is wrong, nothing is half.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
flags=(--journal_dir="$tmp/journal" --journal_checkpoint_size=65536 --restart_quarantine_sec=2 --put_quarantine_ms=50)
start_master "${flags[@]}"
start_actor owner own "${OWNER_MIB:=64}"
wait_pool 10 capacity $((OWNER_MIB * MIB))

seed=0
# crash_at FAULT [keep|cache] - a master with that fault, load on it, the master without it
crash_at() {
	local fault=$1 how=${2:-keep} status=0 load
	kill_pid "$MASTER_PID"
	MC_FAULTS=$fault restart_master "${flags[@]}"
	seed=$((seed + 1))
	: >"$tmp/load.log"
	rm -f "$tmp/killed"
	"$top_builddir/tests/fault/master_load" "$MASTER" "$seed" 10 "$how" "$tmp/killed" >"$tmp/load.log" 2>&1 &
	load=$!
	cleanup_fn end_pid "$load"
	wait_for 10 gone "$MASTER_PID" || fail "$fault: the master never came there"
	wait "$MASTER_PID" 2>/dev/null || :
	touch "$tmp/killed"
	restart_master "${flags[@]}"
	wait "$load" || status=$?
	[ "$status" -eq 0 ] || fail "$fault: $(cat "$tmp/load.log")"
	echo "$fault: $(tail -n 1 "$tmp/load.log")"
}

for fault in \
	journal.settle=kill@700 journal.write=kill@300 journal.written=kill@900 \
	checkpoint.switch=kill@2 checkpoint.write=kill@3 checkpoint.step=kill@5 checkpoint.sync=kill@2 \
	checkpoint.rename=kill@3 checkpoint.published=kill@2 checkpoint.remove=kill@2 journal.create=kill@4; do
	crash_at "$fault"
done
for n in 61 187 411; do
	crash_at "journal.write=kill@$n"
done

# a pool that is full all the time: memory changes hands with each put
end_pid "$ACTOR_PID"
kill_pid "$MASTER_PID"
rm -r "$tmp/journal"
restart_master "${flags[@]}"
start_actor small own 2
wait_pool 10 capacity $((2 * MIB))
for fault in journal.settle=kill@900 journal.written=kill@700 checkpoint.write=kill@3; do
	crash_at "$fault" cache
done
! grep -qE "(damaged=[1-9]|is damaged)" "$tmp/master.log" || fail "a kill does no damage"
