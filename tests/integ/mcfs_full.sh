#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A full pool evicts for new files; a file that cannot fit is refused at write or close, evicts nothing
# and leaves nothing behind; staging memory is limited.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_memory 2048

start_standalone "$tmp/mnt" --global_segment_size=64MiB --staging_max=48MiB
m=$tmp/mnt
head -c 4000000 /dev/urandom >"$tmp/s"

# ten times as many as fit
for i in $(seq 1 160); do
	cp "$tmp/s" "$m/f$i" || fail "copy $i into a pool full of evictable files"
done
cmp "$tmp/s" "$m/f160" || fail "the newest file"
n=$(find "$m" -name 'f*' | wc -l)
[ "$n" -ge 8 ] && [ "$n" -le 16 ] || fail "$n files of 4 MB in a pool of 64 MiB"
for f in "$m"/f*; do
	# A file that is evicted between the listing and this check is a miss, not a wrong file.
	[ ! -e "$f" ] || cmp "$tmp/s" "$f" || fail "a file in a full pool differs"
done
fails cat "$m/f1"
grep -q "No such file" "$tmp/fails.out" || fail "reading an evicted file is not a miss"

# an open file is not evicted
exec 3<"$m/f160"
for i in $(seq 1 40); do cp "$tmp/s" "$m/g$i"; done
cmp "$tmp/s" - <&3 || fail "an open file was evicted under its reader"
exec 3<&-

# larger than any object can be: the write fails with the reason, and no file appears
fails dd if=/dev/zero of="$m/huge" bs=1M count=80 status=none
grep -qE "File too large|No space left" "$tmp/fails.out" || fail "no reason: $(cat "$tmp/fails.out")"
[ ! -e "$m/huge" ] || fail "a refused file exists"
echo kept >"$m/small"
fails truncate -s 1T "$m/small"
equal "a file whose size was refused" "$(cat "$m/small")" kept

# staging: two files of 30 MiB at a time exceed 48 MiB
exec 3>"$m/a"
head -c 31457280 /dev/zero >&3
fails dd if=/dev/zero of="$m/b" bs=1M count=30 status=none
grep -q "No space left" "$tmp/fails.out" || fail "no reason: $(cat "$tmp/fails.out")"
[ ! -e "$m/b" ] || fail "a refused file exists"
exec 3>&-
wait_for 30 grep -qE '^staged_bytes +0$' "$m/.mcfs/stats"
equal "the file that was staged first" "$(wc -c <"$m/a")" 31457280
dd if=/dev/zero of="$m/b" bs=1M count=30 status=none || fail "staging memory is not released"

# concurrently written files share the staging memory: each waits for the puts of the others
for i in $(seq 1 12); do
	cp "$tmp/s" "$m/p$i" &
done
failed=0
for job in $(jobs -p); do
	[ "$job" = "$MCFS_PID" ] || wait "$job" || failed=1
done
equal "copies at the same time that failed" "$failed" 0

# ---- a file that cannot fit evicts nothing: neither its put nor the space reserved while it is written
stop_pid "$MCFS_PID"
start_master
start_mcfs "$MASTER" "$tmp/keep" --global_segment_size=96MiB --staging_max=160MiB
k=$tmp/keep pid_keep=$MCFS_PID
start_mcfs "$MASTER" "$tmp/keep2" --global_segment_size=24MiB
head -c 17000000 /dev/urandom >"$tmp/s"
for i in 1 2 3 4; do cp "$tmp/s" "$k/keep$i"; done
kept() {
	for i in 1 2 3 4; do cmp "$tmp/s" "$k/keep$i" || return; done
}
of_stats() {
	sed -nE "s/^$1 +//p" "$k/.mcfs/stats"
}
carried() {
	awk '$1 == "mcfs_carried_bytes_total" { print $2 }' "$k/.mcfs/metrics"
}
for i in 1 2; do
	fails dd if=/dev/zero of="$k/doomed" bs=1M count=150 status=none
	grep -q "File too large" "$tmp/fails.out" || fail "no reason: $(cat "$tmp/fails.out")"
	[ ! -e "$k/doomed" ] || fail "a refused file exists"
	equal "objects evicted for a file that cannot fit" "$(of_stats pool_evictions)" 0
done
kept || fail "a file is lost although the other one did not fit"
[ "$(carried)" -gt 0 ] || fail "the free space was not used while the file was written"
# A file that fits does evict, when its size is known: at the close, or when the program announces it.
head -c 80000000 /dev/urandom >"$tmp/fits"
cp "$tmp/fits" "$k/fits" || fail "a file that fits"
cmp "$tmp/fits" "$k/fits" || fail "the file that fits"
[ "$(of_stats pool_evictions)" -gt 0 ] || fail "nothing was evicted for a file that fits"
rm "$k/fits"
stop_pid "$MCFS_PID"
stop_pid "$pid_keep"
stop_pid "$MASTER_PID"

# ---- the quota of the mount's tenant
start_master --enable_multi_tenants
start_mcfs "$MASTER" "$tmp/q" --global_segment_size=64MiB
mcctl() {
	timeout 60 "$top_builddir/tools/mcctl" --master="$MASTER" "$@"
}
mcctl quota default 8MiB >/dev/null
head -c 3000000 /dev/urandom >"$tmp/s"
cp "$tmp/s" "$tmp/q/within" || fail "a file within the quota"
fails dd if=/dev/zero of="$tmp/q/beyond" bs=1M count=12 status=none
grep -q "quota exceeded" "$tmp/fails.out" || fail "beyond the quota: $(cat "$tmp/fails.out")"
[ ! -e "$tmp/q/beyond" ] || fail "a file beyond the quota exists"
grep -qE '^mcfs_errors_total\{errno="EDQUOT"\} [1-9]' "$tmp/q/.mcfs/metrics" || fail "EDQUOT is not counted"
mcctl quota default 32MiB >/dev/null
dd if=/dev/zero of="$tmp/q/beyond" bs=1M count=12 status=none || fail "within a larger quota"
equal "its size" "$(stat -c %s "$tmp/q/beyond")" 12582912

# Without any memory in the pool the maximum file size is unknown, but such a size is refused.
if command -v python3 >/dev/null; then
	start_standalone "$tmp/none" --global_segment_size=0
	python3 - "$tmp/none/f" <<'PY' || fail "a file of an exabyte"
import errno, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for call in (lambda: os.pwrite(fd, b"x", 1 << 60), lambda: os.ftruncate(fd, 1 << 60)):
    try:
        call()
        sys.exit("it can be written")
    except OSError as e:
        assert e.errno == errno.EFBIG, e
PY
fi
