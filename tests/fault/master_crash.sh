#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# master_crash.sh [ROUNDS] - kill the master at each step of its journal and its checkpoints, under
# load, and restart it: all acknowledged objects are there, and no object is wrong or incomplete.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
flags=(--journal_dir="$tmp/journal" --journal_checkpoint_size=65536)
start_master "${flags[@]}"
start_actor owner own "${OWNER_MIB:=64}"
wait_pool 10 capacity $((OWNER_MIB * MIB))

seed=0
# crash_at FAULT [keep|cache [FLAG...]] - run a master with that fault under load until it dies,
# then a master without the fault
crash_at() {
	local fault=$1 how=${2:-keep} status=0 load
	shift
	[ $# -eq 0 ] || shift
	kill_pid "$MASTER_PID"
	MC_FAULTS=$fault restart_master "${flags[@]}" "$@"
	seed=$((seed + 1))
	: >"$tmp/load.log"
	rm -f "$tmp/killed"
	"$top_builddir/tests/fault/master_load" "$MASTER" "$seed" 600 "$how" "$tmp/killed" >"$tmp/load.log" 2>&1 &
	load=$!
	cleanup_fn end_pid "$load"
	wait_for 400 gone "$MASTER_PID" || fail "$fault: the master did not reach the fault point"
	wait "$MASTER_PID" 2>/dev/null || :
	touch "$tmp/killed"
	restart_master "${flags[@]}"
	wait "$load" || status=$?
	[ "$status" -eq 0 ] || fail "$fault: $(cat "$tmp/load.log")"
	echo "$fault: $(tail -n 1 "$tmp/load.log")"
}

# All fault points in the sources of the master and of its RPC server.  A new fault point is
# therefore tried too; if the load does not reach it in time, this test fails.  Only the start passes journal.boot_id;
# tests/integ/master_snapshot.sh has the points of snapshots, and points named pause.* only delay a reader.
points=$(grep -rhoE --include='*.c' '(MC_FAULT_POINT|mc_fault)\("[^"]+"\)' "$top_srcdir/master" "$top_srcdir/proto/rpc_serve.c" |
	sed 's/.*"\(.*\)".*/\1/' | grep -vx journal.boot_id | grep -v '^snapshot\.\|^pause\.' | sort -u)
[ "$(echo "$points" | wc -l)" -ge 13 ] || fail "fault points are not found in the sources: $points"

# nth POINT ROUND - at which passage to kill; the start of a master passes some points several times
nth() {
	case $1 in
	checkpoint.step) echo $((20 + 13 * $2)) ;;
	checkpoint.* | journal.create) echo $((3 + $2 % 3)) ;;
	rpc.*) echo $((400 + 271 * $2)) ;;
	journal.sync) echo $((150 + 61 * $2)) ;;
	*) echo $((300 + 187 * $2)) ;;
	esac
}

# each point as often as given, each time at another passage
for ((round = 0; round < ${1:-1}; round++)); do
	for point in $points; do
		sync=()
		[ "$point" != journal.sync ] || sync=(--journal_sync=fdatasync)
		crash_at "$point=kill@$(nth "$point" "$round")" keep "${sync[@]}"
	done
done

# a pool that is always full: each put reuses memory
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
