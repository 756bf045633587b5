#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rename or a removal that meets a commit of the same file, or fails, loses no byte of it.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3
# The first commit takes its time; the second one, of a rename, fails, as does the first removal.
MC_FAULTS=mcfs.version.put=delay:1500@1,mcfs.version.put=error:EIO@2,mcfs.names.remove=error:EIO@1 \
	start_standalone "$tmp/mnt" --global_segment_size=64MiB
timeout 60 python3 "$top_srcdir/tests/integ/mcfs_meeting.py" "$tmp/mnt" || fail "mcfs_meeting.py"
unmount "$tmp/mnt"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end when it is unmounted"
