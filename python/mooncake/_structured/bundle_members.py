# SPDX-License-Identifier: Apache-2.0
"""Encoding and decoding of the members of a structured object.

A numpy array is stored as its elements in C order, a torch tensor as an object of put_tensor() (a header of 304 bytes and
the elements), any other value as its bytes.  Two kinds of tensors use torch.save()'s format, which is a pickle: those
without dimensions that the store does not put itself (copy_mode "copy"), and upstream's nested tensors on a device.  They
are read with weights_only=True, which creates only tensors.  Nothing else is unpickled."""

from __future__ import annotations

import ctypes
import io
import math
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np

from mooncake._api import tensors as _tensors
from mooncake._structured.bundle_format import BundleTransferPolicy, check_segment
from mooncake._structured.bundle_payload import (Payloads, Span, bytes_view, check_status, describe, lease_of,
                                                split)

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

# Rows of a member: a range, or indices in the order of the result.
Rows = Union[range, Sequence[int]]


@dataclass(frozen=True)
class Parts:
    """Bytes in several buffers; with dtype and shape, an array."""

    buffers: tuple[memoryview, ...]
    dtype: Optional[str] = None
    shape: Optional[tuple[int, ...]] = None


@dataclass(frozen=True)
class TensorMember:
    """A tensor to be stored as a tensor object."""

    tensor: Any


@dataclass(frozen=True)
class TensorObjectBuffer:
    """Memory that contains, or will receive, a tensor in the format of put_tensor_from(): header first."""

    ptr: int
    size: int
    owner: Any
    batch_size: Optional[int] = None

    def __len__(self) -> int:
        if self.batch_size is None:
            raise TypeError("tensor object buffer requires batch_size for DataProto use")
        return self.batch_size


@dataclass(frozen=True)
class RawDestination:
    """Memory to read a member into."""

    ptr: int
    size: int
    owner: Any
    pre_registered: bool = False


def _host_address(ptr: int) -> int:
    from mooncake import _store

    if 0 < int(ptr) < 1 << 64 and _store.gpu_of(int(ptr)) >= 0:
        raise ValueError("structured objects take memory of the host, not of a GPU")
    return int(ptr)


def tensor_object_buffer(ptr: int, size: int, owner: Any = None, batch_size: Optional[int] = None) -> TensorObjectBuffer:
    """A tensor at an address, as a member or as the destination of one: size bytes, the header of 304 bytes first.
    owner keeps the memory alive; batch_size is the number of rows, needed in a DataProto."""
    return TensorObjectBuffer(_host_address(ptr), int(size), owner, batch_size)


def raw_destination(ptr: int, size: int, owner: Any = None, *, pre_registered: bool = False) -> RawDestination:
    """A destination of size bytes at an address for an array or a tensor (header first).  owner keeps the memory alive;
    pre_registered: register_buffer() has been called for it."""
    return RawDestination(_host_address(ptr), int(size), owner, pre_registered)


# ---- writing ----


def _encode_tensor(tensor: Any) -> tuple[dict[str, Any], Any]:
    if not tensor.is_nested:
        return {"encoding": "torch_tensor", "dtype": str(tensor.dtype), "shape": list(tensor.shape),
                "element_size": int(tensor.element_size())}, TensorMember(tensor)
    if tensor.layout != torch.jagged:
        raise ValueError("structured nested tensor fields require torch.jagged layout")
    lengths = tensor.lengths()
    pieces = [_serialized(t) for t in (tensor.values(), tensor.offsets(), lengths) if t is not None]
    return {"encoding": "torch_tensor", "dtype": str(tensor.dtype), "nested": True, "format": "tensor_parts",
            "part_bytes": [sum(map(len, piece)) for piece in pieces], "has_lengths": lengths is not None,
            "ragged_idx": int(getattr(tensor, "_ragged_idx", 1))}, Parts(tuple(b for piece in pieces for b in piece))


