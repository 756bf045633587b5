#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rename or removal that runs concurrently with a commit of the same file, or fails, loses no byte of it.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3
# The first commit is delayed; the second commit, that of a rename, fails, and so does the first removal.
MC_FAULTS=mcfs.version.put=delay:5000@1,mcfs.version.put=error:EIO@2,mcfs.names.remove=error:EIO@1 \
	start_standalone "$tmp/mnt" --global_segment_size=64MiB --timeout=60s
timeout 60 python3 "$top_srcdir/tests/integ/mcfs_meeting.py" "$tmp/mnt" own || fail "mcfs_meeting.py own"
unmount "$tmp/mnt"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end when it is unmounted"

# Same with commits by other processes.
MC_FAULTS=mcfs.version.put=delay:3000@1,mcfs.version.put=delay:3000@3,mcfs.version.put=delay:3000@5,\
mcfs.rename.asked=delay:3000@4 \
	start_standalone "$tmp/mnt4" --global_segment_size=64MiB --timeout=60s
timeout 120 python3 "$top_srcdir/tests/integ/mcfs_meeting.py" "$tmp/mnt4" others || fail "mcfs_meeting.py others"
unmount "$tmp/mnt4"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end when it is unmounted"

# Commits that take longer than an operation's timeout.
MC_FAULTS=mcfs.version.put=delay:4000@1,mcfs.version.put=delay:11000@3 \
	start_standalone "$tmp/mnt5" --global_segment_size=1GiB --timeout=2s
timeout 120 python3 "$top_srcdir/tests/integ/mcfs_meeting.py" "$tmp/mnt5" late || fail "mcfs_meeting.py late"
unmount "$tmp/mnt5"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end when it is unmounted"

# A file is created read-only while another node creates it too: the reader gets the other node's
# file, never an empty one.
start_master
MC_FAULTS=mcfs.open.make=delay:15000@1,mcfs.open.make=delay:15000@2 \
	start_mcfs "$MASTER" "$tmp/mnt3" --global_segment_size=64MiB --port=0 --timeout=60s
timeout 120 python3 - "$tmp/mnt3" "$top_builddir/tools/mcctl" "--master=$MASTER" <<'EOF' || fail "file created by two nodes"
import os, subprocess, sys, threading, time
mcctl = [os.path.abspath(sys.argv[2]), sys.argv[3], "put"]
os.chdir(sys.argv[1])
# While the kernel creates a file in a directory, it delays lookups there: use a subdirectory.
os.mkdir("d")

def under_way():
    for line in open(".mcfs/metrics"):
        if line.startswith("mcfs_inflight "):
            return int(line.split()[1])

def make(name, flags):
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CREAT | flags)
        got.append((os.fstat(fd).st_size, os.read(fd, 100)))
    except OSError as e:
        got.append(e.strerror)

for name, flags, meanwhile, want in (
        ("d/f", 0, b"theirs", (6, b"theirs")), ("d/g", os.O_EXCL, b"theirs", "File exists"), ("d/h", os.O_EXCL, None, (0, b""))):
    got = []
    made = threading.Thread(target=make, args=(name, flags))
    made.start()
    while meanwhile and under_way() < 2:
        time.sleep(0.01)
    if meanwhile:
        subprocess.run([*mcctl, name, "-"], input=meanwhile, stdout=subprocess.DEVNULL, check=True)
    made.join()
    assert got == [want], (name, got)
    assert open(name, "rb").read() == (meanwhile or b"")
assert not open(".mcfs/errors").read()
EOF
unmount "$tmp/mnt3"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end when it is unmounted"

# A lookup that finds no version, and is delayed before it searches the writers: the file is
# published meanwhile.
MC_FAULTS=mcfs.lookup.looked=delay:800 start_standalone "$tmp/mnt2" --global_segment_size=64MiB
timeout 60 python3 - "$tmp/mnt2" <<'EOF' || fail "a file that exists was not found"
import os, sys, threading, time
name = os.path.join(sys.argv[1], "f")
fd = os.open(name, os.O_WRONLY | os.O_CREAT)
os.write(fd, b"x" * 1000)
size = []
looks = threading.Thread(target=lambda: size.append(os.stat(name).st_size))
looks.start()
# The first lookup shows a file without a version, which is another inode than the created one: the
# kernel looks it up again.
time.sleep(1.2)
os.close(fd)
looks.join()
sys.exit(size != [1000])
EOF
unmount "$tmp/mnt2"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end when it is unmounted"

# The master renames a directory, but its answer is lost.
MC_FAULTS=mcfs.rename.moved=error:MC_ERPC@1,mcfs.rename.moved=error:MC_ETIMEDOUT@2 \
	start_standalone "$tmp/mnt6" --global_segment_size=64MiB
timeout 60 python3 - "$tmp/mnt6" <<'EOF' || fail "a directory whose rename was not answered"
import os, sys
os.chdir(sys.argv[1])
os.makedirs("a/s")
here = os.open("a/s", os.O_RDONLY)
with open("a/s/f", "w") as f:
    f.write("half")
    f.flush()
    os.rename("a", "b")
    os.rename("b/s", "b/t")
    f.write("+half")
assert open("b/t/f").read() == "half+half"
os.close(os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=here))
assert sorted(os.listdir("b/t")) == ["f", "new"] and os.listdir("b") == ["t"] and not os.path.exists("a")
EOF
unmount "$tmp/mnt6"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end when it is unmounted"
