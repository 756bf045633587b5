#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A daemon in a pid namespace of its own, as containers have one, works for processes that it cannot see, and says that
# it does not see them.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_root
requires unshare
unshare -p -f true 2>/dev/null || skip "pid namespaces are not allowed here"
m=$tmp/mnt
mkdir "$m"
cleanup_fn unmount_any "$m"
spawn mcfs unshare -p -f --kill-child "$top_builddir/mcfs/mcfs" -f --standalone "$m" --global_segment_size=32MiB
started "$SPAWNED" "mcfs in a pid namespace" 30 is_mounted "$m"
grep -qE "^all_processes_seen +no$" "$m/.mcfs/features" || fail "features: $(cat "$m/.mcfs/features")"
warned() { grep -c "of another pid namespace writes" "$tmp/mcfs.log"; }
fails warned
head -c 3000000 /dev/urandom >"$tmp/data"
cp "$tmp/data" "$m/copied"
cat "$tmp/data" >"$m/redirected"
cmp "$tmp/data" "$m/copied"
cmp "$tmp/data" "$m/redirected"
wait_for 10 warned >/dev/null || fail "no warning: $(cat "$tmp/mcfs.log")"
equal "warnings" "$(warned)" 1
# an open file that somebody reads is rewritten, and appended to
exec 3<"$m/copied"
echo short >"$m/copied"
echo end >>"$m/copied"
equal "rewritten" "$(cat "$m/copied")" $'short\nend'
cmp "$tmp/data" - <&3
exec 3<&-
unmount "$m"
wait_for 20 gone "$SPAWNED" || fail "mcfs does not end when it is unmounted"
