# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# ssd.sh - for tests of the SSD tier: an owner with a disk, and blocks of known bytes.
# shellcheck disable=SC2154  # variables of functions.sh

# Not in $tmp: on many machines that is memory, where a file cannot be opened with O_DIRECT.
ssd=$(mktemp -d "${SSD_DIR:-/var/tmp}/mc-ssd.XXXXXX")
cleanup_fn rm -rf "$ssd"
# The directory that is on a fake of 3FS, such as /var/tmp (fake_hf3fs.h).
[ -z "${FAKE_HF3FS_MOUNT-}" ] || export MC_HF3FS_LIBRARY="$top_builddir/tests/lib/.libs/libfake_hf3fs.so"

# start_owner [FLAG...] - a node with memory and a disk, started by ${owner_by[@]}; sets OWNER_PID
owner_by=()
owner_before=
start_owner() {
	local at
	free_port at
	owner_before=$(memory_segments)
	spawn owner "${owner_by[@]}" "$top_builddir/node/mooncake_client" --enable_offload --ssd_offload_path="$ssd" --host=127.0.0.1 \
		--port="$at" --master_server_address="$MASTER" "$@"
	OWNER_PID=$SPAWNED
	started "$OWNER_PID" owner 20 owner_is_mounted
}

# memory_segments - the ids of the segments of memory, a line each
memory_segments() {
	"$top_builddir/tools/mcctl" --master="$MASTER" --json df 2>/dev/null |
		jq -r '.segments[] | select(.medium == "memory" and .state == "ok") | .id' || :
}

# owner_is_mounted - memory and disk of the owner are in service; an owner that was killed may still seem to be
owner_is_mounted() {
	memory_segments | found -vxF "${owner_before:--}" && [ "$(segment_count disk)" -ge 1 ]
}

# segment_count MEDIUM
segment_count() {
	"$top_builddir/tools/mcctl" --master="$MASTER" --json df 2>/dev/null |
		jq "[.segments[] | select(.medium == \"$1\" and .state == \"ok\")] | length" || echo 0
}

# blocks put|get FIRST N [PAUSE_US] - blocks of $BLOCK bytes (256 KiB); prints what happened
blocks() {
	local what=$1 first=$2 n=$3
	shift 3
	"$top_builddir/tests/integ/ssd_actor" "$MASTER" "$what" "$first" "$n" "${BLOCK:-262144}" "$@"
}

# all_blocks N - every block comes back with its bytes
all_blocks() {
	local got
	got=$(blocks get 0 "$1") || fail "wrong bytes: $got"
	[ "$got" = "equal $1 miss 0 error 0" ] || fail "of $1 blocks: $got"
}

# offload_idle - nothing waits for a copy
offload_idle() {
	[ "$(metric "$MASTER_HTTP" mooncake_master_offload_pending)" -eq 0 ]
}

# offload_adds_up - every copy that was begun has ended in one way
offload_adds_up() {
	local begun ended
	begun=$(metric "$MASTER_HTTP" master_offload_enqueued_total)
	ended=$(($(metric "$MASTER_HTTP" master_offload_completed_total) + $(metric "$MASTER_HTTP" master_offload_failed_total) +
		$(metric "$MASTER_HTTP" master_offload_cancelled_total)))
	[ "$begun" -eq "$ended" ] || fail "$begun copies were begun and $ended ended"
}
