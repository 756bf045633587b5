#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Large files, written to the pool while programs still write them: from two nodes at a time,
# changed and truncated meanwhile, with the master killed in between; each file is read back on the
# other node and compared.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3
requires_memory 3072

start_master --journal_dir="$tmp/journal"
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=384MiB
pid_a=$MCFS_PID
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=192MiB
cat >"$tmp/write.py" <<'PY'
import os, random, sys
to, back, seed, count, begun = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
rnd, failed = random.Random(seed), 0
name = "/f%d" % seed
for i in range(count):
    size = rnd.choice((3, 7, 9, 17, 33)) * (1 << 20) + rnd.randrange(70000)
    block = rnd.randbytes(1 << 20)
    want = bytearray((block * (size // len(block) + 1))[:size])
    for k in range(0, size, 1 << 20):	# no two MiB are the same
        want[k:k + 8] = b"%08d" % k if size - k >= 8 else want[k:k + 8]
    step = rnd.choice((1 << 20, 1 << 17, 100000))
    fd = os.open(to + name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        for at in range(0, size, step):
            os.write(fd, want[at:at + step])
            if rnd.random() < .02:
                o, x = rnd.randrange(at + 1), rnd.randbytes(5000)
                x = x[:min(5000, min(at + step, size) - o)]
                os.pwrite(fd, x, o)
                want[o:o + len(x)] = x
        if rnd.random() < .3:
            cut = 1 + rnd.randrange(size)
            os.ftruncate(fd, cut)
            del want[cut:]
        if rnd.random() < .3:
            os.close(os.dup(fd))
            os.pwrite(fd, b"m", 0)
            want[0:1] = b"m"
    except OSError as e:
        print(name, i, "write:", e)
        failed += 1
        os.close(fd)
        continue
    try:
        os.close(fd)
    except OSError as e:
        print(name, i, "close:", e)
        failed += 1
        continue
    open(begun, "a").write("x")
    try:
        with open(back + name, "rb") as f:
            got = f.read()
    except OSError as e:		# a miss: evicted, or the master is not reachable
        print(name, i, "read:", e)
        continue
    if got != want:
        sys.exit("%s %d: %d bytes, wanted %d: not what was written" % (name, i, len(got), len(want)))
print(name, "written:", count - failed, "failed:", failed)
sys.exit(failed > count // 2)
PY
count=10
[ -z "${SANITIZER-}" ] || count=4
pids=()
for seed in 1 2 3 4; do
	if [ $((seed % 2)) = 0 ]; then from=$tmp/a to=$tmp/b; else from=$tmp/b to=$tmp/a; fi
	timeout 300 python3 "$tmp/write.py" "$from" "$to" "$seed" "$count" "$tmp/begun" &
	pids+=($!)
done
begun() { [ "$(stat -c %s "$tmp/begun")" -ge 4 ]; }
wait_for 120 begun || fail "no bytes were written"
kill_pid "$MASTER_PID"
restart_master --journal_dir="$tmp/journal"
for pid in "${pids[@]}"; do
	wait "$pid" || fail "a writer: status $?"
done
carried() {
	cat "$tmp/a/.mcfs/metrics" "$tmp/b/.mcfs/metrics" |
		awk '$1 == "mcfs_carried_bytes_total" { n += $2 } END { print int(n / 1048576) }'
}
echo "stored before a close: $(carried) MiB"
[ "$(carried)" -gt 0 ] || fail "nothing was stored before a close"
quiet() { grep -qE '^staged_bytes +0$' "$tmp/a/.mcfs/stats" && grep -qE '^staged_bytes +0$' "$tmp/b/.mcfs/stats"; }
wait_for 20 quiet || fail "staged bytes are left"
# Memory reserved by streams is freed: all of it is usable.
rm -f "$tmp"/a/f*
empty() { grep -qE '^pool_used_bytes +0$' "$tmp/a/.mcfs/stats"; }
wait_for 60 empty || { cat "$tmp/a/.mcfs/stats"; fail "memory is not freed"; }
alive "$pid_a" || fail "a daemon ended"
