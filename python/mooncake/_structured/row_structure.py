# SPDX-License-Identifier: Apache-2.0
"""Choice of a column's codec, and decomposition of rows of dicts and lists into columns.

Rows that contain tensors, arrays, bytes or images become a tree: nodes are dicts and lists, each leaf is a column with one
value per row.  Other rows become one column of msgpack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

import numpy as np

from mooncake._structured.bundle_members import Rows, torch
from mooncake._structured.row_codecs import (CODECS, Columns, FieldSchema, Payload, _common, decode_as, encode_as, is_bytes,
                                  is_picture, number_type, numbers_of)

KEYS_MAX = 64
ITEMS_MAX = 8
DEPTH_MAX = 32
RECURSIVE = "structured_recursive"
_TREE_CODECS = ("ragged_tensor", "bytes_ragged", "media_bytes", "media_list_ragged")


class _Missing:
    """Value of a column for rows that do not have the entry, unlike None."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<MISSING>"


MISSING = _Missing()


@dataclass
class Choice:
    """A codec for a column, or, if not accepted, the reason why there is none."""

    accepted: bool
    codec: str
    reason: str
    normalized_type: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Leaf:
    path: str
    values: list[Any]
    decision: Choice


@dataclass
class Node:
    path: str
    node_type: str
    children: list[Any]
    lengths: Optional[list[int]] = None
    row_mask: Optional[list[bool]] = None
    missing: list[bool] = field(default_factory=list)


@dataclass
class EncodedColumn:
    codec: str
    rows: int
    payload: Payload
    metadata: dict[str, Any]


def _numbers(found: Sequence[Any]) -> Optional[Choice]:
    if all(isinstance(v, np.ndarray) for v in found):
        if all(v.dtype.kind in "biufc" for v in found):
            return Choice(True, "typed_ragged", "all rows are numeric ndarray", "numeric sequence",
                          {"recursive_source": "ndarray"})
        return Choice(False, "msgpack_ragged", "object ndarray rows", "python object")
    try:
        if all(isinstance(v, (list, tuple)) for v in found):
            dtype = _common([numbers_of(v) for v in found])
            if dtype.kind in "iufc":
                return Choice(True, "typed_ragged", "all rows are numeric sequences", "numeric sequence",
                              {"dtype": str(dtype)})
        if all(isinstance(v, (bool, int, float, np.number, np.bool_)) for v in found):
            return Choice(True, "ndarray", "all rows are numeric scalar", "numeric scalar",
                          {"dtype": str(number_type(found))})
    except (ValueError, TypeError, OverflowError):
        pass
    return None


def choose(values: Sequence[Any]) -> Choice:
    """Choose the codec for a column by the type of its values, ignoring None and MISSING."""
    found = [v for v in values if v is not None and v is not MISSING]
    if not found:
        return Choice(True, "json_ragged", "all rows are null or missing", "json")
    if torch is not None and all(isinstance(v, torch.Tensor) for v in found):
        kinds = sorted({str(v.dtype) for v in found})
        if len(kinds) > 1:
            return Choice(False, "ragged_tensor", f"mixed tensor dtype: {kinds}", "torch.Tensor")
        return Choice(True, "ragged_tensor", "all non-null rows are Tensor", "torch.Tensor", {"dtype": kinds[0]})
    if all(isinstance(v, (list, tuple)) and all(is_bytes(i) or is_picture(i) for i in v) for v in found):
        return Choice(True, "media_list_ragged", "all rows are media lists", "media list")
    numeric = _numbers(found)
    if numeric is not None:
        return numeric
    for codec, reason, kind, suits in (
            ("bytes_ragged", "all rows are bytes-like", "bytes-like", is_bytes),
            ("media_bytes", "all rows are media", "media", is_picture),
            ("utf8_ragged", "all rows are str", "str", lambda v: isinstance(v, str)),
            ("msgpack_ragged", "all rows are msgpack-like", "msgpack", lambda v: isinstance(v, (dict, list, tuple))),
            ("msgpack_ragged", "all rows are plain values", "msgpack",
             lambda v: type(v) in (str, bytes, bool, int, float, dict, list))):
        if all(map(suits, found)):
            return Choice(True, codec, reason, kind)
    return Choice(False, "msgpack_ragged", "no codec matched", "python object")


