#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcctl's operator commands: drain (with reads meanwhile), copy, move, evict, rebalance, tasks,
# watch, top, doctor, snapshot; and their error messages.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl jq
start_master --client_ttl=2s --journal_dir="$tmp/journal"
ctl() { "$top_builddir/tools/mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" "$@"; }

# start_owner NAME MIB - sets SPAWNED to its pid and SEGMENT to its segment's name
start_owner() {
	local before
	before=$(ctl segments --json | jq -r '.segments[].name' | sort)
	mkfifo "$tmp/$1.stays"
	eval "exec {keep_$1}<>'$tmp/$1.stays'"
	spawn "$1" bash -c "exec '$top_builddir/tests/fault/client_actor' $MASTER 20000 own $2 <'$tmp/$1.stays'"
	new_segment() { [ "$(ctl segments --json | jq -r '.segments[].name' | sort)" != "$before" ]; }
	wait_for 20 new_segment
	SEGMENT=$(ctl segments --json | jq -r '.segments[].name' | sort | comm -13 <(echo "$before") -)
}

# an empty pool
if ctl doctor >"$tmp/out"; then fail "doctor reports no problem for a pool without memory"; fi
grep -q 'no process contributes memory' "$tmp/out"
equal "tasks at first" "$(ctl tasks --json)" '[]'
fails ctl drain nobody:1
grep -q 'segment not found' "$tmp/fails.out"
grep -q 'mcctl df' "$tmp/fails.out"
fails ctl tasks 7-7
fails ctl tasks nonsense
fails ctl tasks --cancel
grep -q 'needs the id' "$tmp/fails.out"

start_owner a 64
a=$SEGMENT owner_a=$SPAWNED
head -c 300000 /dev/urandom >"$tmp/data"
for i in $(seq 40); do ctl put "k$i" "$tmp/data"; done
start_owner b 128
b=$SEGMENT

# events are reported from the moment when the watch is active
spawn watcher "$top_builddir/tools/mcctl" --master="$MASTER" watch --json w/
seen() { grep -q "\"event\":\"$1\"" "$tmp/watcher.log"; }
put_is_seen() { ctl put --upsert w/1 "$0" && seen put; }
wait_for 20 put_is_seen
ctl mv w/1 w/2
ctl rm -f w/2
ctl put other "$0"
wait_for 20 seen remove
jq -es 'map(.event) | unique == ["put","remove","rename"]' "$tmp/watcher.log" >/dev/null ||
	fail "the watch saw $(cat "$tmp/watcher.log")"
jq -es 'map(select(.event == "rename")) | .[0] | [.key,.to] == ["w/1","w/2"]' "$tmp/watcher.log" >/dev/null
end_pid "$SPAWNED"
ctl rm -f other

# drain while a reader runs
reader() {
	local n=0 i
	until [ -e "$tmp/stop" ]; do
		for i in 1 7 23 40; do
			if ! ctl get "k$i" "$tmp/read" || ! cmp -s "$tmp/read" "$tmp/data"; then
				echo "k$i"
				return 1
			fi
			n=$((n + 1))
		done
	done
	echo "$n" >"$tmp/reads"
}
reader >"$tmp/reader.log" 2>&1 &
reader=$!
ctl drain --json "$a" >"$tmp/drain"
touch "$tmp/stop"
wait "$reader" || fail "a read failed while the segment was drained: $(cat "$tmp/reader.log")"
equal "the drain" "$(jq -c '[.kind,.status,.succeeded,.failed,.left_bytes]' "$tmp/drain")" \
	'["drain","succeeded",40,0,0]'
equal "what is left in it" "$(ctl segments --json | jq --arg n "$a" '.segments[] | select(.name == $n) | .objects')" 0
for i in $(seq 40); do
	ctl get "k$i" "$tmp/read"
	cmp "$tmp/read" "$tmp/data"
done
ctl df | found drained
ctl doctor >"$tmp/out" || fail "doctor: $(cat "$tmp/out")"
grep -q 'is drained and accepts no new objects' "$tmp/out"
ctl tasks | found "drain  *succeeded.*$a"

# the segment accepts objects again
ctl tasks --cancel "$(jq -r .id "$tmp/drain")"
equal "state" "$(ctl segments --json | jq -r --arg n "$a" '.segments[] | select(.name == $n) | .state')" ok
ctl copy k1 "$a" | found '^copy: 1 objects'
equal replicas "$(ctl stat --json k1 | jq '.[0].replicas')" 2
ctl move k2 "$b" "$a"
fails ctl move k2 "$b" "$a"
grep -q 'cannot start the move: .*replica' "$tmp/fails.out"
ctl rebalance --json | jq -e '.status == "succeeded"' >/dev/null
ctl evict "$a" "$b" >"$tmp/out"
few_objects() { [ "$(ctl df --json | jq .pool.objects)" -lt 40 ]; }
wait_for 15 few_objects

