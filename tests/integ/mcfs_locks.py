# SPDX-License-Identifier: Apache-2.0
# mcfs_locks.py DIR - flock(2) and fcntl(2) locks between processes, for every open mode.
# mcfs_locks.py DIR hold NAME: holds locks of both kinds, reports so, and waits.
# mcfs_locks.py DIR want NAME: waits for a lock of the first kind.
import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time

where = sys.argv[1]
LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_TRUNC


def path(name):
    return os.path.join(where, name)


def flocks(fd, how):
    try:
        fcntl.flock(fd, how)
        return True
    except OSError as e:
        if e.errno != errno.EWOULDBLOCK:
            raise
        return False


def locks(fd, how, start, length):
    try:
        fcntl.lockf(fd, how | fcntl.LOCK_NB, length, start)
        return True
    except OSError as e:
        if e.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False


def in_child(fn):
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if fn() else 1)
        except BaseException as e:
            print(repr(e), flush=True)
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def under_way():
    with open(path(".mcfs/stats")) as f:
        return int(next(line.split()[1] for line in f if line.startswith("operations_under_way")))


def start(what, name):
    p = subprocess.Popen([sys.executable, sys.argv[0], where, what, name], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "begun\n"
    return p


def whole_files():
    # created as lock files usually are
    a = os.open(path("lock"), LOCK_FILE)
    assert flocks(a, fcntl.LOCK_EX)
    for flags in LOCK_FILE, os.O_RDWR, os.O_WRONLY:
        assert in_child(lambda: not flocks(os.open(path("lock"), flags), fcntl.LOCK_EX | fcntl.LOCK_NB)), flags
    fcntl.flock(a, fcntl.LOCK_UN)
    assert in_child(lambda: flocks(os.open(path("lock"), LOCK_FILE), fcntl.LOCK_EX | fcntl.LOCK_NB))
    os.close(a)
    # a reader and a writer
    r = os.open(path("lock"), os.O_RDONLY)
    assert flocks(r, fcntl.LOCK_SH)
    assert in_child(lambda: not flocks(os.open(path("lock"), os.O_WRONLY), fcntl.LOCK_EX | fcntl.LOCK_NB))
    assert in_child(lambda: flocks(os.open(path("lock"), os.O_WRONLY), fcntl.LOCK_SH | fcntl.LOCK_NB))
    # a child's inherited descriptor has the same lock
    assert in_child(lambda: flocks(r, fcntl.LOCK_SH | fcntl.LOCK_NB))
    os.close(r)


def ranges():
    with open(path("r"), "wb") as f:
        f.write(b"x" * 100)
    a = os.open(path("r"), os.O_RDWR)
    assert locks(a, fcntl.LOCK_EX, 10, 10)

    def other():
        b, r = os.open(path("r"), os.O_RDWR), os.open(path("r"), os.O_RDONLY)
        assert locks(b, fcntl.LOCK_EX, 0, 10) and locks(b, fcntl.LOCK_EX, 20, 0)
        assert not locks(b, fcntl.LOCK_EX, 19, 1) and not locks(r, fcntl.LOCK_SH, 0, 0)
        # struct flock: type, whence, start, length, pid
        asked = fcntl.fcntl(b, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        kind, _, first, length, pid = struct.unpack("hhqqi4x", asked)
        return (kind, first, length, pid) == (fcntl.F_WRLCK, 10, 10, os.getppid())

    assert in_child(other)
    # closing any descriptor releases all locks of the process
    os.close(os.open(path("r"), os.O_RDWR))
    assert in_child(lambda: locks(os.open(path("r"), os.O_RDWR), fcntl.LOCK_EX, 10, 10))
    os.close(a)


def by_readers():
    """The daemon gets no flush for a descriptor opened for reading: the last close, or the end of
    the process, releases the lock."""
    with open(path("ro"), "wb") as f:
        f.write(b"x" * 100)

    def free():
        return in_child(lambda: locks(os.open(path("ro"), os.O_RDWR), fcntl.LOCK_EX, 0, 0))

    a = os.open(path("ro"), os.O_RDONLY)
    assert locks(a, fcntl.LOCK_SH, 0, 0) and not free()
    b = os.dup(a)
    os.close(a)
    assert not free()
    os.close(b)
    assert free()
    # the lock's owner dies, and its child still has the descriptor; another process waits already,
    # or requests the lock later
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        a = os.open(path("ro"), os.O_RDONLY)
        assert locks(a, fcntl.LOCK_SH, 0, 0)
        heir = os.fork()
        if heir:
            os.write(tell, b"%d" % heir)
        signal.pause()
    heir = int(os.read(told, 20))
    waits = os.fork()
    if waits == 0:
        fcntl.lockf(os.open(path("ro"), os.O_RDWR), fcntl.LOCK_EX)
        os._exit(0)
    try:
        assert not free()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(os.waitpid(waits, 0)[1]) == 0
        assert free()
    finally:
        os.kill(heir, signal.SIGKILL)


def of_open_files():
    """A lock of the open file description stays with a child that inherited it, as with a daemon
    that goes to the background."""
    with open(path("ofd"), "wb") as f:
        f.write(b"x" * 100)
    # struct flock: type, whence, start, length, pid
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        fcntl.fcntl(os.open(path("ofd"), os.O_RDWR), fcntl.F_OFD_SETLK, whole)
        heir = os.fork()
        if heir:
            os.write(tell, b"%d" % heir)
            os._exit(0)
        signal.pause()
    heir = int(os.read(told, 20))
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        fd = os.open(path("ofd"), os.O_RDWR)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole)
            sys.exit("got the lock that the child holds")
        except BlockingIOError:
            pass
    finally:
        os.kill(heir, signal.SIGKILL)
    # when the child has ended, the lock is free
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, whole)
    os.close(fd)


