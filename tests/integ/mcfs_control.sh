#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The files of .mcfs and the extended attributes show the current state, and are read-only.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
free_port http
# Only root can write to a file that is shown as another user's.
owner=$(id -u)
[ "$owner" -ne 0 ] || owner=1234
start_standalone "$tmp/mnt" --global_segment_size=64MiB --enable_http_server --host=127.0.0.1 \
	--http_port="$http" --file_mode=0640 --uid="$owner" --socket="$tmp/socket"
m=$tmp/mnt

equal "names in .mcfs" "$(find "$m/.mcfs" -maxdepth 1 -type f -printf '%f\n' | sort | tr '\n' ' ')" \
	"config ctl errors events features health master metrics nodes stats top trace version "
equal "the root's names" "$(ls -A "$m")" ""
grep -q '^mcfs ' "$m/.mcfs/version"
grep -qE '^global_segment_size = 64MiB ' "$m/.mcfs/config" || { cat "$m/.mcfs/config"; fail config; }
equal health "$(cat "$m/.mcfs/health")" '{"status":"healthy","code":0}'
equal "health over HTTP" "$(curl -sf "http://127.0.0.1:$http/health")" '{"status":"healthy","code":0}'
grep -qE '^pool_capacity_bytes +67108864$' "$m/.mcfs/stats" || { cat "$m/.mcfs/stats"; fail stats; }

equal "master" "$(cut -d' ' -f2 "$m/.mcfs/master")" ok
for name in direct_io shared_mmap passthrough custom_io requests_sent_again supervised all_processes_seen all_ends_seen; do
	grep -qE "^$name +(yes|no)$" "$m/.mcfs/features" || { cat "$m/.mcfs/features"; fail "features: $name"; }
done
grep -qE '^direct_io +yes$' "$m/.mcfs/features" || fail "direct_io is the default"
grep -qE '^supervised +no$' "$m/.mcfs/features" || fail "it has no supervisor"
equal "name_max" "$(awk '$1 == "name_max" { print $2 }' "$m/.mcfs/features")" "$(stat -f -c %l "$m")"
equal "the socket" "$(readlink "$m/.mcfs/sock")" "$tmp/socket"
equal "the socket, followed" "$(stat -L -c %F "$m/.mcfs/sock")" socket
equal "the socket, listed" "$(find "$m/.mcfs" -maxdepth 1 -type l -printf '%f %l\n')" "sock $tmp/socket"

printf 123456789 >"$m/f"
cat "$m/f" >/dev/null
grep -q '^mcfs_ops_total{op="write"} 1$' "$m/.mcfs/metrics" || fail "metrics do not count a write"
grep -q '^mcfs_written_bytes_total 9$' "$m/.mcfs/metrics" || fail "metrics do not count bytes"
[ "$(metric "127.0.0.1:$http" mcfs_ops_total 'op="lookup"')" -gt 0 ] || fail "metrics over HTTP"
equal "owner and mode of the root" "$(stat -c '%u %a' "$m")" "$owner 755"

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

value() { xattr get "mooncake.$1" "$2"; }
for name in crc generation group key locality pin replicas size state tier where; do
	value "$name" "$m/f" >/dev/null || fail "user.mooncake.$name cannot be read"
done
equal "listed attributes" "$(xattr list "$m/f")" ""
equal crc "$(value crc "$m/f")" crc32c:e3069283
equal key "$(value key "$m/f")" f
equal size "$(value size "$m/f")" 9
equal replicas "$(value replicas "$m/f")" 1
equal locality "$(value locality "$m/f")" local
node=$(sed 's/ id=\([0-9-]*\) .*/ segment=\1 address=0x/' "$m/.mcfs/nodes")
where=$(value where "$m/f")
grep -qE "^${node}[0-9a-f]+ size=9 state=ok$" <<<"$where" || fail "where: $where, not $node"
equal tier "$(value tier "$m/f")" memory

# ---- attributes set while a file is being written decide how it is stored
exec 3>"$m/pinned"
xattr set mooncake.pin hard "$m/pinned"
xattr set mooncake.replicas 2 "$m/pinned"
xattr set mooncake.size 1000 "$m/pinned"
equal "state" "$(value state "$m/pinned")" writing
equal "pin, so far" "$(value pin "$m/pinned")" hard
equal "replicas, so far" "$(value replicas "$m/pinned")" 2
equal "size, so far" "$(stat -c %s "$m/pinned")" 1000
for bad in pin=wild replicas=0 replicas=x size=-1 pin=; do
	fails xattr set "mooncake.${bad%=*}" "${bad#*=}" "$m/pinned"
	grep -q "Invalid argument" "$tmp/fails.out" || fail "$bad: $(cat "$tmp/fails.out")"
