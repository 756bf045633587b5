# SPDX-License-Identifier: Apache-2.0
# mcfs_meeting.py DIR CASE - operations on one name that meet, or fail, on a mount whose faults mcfs_meeting.sh has set.
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
    """Operations of the mount; one is the open that asks."""
    for line in read(".mcfs/metrics").decode().splitlines():
        if line.startswith("mcfs_inflight "):
            return int(line.split()[1])
    raise AssertionError("no mcfs_inflight")


# Another process, which opens a file, writes to it, and closes it when it is told to.
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
    """For operations that last, not for the last close of what was read to see it."""
    seen = 0
    while seen < 5:
        seen = seen + 1 if under_way() >= n else 0
        time.sleep(0.01)


def put(name, data):
    os.close(written(name, data))


def own():
    # A rename waits for the commit of its own file that another thread has begun, and takes what it has published.
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

    # A rename that fails takes no name away.
    over = written("over", b"stays")
    fd = written("tmp", b"new")
    failed(errno.EIO, os.rename, "tmp", "over")
    os.close(over)
    assert read("over") == b"stays"
    os.close(fd)
    assert read("tmp") == b"new"

    # Nor does an unlink.
    fd = written("kept", b"kept")
    failed(errno.EIO, os.unlink, "kept")
    os.close(fd)
    assert read("kept") == b"kept"
    os.unlink("kept")
    assert not os.path.exists("kept")


def others():
    # The first commit takes its time: the file is there under the new name when rename(2) returns.
    w = Writer("tmp", "first")
    w.begin_to_close()
    os.rename("tmp", "k")
    assert read("k") == b"first" and not os.path.exists("tmp")
    w.end()

    # The same when the old name had a version yet, which is the second commit: the third one takes its time.
    put("tmp", b"old")
    w = Writer("tmp", "second", os.O_WRONLY)
    w.begin_to_close()
    os.rename("tmp", "k")
    assert read("k") == b"second", read("k")
    assert not os.path.exists("tmp")
    w.end()

    # A commit of the new name that has begun is over before the name is taken: the fifth one.
    put("tmp", b"stays")
    w = Writer("k", "displaced")
    w.begin_to_close()
    os.rename("tmp", "k")
    w.end()
    assert read("k") == b"stays", read("k")

    # One that begins while the fourth rename knows of the master's answer and the writers do not yet.
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

    # What has no version yet and takes the name of one replaces it when it is closed, however it was made.
    for flags, text in ((os.O_EXCL, "made"), (0, ""), (os.O_EXCL, "")):
        put("k", b"old")
        w = Writer("tmp", text, os.O_WRONLY | os.O_CREAT | flags)
        os.rename("tmp", "k")
        w.end()
        # The last close is not waited for by who closes.
        while os.path.exists("tmp") or read("k") == b"old":
            time.sleep(0.01)
        assert read("k") == text.encode(), read("k")

    # However many write under a name that goes.
    put("tmp", b"only")
    for take in (lambda: os.unlink("crowd"), lambda: os.rename("tmp", "crowd")):
        crowd = [written("crowd", b"lost") for _ in range(70)]
        take()
        for fd in crowd:
            os.close(fd)
        crowd = os.path.exists("crowd") and read("crowd")
        assert crowd == (False if os.path.exists("tmp") else b"only"), crowd


def large(name, mib):
    """Open, and with more time to be stored than the mount's timeout."""
    fd = written(name, b"text")
    os.ftruncate(fd, mib << 20)
    return fd


def late():
    # A rename that stores its own file has the time that storing takes, and then its own: the first commit.
    fd = large("tmp", 128)
    os.rename("tmp", "k")
    assert os.stat("k").st_size == 128 << 20 and not os.path.exists("tmp")
    os.close(fd)

    # What waits for another one's commit ends with the timeout, and nothing has changed: the third one.
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
