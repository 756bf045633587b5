#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Snapshots in a directory and on a real S3 server: objects come back on another machine after an orderly end, and after a
# kill those whose bytes their owner still has, never with others; a damaged snapshot is passed over; old ones are
# deleted, and nothing else.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/s3.sh"
mcctl=$top_builddir/tools/mcctl
OBJECTS=${SNAPSHOT_OBJECTS:-20}

ctl() {
	"$mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" "$@"
}

# start DIR [FLAG...] - a master with this journal
start() {
	local dir=$1
	shift
	restart_master --journal_dir="$tmp/$dir" --enable_snapshot --enable_snapshot_restore \
		--snapshot_object_store_type="$type" --client_ttl=5 "$@"
}

# put_all - small objects, and one with a trailer
put_all() {
	local i
	for ((i = 0; i < OBJECTS; i++)); do
		echo "value $i" >"$tmp/value"
		ctl put "k$i" "$tmp/value"
	done
	ctl put big "$tmp/big"
}

all_there() {
	local i
	for ((i = 0; i < OBJECTS; i++)); do
		[ "$(ctl get "k$i" -)" = "value $i" ] || return 1
	done
	ctl get big - | cmp - "$tmp/big"
}

# none_wrong - each object is right or missing; $there: how many are right
none_wrong() {
	local i got
	there=0
	for ((i = 0; i < OBJECTS; i++)); do
		if got=$(ctl get "k$i" - 2>"$tmp/none_wrong"); then
			equal "k$i" "$got" "value $i"
			there=$((there + 1))
		else
			grep -q 'no such object' "$tmp/none_wrong" || fail "k$i: $(cat "$tmp/none_wrong")"
		fi
	done
}

# compared PATTERN - the owner has compared all objects of the snapshot, with this result
compared() {
	wait_for 20 grep -q "no object of the snapshot is in doubt any more: copies back=.*$1" "$tmp/master.log"
}

node_back() {
	ctl --json df | found '"state": *"ok"'
}

newest() {
	ctl --json snapshot list | jq -r '.[0].id'
}

retention() {
	echo "only what a master made is deleted"
	keep_file
	for i in 1 2 3; do
		ctl put --upsert "k$i" "$tmp/value"
		ctl snapshot create >/dev/null
	done
	equal "snapshots" "$(ctl --json snapshot list | jq length)" 2
	has_file || fail "a foreign file is gone"
	id=$(ctl --json snapshot list | jq -r '.[1].id')
	ctl snapshot restore "$id" | found "snapshot $id will be restored"
	fails ctl snapshot restore 20200101_000000_000
	fails ctl snapshot verify nonsense
	grep -q "no id of a snapshot" "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
}

# no master runs; after this one does, and $id is the chosen snapshot
kills() {
	echo "kills while a snapshot is written or fetched"
	for i in snapshot.piece snapshot.manifest; do
		MC_FAULTS=$i=kill start "at-$i"
		wait_for 20 node_back
		ctl put --upsert "k1" "$tmp/value"
		fails ctl snapshot create
		wait_for 20 gone "$MASTER_PID"
		rm -rf "$tmp/at-$i"
	done
	spawn master env MC_FAULTS=snapshot.fetched=kill "$top_builddir/master/mooncake_master" --rpc_port="${MASTER##*:}" \
		--metrics_port="${MASTER_HTTP##*:}" --journal_dir="$tmp/nine" --enable_snapshot_restore \
		--snapshot_object_store_type="$type"
	wait_for 20 gone "$SPAWNED"
	id=$(ls "$tmp/nine")
	[[ $id == *from-snapshot* ]] || fail "no mark: $id"
	start nine
	equal "snapshots" "$(ctl --json snapshot list | jq length)" 2
	id=$(newest)
	ctl snapshot restore "$id" >/dev/null
}

graces() {
	grep -c "grace period after the start is over" "$tmp/master.log" || true
}

grace_is_over() {
	[ "$(graces)" -gt "$1" ]
}

