# SPDX-License-Identifier: Apache-2.0
"""mcfs_stall.py - programs of mcfs_stall.sh. Each prints "half" after its first half, waits for a line on
standard input, and prints the results of its second half.

  files DIR    a reader, a writer of a new file, a writer that replaces a file, a directory
  mapped DIR PINNED FILE    a pinned object and one of an open file, both mapped from the memory's file
  busy DIR OTHER STOP    write, replace and read files until STOP exists; errors are fine, wrong bytes are not"""
import errno
import fcntl
import hashlib
import mmap
import os
import struct
import sys

PIN_SIZE = 16 + 40 + 4096
PIN = 3 << 30 | PIN_SIZE << 16 | ord("M") << 8 | 9
EXTENT_SIZE = 40
EXTENT = 2 << 30 | EXTENT_SIZE << 16 | ord("M") << 8 | 2


def halfway():
    print("half", flush=True)
    sys.stdin.readline()


def attempt(what, call, *args):
    try:
        result = call(*args)
    except OSError as e:
        result = errno.errorcode[e.errno]
    print(what, result if isinstance(result, str) else "succeeds", flush=True)


def files(top):
    reader = os.open(top + "/a0", os.O_RDONLY)
    first = os.read(reader, 1000)
    new = os.open(top + "/new", os.O_WRONLY | os.O_CREAT)
    os.write(new, b"n" * 3000000)
    old = os.open(top + "/replaced", os.O_WRONLY | os.O_TRUNC)
    os.write(old, b"half of the new version")
    listing = os.open(top, os.O_RDONLY)
    print("read", len(first))
    halfway()
    attempt("read", os.read, reader, 1000)
    attempt("write", os.write, new, b"more")
    attempt("rewrite", os.write, old, b"more")
    attempt("list", os.listdir, listing)
    for name, fd in ("close", new), ("close", old):
        attempt(name, os.close, fd)


def bytes_at(view, extent):
    segment, at, size = struct.unpack_from("<IQQ", extent, 4)
    assert segment == 0
    return view[at:at + size]


def mapped(top, key, name):
    memory = os.open(top + "/.mcfs/segments/0", os.O_RDONLY)
    view = mmap.mmap(memory, os.fstat(memory).st_size, mmap.MAP_SHARED, mmap.PROT_READ)
    control = os.open(top + "/.mcfs/ctl", os.O_RDWR)
    pin = bytearray(PIN_SIZE)
    struct.pack_into("II", pin, 0, 1, len(key))
    pin[56:56 + len(key)] = key.encode()
    fcntl.ioctl(control, PIN, pin)
    extent = bytearray(EXTENT_SIZE)
    reader = os.open(top + "/" + name, os.O_RDONLY)
    fcntl.ioctl(reader, EXTENT, extent)
    extents = pin[16:16 + EXTENT_SIZE], extent
    before = [bytes_at(view, e) for e in extents]
    halfway()
    print(*("same" if bytes_at(view, e) == was else "other" for e, was in zip(extents, before)))


def busy(top, other, stop):
    """Each file begins with the digest of the rest."""
    done = failed = n = 0
    while not os.path.exists(stop):
        n += 1
        name = f"/busy{os.getpid()}-{n % 3}"
        body = os.urandom(100000 + n % 7)
        try:
            with open(top + name, "wb", buffering=0) as f:
                f.write(hashlib.sha256(body).digest())
                f.write(body)
            for where in top, other:
                with open(where + name, "rb") as f:
                    seen = f.read()
                if hashlib.sha256(seen[32:]).digest() != seen[:32]:
                    sys.exit(f"wrong bytes: {where}{name} {len(seen)}")
            done += 1
        except OSError:
            failed += 1
    print("right" if done and failed else f"done={done} failed={failed}")


globals()[sys.argv[1]](*sys.argv[2:])
