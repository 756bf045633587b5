# SPDX-License-Identifier: Apache-2.0
"""Sessions: objects that are read or written piece by piece.

A read session keeps one version of a key readable until it ends.  A write session collects the pieces in private memory
and stores the whole object when it ends; it rejects an incomplete object, so that readers never get unwritten bytes."""

import copy

from mooncake import _locks, _store

INVALID_PARAMS = -600
INVALID_WRITE = -700
EXISTS = -705


class _Write:
    """An object while it is being written."""

    def __init__(self, size, config, index):
        self.size = size
        # a copy, because callers change and reuse their config
        self.options = {} if config is None else {"config": self._own(config, index)}
        import ctypes
        import mmap

        self.memory = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.written = []
        self.lock = _locks.lock()

    def write(self, ptrs, sizes, offsets):
        if not len(ptrs) == len(sizes) == len(offsets):
            return INVALID_PARAMS
        for size, offset in zip(sizes, offsets):
            if size < 0 or offset < 0 or offset + size > self.size:
                return INVALID_PARAMS
        for ptr, size in zip(ptrs, sizes):
            if size and not (0 < ptr < 1 << 64 and _store.mapped(ptr, size)):
                return INVALID_PARAMS
        for ptr, size, offset in zip(ptrs, sizes, offsets):
            if size and not _store.copy(self.address + offset, ptr, size):
                return INVALID_WRITE
        with self.lock:
            self.written += [(o, o + n) for o, n in zip(offsets, sizes) if n]
        return sum(sizes)

    def complete(self):
        end = 0
        with self.lock:
            for first, last in sorted(self.written):
                if first > end:
                    return False
                end = max(end, last)
        return end == self.size

    @staticmethod
    def _own(config, index):
        """The options for this object alone."""
        own = copy.copy(config)
        # valid only for batches
        own.prefer_alloc_in_same_node = False
        if own.group_ids is not None:
            own.group_ids = [own.group_ids[index]]
        return own


class Sessions:
    """The methods of MooncakeDistributedStore for sessions."""

    def __init__(self):
        super().__init__()
        self._reads = {}
        self._writes = {}
        self._sessions_lock = _locks.lock()

    def _end_sessions(self):
        with self._sessions_lock:
            gone = self._reads, self._writes
            self._reads, self._writes = {}, {}
        # closed here, outside of the lock
        del gone

    def batch_get_session_start(self, keys):
        """batch_get_session_start(keys: list[str]) -> list[int]

        Keep the current version of each key readable until batch_get_session_end().  0, or -704 for a miss."""
        results = []
        for key in keys:
            found = self._open_object(key)
            if not isinstance(found, int):
                with self._sessions_lock:
                    before, self._reads[key] = self._reads.get(key), found
                del before
                found = 0
            results.append(found)
        return results

    def batch_get_into_multi_buffer_ranges(self, keys, all_buffer_ptrs, all_sizes, all_src_offsets):
        """batch_get_into_multi_buffer_ranges(keys: list[str], all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]], all_src_offsets: list[list[int]]) -> list[int]

        Read pieces of objects that a session holds.  Bytes read for each key; -600 without a session, or for a
        piece that does not lie inside the object."""
        return self._moved("read", keys, all_buffer_ptrs, all_sizes, all_src_offsets)

    def _moved(self, how, keys, *lists):
        """how: "read" or "write", which is the method that moves the pieces of a session."""
        if any(len(each) != len(keys) for each in lists):
            return [INVALID_PARAMS] * len(keys)
        results = []
        for key, *pieces in zip(keys, *lists):
            with self._sessions_lock:
                found = (self._reads if how == "read" else self._writes).get(key)
            results.append(INVALID_PARAMS if found is None else getattr(found, how)(*pieces))
        return results

    def batch_get_session_end(self, keys):
        """batch_get_session_end(keys: list[str]) -> int

        End the read sessions of the keys; 0."""
        with self._sessions_lock:
            gone = [self._reads.pop(key, None) for key in keys]
        # closed here, outside of the lock
        del gone
        return 0

    def batch_put_session_start(self, keys, sizes, config=None):
        """batch_put_session_start(keys: list[str], sizes: list[int], config: ReplicateConfig = None) -> list[int]

        Begin to write objects of these sizes in bytes, with a copy of config.  0; -705 if the key has a value or this store
        is already writing it; -600 for size 0.  config.dfs_replica_num: -1601 without
        MOONCAKE_ENABLE_DFS."""
        if config is not None and not isinstance(config, self._config_type):
            raise TypeError(f"config must be a ReplicateConfig, not {type(config).__name__}")
        if len(keys) != len(sizes):
            return [INVALID_PARAMS] * len(keys)
        if config is not None and config.group_ids is not None and len(config.group_ids) != len(keys):
            return [INVALID_PARAMS] * len(keys)
        # as every put: replicas in tiers that cannot be had
        if config is not None and config._tier_error():
            return [config._tier_error()] * len(keys)
        there = self.batch_is_exist(list(keys)) if keys else []
        return [self._start_write(key, size, config, i, there[i]) for i, (key, size) in enumerate(zip(keys, sizes))]

    def _start_write(self, key, size, config, index, there):
        if there < 0:
            return there
        if not key or not isinstance(size, int) or not 0 < size < 1 << 48:
            return INVALID_PARAMS
        if there:
            return EXISTS
        with self._sessions_lock:
            if key in self._writes:
                return EXISTS
            try:
                self._writes[key] = _Write(size, config, index)
            except (OSError, ValueError, OverflowError):
                return -200
        return 0

    def batch_put_from_multi_buffer_ranges(self, keys, all_buffer_ptrs, all_sizes, all_dst_offsets):
        """batch_put_from_multi_buffer_ranges(keys: list[str], all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]], all_dst_offsets: list[list[int]]) -> list[int]

        Write pieces of objects of write sessions; copies the memory before it returns.  Bytes written for each key; -600
        without a session, or for a piece that is not inside the object."""
        return self._moved("write", keys, all_buffer_ptrs, all_sizes, all_dst_offsets)

    def batch_put_session_end(self, keys):
        """batch_put_session_end(keys: list[str]) -> list[int]

        Store the objects.  0; -600 without a session; -700 if the object is incomplete, -705 if the key has received a value
        meanwhile: both discard the written data."""
        results = []
        for key in keys:
            with self._sessions_lock:
                found = self._writes.pop(key, None)
            if found is None:
                results.append(INVALID_PARAMS)
            elif not found.complete():
                results.append(INVALID_WRITE)
            else:
                results.append(self._put_new_from(key, found.address, found.size, **found.options))
        return results

    def batch_put_session_revoke(self, keys):
        """batch_put_session_revoke(keys: list[str]) -> list[int]

        Discard the written data.  0, or -600 without a session."""
        with self._sessions_lock:
            gone = [self._writes.pop(key, None) for key in keys]
        return [INVALID_PARAMS if one is None else 0 for one in gone]
