#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Files with several names when their bytes or their master move: a standby that takes over, a drain of the memory that
# has them, a copy and an offload by one of the names; and in another tenant.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ha.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires redis-server
requires_fuse
requires jq
requires_memory 1024
mcctl() {
	timeout 60 "$top_builddir/tools/mcctl" --master="$MASTERS" "$@"
}
# both NAME NAME - they are names of one file with the bytes of $tmp/bytes, also on the other mount
both() {
	local m
	for m in "$tmp/a" "$tmp/b"; do
		equal "names of $1 on $m" "$(stat -c %h "$m/$1" "$m/$2" | tr '\n' ' ')" "2 2 "
		equal "inode number of $2 on $m" "$(stat -c %i "$m/$2")" "$(stat -c %i "$tmp/a/$1")"
		cmp "$tmp/bytes" "$m/$1" || fail "the bytes of $1 on $m"
		cmp "$tmp/bytes" "$m/$2" || fail "the bytes of $2 on $m"
	done
}
head -c 3M /dev/urandom >"$tmp/bytes"

echo "a standby takes over"
TTL=2
start_redis
masters x y
start_ha x --enable_offload --enable_multi_tenants
wait_for 20 leader >/dev/null
start_ha y --enable_offload --enable_multi_tenants
wait_for 20 in_sync x 1
mcctl quota default 48MiB >/dev/null
mcctl quota red 16MiB >/dev/null
start_mcfs "$MASTERS" "$tmp/a" --global_segment_size=32MiB --port=0 -o attr_timeout=0
start_mcfs "$MASTERS" "$tmp/b" --global_segment_size=32MiB --port=0 -o attr_timeout=0 --enable_offload \
	--ssd_offload_path="$ssd" --ssd_offload_size=64MB
start_mcfs "$MASTERS" "$tmp/red" --global_segment_size=0 --port=0 --tenant_id=red
cp "$tmp/bytes" "$tmp/a/f"
ln "$tmp/a/f" "$tmp/a/g"
cp "$tmp/bytes" "$tmp/red/f"
ln "$tmp/red/f" "$tmp/red/g"
fails ln "$tmp/red/f" "$tmp/a/h"
rm "$tmp/red/f"
kill_pid "${PID[x]}"
wait_for 20 cmp "$tmp/bytes" "$tmp/a/g"
both f g
equal "names in the tenant" "$(stat -c %h "$tmp/red/g")" 1
cmp "$tmp/bytes" "$tmp/red/g" || fail "the bytes in the tenant"
fails cat "$tmp/red/f"
rm "$tmp/red/g"

echo "a copy by one of the names, a drain, an offload"
segment() {
	mcctl --json df | jq -r ".segments[] | select(.medium == \"$1\") | .name" | sed -n "$2p"
}
one=$(segment memory 1) two=$(segment memory 2)
mcctl copy g "$one" "$two" >"$tmp/copy"
equal "copies of f" "$(mcctl --json stat f | jq '.[0].replicas')" 2
both f g
# A rewrite by the first mount is in its own memory; the drain moves it to the second one, which has a disk.
head -c 3M /dev/urandom >"$tmp/bytes"
cp "$tmp/bytes" "$tmp/a/g"
in_one_memory() {
	from=$(mcctl --json df | jq -r '.segments[] | select(.medium == "memory" and .used > 0) | .name')
	[ "$(wc -w <<<"$from")" = 1 ]
}
wait_for 10 in_one_memory
both f g
mcctl drain "$from" >"$tmp/drain" 2>&1 || fail "drain of $from: $(cat "$tmp/drain")"
both f g
mcctl offload f
on_disk() {
	[ "$(xattr get mooncake.tier "$tmp/b/g")" = memory+disk ]
}
wait_for 20 on_disk
both f g
unmount "$tmp/red"
unmount "$tmp/b"
unmount "$tmp/a"
