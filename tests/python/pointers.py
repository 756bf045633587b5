# SPDX-License-Identifier: Apache-2.0
"""Addresses of memory that is unmapped, protected, or beyond the end of a truncated file: -600, never
a signal.

pointers.py MASTER [--old]; --old: simulate a kernel before 6.11, which cannot report a mapping's
properties: then only the first and last page are checked, and holes"""

import ctypes
import errno
import faulthandler
import mmap
import os
import platform
import struct
import sys
import time

import mooncake.engine as me
import mooncake._store as native
import mooncake.store as ms

MASTER, OLD = sys.argv[1], sys.argv[2:] == ["--old"]
PAGE = mmap.PAGESIZE
PAGES = 64
SIZE = PAGES * PAGE
MIDDLE = SIZE // 2
LAST = SIZE - PAGE
WRONG = -600

faulthandler.enable()
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def memory(fd=-1):
    """Written pages followed by an unmapped page."""
    at = libc.mmap(None, SIZE + PAGE, 3, mmap.MAP_SHARED if fd >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, fd, 0)
    assert at and libc.munmap(at + SIZE, PAGE) == 0
    ctypes.memset(at, 7, SIZE)
    return at


def protected(at):
    assert libc.mprotect(at + (LAST if OLD else MIDDLE), PAGE, 0) == 0


def protected_first(at):
    assert libc.mprotect(at, PAGE, 0) == 0


def unmapped(at):
    assert libc.munmap(at + MIDDLE, PAGE) == 0


def unmapped_first(at):
    assert libc.munmap(at, PAGE) == 0


def unmapped_last(at):
    assert libc.munmap(at + LAST, PAGE) == 0


def read_only(at):
    assert libc.mprotect(at + (LAST if OLD else MIDDLE), PAGE, 1) == 0


