# SPDX-License-Identifier: Apache-2.0
"""BufferPool: reusable memory for transfers, allocated and registered once."""

import collections
import time
import weakref

from mooncake import _locks

CLOSED_POOL = "buffer pool is closed"
CLOSED_LEASE = "buffer lease is closed"
VIEWED_LEASE = "cannot release buffer while exported views exist"
MIN_CLASS = 64 << 10
PAGE = 4096
POINTER = 8
# How long acquire() waits for a release when no timeout is given.
WAIT_S = 30


def _number(what, value):
    """A size from 0 on; otherwise TypeError, as in upstream."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{what} must be an int from 0 on, not {value!r}")
    return value


def _seconds(value):
    if value is not None and value < 0:
        raise RuntimeError("timeout must be non-negative")
    return value


class _Region:
    """Memory of one size class, registered with the store."""

    def __init__(self, store, size):
        import ctypes
        import mmap

        self.size = size
        self.memory = mmap.mmap(-1, size)
        self.ptr = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        code = store.register_buffer(self.ptr, size)
        if code:
            raise RuntimeError(f"a buffer of {size} bytes cannot be registered: error {code}")

    def array(self, size):
        """The first bytes, as an object that weak references can track."""
        import ctypes

        return (ctypes.c_uint8 * size).from_buffer(self.memory)

    def forget(self, store):
        store.unregister_buffer(self.ptr)


class BufferLeaseView:
    """The memory of a lease as an object with a buffer."""

    def __init__(self, buffer):
        self.buffer = buffer


class BufferLease:
    """Memory of a pool, valid until release(): ptr (address), size (bytes), buffer (a writable memoryview that keeps
    the lease).  Also a context manager, which releases at the end."""

    def __init__(self, pool, region, size):
        self._pool = pool
        self._region = region
        self._size = size
        # weak reference to the array that the exported views share
        self._shown = lambda: None

    def _open(self):
        if self._region is None:
            raise RuntimeError(CLOSED_LEASE)
        return self._region

    @property
    def ptr(self):
        return self._open().ptr

    @property
    def size(self):
        self._open()
        return self._size

    @property
    def buffer(self):
        shown = self._shown()
        if shown is None:
            shown = self._open().array(self._size)
            shown.lease = self
            self._shown = weakref.ref(shown)
        return memoryview(shown).cast("B")

    def release(self):
        """Return the memory to the pool; harmless if repeated.  RuntimeError while views of it exist."""
        if self._shown() is not None:
            raise RuntimeError(VIEWED_LEASE)
        self._end()

    def _end(self):
        region, self._region = self._region, None
        if region is not None:
            self._pool._give_back(region)

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, *exc):
        # remaining views must not hide the exception of the body
        if exc[0] is None or self._shown() is None:
            self.release()

    def __del__(self):
        # return the memory of a lease that was never released
        if getattr(self, "_region", None) is not None:
            self._end()


class BufferPool:
    """BufferPool(store, max_bytes=0, min_size_class=65536, max_size_class=None, alignment=8388608,
    block_on_exhaustion=True, default_timeout=None, max_regions=None, prewarm_size=None, prewarm_count=0)

    A pool of buffers in size classes: powers of two from min_size_class on; larger than max_size_class, or than the pool:
    rounded to pages.
    All begin at a page; alignment is only checked.  max_bytes limits the memory, but not below the store's
    local_buffer_size, which upstream lends first; max_regions limits the number of buffers (0, None: no limit).  At a
    limit, acquire() waits for a release for default_timeout seconds (None: 30), or raises if block_on_exhaustion is
    false.  Prewarming ends silently at a limit."""

    def __init__(self, store, max_bytes=0, min_size_class=MIN_CLASS, max_size_class=None, alignment=8 << 20,
                 block_on_exhaustion=True, default_timeout=None, max_regions=None, prewarm_size=None, prewarm_count=0):
        if store is None or store.health_check() == 1:
            raise RuntimeError("MooncakeDistributedStore is not initialized")
        if not _number("min_size_class", min_size_class) or not _number("alignment", alignment):
            raise RuntimeError("min_size_class and alignment must be positive")
        if alignment & (alignment - 1) or alignment < POINTER:
            raise RuntimeError(f"alignment {alignment} is not a power of two from {POINTER} on")
        if max_regions is not None and max_regions < 0:
            raise RuntimeError("max_regions must not be negative")
        self._store = store
        self._max_bytes = _number("max_bytes", max_bytes)
        if max_bytes:
            self._max_bytes = max(max_bytes, getattr(store, "_local_buffer", 0))
        self._max_regions = max_regions
        self._min_class = min_size_class
        self._max_class = max_size_class
        self._block = block_on_exhaustion
        self._timeout = _seconds(default_timeout)
        self._changed = _locks.condition()
        self._free = collections.defaultdict(list)
        self._bytes = self._regions = self._lent = 0
        self._closed = False
        if prewarm_size is not None and prewarm_count:
            self.prewarm(prewarm_size, prewarm_count)

    def _class_of(self, size):
        pages = -(-size // PAGE) * PAGE
        if self._max_class is not None and size > self._max_class:
            return pages
        c = self._min_class
        while c < size:
            c *= 2
        return pages if self._max_bytes and c > self._max_bytes else c

    def _room(self, size):
        return (not self._max_bytes or self._bytes + size <= self._max_bytes) and (
            not self._max_regions or self._regions < self._max_regions)

    def _drop_idle(self, size):
        """Free unused buffers of other classes until @size bytes fit."""
        for c in list(self._free):
            while c != size and self._free[c] and not self._room(size):
                region = self._free[c].pop()
                region.forget(self._store)
                self._bytes -= region.size
                self._regions -= 1

    def _take(self, size):
        """A region, or None at a limit.  Needs the lock."""
        if self._closed:
            raise RuntimeError(CLOSED_POOL)
        if self._free[size]:
            return self._free[size].pop()
        self._drop_idle(size)
        if not self._room(size):
            return None
        region = _Region(self._store, size)
        self._bytes += size
        self._regions += 1
        return region

    def acquire(self, size, block=None, timeout=None):
        """acquire(size: int, block: bool = None, timeout: float = None) -> BufferLease

        Lend a buffer of size bytes.  RuntimeError if none becomes free in time, the pool is closed, it can never lend that
        many bytes, or it is exhausted and block is false."""
        rounded = self._class_of(_number("size", size))
        if self._max_bytes and rounded > self._max_bytes:
            raise RuntimeError(f"requested buffer size exceeds pool capacity: {size} of {self._max_bytes} bytes")
        block = self._block if block is None else block
        timeout = self._timeout if timeout is None else _seconds(timeout)
        end = time.monotonic() + (WAIT_S if timeout is None else timeout)
        with self._changed:
            region = self._take(rounded)
            while region is None:
                if not block:
                    raise RuntimeError("buffer pool is exhausted")
                left = end - time.monotonic()
                if left <= 0:
                    raise RuntimeError("timed out waiting for buffer: all are lent")
                self._changed.wait(left)
                region = self._take(rounded)
            self._lent += 1
        return BufferLease(self, region, size)

    buffer = acquire

    def _give_back(self, region):
        with self._changed:
            self._lent -= 1
            self._free[region.size].append(region)
            self._changed.notify_all()

    def prewarm(self, size, count):
        """prewarm(size: int, count: int): allocate that many buffers in advance, as far as the limits allow."""
        rounded, taken = self._class_of(_number("size", size)), []
        with self._changed:
            for _ in range(_number("count", count)):
                region = self._take(rounded)
                if region is None:
                    break
                taken.append(region)
            self._free[rounded] += taken
            self._changed.notify_all()

    def close(self):
        """Free all buffers; RuntimeError while some are lent."""
        with self._changed:
            if self._lent:
                raise RuntimeError("cannot close buffer pool with active leases")
            self._closed = True
            for regions in self._free.values():
                for region in regions:
                    region.forget(self._store)
            self._free.clear()
            self._changed.notify_all()