def _serialized(tensor: Any) -> list[memoryview]:
    """Header and elements of a tensor."""
    found = _tensors.elements(tensor)
    if found is None:
        raise TypeError(f"a tensor of {tensor.dtype} and {tensor.dim()} dimensions cannot be stored")
    buffers = [memoryview(found.header.pack())]
    if found.nbytes:
        raw = (ctypes.c_uint8 * found.nbytes).from_address(found.address)
        raw.held = found
        buffers.append(memoryview(raw).cast("B"))
    return buffers


def encode(value: Any, name: str) -> tuple[dict[str, Any], Any]:
    """The metadata of a member, and the value to write: Parts, TensorMember, TensorObjectBuffer, or an object with a
    buffer."""
    if isinstance(value, TensorObjectBuffer):
        return {"encoding": "torch_tensor"}, value
    if isinstance(value, Parts):
        if value.dtype is None or value.shape is None:
            return {"encoding": "bytes"}, value
        return {"encoding": "ndarray", "dtype": value.dtype, "shape": list(value.shape)}, value
    if torch is not None and isinstance(value, torch.Tensor):
        return _encode_tensor(value)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"{name} is an array of Python objects, which has no bytes to store")
        flat = np.ascontiguousarray(value)
        spec = {"encoding": "ndarray", "dtype": flat.dtype.str, "shape": list(flat.shape)}
        if not value.ndim:
            # upstream's readers ignore this, and read an array with one element and one dimension
            spec["ndim"] = 0
        return spec, Parts((memoryview(flat.reshape(-1).view(np.uint8)) if flat.size else memoryview(b""),))
    return {"encoding": "bytes"}, value


def put_members(payloads: Payloads, base: str, members: Mapping[str, Any], chunk_bytes: int,
                policy: BundleTransferPolicy, config: Any, written: list[str]) -> dict[str, Any]:
    """Store members below the key @base, and return their manifest entries.  Adds each key to @written before storing
    it."""
    chunks, out = [], {}
    for name, value in members.items():
        check_segment(name, "buffer name")
        key = f"{base}/{name}"
        extra = {}
        size = chunk_bytes
        if isinstance(value, TensorObjectBuffer):
            written.append(key)
            out[name] = _put_tensor_buffer(payloads, key, value, config)
            continue
        if isinstance(value, TensorMember):
            if policy.copy_mode == "zero_copy":
                raise ValueError("zero-copy structured tensor fields require a BufferPool tensor-object buffer: tensor_object_buffer()")
            stored = None
            if policy.copy_mode != "copy":
                written.append(key)
                stored = _put_tensor(payloads, key, value.tensor, config)
            if stored is not None:
                out[name] = stored
                continue
            buffers, extra = _tensor_bytes(value.tensor)
            size = max(1, sum(map(len, buffers)))
        else:
            buffers = list(value.buffers) if isinstance(value, Parts) else [bytes_view(value, name)]
        groups = split(buffers, size)
        if groups and policy.copy_mode == "zero_copy":
            raise RuntimeError("zero-copy put requires tensor-object buffers: tensor_object_buffer()")
        out[name] = {**describe(key, [sum(map(len, group)) for group in groups]), **extra}
        chunks += [(chunk["key"], group) for chunk, group in zip(out[name]["chunks"], groups)]
    written += [key for key, _ in chunks]
    payloads.write(chunks, policy, config)
    return out


def _put_tensor_buffer(payloads: Payloads, key: str, value: TensorObjectBuffer, config: Any) -> dict[str, Any]:
    store = payloads.store
    if config is None and callable(getattr(store, "put_tensor_from", None)):
        check_status(store.put_tensor_from(key, value.ptr, value.size), "put_tensor_from", key)
    elif callable(getattr(store, "put_from", None)):
        payloads.stored_config("put_from", key, value.ptr, value.size, config=config)
    else:
        raise RuntimeError("put_from is unavailable: the store does not have it")
    return describe(key, [value.size])


def _put_tensor(payloads: Payloads, key: str, tensor: Any, config: Any) -> Optional[dict[str, Any]]:
    """Store a tensor with the store's put_tensor(); None if it has none."""
    call = "put_tensor" if config is None else "pub_tensor"
    if not callable(getattr(payloads.store, call, None)):
        return None
    payloads.stored_config(call, key, tensor, config=config)
    return {**describe(key, [_tensors.HEADER + int(tensor.nbytes)]), "kind": "tensor", "dtype": str(tensor.dtype),
            "shape": list(tensor.shape), "metadata_bytes": _tensors.HEADER}