def _dict_keys(values: Sequence[Any]) -> Optional[list[str]]:
    found = [v for v in values if v is not None and v is not MISSING]
    if not found or not all(isinstance(v, dict) for v in found):
        return None
    keys = {k for v in found for k in v}
    return sorted(keys) if len(keys) <= KEYS_MAX and all(isinstance(k, str) for k in keys) else None


def _list_length(values: Sequence[Any]) -> Optional[int]:
    found = [v for v in values if v is not None and v is not MISSING]
    if not found or not all(isinstance(v, (list, tuple)) for v in found):
        return None
    kinds = (dict, list, tuple, np.ndarray) if torch is None else (dict, list, tuple, np.ndarray, torch.Tensor)
    inner = (i is None or isinstance(i, kinds) for v in found for i in v)
    longest = max(len(v) for v in found)
    return longest if longest <= ITEMS_MAX and all(inner) else None


def escape(key: str) -> str:
    """A key of a dict as a component of a path."""
    return "".join("\\" + c if c in "\\.[" else c for c in key)


def child_path(path: str, kind: str, child: Any) -> str:
    return f"{path}[{int(child)}]" if kind == "list" else f"{path}.{escape(str(child))}"


def infer_structure(path: str, values: list[Any], leaves: list[Leaf], nodes: list[Node], *, _depth: int = 0) -> None:
    """Decompose rows: append columns with their codecs to @leaves, and their dicts and lists to @nodes, parents before
    children.  In a column, a row without the entry has MISSING, and a row whose parent is None has None.  A ValueError for
    more than 32 levels."""
    if _depth > DEPTH_MAX:
        raise ValueError(f"infer_structure exceeded max depth {DEPTH_MAX} at {path!r}")
    missing = [v is MISSING for v in values]
    keys = _dict_keys(values)
    length = _list_length(values) if keys is None else None
    if keys is not None:
        mask = [isinstance(v, dict) for v in values]
        nodes.append(Node(path, "dict", keys, None, mask, missing))
        columns = [(k, [v.get(k, MISSING) if here else None for v, here in zip(values, mask)]) for k in keys]
    elif length is not None:
        mask = [isinstance(v, (list, tuple)) for v in values]
        lengths = [len(v) if here else 0 for v, here in zip(values, mask)]
        nodes.append(Node(path, "list", list(range(length)), lengths, mask, missing))
        columns = [(i, [None if not here else v[i] if i < len(v) else MISSING for v, here in zip(values, mask)])
                   for i in range(length)]
    else:
        leaves.append(Leaf(path, values, choose(values)))
        return
    kind = nodes[-1].node_type
    for child, column in columns:
        infer_structure(child_path(path, kind, child), column, leaves, nodes, _depth=_depth + 1)


def _needs_tree(leaf: Leaf) -> bool:
    codec = leaf.decision.codec
    return codec in _TREE_CODECS or (codec == "typed_ragged" and any(isinstance(v, np.ndarray) for v in leaf.values))


def _encode_choice(path: str, values: Sequence[Any], choice: Choice) -> EncodedColumn:
    if not choice.accepted:
        raise ValueError(f"unsupported structured non-tensor field {path}: {choice.reason}")
    payload, metadata = encode_as(choice.codec, values)
    metadata.update(schema_source="inferred_from_runtime_values", decision_reason=choice.reason,
                    normalized_type=choice.normalized_type)
    return EncodedColumn(choice.codec, len(values), payload, {**choice.metadata, **metadata})


