# SPDX-License-Identifier: Apache-2.0
"""DataProto-like objects: columns of equal length (batch, non_tensor_batch) and common metadata (meta_info); references
to stored ones; handles, which are references as JSON for other processes."""

from __future__ import annotations

import json
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field
from typing import Any, Literal, Mapping, Optional, Sequence, Union

import numpy as np

from mooncake._structured.bundle_format import RemoteBundleRef
from mooncake._structured.bundle_members import Rows, torch
from mooncake._structured.row_codecs import FieldSchema, schema_dtype

DATAPROTO_REF_HANDLE_TYPE = "mooncake_dataproto_ref"
DATAPROTO_REF_HANDLE_VERSION = 1
# a key of handles that older readers ignore
STORAGE_GROUP_ID = "storage_group_id"
SECTIONS = ("batch", "non_tensor_batch", "meta_info")


@dataclass(frozen=True)
class StructuredFieldLocation:
    """Location of a field of a DataProto: the stage's bundle, and the member in it."""

    stage: str
    member: str
    section: Literal["batch", "non_tensor_batch"]


@dataclass
class MooncakeDataProtoRef:
    """Reference to a stored DataProto: locations of fields, encodings of columns, and the meta_info itself."""

    batch_size: int
    stage_refs: dict[str, RemoteBundleRef]
    field_index: dict[str, StructuredFieldLocation]
    meta_info: dict[str, Any]
    namespace: str = "default"
    partition: str = "default"
    global_indexes: Optional[list[int]] = None
    encoded_non_tensor: dict[str, Any] = field(default_factory=dict)
    _storage_group_id: Optional[str] = field(default=None, repr=False)


@dataclass(frozen=True)
class StructuredMemberSlice:
    """A slice of a member along an axis, which must be 0."""

    axis: int
    start: int
    end: int
    step: int = 1


DataProtoRefLike = Union[MooncakeDataProtoRef, Mapping[str, Any]]

# ---- handles ----


def _json_safe(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return _json_safe(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): _json_safe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_safe(v) for v in value]
    raise TypeError(f"DataProto ref handles support only JSON-safe values, got {type(value).__name__}")


def is_dataproto_ref_handle(value: Any) -> bool:
    """Whether value is a handle of export_dataproto_ref()."""
    return isinstance(value, Mapping) and value.get("type") == DATAPROTO_REF_HANDLE_TYPE


def export_dataproto_ref(ref: MooncakeDataProtoRef) -> dict[str, Any]:
    """A reference as a dict for JSON.  A TypeError if meta_info has values that JSON does not support."""
    if not isinstance(ref, MooncakeDataProtoRef):
        raise TypeError(f"expected MooncakeDataProtoRef, got {type(ref).__name__}")
    handle: dict[str, Any] = {
        "type": DATAPROTO_REF_HANDLE_TYPE, "version": DATAPROTO_REF_HANDLE_VERSION, "kind": "bundle_stages",
        "batch_size": int(ref.batch_size), "namespace": ref.namespace, "partition": ref.partition,
        "global_indexes": _json_safe(ref.global_indexes),
        "stage_refs": {stage: {"manifest_key": r.manifest_key} for stage, r in ref.stage_refs.items()},
        "field_index": {name: {"stage": at.stage, "member": at.member, "section": at.section}
                        for name, at in ref.field_index.items()},
        "meta_info": _json_safe(ref.meta_info), "encoded_non_tensor": _json_safe(ref.encoded_non_tensor),
    }
    if ref._storage_group_id is not None:
        handle[STORAGE_GROUP_ID] = ref._storage_group_id
    json.dumps(handle, ensure_ascii=False)
    return handle


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"DataProto ref handle {what} must be a mapping")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"DataProto ref handle: each {what} must be a non-empty string, not {value!r}")
    return value


