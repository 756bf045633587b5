# SPDX-License-Identifier: Apache-2.0
"""Torch tensors in memory shared by the processes of a group on one host (mooncake.engine.SharedSegment)."""

import math

import torch

from mooncake._api.shared import SharedSegment as _Segment

__all__ = ["SharedSegment", "SharedSegmentError", "create_shared_segment", "shared_segment_supported"]

ALIGN = 4096


class SharedSegmentError(RuntimeError):
    """A segment cannot be created."""


class _Block:
    """count tensors of one shape and type."""

    def __init__(self, name, spec):
        try:
            self.count = int(spec["count"])
            self.shape = tuple(int(d) for d in spec["shape"])
            self.dtype = spec["dtype"]
            one = torch.empty(0, dtype=self.dtype).element_size()
        except (KeyError, TypeError, ValueError, RuntimeError) as e:
            raise SharedSegmentError(f"Block {name!r} needs count, shape and dtype") from e
        if self.count <= 0:
            raise SharedSegmentError(f"Block {name!r} needs a positive count")
        if not self.shape or min(self.shape) <= 0:
            raise SharedSegmentError(f"Block {name!r} needs a positive shape")
        self.nbytes = math.prod(self.shape) * one
        self.offset = 0

    def __repr__(self):
        return f"{self.count}*{self.shape}*{self.dtype}"


class SharedSegment:
    """Tensors in shared memory, which is freed with this object and its last tensor."""

    def __init__(self, segment, blocks, stride):
        self._segment = segment
        self._blocks = blocks
        self._stride = stride

    def tensors(self, block):
        """tensors(block: str) -> list[torch.Tensor]: the tensors of a block in order, without copies."""
        found = self._blocks.get(block)
        if found is None:
            raise SharedSegmentError(f"Unknown shared segment block {block!r}")
        memory = self._segment._memory
        return [torch.frombuffer(memory, dtype=found.dtype, offset=found.offset + i * self._stride,
                                 count=math.prod(found.shape)).reshape(found.shape) for i in range(found.count)]

    def base_addr(self):
        """base_addr() -> int: address of the memory in this process."""
        return self._segment.base_addr()

    def total_size(self):
        """total_size() -> int: bytes of all blocks."""
        return self._segment.size()


def shared_segment_supported(mmap=True, host_register=False):
    """shared_segment_supported(mmap: bool = True, host_register: bool = False) -> bool: host memory is supported, device memory is not."""
    return _Segment.supported(mmap, host_register)


def _together(failure, world_size, rank_id, group, step):
    """Exchange failures; if one rank failed, raise an error with all failures in every rank."""
    said = [failure]
    if world_size > 1:
        import torch.distributed as dist

        said = [None] * world_size
        dist.all_gather_object(said, failure, group=group)
    wrong = [f"rank {r}: {text}" for r, text in enumerate(said) if text]
    if wrong:
        raise SharedSegmentError(wrong[0].partition(": ")[2] if world_size == 1 else f"{step}: {'; '.join(wrong)}")


def create_shared_segment(name, blocks, world_size, rank_id, owner_rank=0, device_id=None, comm_group=None, mmap=True,
                          host_register=False, *, tp_group=None):
    """create_shared_segment(name: str, blocks: dict, world_size: int, rank_id: int, owner_rank: int = 0,
    device_id: int = None, comm_group=None, mmap: bool = True, host_register: bool = False, *, tp_group=None)
    -> SharedSegment

    Every rank calls this with the same declaration.  blocks: name -> {"count": int, "shape": tuple, "dtype":
    torch.dtype}.  comm_group: the torch process group of the ranks, or an object that has it as cpu_group; not needed for
    world_size 1.  tp_group: the former name of comm_group.  If one rank fails, all ranks raise SharedSegmentError."""
    if comm_group is not None and tp_group is not None and comm_group is not tp_group:
        raise SharedSegmentError("pass only comm_group; tp_group is a deprecated alias of comm_group")
    group = tp_group if comm_group is None else comm_group
    group = getattr(group, "cpu_group", None) or group
    if not shared_segment_supported(mmap, host_register):
        raise SharedSegmentError("memory of devices cannot be shared by this package (mmap=True, host_register=False)")
    if world_size > 1 and group is None:
        raise SharedSegmentError("comm_group is required when world_size > 1")
    found = {block: _Block(block, blocks[block]) for block in sorted(blocks)}
    if not found:
        raise SharedSegmentError("Shared segment needs at least one block")
    stride = 0
    for block in found.values():
        block.offset = stride
        stride += -(-block.nbytes // ALIGN) * ALIGN
    failure = segment = blob = None
    try:
        segment, blob = _Segment.create(f"{name}|{found}", stride * max(b.count for b in found.values()), world_size,
                                        rank_id, owner_rank)
    except RuntimeError as e:
        failure = str(e)
    _together(failure, world_size, rank_id, group, "create")
    blobs = [blob]
    if world_size > 1:
        import torch.distributed as dist

        blobs = [None] * world_size
        dist.all_gather_object(blobs, blob, group=group)
    try:
        segment.complete(blobs)
    except RuntimeError as e:
        failure = str(e)
    _together(failure, world_size, rank_id, group, "complete")
    return SharedSegment(segment, found, stride)