def _encode_tree(path: str, rows: int, leaves: Sequence[Leaf], nodes: Sequence[Node]) -> EncodedColumn:
    payload: Payload = {}
    specs: list[dict[str, Any]] = []
    columns: list[dict[str, Any]] = []
    for i, node in enumerate(nodes):
        spec: dict[str, Any] = {"id": i, "path": node.path, "node_type": node.node_type, "children": node.children}
        for what, values, dtype in (("missing", node.missing, np.bool_), ("row_mask", node.row_mask, np.bool_),
                                    ("lengths", node.lengths, np.int64)):
            if values is not None:
                spec[f"{what}_payload"] = f"node.{i}.{what}"
                payload[f"node.{i}.{what}"] = np.asarray(values, dtype)
        specs.append(spec)
    for i, leaf in enumerate(leaves):
        missing = [v is MISSING for v in leaf.values]
        values = [None if gone else v for gone, v in zip(missing, leaf.values)]
        found = _encode_choice(leaf.path, values, leaf.decision)
        found.payload["missing"] = np.asarray(missing, np.bool_)
        payload.update({f"leaf.{i}.{name}": part for name, part in found.payload.items()})
        columns.append({"id": i, "path": leaf.path, "codec": found.codec, "rows": rows, "metadata": found.metadata,
                        "payload_members": {name: f"leaf.{i}.{name}" for name in found.payload}})
    return EncodedColumn(RECURSIVE, rows, payload, {
        "schema_source": "inferred_from_runtime_values", "structure_version": 1, "root_path": path, "nodes": specs,
        "leaves": columns})


def encode_column(path: str, values: Sequence[Any], schema: Optional[FieldSchema] = None) -> EncodedColumn:
    """Encode a column by its schema, or else by its values.  A ValueError or TypeError if it cannot be stored."""
    values = list(values)
    if schema is not None and not schema.nullable and any(v is None for v in values):
        raise ValueError(f"FieldSchema for {path!r} is not nullable, and a row is None")
    if schema is not None and schema.codec != "auto" and (schema.codec != "ndarray" or "dtype" in schema.metadata):
        payload, metadata = encode_as(schema.codec, values, schema)
        return EncodedColumn(schema.codec, len(values), payload, metadata)
    leaves: list[Leaf] = []
    nodes: list[Node] = []
    infer_structure(path, values, leaves, nodes)
    if nodes and any(map(_needs_tree, leaves)):
        return _encode_tree(path, len(values), leaves, nodes)
    return _encode_choice(path, values, choose(values))


def _decode_tree(columns: Columns, rows: Rows, metadata: Mapping[str, Any]) -> list[Any]:
    found: dict[str, list[Any]] = {}
    for leaf in metadata["leaves"]:
        part = columns.part(leaf["payload_members"])
        values = decode_as(leaf["codec"], part, rows, leaf.get("metadata"))
        found[leaf["path"]] = [MISSING if gone else v for gone, v in zip(part.flags("missing", rows).tolist(), values)]
    # children come after their parents
    for node in reversed(metadata["nodes"]):
        def said(what: str) -> Optional[list[Any]]:
            name = node.get(f"{what}_payload")
            return None if name is None else columns.rows(name, rows).tolist()

        missing, mask, lengths = said("missing"), said("row_mask"), said("lengths")
        kind, children = node["node_type"], node["children"]
        parts = [(c, found[child_path(node["path"], kind, c)]) for c in children]
        out: list[Any] = []
        for i in range(len(rows)):
            if mask is not None and not mask[i]:
                out.append(MISSING if missing is not None and missing[i] else None)
            elif kind == "dict":
                out.append({c: column[i] for c, column in parts if column[i] is not MISSING})
            else:
                length = len(parts) if lengths is None else lengths[i]
                if not 0 <= length <= len(parts):
                    raise ValueError(f"a list of {len(parts)} columns has {length} items")
                out.append([None if column[i] is MISSING else column[i] for _, column in parts[:length]])
        found[node["path"]] = out
    return found[metadata["root_path"]]


def decode_column(encoded: Mapping[str, Any], columns: Columns, rows: Rows) -> list[Any]:
    """Decode rows of a column of encode_column(); a ValueError if it is damaged."""
    if encoded.get("codec") != RECURSIVE:
        return decode_as(encoded.get("codec"), columns, rows, encoded.get("metadata"))
    try:
        return _decode_tree(columns, rows, encoded["metadata"])
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError) as e:
        raise ValueError(f"rows of dicts and lists are damaged: {type(e).__name__}: {e}") from e


__all__ = ["CODECS", "MISSING", "EncodedColumn", "decode_column", "encode_column", "infer_structure"]