def import_dataproto_ref(handle: Mapping[str, Any]) -> MooncakeDataProtoRef:
    """The reference of a handle; does not access the store.  A ValueError if it is invalid or of a later version."""
    if not is_dataproto_ref_handle(handle):
        raise ValueError("not a Mooncake DataProto ref handle")
    try:
        version = int(handle.get("version", -1))
        batch_size = int(handle["batch_size"])
    except (KeyError, TypeError, ValueError) as e:
        raise ValueError(f"DataProto ref handle without a valid version or batch_size: {e!r}") from e
    if version not in (1, 2) or batch_size < 0:
        raise ValueError(f"unsupported DataProto ref handle version: {handle.get('version')!r}")
    if handle.get("kind") != "bundle_stages":
        raise ValueError(f"unsupported DataProto ref handle kind: {handle.get('kind')!r}")
    stages = {}
    for stage, about in _mapping(handle.get("stage_refs"), "stage_refs").items():
        key = _text(_mapping(about, "stage").get("manifest_key"), "manifest_key")
        stages[_text(stage, "stage")] = RemoteBundleRef(key, {})
    fields = {}
    for name, about in _mapping(handle.get("field_index"), "field_index").items():
        about = _mapping(about, f"field_index[{name!r}]")
        if about.get("section") not in SECTIONS[:2]:
            raise ValueError(f"invalid DataProto field section: {about.get('section')!r}")
        fields[_text(name, "field")] = at = StructuredFieldLocation(
            _text(about.get("stage"), "stage"), _text(about.get("member"), "member"), about["section"])
        if at.stage not in stages:
            raise ValueError(f"DataProto ref handle field {name!r} references unknown stage {at.stage!r}")
    group = handle.get(STORAGE_GROUP_ID)
    if group is not None or version == 2:
        _text(group, STORAGE_GROUP_ID)
    indexes = handle.get("global_indexes")
    if indexes is not None and (not isinstance(indexes, list) or not all(type(i) is int for i in indexes)):
        raise ValueError("DataProto ref handle global_indexes must contain integers")
    return MooncakeDataProtoRef(
        batch_size, stages, fields, dict(_mapping(handle.get("meta_info", {}), "meta_info")),
        str(handle.get("namespace", "default")), str(handle.get("partition", "default")),
        None if indexes is None else list(indexes),
        dict(_mapping(handle.get("encoded_non_tensor", {}), "encoded_non_tensor")), group)


def ref_of(ref: Any) -> MooncakeDataProtoRef:
    """A reference, converted if @ref is a handle."""
    if isinstance(ref, MooncakeDataProtoRef):
        return ref
    if is_dataproto_ref_handle(ref):
        return import_dataproto_ref(ref)
    raise TypeError(f"expected MooncakeDataProtoRef or DataProto handle, got {type(ref).__name__}")


# ---- rows ----


def rows_of(rows: Any, total: int) -> Optional[Rows]:
    """The requested rows: None for all, a range, or indices that are not negative."""
    if rows is None:
        return None
    if isinstance(rows, StructuredMemberSlice):
        if rows.axis != 0:
            raise ValueError("DataProto row slicing currently supports axis=0 only")
        rows = slice(rows.start, rows.end, rows.step)
    if isinstance(rows, slice):
        start, stop, step = rows.indices(total)
        if step <= 0:
            raise ValueError("DataProto row slicing step must be positive")
        return range(start, max(start, stop), step)
    if not isinstance(rows, AnySequence) or isinstance(rows, (str, bytes, bytearray)):
        raise TypeError("DataProto rows must be a slice, StructuredMemberSlice, or row index sequence")
    out = []
    for row in rows:
        if not isinstance(row, (int, np.integer)):
            raise TypeError("DataProto row indices must be integers")
        if not -total <= row < total:
            raise IndexError(f"row index out of range: {row} of {total} rows")
        out.append(int(row) % total)
    return tuple(out)


def object_array(values: Sequence[Any]) -> np.ndarray:
    """A one-dimensional array of any values, also lists."""
    out = np.empty(len(values), object)
    for i, value in enumerate(values):
        out[i] = value
    return out


# ---- sections ----


def _is_list(value: Any) -> bool:
    return isinstance(value, AnySequence) and not isinstance(value, (str, bytes, bytearray))


