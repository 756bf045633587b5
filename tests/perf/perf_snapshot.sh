#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perf_snapshot.sh [COUNT] - a pool of COUNT (10^6) objects: time and size of a snapshot, and the longest get meanwhile; an
# orderly end, and the start of another master from the last snapshot.  In a directory, and on a real S3 server.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
. "$top_srcdir/tests/lib/s3.sh"
count=${1:-1000000}
mcctl=$top_builddir/tools/mcctl
python_package

ask() {
	: >"$tmp/ask"
	wait_for 60 test -e "$tmp/asked"
	rm "$tmp/asked"
	sleep 0.1
	tail -n 1 "$tmp/load.log"
}

start() {
	restart_master --journal_dir="$tmp/$1" --enable_snapshot --enable_snapshot_restore --client_ttl=60 \
		--snapshot_object_store_type="$type" --snapshot_interval_seconds=86400
}

now() {
	echo $((${EPOCHREALTIME/./} / 1000))
}

check() {
	local at begin
	rm -f "$tmp"/{check,stopping}
	free_port at
	MASTER=127.0.0.1:$at
	free_port at
	MASTER_HTTP=127.0.0.1:$at
	start one
	"$PYTHON" "$top_srcdir/tests/perf/perf_snapshot.py" "$MASTER" "$count" "$tmp" >"$tmp/load.log" 2>&1 &
	LOAD=$!
	cleanup_fn end_pid "$LOAD"
	wait_for 300 grep -q '^put ' "$tmp/load.log"
	tail -n 1 "$tmp/load.log"
	sleep 2
	ask >/dev/null
	sleep 5
	echo "without a snapshot: $(ask)"
	begin=$(now)
	"$mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" --timeout=300 snapshot create
	echo "created in $(($(now) - begin)) ms; $(ask)"
	"$mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" snapshot list
	grep 'snapshot written' "$tmp/master.log" | tail -n 1
	: >"$tmp/stopping"
	begin=$(now)
	stop_pid "$MASTER_PID"
	echo "orderly end in $(($(now) - begin)) ms"
	begin=$(now)
	start two
	echo "restored and serving in $(($(now) - begin)) ms"
	grep 'index restored' "$tmp/master.log" | tail -n 1
	wait_for 60 eval '"$mcctl" --master="$MASTER" --json df | found "\"state\": *\"ok\""'
	: >"$tmp/check"
	wait "$LOAD" || cat "$tmp/load.log"
	tail -n 1 "$tmp/load.log"
	stop_pid "$MASTER_PID"
	rm -rf "$tmp/one" "$tmp/two"
}

echo "-- a directory"
type=local
export MOONCAKE_SNAPSHOT_LOCAL_PATH=$tmp/local
check
echo "-- S3"
start_s3
type=s3
check
