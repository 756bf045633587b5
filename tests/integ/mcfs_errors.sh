#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Errors and events that programs see: EIO for bytes that were damaged in memory, EAGAIN beyond
# max_threads, and inotify events for changes on their own mount.
. "${top_srcdir:-.}/tests/lib/functions.sh"
export PYTHONDONTWRITEBYTECODE=1
requires_fuse
requires_root
requires python3
prog=$top_srcdir/tests/integ/mcfs_errors.py

start_master
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=64MiB --max_threads=16 --timeout=10s
pid_a=$MCFS_PID
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=0 --direct_io=false
a=$tmp/a b=$tmp/b

# ---- damaged bytes: one bit of a small object, one in the middle of a large one
head -c 5000 /dev/urandom >"$tmp/small"
head -c 5000000 /dev/urandom >"$tmp/large"
for f in small large; do cp "$tmp/$f" "$a/$f"; cp "$tmp/$f" "$a/other-$f"; done
python3 "$prog" damage "$pid_a" 67108864 "$tmp/small" 1234 || fail "no bit was changed"
python3 "$prog" damage "$pid_a" 67108864 "$tmp/large" 3000000 || fail "no bit was changed"
# one file of each pair has been damaged: the one that is stored first in the segment
hit=()
for f in small large; do
	for g in "$f" "other-$f"; do
		cmp -s "$tmp/$f" "$a/$g" || hit+=("$g")
	done
done
equal "files that are damaged" "${#hit[@]}" 2
for d in "$a" "$b"; do
	python3 "$prog" eio "$d/${hit[0]}" "$tmp/small" 0 || fail "a damaged small file on $d"
	python3 "$prog" eio "$d/${hit[1]}" "$tmp/large" 3000000 || fail "a damaged large file on $d"
	fails cp "$d/${hit[1]}" "$tmp/copy"
	grep -q "Input/output error" "$tmp/fails.out" || fail "cp: $(cat "$tmp/fails.out")"
done
# a damaged file can be replaced, renamed and removed like any other
mv "$a/${hit[0]}" "$a/moved"
fails cat "$b/moved"
rm "$a/moved"
cp "$tmp/large" "$a/${hit[1]}"
cmp "$tmp/large" "$b/${hit[1]}"

# ---- more concurrent operations than max_threads allows
mappers=()
if grep -qE '^shared_mmap +yes$' "$a/.mcfs/features"; then mappers=(open closed); fi
for how in "${mappers[@]}"; do
	mkfifo "$tmp/go-$how"
	spawn "mapped-$how" python3 "$prog" mapped "$a/mapped-$how" "$tmp/go-$how" "$how"
	wait_for 20 grep -q mapped "$tmp/mapped-$how.log" || fail "nothing is mapped: $(cat "$tmp/mapped-$how.log")"
done
exec 3<"$a/${hit[1]}"
stop_still "$MASTER_PID"
cleanup_fn kill -CONT "$MASTER_PID"
python3 "$prog" crowd "$a" 40 "$tmp/go" >"$tmp/crowd.log" 2>&1 &
crowd=$!
refused() { [ "$(grep -c EAGAIN "$tmp/crowd.log")" -ge "$1" ]; }
# 16 threads minus the 8 that are reserved for operations that release resources
wait_for 20 refused 32 || fail "refused: $(sort "$tmp/crowd.log" | uniq -c)"
# write-back of a mapping is not refused: the writer would not notice the error
for how in "${mappers[@]}"; do
	echo >"$tmp/go-$how"
	wait_for 20 grep -q stored "$tmp/mapped-$how.log" || fail "the mapping: $(cat "$tmp/mapped-$how.log")"
done
# a close is not refused, any other operation is
exec 3<&-
fails stat "$a/one-more"
grep -q "Resource temporarily unavailable" "$tmp/fails.out" || fail "one operation more: $(cat "$tmp/fails.out")"
kill -CONT "$MASTER_PID"
wait "$crowd"
equal "what the crowd was told" "$(sort "$tmp/crowd.log" | uniq -c | awk '{ print $1, $2 }' | tr '\n' ' ')" \
	"32 EAGAIN 8 ENOENT "
cmp "$tmp/large" "$a/${hit[1]}"
head -c 8192 /dev/zero >"$tmp/mapped"
printf bytes | dd of="$tmp/mapped" conv=notrunc status=none
for how in "${mappers[@]}"; do
	echo >"$tmp/go-$how"
	wait_for 20 cmp "$tmp/mapped" "$a/mapped-$how" || fail "a store to a mapping is lost, its descriptor $how"
done
[ "$(metric_sum mcfs_refused_total <"$a/.mcfs/metrics")" -ge 33 ] || fail "nothing is counted as refused"

# ---- inotify: events for changes on this mount, none for those of the other node
mkdir "$a/dir"
python3 "$prog" watch "$a/dir" "$b/dir" || fail "inotify"
