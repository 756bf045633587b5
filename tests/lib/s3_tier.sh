# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# s3_tier.sh - for tests of S3 as the last rank: nodes with a small memory, and the names in a bucket; after ssd.sh and s3.sh.
# shellcheck disable=SC2034,SC2154  # variables of functions.sh and of the test
requires jq
requires_memory 300
export BLOCK=1048576 MC_S3_SWEEP_SECONDS=1

section() {
	echo "$SECONDS s: $1"
}

ctl() {
	"$top_builddir/tools/mcctl" --master="$MASTER" "$@"
}

# s3_owner_command PREFIX FLAG... - sets $owner_command: a node with 16 MB of memory, and S3
s3_owner_command() {
	local at prefix=$1
	shift
	free_port at
	owner_command=("$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$at" --master_server_address="$MASTER"
		--global_segment_size=16MB --s3_segment="s3://${S3_BUCKET:-snapshots}/$prefix" --s3_segment_size=512MB "$@")
}

# start_s3_owner PREFIX FLAG... - such a node; sets OWNER_PID
start_s3_owner() {
	s3_owner_command "$@"
	spawn owner "${owner_command[@]}"
	OWNER_PID=$SPAWNED
	started "$OWNER_PID" owner 30 s3_is_mounted
}

# refused TEXT PREFIX FLAG... - such a node does not start, and says why
refused() {
	local what=$1
	shift
	s3_owner_command "$@"
	if timeout 60 "${owner_command[@]}" >"$tmp/refused" 2>&1; then
		fail "the node started: $(cat "$tmp/refused")"
	fi
	found -E "$what" <"$tmp/refused" || fail "no '$what': $(cat "$tmp/refused")"
}

s3_is_mounted() {
	[ "$(segment_count memory)" -ge 1 ] && [ "$(segment_count shared)" -ge 1 ]
}

# end_pool - kill owner and master
end_pool() {
	kill_pid "$OWNER_PID"
	kill_pid "$MASTER_PID"
}

put_all() {
	blocks put "$1" "$2" >"$tmp/out" 2>&1 || fail "puts failed: $(cat "$tmp/out")"
}

# in_bucket PREFIX - how many ranges the bucket has there, also of those with parts that are missing
in_bucket() {
	find "$tmp/s3/snapshots/$1" -type f -name '*-*.*' 2>/dev/null | sed 's/\.[0-9a-f]*$//' | sort -u | wc -l
}

in_s3() {
	ctl --json df | jq '[.segments[] | select(.medium == "shared") | .objects] | add // 0'
}

# no_orphans PREFIX - bucket and master have equally many ranges
no_orphans() {
	[ "$(in_bucket "$1")" -eq "$(in_s3)" ]
}

readable() {
	[ "$(blocks get 0 "$1" 2>/dev/null)" = "equal $1 miss 0 error 0" ]
}

# imports PREFIX TEXT - the import of that segment succeeds, and says so
imports() {
	ctl import "s3://snapshots/$1" >"$tmp/out" 2>"$tmp/err" || fail "import: $(cat "$tmp/out" "$tmp/err")"
	found -F "$2" <"$tmp/out" || fail "import: no '$2': $(cat "$tmp/out" "$tmp/err")"
}
