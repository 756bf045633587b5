# SPDX-License-Identifier: Apache-2.0
# mcfs_interrupt.py MNT SOCKET MASTER_PID - calls that a signal interrupts while the master is
# stopped: a call that returns EINTR has changed nothing and changes nothing later; a call that has
# begun its change ends normally; memory lent to the mount is not used after the call has ended or
# its caller has died.
# mcfs_interrupt.py MNT OTHER - names: each change takes seconds in MNT, and no time in OTHER, a
# mount of the same pool.
import array
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time

MNT = sys.argv[1]
N = 100000
libc = ctypes.CDLL(None, use_errno=True)
libc.pwrite.restype = ctypes.c_ssize_t
libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long]
libc.ftruncate.argtypes = [ctypes.c_int, ctypes.c_long]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
libc.fsetxattr.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
# libc does not restart the call after this signal.
signal.signal(signal.SIGUSR1, lambda *a: None)


class Call(threading.Thread):
    """One libc call in a thread of its own, which Python would restart after a signal: result is
    at least 0, or -errno."""

    def __init__(self, name, *args, then=None):
        super().__init__(daemon=True)
        self.what, self.fn, self.args, self.then, self.result = name, getattr(libc, name), args, then, None
        self.start()

    def run(self):
        r = self.fn(*self.args)
        r = -ctypes.get_errno() if r == -1 else r
        if self.then:
            self.then()
        self.result = r

    def signal(self):
        if self.is_alive():
            signal.pthread_kill(self.ident, signal.SIGUSR1)

    def end(self):
        self.join(30)
        assert not self.is_alive(), f"{self.what} does not end"
        return self.result


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "not within 20 s"
        time.sleep(0.01)


def under_way():
    """Number of running operations, without the read of this file, which sends no request to the master."""
    with open(MNT + "/.mcfs/metrics") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("mcfs_inflight ")) - 1


def stop_still(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all("\nState:\tT" in open(f"/proc/{pid}/task/{t}/status").read()
                         for t in os.listdir(f"/proc/{pid}/task")))


def interrupt(calls, last):
    """Interrupt all calls; when the last one returns EINTR, the time in which the others could end
    normally is over."""
    for c in calls + [last]:
        c.signal()
    assert last.end() == -errno.EINTR, f"{last.what}: {last.result}"


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


# ---- calls of open files, and memory ---------------------------------------------------------------
def ioc(direction, number, size):
    return direction << 30 | size << 16 | ord("M") << 8 | number


GET, PUT, REMOVE = ioc(3, 5, 4152), ioc(3, 6, 4152), ioc(1, 7, 4112)
MSG = struct.Struct("IHHiIQQII24s192s")


def io(name, token, buf, at):
    return ctypes.create_string_buffer(
        struct.pack("IIQIIQQQII", 1, 0, token, buf, len(name), at, N, 0, 0, 0) + name.ljust(4096, b"\0"))


def ask(sock, kind, size=0, fd=-1):
    anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd >= 0 else []
    sock.sendmsg([MSG.pack(0x676e6972, 1, kind, 0, 0, size, 0, 0, 0, b"", b"")], anc)
    return MSG.unpack(sock.recvmsg(MSG.size, socket.CMSG_SPACE(4))[0])


class Lent:
    """Memory for four calls, lent to the mount over the socket."""

    def __init__(self, where):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(where)
        self.token = ask(self.sock, 1)[6]
        fd = os.memfd_create("engine", os.MFD_ALLOW_SEALING)
        os.truncate(fd, 1 << 20)
        self.view = mmap.mmap(fd, 1 << 20)
        self.view[:] = bytes(1 << 20)
        self.number = ask(self.sock, 3, size=1 << 20, fd=fd)[4]
        self.ctl = os.open(MNT + "/.mcfs/ctl", os.O_RDWR)

    def fill(self, part, byte):
        self.view[part * N:part * N + N] = byte * N

    def part(self, part):
        return self.view[part * N:part * N + N]

    def args(self, cmd, name, part):
        return self.ctl, cmd, io(name, self.token, self.number, part * N)


