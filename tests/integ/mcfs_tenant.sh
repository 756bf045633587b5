#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Mounts of different tenants: each shows its own keys, has its own quota, and reports only its own changes.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
start_master --enable_multi_tenants
mcctl() {
	timeout 60 "$top_builddir/tools/mcctl" --master="$MASTER" "$@"
}
mcctl quota default 32MiB >/dev/null
mcctl quota red 8MiB >/dev/null
start_mcfs "$MASTER" "$tmp/default" --global_segment_size=64MiB --port=0
start_mcfs "$MASTER" "$tmp/red" --global_segment_size=0 --port=0 --tenant_id=red
start_mcfs "$MASTER" "$tmp/red2" --global_segment_size=0 --port=0 --tenant_id=red
start_mcfs "$MASTER" "$tmp/unknown" --global_segment_size=0 --port=0 --tenant_id=unknown

mkdir "$tmp/default/d" "$tmp/red/d"
echo "of the default tenant" >"$tmp/default/d/k"
echo "red" >"$tmp/red/d/k"
equal "default's file" "$(cat "$tmp/default/d/k")" "of the default tenant"
equal "red's file" "$(cat "$tmp/red/d/k")" red
equal "red's file in its other mount" "$(cat "$tmp/red2/d/k")" red
mv "$tmp/red/d/k" "$tmp/red/d/moved"
equal "red's names" "$(ls "$tmp/red2/d")" moved
equal "default's names" "$(ls "$tmp/default/d")" k
equal "red's keys" "$(ls "$tmp/red2/.mcfs/by-key")" d%2Fmoved
equal "what mcctl shows, which is default's" "$(mcctl ls d/)" k
rm "$tmp/red/d/moved"
equal "default's file, when red's is gone" "$(cat "$tmp/default/d/k")" "of the default tenant"

# its quota
fails dd if=/dev/zero of="$tmp/red/large" bs=1M count=12 status=none
grep -q "quota exceeded" "$tmp/fails.out" || fail "beyond the quota: $(cat "$tmp/fails.out")"
dd if=/dev/zero of="$tmp/default/large" bs=1M count=12 status=none || fail "within default's quota"

# a tenant unknown to the master cannot store anything
echo x >"$tmp/file"
fails cp "$tmp/file" "$tmp/unknown/k"
grep -q "Permission denied" "$tmp/fails.out" || fail "an unknown tenant: $(cat "$tmp/fails.out")"
equal "names of an unknown tenant" "$(ls "$tmp/unknown")" ""

# changes
timeout 20 cat "$tmp/red2/.mcfs/events" >"$tmp/events" &
reader=$!
change() {
	echo x >"$tmp/default/other"
	echo x >"$tmp/red/told"
	rm "$tmp/red/told"
	grep -q " remove told " "$tmp/events"
}
wait_for 15 change
kill "$reader"
wait "$reader" 2>/dev/null || :
! grep -q other "$tmp/events" || fail "another tenant's changes are reported: $(cat "$tmp/events")"
