#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The file caches of vLLM, SGLang and LMCache work on a mount shared by two nodes: a file that one
# stores the other one loads, also when both store the same key at the same time.  In a pool full of
# objects that cannot be evicted, a store fails in time and never loses bytes.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3
requires_memory 3072
URING_WRITE=$top_builddir/tests/integ/uring_write
if [ -x "$URING_WRITE" ] && echo x | "$URING_WRITE" "$tmp/uring" 2>"$tmp/uring.err"; then
	export URING_WRITE
else
	echo "without io_uring: $(cat "$tmp/uring.err" 2>/dev/null || echo not built)"
	unset URING_WRITE
fi
backends() {
	timeout "$limit" python3 "$top_srcdir/tests/integ/file_backends.py" "$@"
}
limit=300

start_master
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=512MiB
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=512MiB
# shared mappings of a closed file need Linux 6.6 with direct_io
names=$(backends --list)
grep -qE '^shared_mmap +yes$' "$tmp/a/.mcfs/stats" || names=$(grep -v gds <<<"$names")
# shellcheck disable=SC2086
backends "$tmp/a" "$tmp/b" $names || fail "a back end fails on two nodes"
idle() {
	local dir
	for dir in "$tmp/a" "$tmp/b"; do
		grep -qE '^staged_bytes +0$' "$dir/.mcfs/stats" &&
			grep -qE '^open_handles +1$' "$dir/.mcfs/stats" || return 1
	done
}
wait_for 10 idle || fail "handles or staged bytes are left"
equal "temporary files" "$(find "$tmp/a" -name '*tmp*' | wc -l)" 0

# This pool has little room besides an object that cannot be evicted.
head -c 62m /dev/zero >"$tmp/ballast"
start_master
start_mcfs "$MASTER" "$tmp/c" --global_segment_size=64MiB
timeout 60 "$top_builddir/tools/mcctl" --master="$MASTER" put --hard_pin ballast "$tmp/ballast"
backends --full "$tmp/c" || fail "a back end fails in a full pool"
wait_for 10 grep -qE '^staged_bytes +0$' "$tmp/c/.mcfs/stats" || fail "staged bytes are left"