def to_be_killed(lent):
    """A child that stores its part of the memory when the pipe says so."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(tell)
        if os.read(told, 1):
            libc.ioctl(*lent.args(PUT, b"killed", 2))
        os._exit(0)
    return pid, tell


def on_open_files(where, master):
    changes = ("pwrite", "ftruncate", "fallocate", "fsetxattr")
    lent = Lent(where)
    child, tell = to_be_killed(lent)
    for name in changes + ("close", "fsync"):
        write(f"{MNT}/{name}", b"A" * 8192)
    write(MNT + "/src", b"S" * N)
    write(MNT + "/gone", b"x")
    fd = {name: os.open(f"{MNT}/{name}", os.O_RDWR) for name in changes + ("close", "fsync")}
    for f in fd.values():
        os.pwrite(f, b"a", 0)
    lent.fill(0, b"1")
    lent.fill(1, b"M")
    lent.fill(2, b"3")

    stop_still(master)
    # Closing a duplicate commits; calls that change the file wait for that commit.
    closes = [Call("close", os.dup(fd[name])) for name in changes]
    wait_for(lambda: under_way() == len(closes))
    waits = {
        "pwrite": Call("pwrite", fd["pwrite"], b"X" * 4096, 4096, 0),
        "ftruncate": Call("ftruncate", fd["ftruncate"], 10),
        "fallocate": Call("fallocate", fd["fallocate"], 0, 0, 20000),
        "fsetxattr": Call("fsetxattr", fd["fsetxattr"], b"user.mooncake.size", b"10", 2, 0),
    }
    got = []
    # When its call has ended, a caller may at once reuse its memory and names.
    ends = [
        Call("close", fd.pop("close")),
        Call("fsync", fd["fsync"]),
        Call("ioctl", *lent.args(PUT, b"put", 0), then=lambda: lent.fill(0, b"2")),
        Call("ioctl", *lent.args(GET, b"src", 1), then=lambda: got.append(lent.part(1))),
        Call("ioctl", lent.ctl, REMOVE, ctypes.create_string_buffer(
            struct.pack("IIII", 1, 0, 4, 0) + b"gone".ljust(4096, b"\0"))),
    ]
    os.write(tell, b"x")
    looks = Call("access", MNT.encode() + b"/src", os.R_OK)
    wait_for(lambda: under_way() == len(closes) + len(waits) + len(ends) + 2)
    os.kill(child, signal.SIGKILL)
    interrupt(list(waits.values()) + ends, looks)
    told = {name: waits[name].end() for name in waits}
    early = [(c.what, c.result) for c in ends if not c.is_alive()]
    dead = os.waitpid(child, os.WNOHANG)[0]
    if dead:
        lent.fill(2, b"4")
    os.kill(master, signal.SIGCONT)
    assert not early, f"ended too early: {early}"
    assert [c.end() for c in closes + ends] == [0] * (len(closes) + len(ends)), [(c.what, c.result) for c in closes + ends]
    if not dead:
        os.waitpid(child, 0)
        lent.fill(2, b"4")
    # A killed child may have stored nothing, but never bytes written to the memory later.
    wait_for(lambda: under_way() == 0)
    assert read(MNT + "/killed") == b"3" * N, "the object of the killed child has other bytes"
    assert read(MNT + "/put") == b"1" * N, "the object has bytes that were written to the memory later"
    assert got == [b"S" * N]
    assert not os.path.exists(MNT + "/gone")

    assert -errno.EINTR in told.values(), told
    want = {
        "pwrite": b"X" * 4096 + b"A" * 4096, "ftruncate": b"a" + b"A" * 9,
        "fallocate": b"a" + b"A" * 8191 + bytes(20000 - 8192), "fsetxattr": b"a" + b"A" * 9,
    }
    for f in fd.values():
        os.close(f)
    for name, r in told.items():
        have = read(f"{MNT}/{name}")
        if r == -errno.EINTR:
            assert have == b"a" + b"A" * 8191, f"{name} returned EINTR, and has changed the file: {len(have)} bytes"
        else:
            assert r >= 0 and have == want[name], f"{name}: {r}, {len(have)} bytes"


# ---- names -----------------------------------------------------------------------------------------
def names(other):
    # In each directory one name is changed at a time.
    directories = ("unlink", "rename", "mkdir", "rmdir", "symlink", "open")
    for d in directories:
        os.mkdir(f"{other}/{d}")
        write(f"{other}/{d}/file", b"A")
    os.mkdir(other + "/rmdir/dir")
    at = {d: f"{MNT}/{d}/".encode() for d in directories}
    ends = [
        Call("unlink", at["unlink"] + b"file"),
        Call("rename", at["rename"] + b"file", at["rename"] + b"to"),
        Call("mkdir", at["mkdir"] + b"dir", 0o755),
        Call("rmdir", at["rmdir"] + b"dir"),
        Call("symlink", b"file", at["symlink"] + b"link"),
    ]
    # A file that is created read-only is published at once.
    waits = Call("open", at["open"] + b"made", os.O_RDONLY | os.O_CREAT, 0o644)
    wait_for(lambda: under_way() == len(ends) + 1)
    interrupt(ends, waits)
    early = [(c.what, c.result) for c in ends if not c.is_alive()]
    assert not early, f"ended too early: {early}"
    assert [c.end() for c in ends] == [0] * len(ends), [(c.what, c.result) for c in ends]
    wait_for(lambda: under_way() == 0)
    have = {d: sorted(os.listdir(f"{other}/{d}")) for d in at}
    want = {"unlink": [], "rename": ["to"], "mkdir": ["dir", "file"], "rmdir": ["file"], "symlink": ["file", "link"],
            "open": ["file"]}
    assert have == want, have


if len(sys.argv) == 4:
    on_open_files(sys.argv[2], int(sys.argv[3]))
else:
    names(sys.argv[2])
