# SPDX-License-Identifier: Apache-2.0
# mcfs_meeting.py DIR - operations on one name that meet, or fail, on a mount whose faults mcfs_meeting.sh has set.
import errno
import os
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


# A rename waits for the commit of its own file that another thread has begun, and takes what it has published.
fd = written("tmp", b"whole")
commit = threading.Thread(target=os.fsync, args=(fd,))
commit.start()
while under_way() < 2:
    time.sleep(0.01)
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
