#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parts of mcfs_errors.sh."""
import ctypes
import errno
import mmap
import os
import struct
import sys
import threading

from mcfs_told import told


def damage(pid, size, path, at):
    """Invert one bit of the first copy of a file's bytes in the segment of @size bytes that
    process @pid has open."""
    want = open(path, "rb").read()
    for fd in os.listdir("/proc/%s/fd" % pid):
        name = "/proc/%s/fd/%s" % (pid, fd)
        try:
            if os.stat(name).st_size != int(size):
                continue
            f = os.open(name, os.O_RDWR)
        except OSError:
            continue
        with mmap.mmap(f, int(size)) as m:
            found = m.find(want)
            if found >= 0:
                m[found + int(at)] ^= 0x10
                return
    sys.exit("the bytes are in no segment")


def eio(path, expected, at):
    """No byte of the damaged chunk is returned; those of other chunks are right."""
    want, at = open(expected, "rb").read(), int(at)
    fd = os.open(path, os.O_RDONLY)
    assert os.fstat(fd).st_size == len(want)
    for offset, n in ((at, 1), (at, 4096), (max(at - 100000, 0), 300000)):
        try:
            got = os.pread(fd, n, offset)
        except OSError as e:
            assert e.errno == errno.EIO, e
            continue
        # a short read: the page cache had the bytes before the damaged chunk
        assert got and offset + len(got) <= at and got == want[offset:offset + len(got)], (offset, n)
    if at > 1 << 20:
        # a reader gets at most the bytes before the damaged chunk
        got = b""
        try:
            while True:
                got += os.pread(fd, 65536, len(got))
        except OSError as e:
            assert e.errno == errno.EIO
        assert len(got) <= at and want.startswith(got), len(got)
        assert os.pread(fd, 4096, 0) == want[:4096]
        assert os.pread(fd, 4096, len(want) - 4096) == want[-4096:]
    os.close(fd)


def crowd(where, count, _):
    def one(i):
        text = told(lambda: os.stat("%s/absent%d" % (where, i)))
        os.write(1, (text + "\n").encode())
    all = [threading.Thread(target=one, args=(i,)) for i in range(int(count))]
    [t.start() for t in all]
    [t.join() for t in all]


def mapped(path, go, how):
    """Store to a mapping; the kernel writes it back while the mount has too many operations at one time."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 8192)
    # Python's own mmap would keep a duplicate of the descriptor
    at = libc.mmap(None, 8192, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    assert at != ctypes.c_void_p(-1).value, ctypes.get_errno()
    if how == "closed":
        os.close(fd)
    # read now, so that the store needs no read
    assert ctypes.string_at(at, 1) == b"\0"
    print("mapped", flush=True)
    open(go).read()
    ctypes.memmove(at, b"bytes", 5)
    # unmapping a part writes back all dirty pages
    assert libc.munmap(at + 4096, 4096) == 0
    print("stored", flush=True)
    open(go).read()
    assert libc.munmap(at, 4096) == 0
    if how == "open":
        os.close(fd)


MASKS = {"open": 0x20, "create": 0x100, "modify": 0x2, "close_write": 0x8, "from": 0x40, "to": 0x80,
         "delete": 0x200}


def watch(own, other):
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    mask = sum(MASKS.values()) - MASKS["open"]
    assert fd >= 0 and libc.inotify_add_watch(fd, own.encode(), mask) >= 0, ctypes.get_errno()
    # first on the other node: if an event were reported for it, it would be the first one
    open(other + "/theirs", "w").close()
    os.rename(other + "/theirs", other + "/gone")
    os.unlink(other + "/gone")
    with open(own + "/new", "wb", buffering=0) as f:
        f.write(b"bytes")
    os.rename(own + "/new", own + "/name")
    os.unlink(own + "/name")
    data, seen = os.read(fd, 65536), []
    while data:
        _, m, _, n = struct.unpack_from("iIII", data)
        name = data[16:16 + n].rstrip(b"\0").decode()
        seen += [(k, name) for k, v in MASKS.items() if m & v]
        data = data[16 + n:]
    want = [("create", "new"), ("modify", "new"), ("close_write", "new"), ("from", "new"),
            ("to", "name"), ("delete", "name")]
    assert seen == want, seen


{f.__name__: f for f in (damage, eio, crowd, mapped, watch)}[sys.argv[1]](*sys.argv[2:])
