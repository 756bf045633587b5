# SPDX-License-Identifier: Apache-2.0
"""Structured objects on the store: named arrays, tensors and bytes under one key, and DataProto-like batches, of which
single fields and rows can be read.

Keys and formats are upstream's, so that upstream's package can read these objects and write objects for this one.  A put
is atomic: it writes the manifest last, and removes its objects on failure.  Reads raise ValueError for an invalid
manifest, metadata or rows, and RuntimeError for missing objects or objects of another size.  They do not detect changed
bytes of the right size.

Only few tensors (see mooncake._structured.bundle_members) are stored as pickles, in torch.save()'s format; they are read
with weights_only=True.

Needs numpy; torch for tensors, msgpack for rows of lists and dicts, PIL for images.  The caller owns returned objects:
their arrays use private memory, or memory of the buffer_pool until release_result() or until they are freed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Callable, Literal, Mapping, Optional, Sequence, Union

import numpy as np

from mooncake._structured import bundle_format as _fmt
from mooncake._structured import dataproto as _dp
from mooncake import _setup
from mooncake._structured.bundle_format import (AUTO_PARALLEL_MIN_BYTES, AUTO_PARALLEL_MIN_CHUNKS, DEFAULT_BUNDLE_CHUNK_BYTES,
                                     MISSING_OBJECT_ERROR, STRUCTURED_FIELD_SPECS_KEY, BundleStore,
                                     BundleTransferPolicy, RemoteBundleRef)
from mooncake._structured.bundle_members import (encode as _encode, raw_destination, read_matrix as _read_matrix, read_member as _read_member,
                                      tensor_object_buffer)
from mooncake._structured.bundle_payload import (Payloads as _Payloads, config_for as _config_for, group_of as _group_of,
                                      lease_of as _lease_of, with_group as _with_group)
from mooncake._structured.bundles import Bundles as _Bundles
from mooncake._structured.dataproto import (DATAPROTO_REF_HANDLE_TYPE, DATAPROTO_REF_HANDLE_VERSION, STORAGE_GROUP_ID,
                                 DataProtoRefLike, MooncakeDataProtoRef, StructuredFieldLocation,
                                 StructuredMemberSlice, export_dataproto_ref, import_dataproto_ref,
                                 is_dataproto_ref_handle)
from mooncake._structured import ranges as _ranges
from mooncake._structured.ranges import (PreparedRangeLayoutChanged, PreparedStructuredMemberRanges,
                                     StructuredMemberRange)
from mooncake._structured.row_codecs import Columns as _Columns, FieldSchema
from mooncake._structured.row_structure import (MISSING, choose as _choose, decode_column as _decode_column,
                                     encode_column as _encode_column, escape as _escape, infer_structure)

export_ref = export_dataproto_ref
import_ref = import_dataproto_ref

# upstream's names, which programs import
_choose_leaf_codec, _config_for_grouped_keys = _choose, _config_for
_escape_key = _escape

_WRAPPED = "__mooncake_wrapped_object__"
_BundleRef = Union[RemoteBundleRef, Mapping[str, Any]]


@dataclass(frozen=True, init=False)
class StructuredObjectPayload:
    """Metadata (a mapping for JSON; None is {}) and named members."""

    metadata: Mapping[str, Any]
    buffers: Mapping[str, Any]

    def __init__(self, metadata: Optional[Mapping[str, Any]] = None, buffers: Optional[Mapping[str, Any]] = None) -> None:
        if buffers is None:
            raise TypeError("StructuredObjectPayload requires buffers")
        object.__setattr__(self, "metadata", {} if metadata is None else metadata)
        object.__setattr__(self, "buffers", buffers)


@dataclass
class StructuredObjectResult:
    """The result of reading a structured object: its metadata, and members by name."""

    metadata: dict[str, Any]
    objects: dict[str, Any]


@dataclass(frozen=True)
class StructuredObjectReadSpec:
    """Selects members, and parts of members, of a structured object to read.  Immutable: methods return a new spec."""

    ref: _BundleRef
    member_names: Optional[tuple[str, ...]] = None
    member_slices: tuple[tuple[str, StructuredMemberSlice], ...] = ()

    def select_members(self, names: Optional[Sequence[str]]) -> StructuredObjectReadSpec:
        """A spec for these members only; None for all."""
        return StructuredObjectReadSpec(self.ref, None if names is None else tuple(names), self.member_slices)

    def slice_member(self, name: str, axis: int, start: int, end: int, step: int = 1) -> StructuredObjectReadSpec:
        """A spec that reads only some rows of a member."""
        slices = {**dict(self.member_slices), name: StructuredMemberSlice(axis, start, end, step)}
        return StructuredObjectReadSpec(self.ref, self.member_names, tuple(slices.items()))

    def member_slice(self, name: str) -> Optional[StructuredMemberSlice]:
        """The slice set by slice_member(), or None."""
        return dict(self.member_slices).get(name)


def _decode_manifest(payload: bytes) -> dict[str, Any]:
    return _fmt.decode_json(payload, "bundle manifest")


def _specs(metadata: Mapping[str, Any]) -> dict[str, Any]:
    specs = metadata.get(STRUCTURED_FIELD_SPECS_KEY, {})
    if not isinstance(specs, dict) or not all(isinstance(s, dict) for s in specs.values()):
        raise ValueError("structured field specs must be a dict of dicts")
    return specs


def _check_names(names: Any, buffers: Mapping[str, Any]) -> None:
    missing = [name for name in names if name not in buffers]
    if missing:
        raise KeyError(f"unknown bundle buffers: {missing}")


def _slice(member: str, wanted: Optional[StructuredMemberSlice]) -> Optional[slice]:
    if wanted is None:
        return None
    if wanted.axis != 0:
        raise ValueError(f"structured member {member}: slicing currently supports axis=0 only")
    if wanted.step <= 0:
        raise ValueError(f"structured member {member}: slicing step must be positive")
    return slice(wanted.start, wanted.end, wanted.step)


class MooncakeBundleTransfer:
    """MooncakeBundleTransfer(store, key_prefix="bundle", default_chunk_bytes=64 MiB, buffer_pool=None)

    Stores structured objects below key_prefix, in objects of at most default_chunk_bytes bytes, and reads them, into memory
    of buffer_pool if given.  As thread-safe as the store."""

    def __init__(self, store: BundleStore, key_prefix: str = "bundle",
                 default_chunk_bytes: int = DEFAULT_BUNDLE_CHUNK_BYTES, buffer_pool: Any = None) -> None:
        self.store = store
        self.key_prefix = _fmt.checked_prefix(key_prefix)
        self.default_chunk_bytes = _fmt.checked_chunk_bytes(default_chunk_bytes)
        self._bundles = _Bundles(_Payloads(store, buffer_pool), self.key_prefix, self.default_chunk_bytes)

    # ---- bundles ----

    def put_bundle(self, meta: Union[bytes, bytearray, memoryview], buffers: Mapping[str, Any],
                   partition: str = "default", chunk_bytes: Optional[int] = None,
                   policy: Optional[BundleTransferPolicy] = None, max_inflight_put: Optional[int] = None,
                   config: Any = None) -> RemoteBundleRef:
        """Store bytes and named buffers unchanged.

        partition: a component of the keys.  chunk_bytes: maximum size of an object.  max_inflight_put overrides that of
        policy.  config: a ReplicateConfig; its group, if any, applies to all keys.  If the store fails, removes the partial
        bundle and raises RuntimeError; ValueError or TypeError for wrong arguments."""
        return self._bundles.put(meta, buffers, partition, chunk_bytes, _fmt.checked_policy(policy, max_inflight_put),
                                 config)

    def remove_bundle(self, ref: _BundleRef) -> None:
        """Remove a bundle, leased or not.  A missing bundle, also one that is removed concurrently, is not an error.  After
        a failure, the caller can retry."""
        self._bundles.remove(ref)

    # ---- structured objects ----

    def _put(self, payload: StructuredObjectPayload, partition: str, chunk_bytes: Optional[int],
             policy: BundleTransferPolicy, config: Any, onto: Optional[RemoteBundleRef] = None) -> RemoteBundleRef:
        if not isinstance(payload.metadata, Mapping):
            raise TypeError("structured metadata must be a mapping")
        metadata = {**payload.metadata}
        if STRUCTURED_FIELD_SPECS_KEY in metadata:
            raise ValueError(f"structured metadata key {STRUCTURED_FIELD_SPECS_KEY!r} is reserved")
        if not isinstance(metadata.setdefault("layout", "structured"), str):
            raise ValueError("structured metadata layout must be a string")
        specs, members = {}, {}
        if onto is not None:
            old = self._bundles.read_meta(self._bundles.resolve(onto))
            if old.get("dataproto") != metadata.get("dataproto"):
                raise ValueError("DataProto stage metadata mismatch: the stage to append to is of another DataProto")
            metadata = {k: v for k, v in old.items() if k != STRUCTURED_FIELD_SPECS_KEY}
            specs.update(_specs(old))
        for name, value in payload.buffers.items():
            _fmt.check_segment(name, "buffer name")
            if name in specs:
                raise ValueError(f"structured members already exist: {[name]}")
            specs[name], members[name] = _encode(value, name)
        if specs:
            metadata[STRUCTURED_FIELD_SPECS_KEY] = specs
        return self._bundles.put(_fmt.encode_json(metadata, "structured metadata"), members, partition, chunk_bytes,
                                 policy, config, onto)

    def put_structured_object(self, payload: StructuredObjectPayload, partition: str = "default",
                              chunk_bytes: Optional[int] = None, policy: Optional[BundleTransferPolicy] = None,
                              max_inflight_put: Optional[int] = None, config: Any = None) -> RemoteBundleRef:
        """Store metadata and members: numpy arrays, torch tensors, tensor_object_buffer(), or the bytes of any object with
        a buffer.  Errors as put_bundle(); a TypeError for arrays of objects, and metadata that is not JSON."""
        return self._put(payload, partition, chunk_bytes, _fmt.checked_policy(policy, max_inflight_put), config)

    def put_object(self, obj: Any, partition: str = "default", chunk_bytes: Optional[int] = None,
                   policy: Optional[BundleTransferPolicy] = None, max_inflight_put: Optional[int] = None,
                   config: Any = None) -> RemoteBundleRef:
        """put_structured_object() of a mapping of members, or of one value."""
        payload = StructuredObjectPayload({}, obj) if isinstance(obj, Mapping) else StructuredObjectPayload(
            {_WRAPPED: True}, {"value": obj})
        return self.put_structured_object(payload, partition, chunk_bytes, policy, max_inflight_put, config)

    def get_object(self, ref: _BundleRef) -> Any:
        """Read an object of put_object(): a dict, or the one value.  Errors as materialize()."""
        result = self.materialize(self.read_spec(ref))
        return result.objects["value"] if result.metadata.get(_WRAPPED) else result.objects

    def read_spec(self, ref: _BundleRef) -> StructuredObjectReadSpec:
        """A spec for reading the whole object; reads nothing yet."""
        return StructuredObjectReadSpec(ref)

    def materialize(self, spec: StructuredObjectReadSpec) -> StructuredObjectResult:
        """Read members.  Bytes are returned as arrays of uint8, or as bytes from a store object that the caller wrote.  A
        KeyError for unknown members, a ValueError for damaged ones or an impossible slice, a RuntimeError if the store
        fails."""
        return self.materialize_into(spec, None)

    def materialize_into(self, spec: StructuredObjectReadSpec,
                         destinations: Optional[Mapping[str, Any]]) -> StructuredObjectResult:
        """As materialize(), but read some members into the caller's memory: {name: array of the same type and shape,
        raw_destination() or tensor_object_buffer()}.  After an error, that memory is undefined."""
        if spec.member_names is not None and not spec.member_names:
            raise ValueError("structured read spec selected no members")
        manifest = self._bundles.resolve(spec.ref)
        metadata = self._bundles.read_meta(manifest)
        slices = {name: _slice(name, part) for name, part in spec.member_slices}
        return StructuredObjectResult(metadata, self._members(
            manifest, metadata, manifest["buffers"] if spec.member_names is None else spec.member_names, slices,
            destinations or {}))

    def _members(self, manifest: Mapping[str, Any], metadata: Mapping[str, Any], names: Any, rows: Mapping[str, Any],
                 destinations: Mapping[str, Any]) -> dict[str, Any]:
        specs, buffers = _specs(metadata), manifest["buffers"]
        _check_names(names, buffers)
        return {name: _read_member(self._bundles.payloads, name, buffers[name], specs.get(name, {}), rows.get(name),
                                   destinations.get(name)) for name in names}

    def _range_inputs(self, spec: StructuredObjectReadSpec, destinations: Any) -> tuple[dict[str, Any], Any, Any]:
        if spec.member_slices:
            raise ValueError("structured member slices cannot be combined with byte ranges")
        _ranges.check_destinations(destinations)
        manifest = self._bundles.resolve(spec.ref)
        names = manifest["buffers"] if spec.member_names is None else spec.member_names
        _check_names(names, manifest["buffers"])
        return self._bundles.read_meta(manifest), manifest["buffers"], names

    def prepare_member_ranges(self, spec: StructuredObjectReadSpec, ranges: Sequence[StructuredMemberRange],
                              destination: Any) -> PreparedStructuredMemberRanges:
        """Plan the reading of byte ranges of one member, without reading it; destination as for materialize_ranges_into().
        The plan is for all bundles in which the member has the same type, shape and chunks."""
        ranges = tuple(ranges)
        if not ranges or not isinstance(ranges[0], StructuredMemberRange):
            raise ValueError("prepared member read requires StructuredMemberRange values")
        name = ranges[0].member_name
        return _ranges.prepare(*self._range_inputs(spec, {name: destination}), ranges, {name: destination})[name]

    def materialize_prepared_ranges_into(self, spec: StructuredObjectReadSpec, prepared: PreparedStructuredMemberRanges,
                                         destination: Any) -> StructuredObjectResult:
        """Read byte ranges by a plan.  PreparedRangeLayoutChanged if the member of this bundle differs from the plan."""
        if not isinstance(prepared, PreparedStructuredMemberRanges):
            raise TypeError("prepared must be PreparedStructuredMemberRanges")
        return self._read_ranges(spec, {prepared.member_name: destination}, lambda *_: {prepared.member_name: prepared})

    def materialize_ranges_into(self, spec: StructuredObjectReadSpec, ranges: Sequence[StructuredMemberRange],
                                destinations: Mapping[str, Any]) -> StructuredObjectResult:
        """Read byte ranges of members, bytes or arrays, into the caller's memory: a pre_registered raw_destination() with an
        owner for each member.  ValueError for ranges outside of the member or of its destination, unaligned ones, or ones
        that overlap; RuntimeError if the store fails, after which that memory is undefined."""
        return self._read_ranges(spec, destinations, lambda *inputs: _ranges.prepare(*inputs, tuple(ranges), destinations))

    def _read_ranges(self, spec: StructuredObjectReadSpec, destinations: Mapping[str, Any],
                     plan: Callable[..., Any]) -> StructuredObjectResult:
        inputs = self._range_inputs(spec, destinations)
        requests = [(destinations[name], _ranges.bind(*inputs, each, destinations[name]), each)
                    for name, each in plan(*inputs).items()]
        _ranges.execute(self._bundles.payloads.method("get_into_ranges", "byte ranges"), requests)
        return StructuredObjectResult(inputs[0], dict(destinations))

    @staticmethod
    def release_result(result: Any) -> None:
        """Return a result's memory to the buffer_pool now, instead of when its last array is freed; its arrays must not be
        used afterwards.  Harmless for results without memory of the pool."""
        seen: set[int] = set()
        left = [result]
        while left:
            value = left.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, np.ndarray):
                lease = _lease_of(value)
                if lease is not None:
                    lease.release()
                elif value.dtype == object:
                    left.extend(value.flat)
            elif isinstance(value, Mapping):
                left.extend(value.values())
            elif isinstance(value, (list, tuple)):
                left.extend(value)
            elif isinstance(value, StructuredObjectResult):
                left.append(value.objects)
            elif hasattr(value, "batch") and hasattr(value, "non_tensor_batch"):
                left += [value.batch, value.non_tensor_batch, getattr(value, "meta_info", None)]

    # ---- DataProto ----

    def put(self, data: Any, *, type: Literal["dataproto", "dict"] = "dataproto", namespace: str = "default",
            partition: str = "default", stage: str = "default", chunk_bytes: Optional[int] = None,
            policy: Optional[BundleTransferPolicy] = None, config: Any = None,
            field_schemas: Optional[Mapping[str, FieldSchema]] = None) -> MooncakeDataProtoRef:
        """Store a DataProto-like object (attributes or names batch, non_tensor_batch, meta_info), or, type="dict", a
        flat dict.

        Columns that are lists or arrays of objects are encoded by the type of their values, or as field_schemas says.
        meta_info is kept in the reference, not in the store.  All keys are in one group of the store.  Errors as
        put_bundle(); a ValueError or TypeError for columns that cannot be stored, or of unequal lengths."""
        if type not in ("dataproto", "dict"):
            raise ValueError(f"unsupported Mooncake payload type: {type!r} (dataproto or dict)")
        if type == "dict":
            data = _dp.from_flat(data, field_schemas or {})
        return self._put_stage(None, data, namespace, partition, stage, chunk_bytes, policy, False, field_schemas, config)

    def put_dataproto(self, data: Any, *, namespace: str = "default", partition: str = "default",
                      stage: str = "default", chunk_bytes: Optional[int] = None,
                      policy: Optional[BundleTransferPolicy] = None,
                      field_schemas: Optional[Mapping[str, FieldSchema]] = None,
                      config: Any = None) -> MooncakeDataProtoRef:
        """put(type="dataproto")."""
        return self.put(data, namespace=namespace, partition=partition, stage=stage, chunk_bytes=chunk_bytes,
                        policy=policy, config=config, field_schemas=field_schemas)

    def append_dataproto_fields(self, ref: DataProtoRefLike, data: Any, *, stage: str, overwrite: bool = False,
                                chunk_bytes: Optional[int] = None, policy: Optional[BundleTransferPolicy] = None,
                                field_schemas: Optional[Mapping[str, FieldSchema]] = None,
                                config: Any = None) -> MooncakeDataProtoRef:
        """Add fields with the same number of rows, in a new or an existing stage.  Returns the reference to all fields;
        ref stays readable until the new one is removed.

        overwrite: replace all of the stage's fields and remove the old ones.  A ValueError for existing fields, or if
        overwrite omits some of the stage's fields."""
        ref = _dp.ref_of(ref)
        return self._put_stage(ref, data, ref.namespace, ref.partition, stage, chunk_bytes, policy, overwrite,
                               field_schemas, config)

    def _columns(self, stage: str, batch: Mapping[str, Any], non_tensor: Mapping[str, Any],
                 schemas: Mapping[str, FieldSchema]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Members to store, the location of each field, and the encoding of columns."""
        members = {f"batch.{name}": value for name, value in batch.items()}
        index = {name: StructuredFieldLocation(stage, f"batch.{name}", "batch") for name in batch}
        coded = {}
        for name, value in non_tensor.items():
            member = f"non_tensor_batch.{name}"
            index[name] = StructuredFieldLocation(stage, member, "non_tensor_batch")
            schema = schemas.get(name)
            if schema is not None and _dp.section_named(name, schema) not in (None, "non_tensor_batch"):
                schema = None
            is_column = (value.dtype == object or (schema is not None and schema.codec != "auto")) if isinstance(
                value, np.ndarray) else isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))
            if not is_column:
                if schema is not None and not isinstance(value, np.ndarray):
                    raise TypeError(f"non_tensor_batch field {name!r} with FieldSchema must be an ndarray or non-string sequence")
                members[member] = value
                continue
            try:
                found = _encode_column(member, value, schema)
            except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as e:
                how = "" if schema is None else f" as {schema.codec}"
                kind = next((k for k in (TypeError, RuntimeError, AttributeError) if isinstance(e, k)), ValueError)
                raise kind(f"the column {name!r} cannot be stored{how}: {e}") from e
            members.update({f"{member}.{part}": what for part, what in found.payload.items()})
            coded[name] = {"codec": found.codec, "rows": found.rows, "metadata": found.metadata,
                           "payload_members": {part: f"{member}.{part}" for part in found.payload}}
        return members, index, coded

    def _put_stage(self, ref: Optional[MooncakeDataProtoRef], data: Any, namespace: str, partition: str, stage: str,
                   chunk_bytes: Optional[int], policy: Optional[BundleTransferPolicy], overwrite: bool,
                   schemas: Optional[Mapping[str, FieldSchema]], config: Any) -> MooncakeDataProtoRef:
        batch, non_tensor, meta_info = _dp.sections_of(data)
        rows = _dp.check_sections(batch, non_tensor, meta_info, schemas or {})
        if ref is None:
            group = _group_of(config)
            ref = MooncakeDataProtoRef(rows, {}, {}, {}, namespace, partition, None, {},
                                       f"structured-{uuid.uuid4().hex}" if group is None else group or None)
        elif rows != ref.batch_size:
            raise ValueError(f"DataProto append batch size {rows} does not match ref batch size {ref.batch_size}")
        out = MooncakeDataProtoRef(ref.batch_size, dict(ref.stage_refs), dict(ref.field_index),
                                   {**ref.meta_info, **meta_info}, namespace, partition, ref.global_indexes,
                                   dict(ref.encoded_non_tensor), ref._storage_group_id)
        if not batch and not non_tensor:
            return out
        members, index, coded = self._columns(stage, batch, non_tensor, schemas or {})
        twice = sorted(set(ref.field_index) & set(index))
        if twice and not overwrite:
            raise ValueError(f"DataProto fields already exist: {twice}")
        left = sorted(n for n, at in ref.field_index.items() if at.stage == stage and n not in index)
        if overwrite and left:
            raise ValueError(f"DataProto overwrite for stage {stage!r} must include existing fields: {left}")
        if ref._storage_group_id is not None:
            config = _with_group(config, ref._storage_group_id)
        payload = StructuredObjectPayload({"layout": "dataproto_stage", "dataproto": {
            "version": 1, "namespace": namespace, "partition": partition, "stage": stage, "batch_size": rows}}, members)
        old = ref.stage_refs.get(stage)
        out.stage_refs[stage] = self._put(payload, partition, chunk_bytes, _fmt.checked_policy(policy), config,
                                          None if overwrite else old)
        out.field_index.update(index)
        for name in index:
            out.encoded_non_tensor.pop(name, None)
        out.encoded_non_tensor.update(coded)
        if old is not None and overwrite:
            try:
                self.remove_bundle(old)
            except Exception as e:
                # keep the new stage: an exception would lose its reference, and nothing would ever remove it
                _setup.log.warning("cannot remove the overwritten data of stage %s: %s", stage, e)
        return out

    def get(self, ref: DataProtoRefLike, *, type: Literal["dataproto", "dict"] = "dataproto",
            fields: Optional[Sequence[str]] = None, batch_fields: Optional[Sequence[str]] = None,
            non_tensor_fields: Optional[Sequence[str]] = None, meta_info_keys: Optional[Sequence[str]] = None,
            data_cls: Optional[Any] = None, destinations: Optional[Mapping[str, Any]] = None,
            rows: Union[slice, StructuredMemberSlice, Sequence[int], None] = None,
            batch_slices: Optional[Mapping[str, slice]] = None) -> Any:
        """Read all or the named fields of a DataProto: a dict of the three sections, or a data_cls made of them; for
        type="dict" one flat dict.

        rows: a slice with a positive step, or indices; only these are transferred.  batch_slices: columns of matrices of the
        batch, by field; only these are transferred.  destinations: as for
        materialize_into(), by field.  Encoded columns are returned as arrays of objects, in flat dicts as lists.  Errors as
        materialize(); an IndexError for rows out of range."""
        if type not in ("dataproto", "dict"):
            raise ValueError(f"unsupported Mooncake payload type: {type!r} (dataproto or dict)")
        ref = _dp.ref_of(ref)
        chosen = _dp.rows_of(rows, ref.batch_size)
        stages: dict[str, list[str]] = {}
        names = _dp.chosen_fields(ref, fields, batch_fields, non_tensor_fields)
        for name in names:
            stages.setdefault(ref.field_index[name].stage, []).append(name)
        _dp.check_slices(ref, names, batch_slices or {})
        found: dict[str, Any] = {}
        for stage, of_stage in stages.items():
            found.update(self._read_stage(ref, stage, of_stage, chosen, destinations or {}, batch_slices or {}))
        batch, non_tensor = ({name: found[name] for name in names if ref.field_index[name].section == section}
                             for section in _dp.SECTIONS[:2])
        meta_info = dict(ref.meta_info) if meta_info_keys is None else {
            k: ref.meta_info[k] for k in meta_info_keys if k in ref.meta_info}
        if type == "dict":
            return _dp.to_flat(batch, non_tensor, meta_info)
        return _dp.built(batch, {n: _dp.object_array(v) if n in ref.encoded_non_tensor else v
                                 for n, v in non_tensor.items()}, meta_info, data_cls)

    def _read_stage(self, ref: MooncakeDataProtoRef, stage: str, names: Sequence[str], rows: Any,
                    destinations: Mapping[str, Any], slices: Mapping[str, slice]) -> dict[str, Any]:
        """Fields of one stage; encoded columns as lists."""
        manifest = self._bundles.resolve(ref.stage_refs[stage])
        metadata = self._bundles.read_meta(manifest)
        plain = {ref.field_index[n].member: n for n in names if n not in ref.encoded_non_tensor}
        into = {member: destinations[name] for member, name in plain.items() if name in destinations}
        cut = {member: slices[name] for member, name in plain.items() if name in slices}
        found = self._members(manifest, metadata, [member for member in plain if member not in cut],
                              {} if rows is None else dict.fromkeys(plain, rows), into)
        for member, columns in cut.items():
            _check_names([member], manifest["buffers"])
            found[member] = _read_matrix(self._bundles.payloads, member, manifest["buffers"][member],
                                         _specs(metadata).get(member, {}), rows, columns, into.get(member))
        for member, value in found.items():
            total = ref.batch_size if rows is None else len(rows)
            if member not in into and _specs(metadata).get(member, {}).get("encoding", "bytes") != "bytes" and (
                    not getattr(value, "ndim", 0) or value.shape[0] != total):
                raise ValueError(f"DataProto field {plain[member]!r} does not have {total} rows")
        out = {plain[member]: value for member, value in found.items()}
        for name in names:
            if name in ref.encoded_non_tensor:
                coded = ref.encoded_non_tensor[name]
                members = coded.get("payload_members")
                if not isinstance(members, Mapping) or any(m not in manifest["buffers"] for m in members.values()):
                    raise KeyError(f"the members of DataProto field {name!r} were not found: {members}")
                columns = _Columns(self._bundles.payloads, manifest["buffers"], _specs(metadata), members)
                out[name] = _decode_column(coded, columns, range(ref.batch_size) if rows is None else rows)
        return out

    def get_dataproto(self, ref: DataProtoRefLike, *, fields: Optional[Sequence[str]] = None,
                      batch_fields: Optional[Sequence[str]] = None, non_tensor_fields: Optional[Sequence[str]] = None,
                      meta_info_keys: Optional[Sequence[str]] = None, data_cls: Optional[Any] = None,
                      destinations: Optional[Mapping[str, Any]] = None,
                      rows: Union[slice, StructuredMemberSlice, Sequence[int], None] = None,
                      batch_slices: Optional[Mapping[str, slice]] = None) -> Any:
        """get(type="dataproto")."""
        return self.get(ref, fields=fields, batch_fields=batch_fields, non_tensor_fields=non_tensor_fields,
                        meta_info_keys=meta_info_keys, data_cls=data_cls, destinations=destinations, rows=rows,
                        batch_slices=batch_slices)

    def dataproto_manifest_view(self, ref: DataProtoRefLike) -> dict[str, Any]:
        """Describe a stored DataProto: fields by section with stage, member and type, and stages with their manifest keys.
        Reads the stages' manifests and metadata, not the data."""
        ref = _dp.ref_of(ref)
        metadata = {stage: self._bundles.read_meta(self._bundles.resolve(r)) for stage, r in ref.stage_refs.items()}
        fields: dict[str, dict[str, Any]] = {name: {} for name in _dp.SECTIONS[:2]}
        for name, at in ref.field_index.items():
            specs = _specs(metadata[at.stage])

            def spec(member: str) -> dict[str, Any]:
                return dict(specs.get(member, {"encoding": "bytes"}))

            about, coded = spec(at.member), ref.encoded_non_tensor.get(name)
            if coded is not None:
                about = {"encoding": "structured_non_tensor", "codec": coded["codec"], "metadata": coded.get("metadata"),
                         "payload_members": dict(coded["payload_members"]),
                         "payload_specs": {part: spec(m) for part, m in coded["payload_members"].items()}}
            fields[at.section][name] = {"section": at.section, "stage": at.stage, "member": at.member, "spec": about}
        return {"namespace": ref.namespace, "partition": ref.partition, "batch_size": ref.batch_size,
                "batch_fields": fields["batch"], "non_tensor_fields": fields["non_tensor_batch"],
                "meta_info_keys": list(ref.meta_info),
                "stages": {stage: {"manifest_key": r.manifest_key, "dataproto": metadata[stage].get("dataproto", {})}
                           for stage, r in ref.stage_refs.items()}}

    def cleanup_dataproto(self, ref: DataProtoRefLike) -> None:
        """Remove all stages of a DataProto, as remove_bundle().  References from before an append become invalid too."""
        for stage_ref in {r.manifest_key: r for r in _dp.ref_of(ref).stage_refs.values()}.values():
            self.remove_bundle(stage_ref)

    def cleanup_dataproto_append(self, previous: DataProtoRefLike, appended: DataProtoRefLike) -> None:
        """Undo an append: remove the stages and members that are only in appended; previous is unchanged.  The caller can
        retry."""
        previous, appended = _dp.ref_of(previous), _dp.ref_of(appended)
        for stage, new in appended.stage_refs.items():
            old = previous.stage_refs.get(stage)
            if old is None:
                self.remove_bundle(new)
            elif new.manifest_key != old.manifest_key and self._bundles.exists(new.manifest_key) is not False:
                self._remove_append(previous, stage, new)

    def _remove_append(self, previous: MooncakeDataProtoRef, stage: str, new: RemoteBundleRef) -> None:
        kept = {at.member for at in previous.field_index.values() if at.stage == stage}
        for name, coded in previous.encoded_non_tensor.items():
            if previous.field_index[name].stage == stage:
                kept.update(coded["payload_members"].values())
        manifest = self._bundles.resolve(new)
        added = [payload for name, payload in manifest["buffers"].items() if name not in kept]
        ids = {_fmt.object_id_of(payload["key"], self.key_prefix) for payload in added}
        keys = [*_fmt.payload_keys(manifest["meta"]), *(k for payload in added for k in _fmt.payload_keys(payload)),
                *(k for k in manifest.get("cleanup_keys", ()) if _fmt.object_id_of(k, self.key_prefix) in ids)]
        key = self._bundles.manifest_key(new, manifest)
        self._bundles.remove_keys(keys)
        self._bundles.remove_keys([key])


__all__ = [
    "AUTO_PARALLEL_MIN_BYTES", "AUTO_PARALLEL_MIN_CHUNKS", "DATAPROTO_REF_HANDLE_TYPE", "DATAPROTO_REF_HANDLE_VERSION",
    "DEFAULT_BUNDLE_CHUNK_BYTES", "MISSING", "MISSING_OBJECT_ERROR", "STORAGE_GROUP_ID", "STRUCTURED_FIELD_SPECS_KEY",
    "BundleStore", "BundleTransferPolicy", "DataProtoRefLike", "FieldSchema", "MooncakeBundleTransfer",
    "MooncakeDataProtoRef", "PreparedRangeLayoutChanged", "PreparedStructuredMemberRanges", "RemoteBundleRef",
    "StructuredMemberRange", "StructuredFieldLocation", "StructuredMemberSlice",
    "StructuredObjectPayload", "StructuredObjectReadSpec", "StructuredObjectResult", "export_dataproto_ref",
    "export_ref", "import_dataproto_ref", "import_ref", "infer_structure", "is_dataproto_ref_handle", "raw_destination",
    "tensor_object_buffer",
]
