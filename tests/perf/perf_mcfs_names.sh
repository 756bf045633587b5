#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Small files against a filesystem that only answers; a listing of 10^6 keys; the daemon's memory
# after that listing and after many files were opened and closed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_memory 3000
keys=${KEYS:-1000000} cycles=${CYCLES:-1000000}
row() {
	printf '%-46s %-12s %12s  %s\n' "$1" "$2" "$3" "$4"
}
mkdir "$tmp/bare"
cleanup_fn unmount_any "$tmp/bare"
spawn bare "$top_builddir/tests/perf/bare_fuse" "$tmp/bare"
started "$SPAWNED" bare_fuse 20 is_mounted "$tmp/bare"
start_master >/dev/null
start_mcfs "$MASTER" "$tmp/mnt" --global_segment_size=512MiB --log=err
"$top_builddir/tests/perf/mcfs_names" "$tmp/mnt" "$tmp/bare" "${1:-9}"
# resident memory in MiB without the segment, which is shared memory
own_memory() {
	awk '/^RssAnon:|^RssFile:/ { kb += $2 } END { print int(kb / 1024) }' "/proc/$MCFS_PID/status"
}
"$top_builddir/tests/integ/mcfs_fill" "$MASTER" dir/ "$keys" >/dev/null
t=${EPOCHREALTIME/./}
n=$(ls -U "$tmp/mnt/dir" | wc -l)
row "ls -U of a directory" "$n names" "$(((${EPOCHREALTIME/./} - t) / 1000))" ms
row "daemon without its segment, after the listing" "RSS" "$(own_memory)" MiB
echo x >"$tmp/mnt/file"
python3 - "$tmp/mnt/file" "$cycles" <<'PY'
import os, sys
for i in range(int(sys.argv[2])):
    os.close(os.open(sys.argv[1], os.O_RDONLY))
PY
row "daemon without its segment, $cycles opens later" "RSS" "$(own_memory)" MiB
