# SPDX-License-Identifier: Apache-2.0
# mcfs_meeting.py DIR CASE - concurrent or failing operations on one name, on a mount whose faults
# mcfs_meeting.sh sets.
import errno
import os
import subprocess
import sys
import threading
import time

os.chdir(sys.argv[1])


def read(name):
    with open(name, "rb") as f:
        return f.read()


def failed(err, call, *args):
    try:
        call(*args)
    except OSError as e:
        assert e.errno == err, e
    else:
        raise AssertionError("%s%r succeeded" % (call.__name__, args))


def written(name, data):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT)
    assert os.write(fd, data) == len(data)
    return fd


def under_way():
    """Number of running operations of the mount; 1 is the open that reads it."""
    for line in read(".mcfs/metrics").decode().splitlines():
        if line.startswith("mcfs_inflight "):
            return int(line.split()[1])
    raise AssertionError("no mcfs_inflight")


# A process that opens a file, writes to it, and closes it when its input says so.
WRITER = """
import os, sys
name, flags, text = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
fd = os.open(name, flags, 0o644)
if text:
    os.write(fd, text)
print("written", flush=True)
sys.stdin.readline()
os.close(fd)
print("closed", flush=True)
"""


class Writer:
    def __init__(self, name, text, flags=os.O_WRONLY | os.O_CREAT):
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, name, str(flags), text], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "written\n"

    def begin_to_close(self, under_way_then=2):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        wait_under_way(under_way_then)

    def end(self):
        out, _ = self.process.communicate("\n")
        assert self.process.returncode == 0 and out == "closed\n", (self.process.returncode, out)


def wait_under_way(n):
    """Wait until @n operations run for some time; a short one may be the last close of the file
    with the number."""
    seen = 0
    while seen < 5:
        seen = seen + 1 if under_way() >= n else 0
        time.sleep(0.01)


def put(name, data):
    os.close(written(name, data))


def own():
    # A rename waits for a commit of its own file that another thread has begun, and renames the
    # committed version.
    fd = written("tmp", b"whole")
    commit = threading.Thread(target=os.fsync, args=(fd,))
    commit.start()
    wait_under_way(2)
    os.rename("tmp", "final")
    commit.join()
    assert read("final") == b"whole", read("final")
    assert not os.path.exists("tmp")
    os.close(fd)
    assert read("final") == b"whole"

    # A failing rename removes no name.
    over = written("over", b"stays")
    fd = written("tmp", b"new")
    failed(errno.EIO, os.rename, "tmp", "over")
    os.close(over)
    assert read("over") == b"stays"
    os.close(fd)
    assert read("tmp") == b"new"

    # A failing unlink removes no name either.
    fd = written("kept", b"kept")
    failed(errno.EIO, os.unlink, "kept")
    os.close(fd)
    assert read("kept") == b"kept"
    os.unlink("kept")
    assert not os.path.exists("kept")


def others():
    # The first commit is delayed: when rename(2) returns, the file is there under the new name.
    w = Writer("tmp", "first")
    w.begin_to_close()
    os.rename("tmp", "k")
    assert read("k") == b"first" and not os.path.exists("tmp")
    w.end()

    # Same when the old name already has a version (that put is the second commit): the third commit
    # is delayed.
    put("tmp", b"old")
    w = Writer("tmp", "second", os.O_WRONLY)
    w.begin_to_close()
    os.rename("tmp", "k")
    assert read("k") == b"second", read("k")
    assert not os.path.exists("tmp")
    w.end()

    # If a commit of the new name has begun, the rename waits for it: the fifth commit is delayed.
    put("tmp", b"stays")
    w = Writer("k", "displaced")
    w.begin_to_close()
    os.rename("tmp", "k")
    w.end()
    assert read("k") == b"stays", read("k")

    # Commits that begin after the master has answered the fourth rename and before the writers'
    # names are changed.
    put("tmp", b"moved")
    over, under = Writer("k", "displaced"), Writer("tmp", "next")  # over "moved"
    rename = threading.Thread(target=os.rename, args=("tmp", "k"))
    rename.start()
    wait_under_way(2)
    over.begin_to_close(3)
    under.begin_to_close(4)
    rename.join()
    over.end()
    under.end()
    assert read("k") == b"nextd", read("k")
    assert not os.path.exists("tmp")

    # A file without a version that is renamed to an existing name replaces it when it is closed,
    # whatever its open flags.
    for flags, text in ((os.O_EXCL, "made"), (0, ""), (os.O_EXCL, "")):
        put("k", b"old")
        w = Writer("tmp", text, os.O_WRONLY | os.O_CREAT | flags)
        os.rename("tmp", "k")
        w.end()
        # close(2) does not wait for the last release.
        while os.path.exists("tmp") or read("k") == b"old":
            time.sleep(0.01)
        assert read("k") == text.encode(), read("k")

    # Same with many writers of a name that is removed or replaced.
    put("tmp", b"only")
    for take in (lambda: os.unlink("crowd"), lambda: os.rename("tmp", "crowd")):
        crowd = [written("crowd", b"lost") for _ in range(70)]
        take()
        for fd in crowd:
            os.close(fd)
        crowd = os.path.exists("crowd") and read("crowd")
        assert crowd == (False if os.path.exists("tmp") else b"only"), crowd


def large(name, mib):
    """Open a file whose commit takes longer than the mount's timeout."""
    fd = written(name, b"text")
    os.ftruncate(fd, mib << 20)
    return fd


def late():
    # A rename that commits its own file may take the time of the commit, and then its own: the first commit.
    fd = large("tmp", 128)
    os.rename("tmp", "k")
    assert os.stat("k").st_size == 128 << 20 and not os.path.exists("tmp")
    os.close(fd)

    # An operation that waits for another process's commit times out and changes nothing: the third commit.
    put("other", b"stays")
    fd = large("slow", 384)
    close = threading.Thread(target=os.close, args=(fd,))
    close.start()
    wait_under_way(2)
    ends = time.monotonic() + 10
    failed(errno.ETIMEDOUT, os.getxattr, "slow", "user.mooncake.size")
    failed(errno.ETIMEDOUT, os.rename, "other", "slow")
    failed(errno.ETIMEDOUT, os.unlink, "slow")
    assert time.monotonic() < ends
    close.join()
    assert os.stat("slow").st_size == 384 << 20 and read("other") == b"stays"


{"own": own, "others": others, "late": late}[sys.argv[2]]()
