#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Rolling upgrade from older programs, built from the history of this repository: the last commit that
# used protocol version 1 and the one whose journal was frozen as format 1 (tests/golden/journal-v1).
#   1. this tree's master with clients of version 1: owner, writer, reader, removal of many, a restart in between;
#   2. this tree's master over the journal that the old master left when it was killed, under load, and with the old
#      owner, whose objects must all be there;
#   3. this tree's clients beside the old ones, each reads the objects that the other has put.
# The builds stay in the build directory (tests/upgrade/COMMIT).  "make check-upgrade" runs this test.  It is not part of
# "make check": a tarball has no history to build from.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires git autoreconf curl jq
git -C "$top_srcdir" rev-parse HEAD >/dev/null 2>&1 || skip "no git history here"

# the commit before the first one that has this text in this file
last_before() {
	local first
	first=$(git -C "$top_srcdir" log --reverse --format=%H -S"$1" -- "$2" | head -n 1)
	[ -n "$first" ] || skip "no commit of the history brought $1"
	git -C "$top_srcdir" rev-parse "$first^"
}

first_with() {
	local first
	first=$(git -C "$top_srcdir" log --reverse --diff-filter=A --format=%H -- "$1" | head -n 1)
	[ -n "$first" ] || skip "no commit of the history brought $1"
	echo "$first"
}

# build COMMIT - build it; its programs are below $OLD
build() {
	OLD=$(realpath "$top_builddir")/tests/upgrade/$1
	[ -e "$OLD/complete" ] && return
	echo "building $(git -C "$top_srcdir" log -1 --format='%h %s' "$1")"
	rm -rf "$OLD"
	mkdir -p "$OLD"
	git -C "$top_srcdir" archive "$1" | tar -x -C "$OLD"
	(
		cd "$OLD"
		autoreconf -fi
		./configure CFLAGS='-O1 -g' ${CC:+CC="$CC"}
		make -j2 master/mooncake_master tools/mcctl tests/fault/client_actor
	) >"$OLD/build.log" 2>&1 || {
		tail -n 20 "$OLD/build.log"
		fail "$1 cannot be built"
	}
	touch "$OLD/complete"
}

new_ctl() { timeout 60 "$top_builddir/tools/mcctl" --master="$MASTER" "$@"; }
old_ctl() { timeout 60 "$OLD/tools/mcctl" --master="$MASTER" "$@"; }
old_actor() { timeout 60 "$OLD/tests/fault/client_actor" "$MASTER" "$@"; }
new_actor() { timeout 60 "$top_builddir/tests/fault/client_actor" "$MASTER" "$@"; }

# owner NAME PROGRAM MIB
owner() {
	rm -f "$tmp/$1.in"
	mkfifo "$tmp/$1.in"
	sleep infinity >"$tmp/$1.in" &
	cleanup_fn end_pid $!
	"$2" "$MASTER" 20000 own "$3" <"$tmp/$1.in" >"$tmp/$1.log" 2>&1 &
	OWNER_PID=$!
	cleanup_fn end_pid "$OWNER_PID"
	wait_for 30 grep -q ready "$tmp/$1.log" || fail "$1 is not ready"
}

# put WHO KEY SIZE SEED / get WHO KEY SIZE SEED
put() { "${1}_actor" 20000 put "$2" "$3" "$4" upsert >"$tmp/step" 2>&1 || fail "$1 put $2: $(cat "$tmp/step")"; }
get() {
	local status=0
	"${1}_actor" 20000 get "$2" "$3" "$4" >"$tmp/step" 2>&1 || status=$?
	[ "$status" -eq 0 ] || fail "$1 get $2: status $status: $(cat "$tmp/step")"
}
missing() {
	local status=0
	"${1}_actor" 20000 get "$2" 1 1 >"$tmp/step" 2>&1 || status=$?
	[ "$status" -eq 1 ] || fail "$1 get $2: status $status, a miss was expected: $(cat "$tmp/step")"
}

# ---- clients of version 1 with this master
commit=$(last_before 'MCP_VERSION 2' proto/msg.h)
build "$commit"
grep -q 'MCP_VERSION 1' "$OLD/proto/msg.h" || fail "$commit does not speak version 1"
# one removal of several slices
start_master --journal_dir="$tmp/journal"
owner old_owner "$OLD/tests/fault/client_actor" 32
for i in $(seq 1 20); do
	put old "old/$i" $((i * 7919)) "$i"
	get old "old/$i" $((i * 7919)) "$i"
