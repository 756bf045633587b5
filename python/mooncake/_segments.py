# SPDX-License-Identifier: Apache-2.0
"""Memory that is added to the pool after setup(): each piece is a node of its own in this process."""

import threading
import time

INTERNAL_ERROR = -1
# The pool's memory comes in such pieces.
SEGMENT_STEP = 16 << 20
SIZE_MAX = 1 << 46
GRACE_MAX = 3600


class Segments:
    """The methods of MooncakeDistributedStore for more segments."""

    def __init__(self):
        super().__init__()
        self._more = {}
        self._more_lock = threading.Lock()

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
        conf = self._conf
        if not 0 < size < SIZE_MAX or conf is None or self.health_check() == 1:
            return nothing
        size = -(-size // SEGMENT_STEP) * SEGMENT_STEP
        node = self._base_type()
        # the same host under a port of its own
        code, why = node._open(**{**conf, "hostname": self._host_of(conf["hostname"]), "segment_size": size})
        if code:
            self._log.error("allocate_and_mount_segment: %s", why)
            return nothing
        found = node._segments()
        ids = [s[0] for s in found if s[1] == node.get_hostname()] if isinstance(found, list) else []
        if not ids:
            node.close()
            return nothing
        with self._more_lock:
            self._more[ids[0]] = node
        return {"ret": 0, "segment_ids": ids, "allocated_size": size}

    def unmount_and_free_segment(self, segment_ids, grace_period_seconds=0):
        """unmount_and_free_segment(segment_ids: list[str], grace_period_seconds: int = 0) -> int

        Take the memory back, after so many seconds; its objects go.  0, or -1 when one of the ids is not of
        allocate_and_mount_segment() or was given back."""
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

    @staticmethod
    def _host_of(name):
        if name.startswith("["):
            return name.partition("]")[0] + "]"
        return name.partition(":")[0] if name.count(":") == 1 else name
