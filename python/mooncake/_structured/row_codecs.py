# SPDX-License-Identifier: Apache-2.0
"""Codecs for columns that are not arrays: numbers of varying length, tensors, texts, bytes, images, JSON-like values.

A codec encodes the values of a column as named members, plus metadata that is kept in the reference, and decodes all or
some rows.  Any value may be None.  Members are checked before they are used: a ValueError if they are invalid."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np

from mooncake._structured.bundle_members import Parts, Rows, dtype_of, read_array, torch
from mooncake._structured.bundle_payload import Payloads, bytes_view

Payload = dict[str, Any]
Encoded = tuple[Payload, dict[str, Any]]

# a double represents every integer up to here
EXACT = 1 << 53


@dataclass(frozen=True)
class FieldSchema:
    """The encoding of a column: codec is one of ragged_tensor, ragged_tensor_dict, typed_ragged, ndarray, bytes_ragged,
    media_bytes, media_list_ragged, utf8_ragged, msgpack_ragged, json_ragged, auto.

    nullable: whether rows may be None.  metadata: "section" puts the field into batch, non_tensor_batch or meta_info;
    "dtype" is for typed_ragged and ndarray, "keys" for ragged_tensor_dict."""

    codec: str
    nullable: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)


def msgpack() -> Any:
    try:
        import msgpack as found
    except ImportError as e:
        raise ImportError("rows of lists and dicts need the package msgpack (pip install msgpack)") from e
    return found


class Columns:
    """The members of one column, read on demand."""

    def __init__(self, payloads: Payloads, buffers: Mapping[str, Any], specs: Mapping[str, Any],
                 members: Mapping[str, str]) -> None:
        self._payloads = payloads
        self._buffers = buffers
        self._specs = specs
        self._members = members

    def part(self, members: Mapping[str, str]) -> "Columns":
        """Some members under other names: {new name: name in this object}."""
        return Columns(self._payloads, self._buffers, self._specs,
                       {new: self._members[old] for new, old in members.items()})

    def below(self, prefix: str) -> "Columns":
        return self.part({name[len(prefix):]: name for name in self._members if name.startswith(prefix)})

    def _find(self, name: str) -> tuple[str, Any, Any]:
        member = self._members[name]
        return member, self._buffers[member], self._specs.get(member, {"encoding": "bytes"})

    def rows(self, name: str, rows: Rows) -> np.ndarray:
        member, payload, spec = self._find(name)
        return read_array(self._payloads, member, payload, spec, rows)

    def flags(self, name: str, rows: Rows) -> np.ndarray:
        out = self.rows(name, rows)
        if out.dtype != np.bool_ or out.ndim != 1:
            raise ValueError(f"{self._members[name]} must be one bool for each row")
        return out

    def _bounds(self, name: str, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(rows, range) and rows.step == 1:
            both = self.rows(name, range(rows.start, rows.start + len(rows) + 1))
            begins, ends = both[:-1], both[1:]
        else:
            begins = self.rows(name, tuple(rows))
            ends = self.rows(name, tuple(row + 1 for row in rows))
        if begins.dtype.kind not in "iu" or begins.ndim != 1:
            raise ValueError(f"{self._members[name]} are no offsets")
        return begins.astype(np.int64), ends.astype(np.int64)

    def pieces(self, offsets: str, rows: Rows, limit: Optional[int] = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions of the rows: begins, ends, and the offsets after packing the rows together."""
        begins, ends = self._bounds(offsets, rows)
        if (begins < 0).any() or (ends < begins).any() or (limit is not None and (ends > limit).any()):
            raise ValueError(f"{self._members[offsets]} lie outside of their data")
        return begins, ends, _offsets(ends - begins)

    def data(self, name: str, offsets: str, rows: Rows, dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
        """The elements of the rows, packed, and their offsets in the result."""
        member, payload, spec = self._find(name)
        if spec.get("encoding") == "ndarray" and dtype_of(spec, member) != dtype:
            raise ValueError(f"{member} is of {spec.get('dtype')}, not of {dtype}")
        n = dtype.itemsize
        begins, ends, packed = self.pieces(offsets, rows, payload["bytes"] // n)
        size = int(packed[-1]) * n
        if not size:
            return np.empty(0, dtype), packed
        if (begins[1:] == ends[:-1]).all():
            spans = [(int(begins[0]) * n, 0, size)]
        else:
            spans = [(int(b) * n, int(at) * n, int(e - b) * n) for b, e, at in zip(begins, ends, packed)]
        out = self._payloads.memory(payload, size)
        self._payloads.fill(payload, spans, out)
        return out.view(dtype), packed

    def size(self, name: str) -> int:
        return self._find(name)[1]["bytes"]


def _nulls(values: Sequence[Any]) -> np.ndarray:
    return np.fromiter((v is None for v in values), np.bool_, len(values))


def _offsets(lengths: Any) -> np.ndarray:
    """The offsets of rows of these lengths, and the end of the last row."""
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def picked(items: Sequence[Any], rows: Rows) -> list[Any]:
    return [items[row] for row in rows]


# ---- numbers ----


def _lossless(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    out = np.asarray(array, dtype, order="C")
    if dtype.kind in "fc" and array.dtype.kind in "iu" and array.dtype.itemsize > 4 and (abs(out) >= EXACT).any():
        raise ValueError(f"integers of 2^53 and more have no place in {dtype}")
    return out


def numbers_of(value: Any) -> np.ndarray:
    """A list of numbers as an array; a ValueError if the conversion could change values."""
    array = np.asarray(value)
    if not array.size:
        return array
    if array.dtype.kind not in "biufc":
        raise ValueError(f"non-numeric dtype: {array.dtype}")
    if array.dtype.kind in "fc" and not isinstance(value, np.ndarray) and (abs(array) >= EXACT).any():
        # the array does not show which values were integers
        raise ValueError("numbers that a double may not say")
    return array


def _common(arrays: Sequence[np.ndarray]) -> np.dtype[Any]:
    """The common type of all arrays; ignores empty lists, which have no type."""
    kinds = {a.dtype for a in arrays if a.size} or {a.dtype for a in arrays}
    return np.result_type(*kinds) if kinds else np.dtype(np.int64)


def encode_typed_ragged(values: Sequence[Any], dtype: Optional[np.dtype[Any]] = None) -> Encoded:
    arrays = {i: np.asarray(v, dtype) if dtype is not None else
              v if isinstance(v, np.ndarray) else numbers_of(v) for i, v in enumerate(values) if v is not None}
    kind = np.dtype(dtype) if dtype is not None else _common(list(arrays.values()))
    if kind.hasobject or kind.kind not in "biufc":
        raise ValueError(f"typed_ragged is for numbers, not {kind}")
    flat = {i: _lossless(a, kind) for i, a in arrays.items()}
    n, deepest = len(values), max((a.ndim for a in flat.values()), default=0)
    lengths, ndims = np.zeros(n, np.int64), np.zeros(n, np.int16)
    shapes = np.zeros((n, max(deepest, 1)), np.int64)
    for i, a in flat.items():
        lengths[i], ndims[i] = a.size, a.ndim
        shapes[i, :a.ndim] = a.shape
    offsets = _offsets(lengths)
    data = Parts(tuple(bytes_view(a, "row") for a in flat.values() if a.size), kind.str, (int(offsets[-1]),))
    is_array = [isinstance(v, np.ndarray) for v in values]
    rows = "ndarray" if len(flat) == sum(is_array) else "mixed" if any(is_array) else "list"
    metadata: dict[str, Any] = {"dtype": str(kind), "max_ndim": deepest, "shape_policy": "ragged", "row_format": rows,
                                "ndarray_rows": is_array if rows == "mixed" else None}
    # with it, upstream's readers give rows without dimensions the dimension of the others
    if rows == "ndarray" and n and len({a.ndim > 0 for a in flat.values()}) < 2:
        metadata["physical_layout"] = "contiguous_flat"
    return {"data": data, "offsets": offsets, "shapes": shapes, "ndims": ndims, "nulls": _nulls(values)}, metadata


def decode_typed_ragged(columns: Columns, rows: Rows, metadata: Mapping[str, Any]) -> list[Any]:
    dtype = dtype_of({"dtype": metadata.get("dtype", "int64")}, "rows")
    data, offsets = columns.data("data", "offsets", rows, dtype)
    nulls, ndims, shapes = columns.flags("nulls", rows), columns.rows("ndims", rows), columns.rows("shapes", rows)
    form = metadata.get("row_format")
    arrays = picked(metadata["ndarray_rows"], rows) if form == "mixed" else [form == "ndarray"] * len(rows)
    if shapes.ndim != 2 or (shapes < 0).any() or (ndims < 0).any() or (ndims > shapes.shape[1]).any():
        raise ValueError("shapes of rows are damaged")
    out: list[Any] = []
    ends = offsets.tolist()
    for i, (null, ndim, shape) in enumerate(zip(nulls.tolist(), ndims.tolist(), shapes.tolist())):
        if null:
            out.append(None)
            continue
        array = data[ends[i]:ends[i + 1]].reshape(shape[:ndim])
        out.append(array if arrays[i] else array.tolist())
    return out


def encode_numbers(values: Sequence[Any], dtype: Optional[np.dtype[Any]] = None) -> Encoded:
    """One number for each row."""
    if dtype is None:
        dtype = number_type([v for v in values if v is not None])
    data = np.asarray([0 if v is None else v for v in values], dtype)
    return {"data": data, "nulls": _nulls(values)}, {"dtype": str(data.dtype), "shape": list(data.shape)}


def number_type(values: Sequence[Any]) -> np.dtype[Any]:
    """A type that represents all of these numbers exactly; a ValueError if there is none."""
    array = np.asarray(values)
    if array.dtype.kind not in "biufc" or (array.dtype.kind in "fc" and any(
            isinstance(v, (int, np.integer)) and abs(int(v)) >= EXACT for v in values)):
        raise ValueError(f"numbers of no common type: {array.dtype}")
    return array.dtype


def decode_numbers(columns: Columns, rows: Rows, metadata: Mapping[str, Any]) -> list[Any]:
    values, nulls = columns.rows("data", rows).tolist(), columns.flags("nulls", rows).tolist()
    return [None if null else value for value, null in zip(values, nulls)]


# ---- tensors ----


def _torch_type(name: str) -> Any:
    if torch is None:
        raise RuntimeError("torch is required to encode or decode ragged tensor fields")
    found = getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(found, torch.dtype) or found == torch.bfloat16:
        raise ValueError(f"no torch dtype that numpy has: {name}")
    return found


def encode_tensors(values: Sequence[Any]) -> Encoded:
    if torch is None:
        raise RuntimeError("torch is required to encode or decode ragged tensor fields")
    tensors = [None if v is None else torch.as_tensor(v).detach().cpu() for v in values]
    kinds = {t.dtype for t in tensors if t is not None}
    if len(kinds) > 1:
        raise ValueError(f"mixed tensor dtype: {sorted(map(str, kinds))}")
    name = str(kinds.pop() if kinds else torch.float32)
    dtype = torch.empty(0, dtype=_torch_type(name)).numpy().dtype
    payload, metadata = encode_typed_ragged([None if t is None else t.numpy() for t in tensors], dtype)
    return payload, {**metadata, "dtype": name}


def decode_tensors(columns: Columns, rows: Rows, metadata: Mapping[str, Any]) -> list[Any]:
    kind = _torch_type(metadata.get("dtype", "float32"))
    dtype = torch.empty(0, dtype=kind).numpy().dtype
    arrays = decode_typed_ragged(columns, rows, {**metadata, "dtype": str(dtype), "row_format": "ndarray"})
    return [None if a is None else torch.from_numpy(a) for a in arrays]


def _tensor_names(names: Any) -> list[str]:
    names = list(names)
    for name in names:
        if not isinstance(name, str):
            raise TypeError("ragged_tensor_dict keys must be strings")
        if not name or any(c in name for c in "./\\"):
            raise ValueError(f"ragged_tensor_dict keys must not be empty and must not contain '.', '/', or '\\': {name!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"ragged_tensor_dict keys contain duplicate key: {names}")
    return names


def encode_tensor_dicts(values: Sequence[Any], names: Any = None) -> Encoded:
    declared = None if names is None else _tensor_names(names)
    found: set[str] = set()
    for i, row in enumerate(values):
        if row is None:
            continue
        if not isinstance(row, Mapping):
            raise TypeError(f"ragged_tensor_dict rows must be mappings or None; row {i} is {type(row).__name__}")
        if any(v is None for v in row.values()):
            raise TypeError(f"ragged_tensor_dict rows cannot contain explicit None tensor values; row {i} has one")
        found.update(_tensor_names(row))
        if declared is not None and found - set(declared):
            raise ValueError(f"ragged_tensor_dict rows contain keys not declared in FieldSchema metadata['keys']; row {i} has "
                             f"keys not declared: {sorted(found - set(declared))}")
    names = sorted(found) if declared is None else declared
    payload: Payload = {"null_mask": _nulls(values)}
    codecs = {}
    for name in names:
        try:
            part, codecs[name] = encode_tensors([None if row is None else row.get(name) for row in values])
        except (TypeError, ValueError, RuntimeError) as e:
            raise ValueError(f"failed to encode ragged_tensor_dict key {name!r}: {e}") from e
        payload.update({f"{name}.{what}": column for what, column in part.items()})
    return payload, {"keys": names, "key_codecs": codecs}


def decode_tensor_dicts(columns: Columns, rows: Rows, metadata: Mapping[str, Any]) -> list[Any]:
    names = _tensor_names(metadata.get("keys", ()))
    found = {n: decode_tensors(columns.below(f"{n}."), rows, metadata["key_codecs"].get(n) or {}) for n in names}
    return [None if null else {n: column[i] for n, column in found.items() if column[i] is not None}
            for i, null in enumerate(columns.flags("null_mask", rows).tolist())]


# ---- bytes ----


def is_bytes(value: Any) -> bool:
    return isinstance(value, (bytes, bytearray, memoryview))


def is_picture(value: Any) -> bool:
    return (type(value).__module__ or "").startswith("PIL.") and hasattr(value, "save")


def _of_media(value: Any) -> tuple[bytes, dict[str, Any]]:
    """Bytes of a row, and their encoding: plain bytes, or pixels of an image."""
    if value is None:
        return b"", {"kind": "null"}
    if is_picture(value):
        return value.tobytes(), {"kind": "pil_raw", "mode": value.mode, "size": list(value.size),
                                 "format": getattr(value, "format", None)}
    return bytes(memoryview(value)), {"kind": "bytes"}


def _to_media(data: memoryview, encoding: Optional[Mapping[str, Any]]) -> Any:
    if not encoding or encoding.get("kind") != "pil_raw":
        return bytes(data)
    try:
        from PIL import Image
    except ImportError:
        return bytes(data)
    mode = encoding["mode"]
    image = Image.frombytes(mode, tuple(encoding["size"]), bytes(data), "raw", mode, 0, 1)
    image.format = encoding.get("format")
    return image


def _media_metadata(encodings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if all(e["kind"] != "pil_raw" for e in encodings):
        return {}
    return {"media_encodings": list(encodings), "media_types": ["image/raw"], "encode_source": "raw_pixels_from_object"}


def encode_bytes(values: Sequence[Any]) -> Encoded:
    found = [_of_media(v) for v in values]
    parts = [data for data, _ in found]
    offsets = _offsets([len(p) for p in parts])
    return {"data": Parts(tuple(memoryview(p) for p in parts if p)), "offsets": offsets,
            "nulls": _nulls(values)}, _media_metadata([e for _, e in found])


def _rows_of_bytes(columns: Columns, rows: Rows) -> list[Optional[memoryview]]:
    data, offsets = columns.data("data", "offsets", rows, np.dtype(np.uint8))
    view, ends = memoryview(data), offsets.tolist()
    return [None if null else view[ends[i]:ends[i + 1]]
            for i, null in enumerate(columns.flags("nulls", rows).tolist())]


def decode_bytes(columns: Columns, rows: Rows, metadata: Mapping[str, Any]) -> list[Any]:
    encodings = metadata.get("media_encodings")
    chosen = picked(encodings, rows) if encodings else [None] * len(rows)
    return [None if d is None else _to_media(d, e) for d, e in zip(_rows_of_bytes(columns, rows), chosen)]


def encode_media_lists(values: Sequence[Any]) -> Encoded:
    found = [_of_media(item) for row in values if row is not None for item in row]
    parts = [data for data, _ in found]
    ends = _offsets([0 if row is None else len(row) for row in values])
    encodings = [e for _, e in found]
    metadata = {"encode_source": "raw_pixels_from_object", "media_encodings": encodings, **_media_metadata(encodings)}
    return {"data": Parts(tuple(memoryview(p) for p in parts if p)), "row_offsets": ends,
            "byte_offsets": _offsets([len(p) for p in parts]), "nulls": _nulls(values)}, metadata


def decode_media_lists(columns: Columns, rows: Rows, metadata: Mapping[str, Any]) -> list[Any]:
    begins, ends, packed = columns.pieces("row_offsets", rows, columns.size("byte_offsets") // 8 - 1)
    items: Rows = range(int(begins[0]), int(ends[-1])) if len(rows) and (begins[1:] == ends[:-1]).all() else tuple(
        item for b, e in zip(begins.tolist(), ends.tolist()) for item in range(b, e))
    data, offsets = columns.data("data", "byte_offsets", items, np.dtype(np.uint8))
    view, at = memoryview(data), offsets.tolist()
    encodings = metadata.get("media_encodings")
    chosen = picked(encodings, items) if encodings else [None] * len(items)
    media = [_to_media(view[at[i]:at[i + 1]], e) for i, e in enumerate(chosen)]
    return [None if null else media[int(packed[i]):int(packed[i + 1])]
            for i, null in enumerate(columns.flags("nulls", rows).tolist())]


# ---- values ----


def _plain(value: Any) -> Any:
    """Convert a value that msgpack and JSON do not support to one that they do."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no value that can be stored among others")


def pack(value: Any) -> bytes:
    return msgpack().packb(value, use_bin_type=True, strict_types=True, default=_plain)


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def _by_row(to: Callable[[Any], bytes], back: Callable[[memoryview], Any]) -> tuple[Callable, Callable]:
    def encode(values: Sequence[Any]) -> Encoded:
        return encode_bytes([None if v is None else to(v) for v in values])

    def decode(columns: Columns, rows: Rows, metadata: Mapping[str, Any]) -> list[Any]:
        return [None if d is None else back(d) for d in _rows_of_bytes(columns, rows)]

    return encode, decode


def _keyed(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """A dict with tuples as keys again, which were decoded as lists."""
    def key(value: Any) -> Any:
        return tuple(map(key, value)) if isinstance(value, list) else value

    return {key(k): v for k, v in pairs}


def _unpack(data: memoryview) -> Any:
    found = msgpack()
    try:
        return found.unpackb(data, raw=False, strict_map_key=False)
    except TypeError:
        return found.unpackb(data, raw=False, strict_map_key=False, object_pairs_hook=_keyed)


CODECS: dict[str, tuple[Callable[..., Encoded], Callable[[Columns, Rows, Mapping[str, Any]], list[Any]]]] = {
    "ragged_tensor": (encode_tensors, decode_tensors),
    "ragged_tensor_dict": (encode_tensor_dicts, decode_tensor_dicts),
    "typed_ragged": (encode_typed_ragged, decode_typed_ragged),
    "ndarray": (encode_numbers, decode_numbers),
    "bytes_ragged": (encode_bytes, decode_bytes),
    "media_bytes": (encode_bytes, decode_bytes),
    "media_list_ragged": (encode_media_lists, decode_media_lists),
    "utf8_ragged": _by_row(lambda v: v.encode(), lambda d: str(d, "utf-8")),
    "msgpack_ragged": _by_row(pack, _unpack),
    "json_ragged": _by_row(to_json, lambda d: json.loads(bytes(d))),
}


def schema_dtype(schema: FieldSchema) -> Optional[np.dtype[Any]]:
    """The dtype that a schema names; a ValueError if it is not numeric."""
    name = schema.metadata.get("dtype")
    if name is None:
        return None
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError) as e:
        raise ValueError(f"invalid FieldSchema metadata['dtype']: {name!r}") from e
    if dtype.kind not in "biufc":
        raise ValueError(f"FieldSchema metadata['dtype'] must be numeric or bool, got {dtype}")
    return dtype


def encode_as(codec: str, values: Sequence[Any], schema: Optional[FieldSchema] = None) -> Encoded:
    """Encode values with a codec; a ValueError or TypeError if it does not support them."""
    if codec not in CODECS:
        raise ValueError(f"unsupported schema codec: {codec!r}")
    encode = CODECS[codec][0]
    if schema is not None and codec in ("typed_ragged", "ndarray"):
        return encode(values, schema_dtype(schema))
    if schema is not None and codec == "ragged_tensor_dict":
        return encode(values, schema.metadata.get("keys"))
    return encode(values)


def decode_as(codec: Any, columns: Columns, rows: Rows, metadata: Optional[Mapping[str, Any]]) -> list[Any]:
    """Decode rows; a ValueError if the members are damaged or of another codec."""
    if codec not in CODECS:
        raise ValueError(f"unknown structured non-tensor codec: {codec}")
    try:
        return CODECS[codec][1](columns, rows, metadata or {})
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as e:
        raise ValueError(f"rows of the codec {codec} are damaged: {type(e).__name__}: {e}") from e