# an owner and master "two" run; after this master "six" does
crashes() {
	local i was
	echo "a kill: the owner compares the objects with its memory"
	ctl put new "$tmp/value"
	kill_pid "$MASTER_PID"
	was=$(graces)
	start three
	compared "(0 proven, $((OBJECTS + 1)) compared) gone=0 "
	grep -q "comparing our memory with the objects of a snapshot failed, will retry" "$tmp/node.log" ||
		fail "the owner has compared once"
	all_there || fail "objects are missing"
	fails ctl get new -
	grep -q 'no such object' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
	ctl put new "$tmp/value"

	echo "a kill after the memory was reused: changed objects are dropped"
	ctl snapshot create >/dev/null
	# Before that, no memory of the removed objects is reused.
	wait_for 20 grace_is_over "$was"
	for ((i = 0; i < OBJECTS; i += 2)); do
		ctl rm --force "k$i"
	done
	for ((i = 0; i < 2 * OBJECTS; i++)); do
		echo "VALUE $i" >"$tmp/value"
		ctl put "n$i" "$tmp/value"
	done
	kill_pid "$MASTER_PID"
	start four
	compared " gone=[1-9][0-9]* ([1-9][0-9]* changed, 0 unreadable, 0 without"
	none_wrong
	[ "$there" -ge $((OBJECTS / 2)) ] && [ "$there" -lt "$OBJECTS" ] || fail "$there objects are there"
	fails ctl get n1 -
	ctl get big - | cmp - "$tmp/big"
	for ((i = 0; i < OBJECTS; i++)); do
		echo "value $i" >"$tmp/value"
		ctl put --upsert "k$i" "$tmp/value"
	done
	all_there || fail "objects are missing"

	echo "a kill while the owner compares: the next master begins again"
	kill_pid "$MASTER_PID"
	# The owner may ask for the first batch before the start is complete.
	spawn master env MC_FAULTS=snapshot.confirm=kill "$top_builddir/master/mooncake_master" --rpc_port="${MASTER##*:}" \
		--metrics_port="${MASTER_HTTP##*:}" --journal_dir="$tmp/five" --enable_snapshot --enable_snapshot_restore \
		--snapshot_object_store_type="$type" --client_ttl=5
	wait_for 20 gone "$SPAWNED"
	start five
	compared " gone=[0-9]* ([0-9]* changed, 0 unreadable, 0 without"
	none_wrong

	echo "an old snapshot of an orderly end, while another master has served since"
	stop_pid "$MASTER_PID"
	restart_master --journal_dir="$tmp/five" --client_ttl=5
	wait_for 20 node_back
	for ((i = 0; i < OBJECTS; i++)); do
		ctl rm --force "k$i" || true
		echo "OTHER $i" >"$tmp/value"
		ctl put --upsert "n$i" "$tmp/value"
	done
	kill_pid "$MASTER_PID"
	start six
	compared " gone=[1-9][0-9]* ([1-9][0-9]* changed, 0 unreadable, 0 without"
	none_wrong
}

check() {
	local i node at id faults
	free_port at
	MASTER=127.0.0.1:$at
	free_port at
	MASTER_HTTP=127.0.0.1:$at
	start one
	free_port at
	# The owner compares again after each of these errors.
	faults=client.confirm.read=error:ENOMEM@2,client.confirm.read=error:EIO@5
	spawn node env "MC_FAULTS=$faults" "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" --master_server_address="$MASTER" \
		--global_segment_size=64MB
	node=$SPAWNED
	wait_for 20 node_back
	put_all
	ctl snapshot create | found "snapshot [0-9_]* written"
	ctl snapshot verify | found "snapshot $(newest) is good"
	id=$(newest)

	echo "an orderly end: a master with an empty journal has the objects"
	stop_pid "$MASTER_PID"
	start two
	wait_for 20 node_back
	all_there || fail "objects are missing"
	equal "snapshots" "$(ctl --json snapshot list | jq -r '[.[].last] | @csv')" false,false

	crashes
	echo "the newest is damaged"
	for ((i = 0; i < OBJECTS; i++)); do
		echo "value $i" >"$tmp/value"
		ctl put --upsert "k$i" "$tmp/value"
	done
	stop_pid "$MASTER_PID"
	start seven --snapshot_retention_count=100
	wait_for 20 node_back
	all_there || fail "objects are missing"
	ctl snapshot create >/dev/null
	damage "$(newest)"
	fails ctl snapshot verify
	grep -q "piece 0 of snapshot $(newest) is damaged" "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
	id=$(newest)
	kill_pid "$MASTER_PID"
	start eight
	wait_for 20 node_back
	grep -q "cannot restore a snapshot, trying the one before it id=$id" "$tmp/master.log" || fail "it was restored"

	retention
	kill_pid "$MASTER_PID"
	kills
	kill_pid "$MASTER_PID"
	start ten
	grep -q "restoring a snapshot id=$id" "$tmp/master.log" || fail "another one was restored"
	stop_pid "$MASTER_PID"
	kill_pid "$node"
	rm -rf "$tmp"/{one,two,three,four,five,six,seven,eight,nine,ten}
}

pieces() {
	find "$1" -path "*/$2/0000"
}

head -c 3000001 /dev/urandom >"$tmp/big"
store=$tmp/local
damage() {
	local piece
	piece=$(pieces "$store" "$1")
	printf 'x' | dd of="$piece" bs=1 seek=20 conv=notrunc 2>/dev/null
}
keep_file() {
	echo mine >"$store/mooncake_master_snapshot/mooncake_cluster/20200101_000000_000.txt"
	mkdir -p "$store/mooncake_master_snapshot/mooncake_cluster/20200101_000000_000"
	echo mine >"$store/mooncake_master_snapshot/mooncake_cluster/20200101_000000_000/mine"
}
has_file() {
	[ -e "$store/mooncake_master_snapshot/mooncake_cluster/20200101_000000_000.txt" ] &&
		[ -e "$store/mooncake_master_snapshot/mooncake_cluster/20200101_000000_000/mine" ]
}

echo "local"
type=local
export MOONCAKE_SNAPSHOT_LOCAL_PATH=$store
check
unset MOONCAKE_SNAPSHOT_LOCAL_PATH
fails "$top_builddir/master/mooncake_master" --enable_snapshot --snapshot_object_store_type=local
grep -q 'MOONCAKE_SNAPSHOT_LOCAL_PATH or snapshot_backup_dir' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
fails "$top_builddir/master/mooncake_master" --enable_snapshot --snapshot_object_store_type=s3
grep -q 'S3 needs the name of a bucket' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"

echo "S3"
start_s3
type=s3 store=$tmp/s3/snapshots
check