def waiting():
    p = start("hold", "w")
    q = start("want", "w")
    time.sleep(0.2)
    assert q.poll() is None
    # a killed process neither holds a lock nor waits for one
    q.kill()
    assert q.wait() == -signal.SIGKILL
    q = start("want", "w")
    p.kill()
    p.wait()
    assert q.stdout.readline() == "got it\n"
    assert q.wait() == 0
    # signals
    p = start("hold", "w")
    fd = os.open(path("w"), os.O_RDWR)

    class Alarm(Exception):
        pass

    def alarm(number, frame):
        raise Alarm

    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        sys.exit("got the lock that another process holds")
    except Alarm:
        pass
    # and the interrupted process no longer waits, although the lock is still held
    end = time.monotonic() + 20
    while under_way() > 1:
        assert time.monotonic() < end, "the interrupted process still waits"
        time.sleep(0.02)
    p.kill()
    p.wait()
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)


def circles():
    a = os.open(path("c"), os.O_RDWR | os.O_CREAT)
    fcntl.lockf(a, fcntl.LOCK_EX, 1, 0)
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        b = os.open(path("c"), os.O_RDWR)
        fcntl.lockf(b, fcntl.LOCK_EX, 1, 1)
        os.write(told, b"x")
        fcntl.lockf(b, fcntl.LOCK_EX, 1, 0)
        os._exit(0)
    os.read(ready, 1)
    # Wait until the child waits: a single observation may be another process's close, or precede
    # the child's request.
    end = time.monotonic() + 20
    seen = 0
    while seen < 20:
        assert time.monotonic() < end, "the child does not wait"
        seen = seen + 1 if under_way() > 1 else 0
        time.sleep(0.01)
    try:
        fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)
        sys.exit("got the lock that the child holds")
    except BlockingIOError:
        pass
    try:
        fcntl.lockf(a, fcntl.LOCK_EX, 1, 1)
        sys.exit("waited in a circle")
    except OSError as e:
        assert e.errno == errno.EDEADLK, e
    fcntl.lockf(a, fcntl.LOCK_UN, 1, 0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(a)


if len(sys.argv) == 4 and sys.argv[2] == "hold":
    fd = os.open(path(sys.argv[3]), LOCK_FILE)
    fcntl.flock(fd, fcntl.LOCK_EX)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
    print("begun", flush=True)
    signal.pause()
elif len(sys.argv) == 4:
    fd = os.open(path(sys.argv[3]), os.O_RDWR | os.O_CREAT)
    print("begun", flush=True)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as e:
        sys.exit(errno.errorcode.get(e.errno, str(e)))
    print("got it", flush=True)
else:
    whole_files()
    ranges()
    by_readers()
    of_open_files()
    waiting()
    circles()