done
equal "objects that this tree's client sees" "$(new_ctl ls old/ | wc -l)" 20
put old old/3 5000 33
get old old/3 5000 33
put old old/3 $((3 * 7919)) 3
old_actor 20000 rm old/20 >"$tmp/step" || fail "rm: $(cat "$tmp/step")"
missing old old/20
old_ctl mv old/19 old/renamed
get old old/renamed $((19 * 7919)) 19
old_ctl mv old/renamed old/19
equal "objects that the old client lists" "$(old_ctl ls old/ | wc -l)" 19
for i in $(seq 1 12); do
	put old "match/$i" 1000 "$i"
done
old_ctl rm -y --match='^match/1' >"$tmp/step" || fail "rm --match: $(cat "$tmp/step")"
missing old match/10
get old match/2 1000 2
# restart of the master while they run
kill_pid "$MASTER_PID"
restart_master --journal_dir="$tmp/journal"
attached() { curl -sf "http://$MASTER_HTTP/get_segments_detail" | jq -e '.segments|map(.status)==["OK"]' >/dev/null; }
wait_for 60 attached || fail "the old owner does not come back: $(curl -sf "http://$MASTER_HTTP/get_segments_detail")"
for i in $(seq 1 19); do
	get old "old/$i" $((i * 7919)) "$i"
done
put old old/after 4096 7
get old old/after 4096 7
echo "clients of $(git -C "$top_srcdir" log -1 --format=%h "$commit") work with this master"

# ---- this tree's clients beside them; both use the memory of one host
for i in 1 5 19; do
	get new "old/$i" $((i * 7919)) "$i"
done
put new new/1 100000 41
get old new/1 100000 41
owner new_owner "$top_builddir/tests/fault/client_actor" 32
for i in $(seq 1 40); do
	put new "both/$i" 300000 "$i"
done
for i in $(seq 1 40); do
	get old "both/$i" 300000 "$i"
	get new "both/$i" 300000 "$i"
done
echo "both read what the other has put, from both owners"
kill_pid "$MASTER_PID"

# ---- the journal that an old master left
commit=$(first_with tests/golden/journal-v1/objects)
build "$commit"
rpc='' http=''
free_port rpc
free_port http
MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
spawn old_master "$OLD/master/mooncake_master" --rpc_address=127.0.0.1 --rpc_port="$rpc" --metrics_host=127.0.0.1 \
	--metrics_port="$http" --journal_dir="$tmp/old_journal"
old_master=$SPAWNED
started "$old_master" "the old master" 30 master_serves "$MASTER_HTTP"
owner journal_owner "$OLD/tests/fault/client_actor" 32
for i in $(seq 1 30); do
	put old "kept/$i" $((i * 1013)) "$i"
done
old_ctl mv kept/30 kept/moved
old_actor 20000 rm kept/29 >"$tmp/step"
# a writer runs while the master is killed
while put_more=$((${put_more:-0} + 1)); do
	old_actor 3000 put "more/$put_more" 2000 "$put_more" >/dev/null 2>&1 || break
	[ -e "$tmp/enough" ] && break
done &
writer=$!
cleanup_fn end_pid "$writer"
writes() { old_actor 3000 get more/3 2000 3 >/dev/null 2>&1; }
wait_for 30 writes || fail "the writer does not continue"
kill_pid "$old_master"
touch "$tmp/enough"
restart_master --journal_dir="$tmp/old_journal"
wait "$writer" || :
wait_for 60 attached || fail "the old owner does not come back: $(curl -sf "http://$MASTER_HTTP/get_segments_detail")"
for i in $(seq 1 28); do
	get old "kept/$i" $((i * 1013)) "$i"
done
get new kept/28 $((28 * 1013)) 28
get old kept/moved $((30 * 1013)) 30
missing old kept/29
missing old kept/30
for i in 1 2 3; do
	get old "more/$i" 2000 "$i"
done
# and this master appends to it, and reads it again
put new kept/new 5000 5
kill_pid "$MASTER_PID"
restart_master --journal_dir="$tmp/old_journal"
wait_for 60 attached
get old kept/new 5000 5
get new kept/7 $((7 * 1013)) 7
echo "this master continues the journal of $(git -C "$top_srcdir" log -1 --format=%h "$commit")"