def _tensor_bytes(tensor: Any) -> tuple[list[memoryview], dict[str, Any]]:
    if tensor.dim() == 0:
        # upstream's readers support only this format here
        buffer = io.BytesIO()
        torch.save(tensor.detach().cpu().clone(), buffer)
        return [buffer.getbuffer()], {"format": "torch_save"}
    return _serialized(tensor), {"metadata_bytes": _tensors.HEADER}


# ---- reading ----


def resolved(rows: slice, total: int) -> range:
    """The rows of a slice of @total rows; the step must be positive."""
    start, stop, step = rows.indices(total)
    return range(start, max(start, stop), step)


def _row_spans(rows: Rows, width: int, at: int = 0, into: int = 0) -> list[Span]:
    """Spans of rows of @width bytes from byte @at of the payload, packed from byte @into of the memory on."""
    if isinstance(rows, range) and rows.step == 1:
        return [(at + rows.start * width, into, len(rows) * width)]
    return [(at + row * width, into + i * width, width) for i, row in enumerate(rows)]


def _column_spans(rows: Rows, row: int, columns: range, item: int, at: int = 0) -> list[Span]:
    """As _row_spans(), for columns of rows of @row elements of @item bytes; both begin at byte @at."""
    width = len(columns) * item
    return [(at + (n * row + columns.start) * item, at + i * width, width) for i, n in enumerate(rows)]


def _columns_of(name: str, wanted: slice, shape: Sequence[int]) -> range:
    if len(shape) != 2:
        raise TypeError(f"{name} is not a dense matrix: its shape is {list(shape)}")
    start, stop, step = wanted.indices(shape[1])
    if step != 1:
        raise ValueError(f"column slice step must be None or 1: {name}")
    return range(start, max(start, stop))


def _check_rows(name: str, rows: Rows, total: int) -> None:
    """A ValueError unless a member of @total rows has these."""
    # ranges have a positive step
    ends = (rows[0], rows[-1]) if isinstance(rows, range) and rows else rows
    if ends and (min(ends) < 0 or max(ends) >= total):
        raise ValueError(f"structured member {name}: rows {min(ends)} to {max(ends)} are out of range, it has {total}")


def _shape_of(spec: Mapping[str, Any], name: str) -> tuple[int, ...]:
    shape = spec.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"structured field {name} is missing a valid shape: {shape!r}")
    return tuple(shape)


def dtype_of(spec: Mapping[str, Any], name: str) -> np.dtype[Any]:
    """The type of an array's elements; a ValueError if it is invalid or contains Python objects."""
    try:
        if not isinstance(spec.get("dtype"), str):
            raise TypeError("no text")
        dtype = np.dtype(spec["dtype"])
    except (TypeError, ValueError, SyntaxError) as e:
        raise ValueError(f"structured ndarray field {name} is missing dtype or shape: {spec.get('dtype')!r}") from e
    if dtype.hasobject:
        raise ValueError(f"the array {name} would be Python objects")
    return dtype