def shortened(at):
    os.ftruncate(FILE, SIZE // 2)


def old_kernel():
    """From now on the kernel refuses the query about a mapping, as a kernel without it does."""
    query, number = 0xC0686611, {"x86_64": 16, "aarch64": 29}.get(platform.machine())
    if number is None:
        return False
    load, equal, answer, no_tty = 0x20, 0x15, 0x06, 0x50000 | errno.ENOTTY
    code = [(load, 0, 0, 0), (equal, 0, 3, number), (load, 0, 0, 24), (equal, 0, 1, query), (answer, 0, 0, no_tty),
            (answer, 0, 0, 0x7fff0000)]
    rules = b"".join(struct.pack("=HBBI", *c) for c in code)
    held = ctypes.create_string_buffer(rules)
    program = struct.pack("@HP", len(code), ctypes.addressof(held))
    return libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0


def put_calls(s, at, good):
    """Calls that store the bytes of [at, at + SIZE)."""
    k, half = "p", SIZE // 2
    return {
        "put_from": lambda: s.put_from(k, at, SIZE),
        "upsert_from": lambda: s.upsert_from(k, at, SIZE),
        "put_from_with_metadata": lambda: s.put_from_with_metadata(k, at, good, SIZE, 64),
        "put_from_with_metadata, metadata": lambda: s.put_from_with_metadata(k, good, at, 64, SIZE),
        "batch_put_from": lambda: s.batch_put_from([k, "g"], [at, good], [SIZE, SIZE]),
        "batch_upsert_from": lambda: s.batch_upsert_from([k, "g"], [at, good], [SIZE, SIZE]),
        "batch_put_from_multi_buffers": lambda: s.batch_put_from_multi_buffers(
            [k, "g"], [[good, at, at + half], [good]], [[64, half, half], [SIZE]]),
    }


def get_calls(s, at, good):
    """Calls that read into [at, at + SIZE); the object "whole" has SIZE bytes."""
    half = SIZE // 2
    return {
        "get_into": lambda: s.get_into("whole", at, SIZE),
        "batch_get_into": lambda: s.batch_get_into(["whole", "whole"], [at, good], [SIZE, SIZE]),
        "batch_get_into_multi_buffers": lambda: s.batch_get_into_multi_buffers(
            ["whole", "whole"], [[at, at + half], [good]], [[half, half], [SIZE]]),
    }


def first(result):
    """Result for the wrong memory; the other item of a batch, in valid memory, must have succeeded."""
    if not isinstance(result, list):
        return result
    assert len(result) == 2 and result[1] in (0, SIZE), result
    return result[0]


def check(s, damage, fd, calls, what):
    good = memory()
    for registered in (False, True):
        if fd >= 0:
            os.ftruncate(fd, SIZE + PAGE)
        at = memory(fd)
        if registered:
            assert s.register_buffer(at, SIZE) == 0
        damage(at)
        for name, call in calls(s, at, good).items():
            got = first(call())
            assert got == WRONG, (what, damage.__name__, registered, name, got)
            s.remove_all(True)
            s.put_from("whole", good, SIZE)
        assert s.is_exist("p") == 0
        if registered:
            s.unregister_buffer(at)
        libc.munmap(at, SIZE)
    libc.munmap(good, SIZE)


def good_memory(s):
    """The same calls on valid memory of unusual kinds: they succeed."""
    good = memory()
    thin = memory()
    for page in range(0, PAGES, 2):		# many mappings beside each other
        assert libc.mprotect(thin + page * PAGE, PAGE, 7) in (0, -1)
    os.ftruncate(FILE, SIZE + PAGE)
    for at in (memory(), memory(FILE), thin):
        for name, call in put_calls(s, at, good).items():
            assert first(call()) == 0, name
            s.remove_all(True)
        s.put_from("whole", good, SIZE)
        for name, call in get_calls(s, at, good).items():
            assert first(call()) in (SIZE, 0), name
            assert ctypes.string_at(at, SIZE) == b"\7" * SIZE
    at = memory()
    read_only(at)
    assert s.upsert_from("read", at, SIZE) == 0, "read-only memory can be put"


def engine():
    e, peer = me.TransferEngine(), me.TransferEngine()
    assert e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert peer.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    target, room = f"127.0.0.1:{peer.get_rpc_port()}", memory()
    assert peer.register_memory(room, SIZE) == 0
    at = memory()
    assert e.register_memory(at, SIZE) == 0
    assert e.transfer_sync_write(target, at, room, SIZE) == 0
    protected(at)
    assert e.transfer_sync_write(target, at, room, SIZE) < 0
    assert e.transfer_sync_read(target, at, room, SIZE) < 0
    assert e.write_bytes_to_buffer(at, b"x" * SIZE, SIZE) < 0
    try:
        e.read_bytes_from_buffer(at, SIZE)
        raise AssertionError("bytes of protected memory")
    except ValueError:
        pass


def closed_descriptor(s):
    """A caller that closes all descriptors gets a new one for the query, and a forked child
    queries its own memory."""
    at = memory()
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if os.readlink(f"/proc/self/fd/{fd}").endswith("/maps"):
                os.close(fd)
        except OSError:
            pass
    assert s.upsert_from("k", at, SIZE) == 0
    protected(at)
    assert s.upsert_from("k", at, SIZE) == WRONG
    child = os.fork()
    if child == 0:
        fresh = memory()
        protected(fresh)
        os._exit(0 if native.mapped(fresh, PAGE) and not native.mapped(fresh, SIZE) else 1)
    assert os.waitpid(child, 0)[1] == 0, "a child's memory"


def cost(s):
    """us for checking 1 MiB, the overhead of a call."""
    at, n = memory(), 2000
    began = time.perf_counter()
    for _ in range(n):
        native.mapped(at, SIZE)
    print(f"# {1e6 * (time.perf_counter() - began) / n:.2f} us for each check of memory")


if OLD and not old_kernel():
    print("# no seccomp filter here: an older kernel is not simulated")
    sys.exit(0)
FILE = os.memfd_create("pointers")
os.ftruncate(FILE, SIZE + PAGE)
store = ms.MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", MASTER) == 0
opened = len(os.listdir("/proc/self/fd"))
for damage, fd in ((protected, -1), (protected_first, -1), (unmapped, -1), (unmapped_first, -1), (unmapped_last, -1),
                   (shortened, FILE)):
    check(store, damage, fd, put_calls, "put")
    check(store, damage, fd, get_calls, "get")
check(store, read_only, -1, get_calls, "get")
good_memory(store)
assert len(os.listdir("/proc/self/fd")) <= opened + 8, "a descriptor for each call"
closed_descriptor(store)
engine()
cost(store)
store.close()
print("ok protected, unmapped, read-only and shortened memory is -600, in single calls and in batches" + (
    ", as far as an older kernel can tell" if OLD else ""))
