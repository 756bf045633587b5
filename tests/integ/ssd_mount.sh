#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Files of a mount on an SSD: they open and read like others; attributes, df, mcctl and drain know the tier.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires jq
requires_fuse
mcctl=$top_builddir/tools/mcctl
start_master --enable_offload --default_kv_lease_ttl=0
start_mcfs "$MASTER" "$tmp/mnt" --enable_offload --ssd_offload_path="$ssd" --ssd_offload_size=256MB \
	--global_segment_size=32MB
wait_for 10 owner_is_mounted

tier() {
	xattr get mooncake.tier "$tmp/mnt/$1"
}
has_tier() {
	[ "$(tier "$1")" = "$2" ]
}

# Objects of KV caches, which are evictable, through the store; the files show them.
mkdir "$tmp/blocks"
for ((i = 0; i < 64; i++)); do
	head -c 1000000 /dev/urandom >"$tmp/blocks/$i"
	"$mcctl" --master="$MASTER" put "kv/$i" "$tmp/blocks/$i"
done
wait_for 20 offload_idle
wait_for 10 has_tier kv/0 disk || fail "kv/0 is in $(tier kv/0)"
[ "$(tier kv/63)" = memory+disk ] || fail "kv/63 is in $(tier kv/63)"
for ((i = 0; i < 64; i++)); do
	cmp "$tmp/blocks/$i" "$tmp/mnt/kv/$i" || fail "kv/$i differs"
done
# Parts of a file.
dd if="$tmp/mnt/kv/0" bs=1 skip=65530 count=12345 status=none | cmp - <(tail -c +65531 "$tmp/blocks/0" | head -c 12345) ||
	fail "a part of kv/0 differs"
# Two readers of one file at once.
cmp "$tmp/mnt/kv/1" "$tmp/blocks/1" &
other=$!
cmp "$tmp/mnt/kv/1" "$tmp/blocks/1"
wait "$other"

echo "tools"
"$mcctl" --master="$MASTER" ls -l kv/ >"$tmp/ls"
grep -q ' disk  *0$' "$tmp/ls" || fail "ls -l: $(cat "$tmp/ls")"
"$mcctl" --master="$MASTER" stat kv/0 | found '^tier: *disk$' || fail "stat shows no tier"
[ "$("$mcctl" --master="$MASTER" --json df | jq .pool.disk_used)" -gt 60000000 ] || fail "df shows no disk"
total=$(df --output=size -B1 "$tmp/mnt" | tail -n 1)
[ "$total" -gt 268000000 ] || fail "df of the mount shows $total bytes"
grep -q '^pool_disk_used_bytes *[1-9]' "$tmp/mnt/.mcfs/stats" || fail "stats: $(cat "$tmp/mnt/.mcfs/stats")"
"$mcctl" --master="$MASTER" promote kv/0
wait_for 10 has_tier kv/0 memory+disk
cmp "$tmp/blocks/0" "$tmp/mnt/kv/0"
if "$mcctl" --master="$MASTER" promote kv/none 2>"$tmp/err"; then fail "a missing key is promoted"; fi
grep -q 'kv/none' "$tmp/err"

echo "drain of the disk"
for ((i = 20; i < 64; i++)); do
	"$mcctl" --master="$MASTER" rm --force "kv/$i"
done
disk=$("$mcctl" --master="$MASTER" --json df | jq -r '.segments[] | select(.medium == "disk") | .name')
"$mcctl" --master="$MASTER" --timeout=30 drain "$disk" >"$tmp/drain" 2>&1 || fail "drain: $(cat "$tmp/drain")"
is_empty() {
	[ "$("$mcctl" --master="$MASTER" --json df | jq ".segments[] | select(.name == \"$disk\") | .objects")" -eq 0 ]
}
wait_for 20 is_empty
for ((i = 0; i < 20; i++)); do
	[ "$(tier "kv/$i")" = memory ] || fail "kv/$i is in $(tier "kv/$i")"
	cmp "$tmp/blocks/$i" "$tmp/mnt/kv/$i" || fail "kv/$i differs after the drain"
done
