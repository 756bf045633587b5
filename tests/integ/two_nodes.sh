#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two nodes share one pool: a file closed on one is complete on the other at once, its bytes move
# from node to node, readers on the other node see a rename as atomic, and a node that dies does not
# affect the other.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_netns
requires_memory 2048
requires curl python3

two_nodes
a=$tmp/a b=$tmp/b
NS=$NS_A MASTER_HOST=$ADDR_A start_master
NS=$NS_A start_mcfs "$MASTER" "$a" --host="$ADDR_A" --global_segment_size=512mb
pid_a=$MCFS_PID
NS=$NS_B start_mcfs "$MASTER" "$b" --host="$ADDR_B" --global_segment_size=512mb
pid_b=$MCFS_PID

# ---- closed on A, visible on B ----
mkdir "$a/at-once"
for i in {1..40}; do
	seq "$((i * 1000))" "$((i * 2000))" >"$a/at-once/$i"
	equal "names on B" "$(find "$b/at-once" -type f | wc -l)" "$i"
	cmp "$a/at-once/$i" "$b/at-once/$i"
done

# ---- node to node, not through the master ----
tcp_read() { metric_sum mooncake_transfer_bytes_total 'path="tcp",op="read"' <"$b/.mcfs/metrics"; }
other_read() {
	local all
	all=$(metric_sum mooncake_transfer_bytes_total 'op="read"' <"$b/.mcfs/metrics")
	echo $((all - $(tcp_read)))
}
master_bytes() {
	local in out
	in=$(NS=$NS_A metric "$MASTER_HTTP" mooncake_rpc_received_bytes_total)
	out=$(NS=$NS_A metric "$MASTER_HTTP" mooncake_rpc_sent_bytes_total)
	[ "$in" -gt 0 ] && [ "$out" -gt 0 ] || fail "the master counts no bytes"
	echo $((in + out))
}
size=$((64 << 20))
head -c "$size" /dev/urandom >"$tmp/original"
cp "$tmp/original" "$a/big"
tcp_before=$(tcp_read) other_before=$(other_read) master_before=$(master_bytes)
# shellcheck disable=SC2002
cat "$b/big" | cmp - "$tmp/original"
moved=$(($(tcp_read) - tcp_before))
through_master=$(($(master_bytes) - master_before))
[ "$moved" -ge "$size" ] || fail "B moved $moved bytes over TCP for a file of $size"
equal "bytes B took from its own memory" "$(($(other_read) - other_before))" 0
[ "$through_master" -lt $((size / 64)) ] || fail "$through_master bytes went through the master"

# ---- rename on A, readers on B ----
cat >"$tmp/reader.py" <<'PY'
import os, sys
path, stop = sys.argv[1:]
seen, last = set(), 0
while True:
    done = os.path.exists(stop)
    with open(path, "rb") as f:          # a missing name ends the reader, and so fails the test
        data = f.read()
    version = data[0]
    if len(data) != 1 << 20 or data.count(version) != len(data):
        sys.exit("mixed or short: %d bytes, %d kinds" % (len(data), len(set(data))))
    if version < last:
        sys.exit("version %d after %d" % (version, last))
    last = version
    seen.add(version)
    if done:
        break
print(len(seen), last)
PY
version() { head -c 1048576 /dev/zero | tr '\0' "\\$(printf %03o "$1")"; }
version 1 >"$a/target"
spawn reader python3 "$tmp/reader.py" "$b/target" "$tmp/stop"
reader=$SPAWNED
for i in {2..100}; do
	version "$i" >"$a/next"
	mv "$a/next" "$a/target"
	alive "$reader" || fail "the reader on B ended at version $i"
done
touch "$tmp/stop"
wait_for 30 gone "$reader"
wait "$reader" || fail "the reader on B failed"
read -r distinct last <"$tmp/reader.log"
equal "last version on B" "$last" 100
[ "$distinct" -ge 3 ] || fail "the reader saw $distinct versions only: nothing was tested"
fails stat "$b/next"

# ---- a real tree ----
cp -a /usr/include "$a/include"
# links are compared as links: some point outside the tree
diff -r --no-dereference /usr/include "$b/include"

# ---- node A is killed ----
echo "of B" >"$b/mine"
kill_pid "$pid_a"
begin=$SECONDS
fails timeout 100 cat "$b/big"
[ $((SECONDS - begin)) -le 60 ] || fail "the error took $((SECONDS - begin)) s"
equal "a file of B's own" "$(timeout 30 cat "$b/mine")" "of B"
echo "still here" >"$b/later"
equal "a new file on B" "$(timeout 30 cat "$b/later")" "still here"
timeout 60 ls "$b" >/dev/null

unmount_any "$a"
stop_pid "$pid_b" 30
! is_mounted "$b" || fail "B's mount outlived its daemon"
stop_pid "$MASTER_PID"
