# SPDX-License-Identifier: Apache-2.0
"""Segments that are added to the pool after setup(): each is a separate client in this process."""

import time

from mooncake import _locks, _setup
from mooncake._setup import INTERNAL_ERROR, INVALID_PARAMS, host_of

# Unit to which allocate_and_mount_segment() rounds.
SEGMENT_STEP = 16 << 20
SIZE_MAX = 1 << 46
GRACE_MAX = 3600


class Segments:
    """The methods of MooncakeDistributedStore for more segments."""

    def __init__(self):
        super().__init__()
        self._more = {}
        self._more_lock = _locks.lock()

    def _close_segments(self):
        with self._more_lock:
            gone = list(self._more.values())
            self._more.clear()
        for node in gone:
            node.close()

    def allocate_and_mount_segment(self, size, protocol="tcp", location=""):
        """allocate_and_mount_segment(size: int, protocol: str = "tcp", location: str = "") -> dict

        Contribute more memory: size bytes, rounded up to 16 MiB.  {"ret": 0, "segment_ids": [str],
        "allocated_size": int}, or "ret" -1 and nothing."""
        nothing = {"ret": INTERNAL_ERROR, "segment_ids": [], "allocated_size": 0}
        if not isinstance(size, int):
            raise TypeError(f"size must be an int, not {type(size).__name__}")
        if not 0 < size < SIZE_MAX or not self._protocol_ok("allocate_and_mount_segment", protocol, size):
            return nothing
        size = -(-size // SEGMENT_STEP) * SEGMENT_STEP
        ids = self._add_segment("allocate_and_mount_segment", segment_size=size)
        return {"ret": 0, "segment_ids": ids, "allocated_size": size} if ids else nothing

    def mount_segment(self, path, size, offset=0, protocol="tcp", location=""):
        """mount_segment(path: str, size: int, offset: int = 0, protocol: str = "tcp", location: str = "") -> dict

        Contribute size bytes, rounded down to 2 MiB, of an existing file (in /dev/shm, of a DAX device), from a page-aligned
        offset on.  The file's content there is overwritten, and the file must not shrink.  {"ret": 0, "segment_ids": [str]};
        on failure, no ids and "ret" -600 for wrong values, or -1 (the log says why)."""
        import os

        for name, value in (("size", size), ("offset", offset)):
            if not isinstance(value, int):
                raise TypeError(f"{name} must be an int, not {type(value).__name__}")
        path = os.fsencode(path)
        if not path or b"\0" in path or not 0 < size < SIZE_MAX or not 0 <= offset < SIZE_MAX or (
                not self._protocol_ok("mount_segment", protocol, size)):
            return {"ret": INVALID_PARAMS, "segment_ids": []}
        ids = self._add_segment("mount_segment", segment_size=size, path=path, offset=offset)
        return {"ret": 0, "segment_ids": ids} if ids else {"ret": INTERNAL_ERROR, "segment_ids": []}

    def _protocol_ok(self, what, protocol, size):
        """As setup() does with a protocol: warn about an unavailable one, refuse a name that is none."""
        try:
            _setup.check_protocol(protocol, size)
        except _setup.Bad as e:
            self._log.error("%s: %s", what, e)
            return False
        return True

    def _add_segment(self, what, **more):
        """Open another client with its own port; the id of its segment in a list, or None."""
        conf = self._conf
        if conf is None or self.health_check() == 1:
            return None
        node = self._base_type()
        # This client has the disks and the HTTP server.
        conf = {name: value for name, value in conf.items() if name not in ("ssd_path", "http_addr")}
        code, why = node._open(**{**conf, "hostname": host_of(conf["hostname"]), **more})
        if code:
            self._log.error("%s: %s", what, why)
            return None
        found = node._segments()
        ids = [s[0] for s in found if s[1] == node.get_hostname()] if isinstance(found, list) else []
        if not ids:
            node.close()
            return None
        with self._more_lock:
            self._more[ids[0]] = node
        return ids

    def unmount_and_free_segment(self, segment_ids, grace_period_seconds=0):
        """unmount_and_free_segment(segment_ids: list[str], grace_period_seconds: int = 0) -> int

        Remove segments from the pool after that many seconds; their objects are lost.  0, or -1 if an id was not returned by
        allocate_and_mount_segment() or mount_segment(), or is already unmounted."""
        if isinstance(segment_ids, str) or not 0 <= grace_period_seconds <= GRACE_MAX:
            return INTERNAL_ERROR
        with self._more_lock:
            gone = [self._more.pop(i, None) for i in segment_ids]
        if grace_period_seconds and any(gone):
            time.sleep(grace_period_seconds)
        for node in gone:
            if node is not None:
                node.close()
        return INTERNAL_ERROR if None in gone else 0

    def unmount_segment(self, segment_ids, grace_period_seconds=0):
        """unmount_segment(segment_ids: list[str], grace_period_seconds: int = 0) -> int

        As unmount_and_free_segment()."""
        return self.unmount_and_free_segment(segment_ids, grace_period_seconds)

    def unmount_local_disk_segment(self, grace_period_seconds=0):
        """unmount_local_disk_segment(grace_period_seconds: int = 0) -> int

        Remove this client's disks from the pool after that many seconds; the copies there are lost.  0 also without disks; -1
        before setup() and after close()."""
        if not isinstance(grace_period_seconds, int) or grace_period_seconds < 0:
            raise TypeError(f"grace_period_seconds must be an int from 0 on, not {grace_period_seconds!r}")
        if self.health_check() == 1:
            return INTERNAL_ERROR
        if grace_period_seconds and (self._conf or {}).get("ssd_path"):
            time.sleep(min(grace_period_seconds, GRACE_MAX))
        return self._disks_remove()

    def get_offload_rpc_read_count(self):
        """get_offload_rpc_read_count() -> int

        For upstream's tests of its offload service, which this store does not have: always 0.  The transfer engine serves
        reads from disks."""
        return 0
