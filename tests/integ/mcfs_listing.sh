#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A directory of a hundred thousand files is listed completely, streamed and with little memory;
# opening and closing files leaves no memory allocated either.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3
requires_memory 2048

start_master
start_mcfs "$MASTER" "$tmp/mnt" --global_segment_size=64MiB
m=$tmp/mnt n=100000
# sanitized programs are slow, and their memory use is meaningless
[ -z "${SANITIZER-}" ] || n=20000
one=$((n - 7777))
timeout 300 "$top_builddir/tests/integ/mcfs_fill" "$MASTER" dir/ "$n"

# Resident memory in MiB without the segment, which is shared memory.
own_memory() {
	awk '/^RssAnon:|^RssFile:/ { kb += $2 } END { print int(kb / 1024) }' "/proc/$MCFS_PID/status"
}
before=$(own_memory)
equal "names" "$(find "$m/dir" -type f | wc -l)" "$n"
equal "ls" "$(find "$m/dir" -printf '%f\n' | sort -u | wc -l)" $((n + 1))
equal "ls -U" "$(timeout 60 ls -U "$m/dir" | sort | uniq | wc -l)" "$n"
# grows WHAT MIB - not under sanitizers, which keep freed memory
grows() {
	local now
	now=$(own_memory)
	echo "memory after $1: $now MiB, before: $before"
	[ -n "${SANITIZER-}" ] || [ "$now" -le $((before + $2)) ] || fail "$1 took the daemon from $before to $now MiB"
}
grows "three listings" 40
equal "du" "$(find "$m/dir" -printf '%s\n' | awk '{ n += $1 } END { print n }')" $((n * 5))
# A reader of the first three names does not wait for all of them.
ms=$((${EPOCHREALTIME/./} / 1000))
equal "head" "$( { timeout 60 ls -U "$m/dir" || :; } | head -n 3 | wc -l)" 3
ms=$((${EPOCHREALTIME/./} / 1000 - ms))
echo "first names after $ms ms"
# An unfinished listing leaves no handle open.
wait_for 10 grep -qE '^open_handles +1$' "$m/.mcfs/stats" || fail "handles are left"
t=$SECONDS
timeout 120 ls -l "$m/dir" >"$tmp/ls"
equal "lines of ls -l" "$(wc -l <"$tmp/ls")" $((n + 1))
echo "ls -l took $((SECONDS - t)) s"
equal "one of them" "$(cat "$m/dir/k$one")" "$(printf %05d "$one")"
before=$(own_memory)
python3 - "$m/dir/k$one" "$m/new" $((n / 5)) <<'PY'
import os, sys
for i in range(int(sys.argv[3])):
    os.close(os.open(sys.argv[1], os.O_RDONLY))
    if i % 20 == 0:
        fd = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"x" * 5000)
        os.close(fd)
PY
grows "so many opens and closes" 12
rm "$m/new"
# Names that are removed during the listing cause no error.
( timeout 120 "$top_builddir/tests/integ/mcfs_fill" "$MASTER" dir/ 0 ) &
timeout 120 find "$m/dir" -maxdepth 1 -name 'k*' | wc -l
wait $!
no_names() { [ -z "$(ls "$m/dir" 2>/dev/null)" ]; }
wait_for 10 no_names
