# SPDX-License-Identifier: Apache-2.0
"""Payloads: writing, reading and removing the bytes of a bundle's parts."""

from __future__ import annotations

import bisect
import contextlib
import copy
import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

import numpy as np

from mooncake import _setup
from mooncake._api.buffers import BufferPool
from mooncake._structured.bundle_format import (AUTO_PARALLEL_MIN_BYTES, AUTO_PARALLEL_MIN_CHUNKS, MISSING_OBJECT_ERROR,
                                     BundleTransferPolicy)

# (first byte of the payload, first byte of the memory, bytes)
Span = tuple[int, int, int]
# An object to write: its key and its buffers.
Chunk = tuple[str, list[memoryview]]

ALREADY_REGISTERED = -600
# before allocating more than ALLOCATE_UNASKED bytes, the sizes of chunks longer than ASKED_CHUNK are verified
ASKED_CHUNK = 64 << 10
ALLOCATE_UNASKED = 1 << 20
# maximum number of buffers per object for put_parts(); more are copied together first
PARTS_MAX = 64
BATCH_BYTES = 64 << 20


def bytes_view(value: Any, what: str) -> memoryview:
    """The bytes of anything that has a buffer, in C order."""
    try:
        view = memoryview(value)
    except TypeError as e:
        raise TypeError(f"{what} must be bytes-like, got {type(value).__name__}") from e
    if not view.c_contiguous or not view.nbytes:
        return memoryview(view.tobytes())
    return view.cast("B")


def split(buffers: Iterable[memoryview], size: int) -> list[list[memoryview]]:
    """The concatenated buffers, split into pieces of @size bytes (the last one may be shorter)."""
    out: list[list[memoryview]] = []
    room = 0
    for buffer in buffers:
        at = 0
        while at < len(buffer):
            if not room:
                out.append([])
                room = size
            part = buffer[at:at + room]
            out[-1].append(part)
            at += len(part)
            room -= len(part)
    return out


def describe(key: str, sizes: Sequence[int]) -> dict[str, Any]:
    """The manifest entry of a payload with chunks of these sizes."""
    keys = [key] if len(sizes) == 1 else [f"{key}/chunk/{i}" for i in range(len(sizes))]
    return {"key": key, "bytes": sum(sizes), "chunks": [{"key": k, "bytes": n} for k, n in zip(keys, sizes)]}


def merged(spans: Sequence[Span]) -> list[Span]:
    """The same bytes in as few spans as possible."""
    out: list[Span] = []
    for source, target, length in spans:
        if out and out[-1][0] + out[-1][2] == source and out[-1][1] + out[-1][2] == target:
            out[-1] = (out[-1][0], out[-1][1], out[-1][2] + length)
        elif length:
            out.append((source, target, length))
    return out


def by_chunk(chunks: Sequence[Mapping[str, Any]], spans: Sequence[Span]) -> dict[int, list[Span]]:
    """The spans by chunk: {index of the chunk: spans with offsets in the chunk}."""
    starts, total = [], 0
    for chunk in chunks:
        starts.append(total)
        total += chunk["bytes"]
    out: dict[int, list[Span]] = {}
    for source, target, length in merged(spans):
        if source < 0 or source + length > total:
            raise ValueError(f"bytes {source} to {source + length} of a payload of {total} bytes")
        i = bisect.bisect_right(starts, source) - 1
        while length:
            n = min(length, starts[i] + chunks[i]["bytes"] - source)
            if n:
                out.setdefault(i, []).append((source - starts[i], target, n))
            source, target, length, i = source + n, target + n, length - n, i + 1
    return out


