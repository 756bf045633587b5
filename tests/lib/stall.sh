# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# stall.sh - for tests that stop the daemon of mount $a for longer than its stall_timeout; $b is another node.
# shellcheck disable=SC2154  # variables of functions.sh
a=$tmp/a b=$tmp/b
STALL_MS=1000
# shellcheck disable=SC2034  # for the tests
node_flags=(--global_segment_size=64MiB --port=0 --stall_timeout="$STALL_MS"ms)

# fill_nodes - write files through both mounts, so that both segments have objects; their copies are in $tmp/data
fill_nodes() {
	local i
	mkdir -p "$tmp/data"
	for i in 0 1 2 3; do
		head -c $((1000000 + i)) /dev/urandom >"$tmp/data/a$i"
		head -c $((1000000 + i)) /dev/urandom >"$tmp/data/b$i"
		cp "$tmp/data/a$i" "$a/a$i"
		cp "$tmp/data/b$i" "$b/b$i"
	done
	[ -n "$(ls "$a/.mcfs/local")" ] && [ -n "$(ls "$b/.mcfs/local")" ] || fail "one segment has no object"
}

# reads_all MOUNT - all files can be read and have the right bytes; wrong bytes end the test
reads_all() {
	local file status
	for file in "$tmp/data"/*; do
		status=0
		timeout 10 cmp -s "$file" "$1/${file##*/}" || status=$?
		[ "$status" -ne 1 ] || fail "wrong bytes: $1/${file##*/}"
		[ "$status" -eq 0 ] || return 1
	done
}
reads_everywhere() {
	reads_all "$a" && reads_all "$b"
}

# stalls PID - stop the daemon until its mount is aborted: callers get an error, and the mount stays
stalls() {
	local began=${EPOCHREALTIME/./} status=0
	stop_still "$1"
	timeout 30 cat "$a/a0" >/dev/null 2>"$tmp/why" || status=$?
	[ "$status" -ne 0 ] || fail "a file of a stopped daemon was read"
	[ "$status" -ne 124 ] || fail "callers of a stopped daemon hang"
	[ $((${EPOCHREALTIME/./} - began)) -lt $(((STALL_MS + 9000) * 1000)) ] || fail "the error is late"
	wait_for 10 fails_at_once || fail "later callers get no error"
	is_mounted "$a" || fail "the mount is gone: programs would write to the directory below"
}
fails_at_once() {
	local status=0
	timeout 2 stat "$a/a0" >/dev/null 2>&1 || status=$?
	[ "$status" -ne 0 ] && [ "$status" -ne 124 ]
}

# continues PID - continue the daemon: within 3 s all files can be read on both nodes
continues() {
	kill -CONT "$1"
	wait_for 3 reads_everywhere || fail "objects cannot be read after the stall"
	alive "$1" || fail "the daemon has ended"
	echo again >"$a/written"
	equal "a new file on the other node" "$(cat "$b/written")" again
	rm "$a/written"
}