def _is_dense(value: Any) -> bool:
    """An array of numbers, or a tensor, with rows."""
    if torch is not None and isinstance(value, torch.Tensor):
        return value.ndim > 0
    return isinstance(value, np.ndarray) and not value.dtype.hasobject and value.ndim > 0


def as_dict(value: Any) -> dict[str, Any]:
    """A dict of anything that has items(); {} of None."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    if callable(getattr(value, "items", None)):
        return dict(value.items())
    raise TypeError(f"expected mapping-like value, got {type(value).__name__}")


def sections_of(data: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """batch, non_tensor_batch and meta_info of an object with these attributes, or of a mapping with only these keys; any
    other mapping is a batch."""
    if not isinstance(data, Mapping):
        return tuple(as_dict(getattr(data, name, None)) for name in SECTIONS)  # type: ignore[return-value]
    if data and set(data) <= set(SECTIONS) and all(
            v is None or isinstance(v, Mapping) or callable(getattr(v, "items", None)) for v in data.values()):
        return tuple(as_dict(data.get(name)) for name in SECTIONS)  # type: ignore[return-value]
    return dict(data), {}, {}


def section_named(name: str, schema: FieldSchema) -> Optional[str]:
    section = schema.metadata.get("section")
    if section is not None and section not in SECTIONS:
        raise ValueError(f"FieldSchema for {name!r} metadata['section'] must be one of {SECTIONS}")
    return section


def check_sections(batch: Mapping[str, Any], non_tensor: Mapping[str, Any], meta_info: Mapping[str, Any],
                   schemas: Mapping[str, FieldSchema]) -> int:
    """The number of rows.  A ValueError if it differs between fields, or a field is in two sections or not in the section
    of its schema."""
    for name, schema in schemas.items():
        wanted = section_named(name, schema)
        found = [s for s, fields in zip(SECTIONS, (batch, non_tensor, meta_info)) if name in fields]
        if wanted is not None and found and wanted not in found:
            raise ValueError(f"FieldSchema for {name!r} declares section {wanted!r}, but data contains it in {found}")
    sizes = {len(v) for fields in (batch, non_tensor) for v in fields.values()}
    if len(sizes) > 1:
        raise ValueError(f"DataProto fields have inconsistent batch sizes: {sorted(sizes)}")
    both = sorted(set(batch) & set(non_tensor))
    if both:
        raise ValueError(f"DataProto batch and non_tensor_batch fields overlap: {both}")
    return sizes.pop() if sizes else 0


def _flat_rows(data: Mapping[str, Any], passed: set[str]) -> int:
    """The number of rows of a flat dict, taken from arrays of numbers and tensors, or else from lists and arrays of objects."""
    fields = {k: v for k, v in data.items() if k not in passed}
    for what, suits in (("dense ", _is_dense), ("", lambda v: _is_list(v) or (isinstance(v, np.ndarray) and v.ndim > 0))):
        sizes = {len(v) for v in fields.values() if suits(v)}
        if len(sizes) > 1:
            raise ValueError(f"flat dict {what}fields have ambiguous batch sizes: {sorted(sizes)}; pass FieldSchema "
                             "metadata['section'] for those that are metadata")
        if sizes:
            return sizes.pop()
    return 0


def _flat_column(name: str, value: Any, rows: int, schema: Optional[FieldSchema]) -> Any:
    """A column of a flat dict as an array, of objects if it was a list."""
    if not isinstance(value, np.ndarray) and not _is_list(value):
        raise TypeError(f"flat dict non_tensor_batch field {name!r} must be an ndarray or non-string sequence")
    if len(value) != rows:
        raise ValueError(f"flat dict non_tensor_batch field {name!r} has batch size {len(value)}, expected {rows}")
    if not isinstance(value, np.ndarray):
        return object_array(value)
    dtype = schema_dtype(schema) if schema is not None and schema.codec == "ndarray" else None
    if dtype is not None and (not value.dtype.hasobject or all(v is not None for v in value)):
        return np.asarray(value, dtype)
    return value


def from_flat(data: Any, schemas: Mapping[str, FieldSchema]) -> dict[str, Any]:
    """The sections of a flat dict.  Arrays and tensors with the common number of rows belong to batch, such lists to
    non_tensor_batch, other values to meta_info.  Schemas can override this; if one does, lists without a schema belong to
    meta_info."""
    if not isinstance(data, Mapping):
        raise TypeError("flat dict payload must be a mapping")
    named = {k: section_named(k, s) for k, s in schemas.items() if k in data}
    told = set()
    for name, section in named.items():
        if section in SECTIONS[:2]:
            try:
                told.add(len(data[name]))
            except TypeError as e:
                raise ValueError(f"flat dict row-aligned field {name!r} must be sized") from e
    if len(told) > 1:
        raise ValueError(f"flat dict fields have inconsistent batch sizes: {sorted(told)}")
    by_schema = told.pop() if told else 0
    rows = by_schema or _flat_rows(data, {k for k, section in named.items() if section == "meta_info"})
    out: dict[str, Any] = {name: {} for name in SECTIONS}
    for name, value in data.items():
        section = named.get(name)
        if section is None:
            if rows and _is_dense(value) and len(value) == rows:
                section = "batch"
            elif not by_schema and _is_list(value) and len(value) == rows:
                section = "non_tensor_batch"
            else:
                section = "meta_info"
        if section == "non_tensor_batch":
            value = _flat_column(name, value, rows, schemas.get(name))
        out[section][name] = value
    return out


def to_flat(batch: Mapping[str, Any], non_tensor: Mapping[str, Any], meta_info: Mapping[str, Any]) -> dict[str, Any]:
    """One dict of all sections; a ValueError if a name is in two of them."""
    if len({*batch, *non_tensor, *meta_info}) < len(batch) + len(non_tensor) + len(meta_info):
        twice = (set(meta_info) & (set(batch) | set(non_tensor))) | (set(batch) & set(non_tensor))
        raise ValueError(f"Duplicate keys found across DataProto sections: {sorted(twice)}")
    return {**meta_info, **batch, **{k: v.tolist() if isinstance(v, np.ndarray) and v.dtype == object else v
                                     for k, v in non_tensor.items()}}


def built(batch: dict[str, Any], non_tensor: dict[str, Any], meta_info: dict[str, Any], cls: Any) -> Any:
    """Build a @cls from the sections, with its from_dict() if it has one; a dict of the sections for None or dict."""
    if cls is None or cls is dict:
        return dict(zip(SECTIONS, (batch, non_tensor, meta_info)))
    try:
        if callable(getattr(cls, "from_dict", None)):
            return cls.from_dict(batch, non_tensor, meta_info=meta_info)
        return cls(batch=batch, non_tensor_batch=non_tensor, meta_info=meta_info)
    except TypeError as e:
        raise TypeError(f"{getattr(cls, '__name__', cls)!r} cannot be constructed from "
                        f"batch, non_tensor_batch, and meta_info: {e}") from e


def check_slices(ref: MooncakeDataProtoRef, names: Sequence[str], slices: Mapping[str, slice]) -> None:
    """Check batch_slices of get() for the selected fields."""
    for name, columns in slices.items():
        if name not in ref.field_index:
            raise KeyError(f"unknown DataProto field: {name!r}")
        if name not in names or ref.field_index[name].section != "batch":
            raise ValueError(f"DataProto matrix field {name!r} is not selected")
        if not isinstance(columns, slice):
            raise TypeError(f"DataProto batch_slices for {name!r} must be a slice")


def chosen_fields(ref: MooncakeDataProtoRef, fields: Optional[Sequence[str]], batch: Optional[Sequence[str]],
                  non_tensor: Optional[Sequence[str]]) -> list[str]:
    """The names of the requested fields; a KeyError for unknown ones."""
    if fields is not None and (batch is not None or non_tensor is not None):
        raise ValueError("fields cannot be combined with batch_fields or non_tensor_fields")
    if fields is None and batch is None and non_tensor is None:
        return list(ref.field_index)
    names = list(fields) if fields is not None else [*(batch or ()), *(non_tensor or ())]
    unknown = [name for name in names if name not in ref.field_index]
    if unknown:
        raise KeyError(f"unknown DataProto fields: {unknown}")
    return names
