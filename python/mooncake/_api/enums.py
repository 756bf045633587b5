# SPDX-License-Identifier: Apache-2.0
"""The enumerations of mooncake.store, with upstream's numbers."""

import enum


class _Number(enum.Enum):
    """Members know their number, but do not equal it."""

    def __int__(self):
        return self.value

    __index__ = __int__


class SoftPinAction(_Number):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ObjectDataType(_Number):
    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class ReplicaStatus(_Number):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class TaskType(_Number):
    REPLICA_COPY = 0
    REPLICA_MOVE = 1


class TaskStatus(_Number):
    PENDING = 0
    PROCESSING = 1
    FAILED = 2
    SUCCESS = 3


class ExistOptions:
    """Options of is_exist() and batch_is_exist(): prefetch_to_memory: copy objects that are on a disk only to memory, in
    the background."""

    def __init__(self, prefetch_to_memory=False):
        self.prefetch_to_memory = prefetch_to_memory

    @property
    def prefetch_to_memory(self):
        return self._prefetch

    @prefetch_to_memory.setter
    def prefetch_to_memory(self, on):
        if not isinstance(on, (bool, int, type(None))):
            raise TypeError(f"prefetch_to_memory must be a bool, not {type(on).__name__}")
        self._prefetch = bool(on)
