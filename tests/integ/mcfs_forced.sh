#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Forced unmount of a mount with open files: closed files are there, files that were not closed are
# not, and their previous versions are.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_root
requires python3
start_master
# The second mount contributes all memory, so the first mount's objects are stored there.
start_mcfs "$MASTER" "$tmp/keeps" --global_segment_size=64MiB
a=$tmp/a keeps=$tmp/keeps

cat >"$tmp/client.py" <<'PY'
import os, sys
os.chdir(sys.argv[1])
def opened(name, flags=0):
    return os.open(name, os.O_WRONLY | os.O_CREAT | flags)
def put(name, data):
    fd = opened(name)
    os.write(fd, data)
    os.close(fd)
for name in "rewritten", "emptied": put(name, b"old")
put("closed", b"closed")
os.write(opened("half"), b"h" * 3000000)
os.write(opened("rewritten", os.O_TRUNC), b"new and longer")
os.close(os.dup(opened("emptied", os.O_TRUNC)))
opened("untouched")
child = opened("child")
if os.fork() == 0:
    os.write(child, b"the first part")
    os._exit(0)
os.wait()
print("open", flush=True)
sys.stdin.readline()
PY
mkfifo "$tmp/in"
# Lazy unmount with force; and lazy unmount, then aborting the connection.
forced() {
	umount -f -l "$a"
}
aborted() {
	umount -l "$a"
	echo 1 >"$connection/abort"
}
fuse_connections

for way in forced aborted; do
	start_mcfs "$MASTER" "$a" --global_segment_size=0
	number=$(awk -v dir="$a" '$5 == dir { split($3, d, ":"); print d[2] }' /proc/self/mountinfo)
	connection=$CONNECTIONS/$number
	[ "$way" = forced ] || [ -w "$connection/abort" ] || continue
	rm -f "$keeps"/* "$tmp/out"
	python3 "$tmp/client.py" "$a" <"$tmp/in" >"$tmp/out" 2>&1 &
	client=$!
	cleanup_fn end_pid "$client"
	exec 7>"$tmp/in"
	wait_for 20 grep -qs open "$tmp/out" || fail "$way: $(cat "$tmp/out")"
	"$way"
	wait_for 20 gone "$MCFS_PID" || fail "$way: the daemon does not end"
	wait "$MCFS_PID" || fail "$way: the daemon ended with status $?"
	equal "$way: names" "$(cd "$keeps" && echo *)" "closed emptied rewritten"
	equal "$way: closed" "$(cat "$keeps/closed")" closed
	equal "$way: rewritten" "$(cat "$keeps/rewritten")" old
	equal "$way: emptied" "$(cat "$keeps/emptied")" old
	exec 7>&-
	wait "$client" || :
done
