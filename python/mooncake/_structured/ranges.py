# SPDX-License-Identifier: Apache-2.0
"""Byte ranges of members, read into registered memory of the caller, and plans of such reads that can be used again.

A plan has no keys and no addresses: it fits every bundle in which the member has the same type, shape and chunks."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import numpy as np

from mooncake._structured.bundle_format import STRUCTURED_FIELD_SPECS_KEY
from mooncake._structured.bundle_members import RawDestination, dtype_of
from mooncake._structured.bundle_payload import by_chunk, merged


@dataclass(frozen=True)
class StructuredMemberRange:
    """byte_length bytes from source_byte_offset of a member to destination_byte_offset of its destination.  All three,
    and the destination's address, are multiples of alignment (a power of two) and of the size of the member's elements."""

    member_name: str
    source_byte_offset: int
    byte_length: int
    destination_byte_offset: int
    alignment: int = 1


class PreparedRangeLayoutChanged(ValueError):
    """The member has another type, shape or chunks than the plan: prepare the ranges again."""


@dataclass(frozen=True)
class PreparedStructuredMemberRanges:
    """A plan by prepare_member_ranges(): for each chunk chunk_indices[i] of the member, fragments of sizes[i] bytes from
    source_offsets[i] in the chunk to destination_offsets[i] in the destination."""

    member_name: str
    field_signature: str
    chunk_bytes: tuple[int, ...]
    chunk_indices: tuple[int, ...]
    destination_offsets: tuple[tuple[int, ...], ...]
    source_offsets: tuple[tuple[int, ...], ...]
    sizes: tuple[tuple[int, ...], ...]
    destination_bytes: int
    alignment: int

    def __post_init__(self) -> None:
        if not isinstance(self.member_name, str) or not self.member_name:
            raise ValueError("prepared member_name must be a non-empty string")
        if not isinstance(self.field_signature, str):
            raise TypeError("prepared field_signature must be a string")
        columns = (self.chunk_indices, self.destination_offsets, self.source_offsets, self.sizes)
        if not all(isinstance(column, tuple) for column in (self.chunk_bytes, *columns)):
            raise TypeError("prepared columns must be tuples")
        if not self.chunk_indices or len({len(column) for column in columns}) > 1:
            raise ValueError("prepared range columns differ in length or are empty")
        if any(_integer(size, "chunk bytes") < 0 for size in self.chunk_bytes):
            raise ValueError("chunk bytes must be non-negative")
        if _integer(self.alignment, "alignment") <= 0 or _integer(self.destination_bytes, "destination bytes") <= 0:
            raise ValueError("prepared alignment and destination bytes must be positive")
        if self.alignment % _element_size(json.loads(self.field_signature), self.member_name):
            raise ValueError("prepared alignment differs from the member element width")
        targets = []
        for index, *fragments in zip(*columns):
            if not 0 <= _integer(index, "chunk index") < len(self.chunk_bytes):
                raise ValueError("prepared chunk index is out of bounds")
            if not all(isinstance(fragment, tuple) for fragment in fragments):
                raise TypeError("prepared range columns must contain tuples")
            if not fragments[0] or len({len(fragment) for fragment in fragments}) > 1:
                raise ValueError("prepared fragment columns differ in length or are empty")
            for target, source, size in zip(*fragments):
                # as ints, whose sums do not wrap
                target, source = _integer(target, "destination offset"), _integer(source, "source offset")
                size = _integer(size, "range size")
                if min(target, source) < 0 or size <= 0:
                    raise ValueError("prepared offsets must be non-negative and sizes positive")
                if source + size > self.chunk_bytes[index] or target + size > self.destination_bytes:
                    raise ValueError("prepared range exceeds buffer bounds")
                targets.append((target, target + size))
        _check_apart(targets)


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{what} must be an integer, not {value!r}")
    return int(value)


def _check_apart(intervals: Sequence[tuple[int, int]]) -> None:
    ordered = sorted(intervals)
    if any(second[0] < first[1] for first, second in zip(ordered, ordered[1:])):
        raise ValueError("structured ranged destinations overlap")


def _element_size(spec: Mapping[str, Any], name: str) -> int:
    encoding = spec.get("encoding", "bytes")
    if encoding not in ("bytes", "ndarray"):
        raise ValueError(f"structured ranges require raw-layout bytes or ndarray members; {name} is {encoding}")
    return 1 if encoding == "bytes" else max(1, dtype_of(spec, name).itemsize)


def _spec_of(metadata: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return metadata.get(STRUCTURED_FIELD_SPECS_KEY, {}).get(name, {"encoding": "bytes"})


def _signature(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, sort_keys=True, separators=(",", ":"))


def _check_destination(name: str, destination: RawDestination, alignment: int, size: int) -> None:
    if destination.ptr <= 0 or destination.size < size or destination.ptr + destination.size > 1 << 64:
        raise ValueError(f"{name} destination bounds are invalid: {destination.size} bytes, {size} are needed")
    if destination.owner is None:
        raise ValueError(f"{name} destination owner is required")
    if destination.pre_registered is not True:
        raise ValueError(f"{name} requires a pre_registered destination")
    if destination.ptr % alignment:
        raise ValueError(f"{name} destination must be aligned to {alignment} bytes")


def _alignment(span: StructuredMemberRange, total: int, destination: RawDestination, element: int) -> int:
    """The alignment of a range, after all checks of the range."""
    source, target, length, alignment = (_integer(getattr(span, what), what) for what in (
        "source_byte_offset", "destination_byte_offset", "byte_length", "alignment"))
    if source < 0 or target < 0 or length <= 0:
        raise ValueError("range offsets must be non-negative and byte_length positive")
    if alignment <= 0 or alignment & (alignment - 1):
        raise ValueError(f"range alignment must be a positive power of two, not {alignment}")
    alignment = math.lcm(element, alignment)
    if any(value % alignment for value in (source, target, length, destination.ptr)):
        raise ValueError(f"structured range must be aligned to {alignment} bytes: {span}")
    if source + length > total or target + length > destination.size:
        raise ValueError(f"structured range exceeds source or destination bounds: {span}")
    return alignment


def _prepare_one(name: str, spec: Mapping[str, Any], payload: Mapping[str, Any], spans: Sequence[StructuredMemberRange],
                 destination: RawDestination) -> PreparedStructuredMemberRanges:
    element, alignment = _element_size(spec, name), 1
    _check_destination(name, destination, 1, 1)
    for span in spans:
        alignment = math.lcm(alignment, _alignment(span, payload["bytes"], destination, element))
    size = max(int(span.destination_byte_offset) + int(span.byte_length) for span in spans)
    _check_destination(name, destination, alignment, size)
    ordered = [(int(s.source_byte_offset), int(s.destination_byte_offset), int(s.byte_length)) for s in spans]
    found = {i: merged(sorted(each)) for i, each in by_chunk(payload["chunks"], ordered).items()}
    return PreparedStructuredMemberRanges(
        name, _signature(spec), tuple(chunk["bytes"] for chunk in payload["chunks"]), tuple(found),
        tuple(tuple(target for _, target, _ in each) for each in found.values()),
        tuple(tuple(source for source, _, _ in each) for each in found.values()),
        tuple(tuple(n for _, _, n in each) for each in found.values()), size, alignment)


def check_destinations(destinations: Any) -> None:
    if not isinstance(destinations, Mapping) or not all(isinstance(d, RawDestination) for d in destinations.values()):
        raise TypeError("structured ranged destinations must map members to raw_destination")


def prepare(metadata: Mapping[str, Any], buffers: Mapping[str, Any], selected: Sequence[str],
            ranges: Sequence[StructuredMemberRange],
            destinations: Mapping[str, RawDestination]) -> dict[str, PreparedStructuredMemberRanges]:
    """The plan of each member of @ranges."""
    if not ranges:
        raise ValueError("structured ranged materialization requires ranges")
    grouped: dict[str, list[StructuredMemberRange]] = {}
    for span in ranges:
        if not isinstance(span, StructuredMemberRange):
            raise TypeError("structured ranges must contain StructuredMemberRange values")
        if not isinstance(span.member_name, str) or not span.member_name:
            raise ValueError("structured range member_name must be a non-empty string")
        if span.member_name not in selected:
            raise KeyError(f"structured range references unselected member: {span.member_name!r}")
        grouped.setdefault(span.member_name, []).append(span)
    if set(destinations) != set(grouped):
        raise ValueError("structured ranged destinations must match range members")
    plans = {name: _prepare_one(name, _spec_of(metadata, name), buffers[name], spans, destinations[name])
             for name, spans in grouped.items()}
    _check_apart([(destinations[s.member_name].ptr + s.destination_byte_offset,
                   destinations[s.member_name].ptr + s.destination_byte_offset + s.byte_length) for s in ranges])
    return plans


def bind(metadata: Mapping[str, Any], buffers: Mapping[str, Any], selected: Sequence[str],
         plan: PreparedStructuredMemberRanges, destination: RawDestination) -> list[str]:
    """The keys of the chunks of a plan in this bundle."""
    name = plan.member_name
    if name not in selected:
        raise KeyError(f"structured range references unselected member: {name!r}")
    spec, chunks = _spec_of(metadata, name), buffers[name]["chunks"]
    if _signature(spec) != plan.field_signature or tuple(chunk["bytes"] for chunk in chunks) != plan.chunk_bytes:
        raise PreparedRangeLayoutChanged(f"prepared member layout changed; prepare ranges again: {name}")
    _check_destination(name, destination, plan.alignment, plan.destination_bytes)
    return [chunks[index]["key"] for index in plan.chunk_indices]


def execute(call: Any, requests: Sequence[tuple[RawDestination, list[str], PreparedStructuredMemberRanges]]) -> None:
    """Read plans with the store's get_into_ranges(); a RuntimeError unless all bytes are read."""
    got = call([destination.ptr for destination, _, _ in requests], [keys for _, keys, _ in requests],
               [[list(column) for column in plan.destination_offsets] for _, _, plan in requests],
               [[list(column) for column in plan.source_offsets] for _, _, plan in requests],
               [[list(column) for column in plan.sizes] for _, _, plan in requests])
    if len(got) != len(requests):
        raise RuntimeError(f"get_into_ranges returned {len(got)} results for {len(requests)} destinations")
    for (_, keys, plan), found in zip(requests, got):
        if len(found) != len(keys):
            raise RuntimeError(f"get_into_ranges returned {len(found)} results for {len(keys)} chunks")
        for key, wanted, counts in zip(keys, plan.sizes, found):
            if list(counts) != list(wanted):
                raise RuntimeError(f"get_into_ranges failed: returned byte count differs: {key}: {list(counts)}, not {list(wanted)}")