# batches are counted too: of puts and of existence queries
spawn load "$top_builddir/tools/mcbench" --master="$MASTER" --sizes=4KiB --working_set=1MiB --duration=60 --threads=1 bench
top_shows() { ctl top --count=2 --interval=300ms --json | jq -se "any(.per_second.$1 > 100)"; }
wait_for 30 top_shows puts
end_pid "$SPAWNED"
equal "lines of top" "$(ctl top --count=2 --interval=100ms --json | jq -s length)" 2
ctl top --count=1 --interval=50ms | found 'gets/s'
ctl snapshot | found written
# the other commands in JSON
ctl snapshot --json | jq -e '.sequence > 0' >/dev/null
ctl evict --json "$a" | jq -e '.kind == "evict" and .status == "succeeded"' >/dev/null
{ ctl doctor --json || :; } | jq -e . >/dev/null
ctl tasks --json | jq -e 'map(select(.kind == "copy")) | .[0] | [.key,.tenant] == ["k1","default"]' >/dev/null
ls "$tmp/journal"/checkpoint-* >/dev/null

# on a terminal a bar shows the drain's progress; this drain has no target segment.  Ctrl-C ends the
# command, not the drain.
ctl put lonely "$tmp/data"
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
	# "exec": mcctl itself becomes the child of script(1)
	command=$(printf '%q ' exec "$top_builddir/tools/mcctl" --master="$MASTER" drain "$a" "$b")
	spawn terminal script -qfec "$command" "$tmp/screen"
	terminal=$SPAWNED
	wait_for 60 grep -qE '\[#*\.+\] +[0-9]{1,2}% of [0-9]' "$tmp/screen" || fail "no bar: $(cat -v "$tmp/screen")"
	kill -INT "$(pgrep -P "$terminal")"
	wait_for 30 gone "$terminal" || fail "Ctrl-C does not end mcctl drain"
	wait "$terminal" || :
	id=$(ctl tasks --json | jq -r 'map(select(.kind == "drain" and .status == "running")) | .[0].id')
	ctl tasks --cancel "$id"
fi

# a drain survives a restart of the master; interrupting the command does not end the drain
ctl drain --background --json "$a" "$b" >"$tmp/drain"
id=$(jq -r .id "$tmp/drain")
kill_pid "$MASTER_PID"
restart_master --client_ttl=2s --journal_dir="$tmp/journal"
back() { [ "$(ctl tasks --json "$id" | jq -r '.[0].status')" = running ]; }
wait_for 20 back
segments_back() { [ "$(ctl df --json | jq '[.segments[] | select(.state == "draining")] | length')" = 2 ]; }
wait_for 20 segments_back
fails ctl drain "$a"
grep -q 'mcctl tasks' "$tmp/fails.out"
ctl tasks --cancel "$id"
ctl get lonely "$tmp/read"
cmp "$tmp/read" "$tmp/data"

# a copy is given up when each other segment has one
ctl put --replicas=2 twice "$tmp/data"
ctl rm -f lonely
ctl drain "$a" >"$tmp/out"
grep -q '^drain: 0 objects, 0 B; the segments are empty; 1 objects have one copy fewer' "$tmp/out" || fail "$(cat "$tmp/out")"
equal "copies" "$(ctl stat --json twice | jq '.[0].replicas')" 1
id=$(ctl tasks --json | jq -r 'map(select(.kind == "drain")) | .[0].id')
equal "progress of an ended drain" "$(ctl tasks --json "$id" | jq -c '.[0] | [.given_up,.total_objects,.left_objects,.left_bytes]')" \
	'[1,1,0,0]'
curl -sf --max-time 5 "http://$MASTER_HTTP/api/v1/drain_jobs/query?job_id=$id&progress=1" |
	jq -e '.given_up_units == 1 and .total_units == 1 and .left_units == 0 and .percent == 100' >/dev/null
ctl tasks --cancel "$id"

# a drain that cannot place its objects says so, and fails
stuck() { # stuck SEGMENT... - the drain ends with status 3
	local got=0
	timeout 60 "$top_builddir/tools/mcctl" --master="$MASTER" drain "$@" 2>"$tmp/stderr" || got=$?
	equal "status of the drain of $*" "$got" 3
}
stuck "$a" "$b"
ctl get twice "$tmp/read"
cmp "$tmp/read" "$tmp/data"
equal "states after a failed drain" "$(ctl df --json | jq -c '[.segments[].state] | unique')" '["ok"]'
grep -q 'the drain waits: no other segment takes the objects' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
grep -q 'drain failed: no other segment takes the objects' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
grep -q 'mcctl df' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"

# a drain says that a node is silent, and does not succeed because it is gone
ctl put --replicas=2 again "$tmp/data"
kill_pid "$owner_a"
silent() { [ "$(ctl segments --json | jq -r --arg n "$a" '.segments[] | select(.name == $n) | .state')" = silent ]; }
wait_for 30 silent
id=$(ctl drain --background "$a")
says() { ctl tasks "$id" | found "running .*the node of $a does not answer"; }
wait_for 20 says || fail "$(ctl tasks "$id")"
ctl tasks --cancel "$id"
