# SPDX-License-Identifier: Apache-2.0
"""SharedSegment: memory that the processes of a group on one host map together."""

import ctypes
import mmap as _mmap
import os
import re
import struct
import weakref

SIZE_MAX = 64 << 40
DIRECTORY = "/dev/shm"
# The blob of a rank: magic, version, kind, rank, length of the name, hash of the declaration, bytes mapped, name.
_BLOB = struct.Struct("<4sHHIIQQ128s")
MAGIC, VERSION, KIND = b"SSCM", 1, 3
_NAME = re.compile(rb"/mcss_[0-9]{1,10}_[0-9a-f]{16}")


def _invalid(text):
    return RuntimeError(f"InvalidArgument: {text}")


def _declaration(name, size, world_size, owner_rank):
    import hashlib

    text = f"{name}\0{size}\0{world_size}\0{owner_rank}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def _forget(path, pid):
    # a forked child must not remove the name, which its parent still uses
    if os.getpid() == pid:
        try:
            os.unlink(path)
        except OSError:
            pass


class SharedSegment:
    """Memory that all processes of a group on one host map.  Each rank calls create() and sends its blob to all others;
    then each rank calls complete() with all blobs.  The memory is freed with the last object, its name with the owner's."""

    def __init__(self, *args, **kwargs):
        raise TypeError("SharedSegment: use SharedSegment.create()")

    @staticmethod
    def supported(mmap=True, host_register=False):
        """supported(mmap: bool = True, host_register: bool = False) -> bool

        Whether such segments are supported: host memory is, device memory is not."""
        return bool(mmap) and not host_register

    @staticmethod
    def create(name, size, world_size, rank_id, owner_rank=0, device_id=0, mmap=True, host_register=False):
        """create(name: str, size: int, world_size: int, rank_id: int, owner_rank: int = 0, device_id: int = 0,
        mmap: bool = True, host_register: bool = False) -> tuple[SharedSegment, bytes]

        The first step: a segment of size bytes, and the blob for the other ranks.  The owner allocates zeroed memory here.
        RuntimeError for wrong values or if there is not enough memory."""
        if not isinstance(name, str):
            raise TypeError(f"name must be str, not {type(name).__name__}")
        for what, value in (("size", size), ("world_size", world_size), ("rank_id", rank_id), ("owner_rank", owner_rank),
                            ("device_id", device_id)):
            if not isinstance(value, int):
                raise TypeError(f"{what} must be int, not {type(value).__name__}")
        if not 0 < size <= SIZE_MAX:
            raise _invalid(f"the size must be in (0, {SIZE_MAX}]")
        if world_size < 1 or world_size > 1 << 20:
            raise _invalid("world_size must be from 1 to 1048576")
        if not 0 <= rank_id < world_size or not 0 <= owner_rank < world_size:
            raise _invalid("rank_id and owner_rank must be below world_size")
        if not mmap or host_register:
            raise RuntimeError("NotImplemented: memory of devices; this package shares memory of the host")
        self = object.__new__(SharedSegment)
        self._size = size
        self._rank, self._world, self._owner = rank_id, world_size, owner_rank
        self._mapped = -(-size // _mmap.PAGESIZE) * _mmap.PAGESIZE
        self._hash = _declaration(name, size, world_size, owner_rank)
        self._memory = None
        self._address = 0
        self._complete = self._ready = False
        where = self._allocate() if rank_id == owner_rank else b""
        return self, _BLOB.pack(MAGIC, VERSION, KIND, rank_id, len(where), self._hash, self._mapped, where)

    def _allocate(self):
        name = f"/mcss_{os.getpid()}_{os.urandom(8).hex()}"
        path = DIRECTORY + name
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as e:
            raise RuntimeError(f"Memory: {path}: {e.strerror}") from None
        weakref.finalize(self, _forget, path, os.getpid())
        try:
            # allocate all pages now, so that a shortage is an error instead of a later SIGBUS
            os.posix_fallocate(fd, 0, self._mapped)
            self._map(fd)
        except OSError as e:
            _forget(path, os.getpid())
            raise RuntimeError(f"Memory: {self._mapped} bytes in {DIRECTORY}: {e.strerror}") from None
        finally:
            os.close(fd)
        return name.encode()

    def _map(self, fd):
        self._memory = _mmap.mmap(fd, self._mapped)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def complete(self, blobs):
        """complete(blobs: list[bytes])

        The second step, called once with the blobs of all ranks in order: maps the owner's memory.  RuntimeError if a blob
        is invalid or has another declaration (name, size, world_size, owner_rank), or the memory cannot be mapped."""
        blobs = list(blobs)
        if self._complete:
            raise _invalid("complete() has already been called")
        if len(blobs) != self._world:
            raise _invalid(f"expected {self._world} blobs, one of each rank, got {len(blobs)}")
        where = b""
        for rank, blob in enumerate(blobs):
            if not isinstance(blob, (bytes, bytearray, memoryview)):
                raise TypeError(f"blobs must be bytes, not {type(blob).__name__}")
            if len(blob) != _BLOB.size:
                raise _invalid(f"the blob of rank {rank} has {len(blob)} bytes, not {_BLOB.size}")
            magic, version, kind, said, length, declared, mapped, name = _BLOB.unpack(blob)
            if (magic, version, kind) != (MAGIC, VERSION, KIND) or length > len(name):
                raise _invalid(f"the blob of rank {rank} is none of a shared segment")
            if said != rank:
                raise _invalid(f"the blob of rank {rank} is that of rank {said}")
            if declared != self._hash or mapped != self._mapped:
                raise _invalid(f"the declaration of rank {rank} differs from that of rank {self._rank}")
            if rank == self._owner:
                where = name[:length]
        self._complete = True
        if self._rank != self._owner:
            self._attach(where)
        self._ready = True

    def _attach(self, where):
        if not _NAME.fullmatch(where):
            raise _invalid("the owner's blob names no shared memory")
        path = DIRECTORY + where.decode()
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as e:
            raise RuntimeError(f"Memory: {path}: {e.strerror}") from None
        try:
            if os.fstat(fd).st_size != self._mapped:
                raise _invalid(f"{path} has not the size that was declared")
            self._map(fd)
        except OSError as e:
            raise RuntimeError(f"Memory: {path}: {e.strerror}") from None
        finally:
            os.close(fd)

    def ready(self):
        """ready() -> bool: whether complete() has succeeded."""
        return self._ready

    def base_addr(self):
        """base_addr() -> int: where the memory is mapped in this process, 0 before it is."""
        return self._address

    def size(self):
        """size() -> int: bytes, as declared."""
        return self._size

    def device_addr(self):
        """device_addr() -> int: 0, the memory is that of the host."""
        return 0
