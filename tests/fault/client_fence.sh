#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A writer stands still in the middle of its copy; meanwhile its put ends at the master.  Its range is not given to
# another put before its owner has fenced it: when the writer goes on, the other clients' objects are unchanged.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/fault/client_lib.sh"
requires jq

held=0
stopped() {
	grep -q '^State:.*T' "/proc/$1/status"
}

# begin POINT - a writer of 20 of the owner's 32 MiB that stops at the fault point
begin() {
	MC_FAULTS=$1 "$actor_program" "$MASTER" 8000 put "slow-$1" $((20 * MIB)) 1 >"$tmp/slow.log" 2>&1 &
	slow=$!
	cleanup_fn end_pid "$slow"
	wait_for 20 stopped "$slow" || fail "the writer does not reach $1: $(cat "$tmp/slow.log")"
}

# goes_on BYTES - the writer continues; whatever becomes of its put, a reader that has "other" open and mapped sees the
# right bytes before and after, and all space comes back
goes_on() {
	local reader
	held=$((held + 1))
	start_actor "held$held" hold other "$1" 2
	reader=$ACTOR_PID
	kill -CONT "$slow"
	wait "$slow" || :
	tell "held$held"
	wait_for 10 reads "$tmp/held$held.log" || fail "the object cannot be read: $(cat "$tmp/held$held.log")"
	end_pid "$reader"
	actor_status 0 5000 get other "$1" 2
	wait_for 10 actor 5000 rm other || fail "cannot remove the object of the other client"
	actor 5000 rm "slow-$point" || :
	wait_pool 20 used 0
}

reads() {
	[ "$(grep -c '^ok' "$1")" -ge 2 ]
}

# abandoned - the master has given up the stopped put
abandoned() {
	[ "$(metric "$MASTER_HTTP" mooncake_master_unfinished_puts)" = 0 ]
}

# ends_by NAME - how the stopped put ends
ends_by() {
	case $1 in
	timeout)
		wait_for 20 abandoned || fail "the stopped put does not time out"
		;;
	restart)
		stop_pid "$MASTER_PID"
		restart_master "${flags[@]}"
		wait_pool 20 capacity $((32 * MIB))
		;;
	esac
	# longer than any time after which the range was reused before there were fences
	sleep 3
}

ctl() {
	"$top_builddir/tools/mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" "$@"
}

# writer FILTER - of the first writer whose memory is in quarantine
writer() {
	ctl --json quarantine | jq -r ".writers[0]$1"
}

flags=(--put_start_discard_timeout_sec=1 --put_start_release_timeout_sec=2 --client_ttl=2 --journal_dir="$tmp/journal")
start_master "${flags[@]}"
start_actor owner own 32
ACTOR_OWNER=$ACTOR_PID
wait_pool 10 capacity $((32 * MIB))

for how in timeout restart; do
	# The writer copies into mapped memory: only its own process can end that.
	point=engine.copy.chunk=stop@150
	begin "$point"
	ends_by "$how"
	actor_status 2 3000 put other $((20 * MIB)) 2
	grep -q 'error -1006' "$tmp/actor.out" || fail "not the error of a full pool: $(cat "$tmp/actor.out")"
	actor_status 0 5000 put other $((8 * MIB)) 2
	# An operator sees it, and cannot take the memory back while the process lives.
	[ "$(writer .bytes)" -ge $((20 * MIB)) ] || fail "the quarantine is $(ctl quarantine)"
	[ "$(metric "$MASTER_HTTP" mooncake_master_quarantined_bytes)" -ge $((20 * MIB)) ] || fail "the metric is wrong"
	if [ "$how" = timeout ]; then
		fails ctl quarantine release "$(writer .client)"
		grep -q 'with --dead' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
		fails ctl quarantine release "$(writer .client)" --dead
		grep -q 'is connected' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
	fi
	goes_on $((8 * MIB))

	# Killed, the writer is fenced when its process has ended.
	begin "$point"
	ends_by "$how"
	actor_status 2 1000 put other $((20 * MIB)) 2
	kill_pid "$slow"
	wait_pool 20 used 0
	actor_status 0 5000 put other $((20 * MIB)) 2
	actor_status 0 5000 get other $((20 * MIB)) 2
	actor_status 0 5000 rm other

	# Over TCP the owner closes the writer's connections, and the range is reused while the writer stands still.
	point=engine.tcp.send=stop@12
	ACTOR_TCP=1 begin "$point"
	ends_by "$how"
	actor_status 0 20000 put other $((20 * MIB)) 2
	goes_on $((20 * MIB))
done

# An owner that cannot learn that the writer has ended: the operator says so.
kill_pid "$ACTOR_OWNER"
MC_FAULTS=client.heartbeat.fence=error:EAGAIN start_actor blind own 32
wait_pool 20 capacity $((64 * MIB))
begin engine.copy.chunk=stop@150
kill_pid "$slow"
quarantined() {
	[ "$(writer .connected)" = false ]
}
wait_for 20 quarantined
ctl quarantine | found " gone "
actor_status 2 1000 put other $((20 * MIB)) 2
ctl quarantine release "$(writer .client)" --dead | found "released 1 ranges"
wait_pool 20 used 0
actor_status 0 5000 put other $((20 * MIB)) 2