def _destination_array(name: str, destination: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """The caller's memory as an array of that type and shape."""
    size = math.prod(shape) * dtype.itemsize
    if isinstance(destination, RawDestination):
        if destination.size < size:
            raise ValueError(f"raw destination has {destination.size} bytes, expected at least {size}")
        raw = (ctypes.c_uint8 * size).from_address(destination.ptr)
        raw.held = destination.owner
        return np.frombuffer(raw, np.uint8).view(dtype).reshape(shape) if size else np.empty(shape, dtype)
    if not isinstance(destination, np.ndarray):
        raise TypeError(f"structured ndarray field {name} destination must be a numpy.ndarray or raw_destination()")
    problem = None
    if destination.dtype != dtype:
        problem = f"dtype mismatch: expected {dtype.str}, got {destination.dtype.str}"
    elif destination.shape != shape:
        problem = f"shape mismatch: expected {shape}, got {destination.shape}"
    elif not destination.flags.c_contiguous:
        problem = "must be C-contiguous"
    elif not destination.flags.writeable:
        problem = "must be writeable"
    if problem:
        raise ValueError(f"structured ndarray field {name} destination {problem}")
    return destination


def read_array(payloads: Payloads, name: str, payload: Mapping[str, Any], spec: Mapping[str, Any],
               rows: Optional[Rows] = None, destination: Any = None, columns: Optional[slice] = None) -> np.ndarray:
    """An array, or rows of it, or columns of its rows, in new memory or in the caller's."""
    dtype, shape = dtype_of(spec, name), _shape_of(spec, name)
    if math.prod(shape) * dtype.itemsize != payload["bytes"]:
        raise ValueError(f"the array {name} of {shape} has {payload['bytes']} bytes")
    if columns is not None:
        chosen = _columns_of(name, columns, shape)
        rows = range(shape[0]) if rows is None else rows
        _check_rows(name, rows, shape[0])
        spans, out_shape = _column_spans(rows, shape[1], chosen, dtype.itemsize), (len(rows), len(chosen))
    elif rows is None:
        spans, out_shape = [(0, 0, payload["bytes"])], () if spec.get("ndim") == 0 and shape == (1,) else shape
    elif not shape or spec.get("ndim") == 0:
        raise ValueError(f"structured ndarray field {name}: slicing requires at least one dimension")
    else:
        _check_rows(name, rows, shape[0])
        width = math.prod(shape[1:]) * dtype.itemsize
        out_shape = (len(rows), *shape[1:])
        if isinstance(rows, range) and rows.step > 1 and rows and destination is None and width < 4096:
            # short rows with gaps: read everything between the first and the last at once
            whole = range(rows[0], rows[-1] + 1)
            return read_array(payloads, name, payload, spec, whole)[::rows.step].copy()
        spans = _row_spans(rows, width)
    size = math.prod(out_shape) * dtype.itemsize
    if destination is None:
        out = payloads.memory(payload, size, rows is None or isinstance(rows, range))
        payloads.fill(payload, spans, out)
        return out.view(dtype).reshape(out_shape) if size else np.empty(out_shape, dtype)
    out = _destination_array(name, destination, dtype, out_shape)
    payloads.fill(payload, spans, out, getattr(destination, "pre_registered", False))
    return out


def _tensor_from(memory: np.ndarray, name: str) -> Any:
    header = _tensors.Header.unpack(memory[:_tensors.HEADER].tobytes(), len(memory))
    if header is None:
        raise ValueError(f"the tensor {name} is damaged: there is no tensor in its {len(memory)} bytes")
    return _tensors.tensor_of(header, memory)


def _load(data: Any, name: str) -> Any:
    """Load a tensor in torch.save()'s format; creates no other objects."""
    if torch is None:
        raise RuntimeError(f"the tensor {name} needs torch to be read")
    try:
        return torch.load(io.BytesIO(bytes(data)), weights_only=True)
    except Exception as e:
        raise ValueError(f"the tensor {name} is damaged: {e}") from e


def _check_tensor_destination(name: str, destination: Any, size: int) -> None:
    if not isinstance(destination, (TensorObjectBuffer, RawDestination)):
        raise ValueError(f"structured tensor member {name} only supports tensor_object_buffer or raw_destination "
                         "destinations")
    if destination.size < size:
        raise ValueError(f"tensor destination has {destination.size} bytes, expected at least {size}")


def _read_tensor_into(payloads: Payloads, name: str, payload: Mapping[str, Any], destination: Any) -> Any:
    _check_tensor_destination(name, destination, payload["bytes"])
    payloads.fill_at(payload, [(0, 0, payload["bytes"])], destination.ptr, destination.size,
                     getattr(destination, "pre_registered", False))
    if payload.get("kind") != "tensor":
        return destination
    raw = (ctypes.c_uint8 * payload["bytes"]).from_address(destination.ptr)
    raw.held = destination.owner
    return _tensor_from(np.frombuffer(raw, np.uint8), name)


def _read_tensor_rows(payloads: Payloads, name: str, payload: Mapping[str, Any], spec: Mapping[str, Any],
                      rows: Optional[Rows], destination: Any, columns: Optional[slice] = None) -> Any:
    head = np.empty(_tensors.HEADER, np.uint8)
    payloads.fill(payload, [(0, 0, _tensors.HEADER)], head)
    header = _tensors.Header.unpack(head.tobytes(), payload["bytes"])
    if header is None or ("shape" in spec and _shape_of(spec, name) != header.shape):
        raise ValueError(f"the tensor {name} is damaged: its header is not that of its shape")
    if not header.shape:
        raise ValueError(f"structured tensor member {name}: slicing requires at least one dimension")
    rows = range(header.shape[0]) if rows is None else rows
    _check_rows(name, rows, header.shape[0])
    item = _tensors.TYPES[header.code][1]
    if columns is None:
        part = _tensors.Header(header.code, (len(rows), *header.shape[1:]))
        spans = _row_spans(rows, math.prod(header.shape[1:]) * item, _tensors.HEADER, _tensors.HEADER)
    else:
        chosen = _columns_of(name, columns, header.shape)
        part = _tensors.Header(header.code, (len(rows), len(chosen)))
        spans = _column_spans(rows, header.shape[1], chosen, item, _tensors.HEADER)
    size = _tensors.HEADER + part.nbytes
    if destination is None:
        out = payloads.memory(payload, size)
        payloads.fill(payload, spans, out)
        out[:_tensors.HEADER] = np.frombuffer(part.pack(), np.uint8)
        return _tensors.tensor_of(part, out)
    _check_tensor_destination(name, destination, size)
    payloads.fill_at(payload, spans, destination.ptr, destination.size, getattr(destination, "pre_registered", False))
    ctypes.memmove(destination.ptr, part.pack(), _tensors.HEADER)
    return destination


def _nested(data: np.ndarray, spec: Mapping[str, Any], name: str) -> Any:
    """Build a jagged tensor from its parts: elements, offsets, and lengths if there are holes."""
    if torch is None:
        raise RuntimeError(f"the tensor {name} needs torch to be read")
    if spec.get("format", "torch_save") == "torch_save":
        whole = _load(data, name)
        parts, axis = [whole.values(), whole.offsets(), whole.lengths()], int(getattr(whole, "_ragged_idx", 1))
    elif spec["format"] == "tensor_parts":
        sizes, axis = spec.get("part_bytes"), spec.get("ragged_idx", 1)
        if not isinstance(sizes, list) or len(sizes) != (3 if spec.get("has_lengths") else 2) or not all(
                type(n) is int and n > 0 for n in sizes) or sum(sizes) != len(data):
            raise ValueError(f"nested tensor member {name} has invalid parts: {sizes!r} of {len(data)} bytes")
        ends = np.cumsum(sizes)
        parts = [_tensor_from(data[end - n:end].copy(), name) for end, n in zip(ends, sizes)]
        parts += [None] * (3 - len(parts))
    else:
        raise ValueError(f"unsupported nested tensor payload format: {spec['format']}")
    values, offsets, lengths = parts
    each = offsets.diff() if lengths is None else lengths
    if (each.numel() and int(each.min()) < 0) or offsets.numel() < 1 or int(offsets[0]) < 0 or (
            int((offsets[:each.numel()] + each).max()) if each.numel() else 0) > values.shape[axis - 1]:
        raise ValueError(f"nested tensor member {name} is damaged: its rows lie outside of its elements")
    return torch.nested.nested_tensor_from_jagged(
        values, offsets=offsets, lengths=lengths, jagged_dim=axis,
        min_seqlen=int(each.min()) if each.numel() else 0, max_seqlen=int(each.max()) if each.numel() else 0)


def _nested_rows(value: Any, rows: Rows) -> Any:
    each = value.unbind()
    if len(rows):
        out = torch.nested.as_nested_tensor([each[row] for row in rows], layout=value.layout)
    else:
        out = torch.nested.nested_tensor_from_jagged(value.values()[:0], offsets=value.offsets()[:1] * 0)
    if hasattr(value, "_ragged_idx"):
        out._ragged_idx = value._ragged_idx
    return out


def read_tensor(payloads: Payloads, name: str, payload: Mapping[str, Any], spec: Mapping[str, Any],
                rows: Any = None, destination: Any = None) -> Any:
    """Read a tensor, or rows of it (a slice or indices), into new memory or into a destination."""
    nested, pickled = spec.get("nested"), payload.get("format") == "torch_save"
    if (nested or pickled) and destination is not None:
        raise ValueError(f"structured {'nested' if nested else 'torch_save'} tensor member {name} does not support "
                         "destinations")
    if nested:
        value = _nested(payloads.read(payload), spec, name)
        if rows is None:
            return value
        rows = resolved(rows, value.shape[0]) if isinstance(rows, slice) else rows
        _check_rows(name, rows, value.shape[0])
        return _nested_rows(value, rows)
    if pickled:
        value = _load(payloads.read(payload), name)
        if rows is None:
            return value
        if isinstance(rows, slice):
            return value[rows]
        _check_rows(name, rows, len(value))
        return value[list(rows)]
    if rows is not None:
        if isinstance(rows, slice):
            shape = _shape_of(spec, name)
            rows = resolved(rows, shape[0] if shape else 0)
        return _read_tensor_rows(payloads, name, payload, spec, rows, destination)
    if payload.get("kind") == "tensor" and not payloads.own:
        return _of_put_tensor(payloads, name, payload, destination)
    if destination is not None:
        return _read_tensor_into(payloads, name, payload, destination)
    return _tensor_from(payloads.read(payload), name)


def _of_put_tensor(payloads: Payloads, name: str, payload: Mapping[str, Any], destination: Any) -> Any:
    """Read a tensor that put_tensor() of the caller's own store wrote, in a format that only that store knows."""
    key = payload["key"]
    if destination is None:
        value = payloads.method("get_tensor", f"the tensor {name}")(key)
        if value is None:
            raise RuntimeError(f"{key} cannot be read: get_tensor found no tensor")
        return value
    _check_tensor_destination(name, destination, payload["bytes"])
    value = payloads.method("get_tensor_into", f"the tensor {name}")(key, destination.ptr, destination.size)
    return destination if value is None else value


def read_matrix(payloads: Payloads, name: str, payload: Mapping[str, Any], spec: Mapping[str, Any], rows: Optional[Rows],
                columns: slice, destination: Any) -> Any:
    """Columns of a matrix, or of some of its rows; a TypeError for another member."""
    encoding = spec.get("encoding", "bytes")
    if encoding == "ndarray":
        return read_array(payloads, name, payload, spec, rows, destination, columns)
    if encoding != "torch_tensor" or spec.get("nested") or payload.get("format") == "torch_save":
        raise TypeError(f"{name} is not a dense matrix")
    return _read_tensor_rows(payloads, name, payload, spec, rows, destination, columns)


def read_member(payloads: Payloads, name: str, payload: Mapping[str, Any], spec: Mapping[str, Any],
                rows: Any = None, destination: Any = None) -> Any:
    """Read a member.  @rows (a slice, range or indices) is for arrays and tensors only.  Bytes are returned as an array of
    uint8 if a store of ours or the caller's pool has the memory, else as bytes."""
    encoding = spec.get("encoding", "bytes")
    if encoding == "torch_tensor":
        return read_tensor(payloads, name, payload, spec, rows, destination)
    if encoding == "ndarray":
        if isinstance(rows, slice):
            shape = _shape_of(spec, name)
            rows = resolved(rows, shape[0] if shape else 0)
        return read_array(payloads, name, payload, spec, rows, destination)
    if encoding != "bytes":
        raise ValueError(f"unsupported structured field encoding: {encoding}")
    if rows is not None:
        raise ValueError(f"structured bytes member {name} does not support slicing")
    if destination is not None:
        raise ValueError(f"structured bytes member {name} does not support materialize_into")
    found = payloads.read(payload, pooled=True)
    return found if len(found) and (payloads.own or lease_of(found) is not None) else found.tobytes()
