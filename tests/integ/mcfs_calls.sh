#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# System calls on files of a mount behave as mcfs(5) describes: mcfs_calls.c has one case for each;
# also with the kernel's page cache.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_memory 2048

start_standalone "$tmp/cached" --global_segment_size=256MiB -o direct_io=false
timeout 600 "$top_builddir/tests/integ/mcfs_calls" "$tmp/cached" || fail "cases failed with direct_io=false"
unmount "$tmp/cached"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end when it is unmounted"

start_standalone "$tmp/mnt" --global_segment_size=512MiB
timeout 600 "$top_builddir/tests/integ/mcfs_calls" "$tmp/mnt" || fail "cases failed"
# Afterwards no file stays open or staged.
idle() {
	grep -qE '^staged_bytes +0$' "$tmp/mnt/.mcfs/stats" &&
		grep -qE '^open_handles +1$' "$tmp/mnt/.mcfs/stats"
}
wait_for 10 idle || { cat "$tmp/mnt/.mcfs/stats"; fail "handles or staged bytes are left"; }
unmount "$tmp/mnt"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end when it is unmounted"
wait "$MCFS_PID" || fail "mcfs ended with status $?"
