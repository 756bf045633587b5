#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The files of .mcfs and the extended attributes tell what is; nobody can change them.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
free_port http
start_standalone "$tmp/mnt" --global_segment_size=64MiB --enable_http_server --host=127.0.0.1 \
	--http_port="$http" --file_mode=0640 --uid=1234
m=$tmp/mnt

equal "names in .mcfs" "$(find "$m/.mcfs" -type f -printf '%f\n' | sort | tr '\n' ' ')" \
	"config errors health metrics stats version "
equal "the root's names" "$(ls -A "$m")" ""
grep -q '^mcfs ' "$m/.mcfs/version"
grep -qE '^global_segment_size = 64MiB ' "$m/.mcfs/config" || { cat "$m/.mcfs/config"; fail config; }
equal health "$(cat "$m/.mcfs/health")" '{"status":"healthy","code":0}'
equal "health over HTTP" "$(curl -sf "http://127.0.0.1:$http/health")" '{"status":"healthy","code":0}'
grep -qE '^pool_capacity_bytes +67108864$' "$m/.mcfs/stats" || { cat "$m/.mcfs/stats"; fail stats; }

printf 123456789 >"$m/f"
cat "$m/f" >/dev/null
grep -q '^mcfs_ops_total{op="write"} 1$' "$m/.mcfs/metrics" || fail "metrics do not count a write"
grep -q '^mcfs_written_bytes_total 9$' "$m/.mcfs/metrics" || fail "metrics do not count bytes"
[ "$(metric "127.0.0.1:$http" mcfs_ops_total 'op="lookup"')" -gt 0 ] || fail "metrics over HTTP"
equal "owner and mode" "$(stat -c '%u %a' "$m/f")" "1234 640"

fails touch "$m/.mcfs/new"
fails mkdir "$m/.mcfs/dir"
fails rm "$m/.mcfs/stats"
fails sh -c "echo x >'$m/.mcfs/stats'"
fails mv "$m/f" "$m/.mcfs/f"
fails mv "$m/.mcfs/stats" "$m/stats"
fails mkdir "$m/.mcfs"
fails rmdir "$m/.mcfs"
fails mv "$m/.mcfs" "$m/other"
fails ls "$m/.mcfs/nothing"
equal "the file, after all that" "$(cat "$m/f")" 123456789

if command -v getfattr >/dev/null; then
	equal crc "$(getfattr --only-values -n user.mooncake.crc "$m/f")" crc32c:e3069283
	equal key "$(getfattr --only-values -n user.mooncake.key "$m/f")" f
	equal replicas "$(getfattr --only-values -n user.mooncake.replicas "$m/f")" 1
fi

# A failure of a close is kept for those who did not look at its result, as bash's exec: here O_EXCL
# lost against somebody who gave the name a value meanwhile.
echo mine >"$tmp/mine"
equal "errors so far" "$(cat "$m/.mcfs/errors")" ""
set -C
exec 3>"$m/new one"
set +C
# by another process, whose closes publish nothing
cat "$tmp/mine" >&3
sh -c "echo theirs >'$m/new one'"
exec 3>&- || :
equal "the file that was there first" "$(cat "$m/new one")" theirs
grep -qE "^20[0-9-]+T[0-9:.]+Z pid=$$ new one close: ." "$m/.mcfs/errors" || {
	cat "$m/.mcfs/errors"
	fail "the failed close is not recorded"
}
