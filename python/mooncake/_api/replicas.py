# SPDX-License-Identifier: Apache-2.0
"""Locations of objects, as upstream's descriptors."""

from mooncake._api.enums import ReplicaStatus


class Descriptor:
    """A range of a segment: size (bytes), buffer_address (in its owner), transport_endpoint ("host:port")."""

    def __init__(self, size, address, endpoint):
        self.size = size
        self.buffer_address = address
        self.transport_endpoint = endpoint


class MemoryDescriptor:
    """A copy in memory: buffer_descriptor."""

    def __init__(self, descriptor):
        self.buffer_descriptor = descriptor


class DiskDescriptor:
    """A copy in a shared directory: file_path, which has copies of many objects, and object_size.  As in upstream, callers
    cannot create one."""

    def __init__(self):
        raise TypeError("DiskDescriptor: no constructor defined")

    @classmethod
    def _of(cls, path, size):
        self = cls.__new__(cls)
        self.file_path = path
        self.object_size = size
        return self


class ReplicaDescriptor:
    """One copy of an object: in memory, on its node's disk, on a NoF disk or in a shared directory; status is COMPLETE, or FAILED while
    its owner does not respond."""

    def __init__(self, size, address, endpoint, readable, on_disk=False, path="", nof=False):
        self.status = ReplicaStatus.COMPLETE if readable else ReplicaStatus.FAILED
        self._memory = None if on_disk else MemoryDescriptor(Descriptor(size, address, endpoint))
        self._disk = DiskDescriptor._of(path, size) if path else None
        self._nof = nof

    def is_memory_replica(self):
        """is_memory_replica() -> bool"""
        return self._memory is not None

    def is_disk_replica(self):
        """is_disk_replica() -> bool: on a shared file system"""
        return self._disk is not None

    def is_local_disk_replica(self):
        """is_local_disk_replica() -> bool: on the disk of a node"""
        return self._memory is None and self._disk is None and not self._nof

    def is_nof_replica(self):
        """is_nof_replica() -> bool: on a disk that its owner reaches over NVMe-oF; upstream's have no such method"""
        return self._nof

    def get_memory_descriptor(self):
        """get_memory_descriptor() -> MemoryDescriptor; RuntimeError for a copy on a disk"""
        if self._memory is None:
            raise RuntimeError("the replica is on a disk")
        return self._memory

    def get_disk_descriptor(self):
        """get_disk_descriptor() -> DiskDescriptor; RuntimeError for a copy that is not on a shared file system"""
        if self._disk is None:
            raise RuntimeError("the replica is not on a shared file system")
        return self._disk


class Replicas:
    """The methods of MooncakeDistributedStore for replicas."""

    def _replica_lists(self, keys):
        found = self._replicas(keys)
        if isinstance(found, int):
            return {}
        return {key: [ReplicaDescriptor(size, address, endpoint, *rest)
                      for _, endpoint, address, size, *rest in copies]
                for key, copies in zip(keys, found) if copies is not None}

    def get_replica_desc(self, key):
        """get_replica_desc(key: str) -> list[ReplicaDescriptor]

        Locations of the object's copies; [] for a miss or a failure.  Protects the object for the lease time."""
        return self._replica_lists([key]).get(key, [])

    def batch_get_replica_desc(self, keys):
        """batch_get_replica_desc(keys: list[str]) -> dict[str, list[ReplicaDescriptor]]

        get_replica_desc() of many keys, without those that do not exist."""
        return self._replica_lists(list(keys))