def _copied_config(config: Any) -> Any:
    """A mutable copy, also of a configuration that copy.copy() rejects."""
    try:
        return copy.copy(config)
    except TypeError:
        pass
    try:
        out = type(config)()
        names = [n for n in dir(config) if not n.startswith("_") and not callable(getattr(config, n))]
        # with_soft_pin is an older name of soft_pin_action and would overwrite it
        if "with_soft_pin" in names and "soft_pin_action" in names:
            names.remove("with_soft_pin")
        for name in names:
            setattr(out, name, getattr(config, name))
    except Exception as e:
        raise TypeError("structured object store config must be copyable or default-constructible, and writable") from e
    return out


def group_of(config: Any) -> Optional[str]:
    """The group in @config; None if unset, "" for explicitly no group.  A ValueError for several."""
    groups = getattr(config, "group_ids", None)
    if groups is None or isinstance(groups, str):
        return groups
    try:
        groups = list(groups)
    except TypeError as e:
        raise ValueError("structured object store config.group_ids must contain strings") from e
    if len(groups) > 1:
        raise ValueError("structured object store config.group_ids must contain exactly one logical group id, which all keys get")
    if groups and not isinstance(groups[0], str):
        raise ValueError("structured object store config.group_ids must contain strings")
    return groups[0] if groups else None


def with_group(config: Any, group: str) -> Any:
    """@config, or a default one, with that group; a ValueError if it has another."""
    named = group_of(config)
    if named and named != group:
        raise ValueError("config.group_ids conflicts with the DataProto storage group")
    if config is None:
        from mooncake.store import ReplicateConfig

        config = ReplicateConfig()
    else:
        config = _copied_config(config)
    config.group_ids = [group]
    return config


def config_for(config: Any, keys: int) -> Any:
    """@config for a call with that many keys, with the group repeated for each."""
    if config is None or getattr(config, "group_ids", None) is None:
        return config
    group = group_of(config)
    wanted = None if group is None else [group] * keys
    if config.group_ids == wanted:
        return config
    config = _copied_config(config)
    config.group_ids = wanted
    return config


def check_status(status: Any, call: str, key: str) -> None:
    if status is not None and status != 0:
        raise RuntimeError(f"{call} failed for {key}: {status}")


class _Lease:
    """Memory of a pool; returned once, at the latest when it is freed."""

    def __init__(self, lease: Any) -> None:
        self._lease = lease

    def release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def __del__(self) -> None:
        self.release()


