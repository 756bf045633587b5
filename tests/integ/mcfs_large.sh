#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One file of 1 GiB is written, read, renamed and rewritten.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_memory 7000
unless_sanitized "moves some GiB"

start_standalone "$tmp/mnt" --global_segment_size=3GiB --staging_max=2GiB
m=$tmp/mnt
# 1 GiB and a part of a chunk; fast to produce, and no two parts are equal.
content() {
	# SIGPIPE ends seq
	{ seq 1 125000000 || :; } 2>/dev/null | head -c 1073800001
}
want=$(content | sha256sum)
content >"$m/big"
equal "size" "$(stat -c %s "$m/big")" 1073800001
equal "sum after writing" "$(sha256sum <"$m/big")" "$want"
carried() {
	awk '$1 == "mcfs_carried_bytes_total" { print int($2 / 1048576) }' "$m/.mcfs/metrics"
}
# The file went to the pool while it was written, and memory reserved in excess was freed.
[ "$(carried)" -ge 64 ] || fail "only $(carried) MiB were stored before the close"
wait_for 30 grep -qE '^pool_used_bytes +10738[0-9]{5}$' "$m/.mcfs/stats" ||
	{ cat "$m/.mcfs/stats"; fail "memory is not freed"; }
mv "$m/big" "$m/moved"
cp "$m/moved" "$m/copy"
equal "sum after copying" "$(sha256sum <"$m/copy")" "$want"
rm "$m/copy"
printf X | dd of="$m/moved" bs=1 seek=700000000 conv=notrunc status=none
equal "sum after a change in the middle" "$(sha256sum <"$m/moved")" \
	"$( (content | head -c 700000000; printf X; content | tail -c +700000002) | sha256sum)"
grep -qE '^staged_bytes +0$' "$m/.mcfs/stats" || fail "staged bytes are left"