done
exec 3>&-
is_complete() { [ "$(value state "$m/pinned")" = complete ]; }
wait_for 30 is_complete
equal "size" "$(stat -c %s "$m/pinned")" 1000
equal "pin" "$(value pin "$m/pinned")" hard
equal "replicas: there is one node" "$(value replicas "$m/pinned")" 1
fails xattr set mooncake.pin none "$m/pinned"
grep -q "not permitted" "$tmp/fails.out" || fail "a version can be changed: $(cat "$tmp/fails.out")"
fails xattr set mooncake.key x "$m/pinned"
grep -q "not permitted" "$tmp/fails.out" || fail "a key can be set: $(cat "$tmp/fails.out")"
fails xattr set mooncake.other x "$m/pinned"
grep -q "not supported" "$tmp/fails.out" || fail "other attributes: $(cat "$tmp/fails.out")"
rm "$m/pinned"

# ---- streams
# line_comes FILE REGEX
line_comes() {
	wait_for 10 grep -qE "$2" "$1" || fail "no line \"$2\" in: $(cat "$1")"
}
mkdir "$m/d"
cat "$m/.mcfs/trace" >"$tmp/trace" &
tracer=$!
cat "$m/.mcfs/events" >"$tmp/events" &
watcher=$!
# both streams are connected when their first lines are there
until grep -q "getattr\|lookup" "$tmp/trace"; do stat "$m/f" >/dev/null; done
until grep -q first "$tmp/events"; do echo x >"$m/first"; done
echo text >"$m/d/some file"
mv "$m/d/some file" "$m/d/other"
rm "$m/d/other"
line_comes "$tmp/trace" '^20[0-9-]+T[0-9:.]+Z write /d/some\\040file pid=[0-9]+ uid=[0-9]+ bytes=5 errno=0 us=[0-9]+$'
fails stat "$m/d/nothing"
line_comes "$tmp/trace" ' lookup /d/ .* errno=2 '
line_comes "$tmp/events" '^20[0-9-]+T[0-9:.]+Z put d/some\\040file size=5 generation=[0-9]+$'
line_comes "$tmp/events" ' rename d/some\\040file d/other '
line_comes "$tmp/events" ' remove d/other '
# a reader that waits for lines can be ended by any signal
kill -TERM "$tracer"
kill -KILL "$watcher"
wait_for 30 gone "$tracer" || fail "a reader of the trace does not end"
wait_for 30 gone "$watcher" || fail "a reader of the events does not end"
wait "$tracer" 2>/dev/null || :
wait "$watcher" 2>/dev/null || :
fails dd if="$m/.mcfs/events" of=/dev/null iflag=nonblock status=none
grep -q "temporarily unavailable" "$tmp/fails.out" || fail "O_NONBLOCK: $(cat "$tmp/fails.out")"
wait_for 30 grep -qE '^open_handles +1$' "$m/.mcfs/stats" || fail "streams stay open"

# ---- processes that use the mount
head -c 100000 /dev/zero >"$m/busy"
grep -qE "^ *pid +uid +command +ops" "$m/.mcfs/top" || fail "top: $(cat "$m/.mcfs/top")"
grep -qE "^ *[0-9]+ +[0-9]+ .* 100000 +[0-9]+ +[0-9]+$" "$m/.mcfs/top" || fail "top: $(cat "$m/.mcfs/top")"
grep -qE " id=[0-9-]+ state=ok size=67108864 " "$m/.mcfs/nodes" || fail "nodes: $(cat "$m/.mcfs/nodes")"

# ---- keys as names
rm -rf "${m:?}"/*
mkdir -p "$m/a/b"
echo deep >"$m/a/b/c%"
echo top >"$m/top"
equal "names by key" "$(ls -U "$m/.mcfs/by-key" | sort | tr '\n' ' ')" "a%2Fb%2Fc%25 top "
equal "a file by its key" "$(cat "$m/.mcfs/by-key/a%2Fb%2Fc%25")" deep
equal "its inode" "$(stat -c %i "$m/.mcfs/by-key/top")" "$(stat -c %i "$m/top")"
for bad in a%2Fb%2Fc% a%2fb%2Fc%25 a%2Fb%2F a b %2E to%70 %2; do
	fails cat "$m/.mcfs/by-key/$bad"
done
fails touch "$m/.mcfs/by-key/new"
fails rm -f "$m/.mcfs/by-key/top"
fails mv "$m/.mcfs/by-key/top" "$m/moved"
fails mkdir "$m/.mcfs/by-key/dir"
rm -rf "${m:?}"/*
printf 123456789 >"$m/f"

# The error of a close is recorded for programs that ignore the result of close(2), as bash's exec
# does.  Here O_EXCL fails because mcctl has stored a value meanwhile.
echo mine >"$tmp/mine"
equal "errors so far" "$(cat "$m/.mcfs/errors")" ""
set -C
exec 3>"$m/new one"
set +C
# in another process, whose closes publish nothing
cat "$tmp/mine" >&3
sh -c "echo theirs >'$m/new one'"
exec 3>&- || :
equal "the file that was there first" "$(cat "$m/new one")" theirs
grep -qE "^20[0-9-]+T[0-9:.]+Z pid=$$ new one close: ." "$m/.mcfs/errors" || {
	cat "$m/.mcfs/errors"
	fail "the failed close is not recorded"
}