class Payloads:
    """Reads and writes payloads of a store.  As thread-safe as the store."""

    def __init__(self, store: Any, pool: Any = None) -> None:
        self.store = store
        self.pool = pool

    def _call(self, name: str) -> Any:
        """A method of the store, or None."""
        found = getattr(self.store, name, None)
        return found if callable(found) else None

    @property
    def own(self) -> bool:
        """Whether the store is a MooncakeDistributedStore, or wraps one; not an object that the caller wrote."""
        capsule = self._call("_get_pyclient_capsule")
        return capsule is not None and capsule() is not None

    def method(self, name: str, member: str) -> Any:
        """A method of the store, to read @member; a RuntimeError if the store lacks it."""
        found = self._call(name)
        if found is None:
            raise RuntimeError(f"{member}: the store does not support {name}")
        return found

    def stored_config(self, call: str, key: str, *args: Any, config: Any = None) -> None:
        """Call @call(key, *args), with @config if given; a RuntimeError if it fails."""
        config = config_for(config, 1)
        kwargs = {} if config is None else {"config": config}
        check_status(getattr(self.store, call)(key, *args, **kwargs), call, key)

    # ---- writing ----

    def _write_one(self, chunk: Chunk, config: Any) -> None:
        key, parts = chunk
        if len(parts) == 1:
            self.stored_config("put", key, parts[0], config=config)
        elif len(parts) <= PARTS_MAX and self._call("put_parts"):
            self.stored_config("put_parts", key, *parts, config=config)
        else:
            self.stored_config("put", key, b"".join(parts), config=config)

    def _write_batch(self, chunks: Sequence[Chunk], config: Any) -> None:
        if len(chunks) == 1 or not self._call("put_batch"):
            for chunk in chunks:
                self._write_one(chunk, config)
            return
        keys = [key for key, _ in chunks]
        values = [parts[0] if len(parts) == 1 else b"".join(parts) for _, parts in chunks]
        config = config_for(config, len(keys))
        kwargs = {} if config is None else {"config": config}
        check_status(self.store.put_batch(keys, values, **kwargs), "put_batch", f"{keys[0]} and {len(keys) - 1} more")

    def write(self, chunks: Sequence[Chunk], policy: BundleTransferPolicy, config: Any = None) -> None:
        """Store the chunks, several small ones per call.  A RuntimeError if one fails; any of the others may be stored."""
        sizes = [sum(map(len, parts)) for _, parts in chunks]
        threads = min(policy.max_inflight_put, len(chunks))
        if policy.put_mode == "auto" and (len(chunks) < AUTO_PARALLEL_MIN_CHUNKS
                                          or sum(sizes) < AUTO_PARALLEL_MIN_BYTES):
            threads = 1
        if policy.put_mode != "batch" and threads > 1:
            with ThreadPoolExecutor(threads) as executor:
                done = [executor.submit(self._write_one, chunk, config) for chunk in chunks]
                try:
                    for future in done:
                        future.result()
                except BaseException:
                    # the end of the with block waits for running calls
                    executor.shutdown(wait=False, cancel_futures=True)
                    raise
            return
        batch: list[Chunk] = []
        held = 0
        for chunk, size in zip(chunks, sizes):
            if batch and held + size > BATCH_BYTES:
                self._write_batch(batch, config)
                batch, held = [], 0
            batch.append(chunk)
            held += size
        if batch:
            self._write_batch(batch, config)

    def remove(self, keys: Iterable[str], strict: bool) -> None:
        """Remove the objects, leased or not, ignoring missing ones.  @strict: a RuntimeError, or the store's exception, if
        some cannot be removed."""
        left = list(dict.fromkeys(keys))
        batch = self._call("batch_remove")
        if batch and left:
            try:
                results = batch(left, True)
                if len(results) != len(left):
                    raise RuntimeError(f"batch_remove returned {len(results)} results for {len(left)} keys")
                left = [k for k, r in zip(left, results) if r not in (None, 0, MISSING_OBJECT_ERROR)]
            except Exception:
                if strict:
                    raise
        failed = []
        for key in left:
            try:
                status = self.store.remove(key, True)
            except KeyError:
                continue
            except Exception:
                if strict:
                    raise
                continue
            if status not in (None, 0, MISSING_OBJECT_ERROR):
                failed.append((key, status))
        if failed and strict:
            raise RuntimeError(f"failed to remove {len(failed)} Mooncake keys: {failed[:3]}")
        for key, status in failed:
            _setup.log.warning("%s is not removed: %s", key, status)

    # ---- reading ----

    def _check_sizes(self, payload: Mapping[str, Any]) -> None:
        get_size = self._call("get_size")
        if not get_size:
            return
        for chunk in payload["chunks"]:
            if chunk["bytes"] > ASKED_CHUNK:
                size = get_size(chunk["key"])
                if size != chunk["bytes"]:
                    raise RuntimeError(f"get failed for {chunk['key']}: expected {chunk['bytes']} bytes, got {size}")

    def memory(self, payload: Mapping[str, Any], size: int, pooled: bool = False) -> np.ndarray:
        """Allocate @size bytes for reading @payload; @pooled: from the pool, if there is one.  A RuntimeError if the sizes
        in the store differ from the manifest."""
        if size > ALLOCATE_UNASKED:
            self._check_sizes(payload)
        if pooled and self.pool is not None and size:
            try:
                # the caller's own pool may have no option beside the size
                lease = self.pool.acquire(size, **({"block": False} if isinstance(self.pool, BufferPool) else {}))
            except RuntimeError:
                return np.empty(size, np.uint8)
            raw = (ctypes.c_uint8 * size).from_address(lease.ptr)
            # every view of the array keeps this object, and so the lease
            raw.lease = _Lease(lease)
            return np.frombuffer(raw, np.uint8)
        return np.empty(size, np.uint8)

    def _can_register(self) -> bool:
        return self._call("register_buffer") is not None and self._call("unregister_buffer") is not None

    @contextlib.contextmanager
    def _registered(self, address: int, size: int) -> Iterator[None]:
        register, unregister = self._call("register_buffer"), self._call("unregister_buffer")
        ours = False
        if register and unregister:
            status = register(address, size)
            if status != ALREADY_REGISTERED:
                check_status(status, "register_buffer", "a buffer to read into")
                ours = True
        try:
            yield
        finally:
            if ours:
                unregister(address)

    def fill_at(self, payload: Mapping[str, Any], spans: Sequence[Span], address: int, size: int,
                registered: bool = False) -> None:
        """Read @spans of @payload into the caller's memory, @size bytes at @address.  If a chunk is missing or has the wrong
        size, raises RuntimeError, and the memory is undefined."""
        chunks = payload["chunks"]
        found = by_chunk(chunks, spans)
        if any(target < 0 or target + n > size for each in found.values() for _, target, n in each):
            raise ValueError(f"more bytes than the {size} of the destination")
        if not found:
            return
        whole = self._can_register() and self._call("batch_get_into") is not None and all(
            each == [(0, each[0][1], chunks[i]["bytes"])] for i, each in found.items())
        call = self._call("batch_get_into" if whole else "get_into_ranges")
        if call is None or not (registered or self._can_register()):
            self._fill_by_get(chunks, found, address)
            return
        with contextlib.nullcontext() if registered else self._registered(address, size):
            keys = [chunks[i]["key"] for i in found]
            if whole:
                wanted = [chunks[i]["bytes"] for i in found]
                got = call(keys, [address + each[0][1] for each in found.values()], wanted)
            else:
                wanted = [[n for _, _, n in each] for each in found.values()]
                got = call([address], [keys], [[[t for _, t, _ in each] for each in found.values()]],
                           [[[s for s, _, _ in each] for each in found.values()]], [wanted])
                got = got[0] if len(got) == 1 else []
        if len(got) != len(keys):
            raise RuntimeError(f"{len(got)} results for {len(keys)} chunks")
        for key, n, result in zip(keys, wanted, got):
            if (list(result) if isinstance(n, list) else result) != n:
                raise RuntimeError(f"get_into failed for {key}: expected {n} bytes, got {result}")

    def _fill_by_get(self, chunks: Sequence[Mapping[str, Any]], found: Mapping[int, list[Span]], address: int) -> None:
        for i, each in found.items():
            data = self.store.get(chunks[i]["key"])
            if len(data) != chunks[i]["bytes"]:
                raise RuntimeError(f"get failed for {chunks[i]['key']}: expected {chunks[i]['bytes']} bytes, got {len(data)}")
            view = memoryview(data)
            for source, target, n in each:
                ctypes.memmove(address + target, bytes(view[source:source + n]), n)

    def fill(self, payload: Mapping[str, Any], spans: Sequence[Span], target: np.ndarray,
             registered: bool = False) -> None:
        """fill_at() into an array in C order; a pool has registered its memory."""
        self.fill_at(payload, spans, target.ctypes.data, target.nbytes, registered or lease_of(target) is not None)

    def read(self, payload: Mapping[str, Any], pooled: bool = False) -> np.ndarray:
        """All bytes of a payload."""
        out = self.memory(payload, payload["bytes"], pooled)
        self.fill(payload, [(0, 0, payload["bytes"])], out)
        return out


def lease_of(array: np.ndarray) -> Any:
    """The pool's lease of the memory of an array or view, or None."""
    base: Any = array
    while base is not None:
        if isinstance(base, memoryview):
            base = base.obj
        if hasattr(base, "lease"):
            return base.lease
        base = getattr(base, "base", None)
    return None
