# SPDX-License-Identifier: Apache-2.0
"""A catalog of the rows and fields of stored DataProtos.

One process has the DataProtoCatalog; any process can have a DataProtoCatalogTransfer, which stores data and calls the
catalog to register it.  A fragment is one DataProto of one stage, whose rows have keys; a later fragment with the same
fields replaces them for its rows.  Fragments that a transfer published are managed: if no row refers to one and no reader
pins it, the catalog retires it, and returns its handle for removal from the store until the removal is acknowledged.

Handles are those of structured_object_store.export_dataproto_ref().  Results belong to the caller, and can be JSON or
pickled.  Wrong arguments raise ValueError or TypeError, and change nothing."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from mooncake import _locks, _setup

Handle = Mapping[str, Any]


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be a non-empty string")
    return value


def _names(values: Any, what: str) -> tuple[str, ...]:
    """Distinct names; a ValueError if there are none."""
    if isinstance(values, str):
        raise ValueError(f"{what} must be a sequence of non-empty strings, not one string")
    names = tuple(values)
    if not names or not all(isinstance(n, str) and n for n in names):
        raise ValueError(f"{what} must be non-empty strings, at least one")
    if len(set(names)) < len(names):
        raise ValueError(f"{what} must be unique")
    return names


def _tags(tags: Optional[Sequence[Mapping[str, Any]]], count: int) -> Optional[list[dict[str, Any]]]:
    if tags is None:
        return None
    if len(tags) != count:
        raise ValueError("tags must have the same length as keys")
    if not all(isinstance(tag, Mapping) for tag in tags):
        raise TypeError("tags must be mappings")
    return [copy.deepcopy(dict(tag)) for tag in tags]


def _read(handle: Handle) -> tuple[Any, dict[str, Any]]:
    """The reference of a handle, and the handle in its canonical form."""
    # imported here, because it needs numpy, which callers that only query names do not
    from mooncake.structured_object_store import export_dataproto_ref, import_dataproto_ref

    ref = import_dataproto_ref(handle)
    return ref, export_dataproto_ref(ref)


@dataclass
class _Fragment:
    """A stored DataProto: its handle, the number of row fields that refer to it, and the number of reads that pin it."""

    handle: dict[str, Any]
    managed: bool
    references: int = 0
    readers: int = 0


@dataclass
class _Row:
    """The entry of a key: its tag, and the location of each field: (fragment, row in it)."""

    tag: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, tuple[str, int]] = field(default_factory=dict)


class DataProtoCatalog:
    """DataProtoCatalog()

    Rows by partition and key.  Not thread-safe: callers must serialize calls."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, _Row]] = {}
        self._fragments: dict[str, _Fragment] = {}
        self._retired: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._pins: dict[int, tuple[str, ...]] = {}
        self._last_pin = 0
        self._drained = False

    # ---- adding rows ----

    def update(self, partition: str, keys: Sequence[str], *, tags: Optional[Sequence[Mapping[str, Any]]] = None,
               handle: Optional[Handle] = None) -> dict[str, Any]:
        """Add tags to the rows' tags, or a fragment with a row for each key, or both.  Returns keys, tags and fields of
        these rows, and retired_handles.  The caller remains responsible for removing the fragment."""
        return self._enter(partition, keys, tags, handle, False)

    def publish(self, operation_id: str, partition: str, keys: Sequence[str], *,
                tags: Optional[Sequence[Mapping[str, Any]]] = None, handle: Optional[Handle] = None) -> dict[str, Any]:
        """As update(), but the catalog manages the fragment.  Until ack_publication(), a repeated operation_id returns the
        first result and has no other effect."""
        operation_id = _text(operation_id, "operation_id")
        if operation_id not in self._answers:
            self._answers[operation_id] = self._enter(partition, keys, tags, handle, handle is not None)
        return copy.deepcopy(self._answers[operation_id])

    def ack_publication(self, operation_id: str) -> None:
        """Discard the stored result of an operation_id, because the caller has received it."""
        self._answers.pop(_text(operation_id, "operation_id"), None)

    def publish_append(self, operation_id: str, fragment_id: str, partition: str, keys: Sequence[str], *,
                       previous_handle: Handle, handle: Handle) -> dict[str, Any]:
        """Replace a managed fragment's handle after an append, and add its new fields.  {"append_rejected": why} if the
        fragment has changed meanwhile or cannot be replaced.  operation_id: as publish()."""
        operation_id = _text(operation_id, "operation_id")
        if operation_id not in self._answers:
            self._answers[operation_id] = self._append(fragment_id, partition, keys, previous_handle, handle)
        return copy.deepcopy(self._answers[operation_id])

    def _append(self, fragment_id: str, partition: str, keys: Sequence[str], before: Handle,
                after: Handle) -> dict[str, Any]:
        if self._drained:
            return {"append_rejected": "the DataProto catalog is drained"}
        fragment_id, partition = _text(fragment_id, "fragment_id"), _text(partition, "partition")
        keys = _names(keys, "keys")
        (old, old_handle), (new, new_handle) = _read(before), _read(after)
        fragment = self._fragments.get(fragment_id)
        if fragment is None or not fragment.managed or fragment.handle != old_handle:
            return {"append_rejected": f"stale DataProto append handle: {fragment_id!r}"}
        if not new.batch_size == old.batch_size == len(keys) or not new.partition == old.partition == partition or (
                new._storage_group_id != old._storage_group_id):
            return {"append_rejected": "appended DataProto handle changed fragment identity: other rows, partition or group"}
        if any(new.field_index.get(name) != at for name, at in old.field_index.items()):
            return {"append_rejected": "appended DataProto handle changed existing fields"}
        rows = self._rows.get(partition, {})
        missing = [key for key in keys if key not in rows]
        if missing:
            return {"append_rejected": f"keys not found in partition {partition!r}: {missing}"}
        fragment.handle = new_handle
        added = [name for name in new.field_index if name not in old.field_index]
        for i, key in enumerate(keys):
            self._point(rows[key], added, fragment_id, i)
        return self._answer(rows, keys)

    def _enter(self, partition: str, keys: Sequence[str], tags: Optional[Sequence[Mapping[str, Any]]],
               handle: Optional[Handle], managed: bool) -> dict[str, Any]:
        if self._drained:
            raise RuntimeError("the DataProto catalog is drained")
        partition, keys = _text(partition, "partition"), _names(keys, "keys")
        added = _tags(tags, len(keys))
        if added is None and handle is None:
            raise ValueError("a catalog update requires tags or a DataProto handle")
        fragment_id, fields = "", ()
        if handle is not None:
            fragment_id, fields = self._take(handle, len(keys), managed)
        rows = self._rows.setdefault(partition, {})
        for i, key in enumerate(keys):
            row = rows.setdefault(key, _Row())
            row.tag.update(added[i] if added is not None else {})
            self._point(row, fields, fragment_id, i)
        return self._answer(rows, keys)

    def _take(self, handle: Handle, rows: int, managed: bool) -> tuple[str, tuple[str, ...]]:
        """Register a fragment; returns its id, which is the key of its manifest, and its fields."""
        ref, one_form = _read(handle)
        if len(ref.stage_refs) != 1:
            raise ValueError("catalog fragments must contain exactly one DataProto stage")
        fragment_id = next(iter(ref.stage_refs.values())).manifest_key
        if ref.batch_size != rows:
            raise ValueError(f"DataProto batch size {ref.batch_size} does not match {rows} logical keys")
        if not ref.field_index:
            raise ValueError("DataProto catalog fragments cannot be empty")
        known = self._fragments.get(fragment_id)
        if known is not None and known.handle != one_form:
            raise ValueError(f"DataProto fragment id collision: {fragment_id!r}")
        if known is not None and known.managed != managed:
            raise ValueError(f"DataProto fragment management mismatch: {fragment_id!r}")
        if fragment_id in self._retired:
            raise ValueError(f"DataProto fragment id is pending retirement: {fragment_id!r}")
        self._fragments.setdefault(fragment_id, _Fragment(one_form, managed))
        return fragment_id, tuple(ref.field_index)

    def _point(self, row: _Row, fields: Sequence[str], fragment_id: str, at: int) -> None:
        """Set the location of these fields of a row."""
        for name in fields:
            old = row.fields.get(name)
            row.fields[name] = (fragment_id, at)
            self._fragments[fragment_id].references += 1
            if old is not None:
                self._drop(old[0])

    # ---- removing rows ----

    def _drop(self, fragment_id: str) -> None:
        self._fragments[fragment_id].references -= 1
        self._retire_unused(fragment_id)

    def _retire_unused(self, fragment_id: str) -> None:
        fragment = self._fragments[fragment_id]
        if not fragment.references and not fragment.readers:
            del self._fragments[fragment_id]
            if fragment.managed:
                self._retired[fragment_id] = fragment.handle

    def _retired_result(self) -> dict[str, Any]:
        return {"retired_handles": [copy.deepcopy(handle) for handle in self._retired.values()]}

    def _answer(self, rows: Mapping[str, _Row], keys: Sequence[str]) -> dict[str, Any]:
        return {"keys": list(keys), "tags": [copy.deepcopy(rows[key].tag) for key in keys],
                "fields": self._fields(rows, keys), **self._retired_result()}

    @staticmethod
    def _fields(rows: Mapping[str, _Row], keys: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(name for key in keys for name in rows[key].fields))

    def remove(self, partition: str, keys: Sequence[str]) -> dict[str, Any]:
        """Remove rows, ignoring unknown keys.  retired_handles: fragments to which no row refers any more."""
        partition, keys = _text(partition, "partition"), _names(keys, "keys")
        rows = self._rows.get(partition, {})
        for key in keys:
            row = rows.pop(key, None)
            for fragment_id, _ in row.fields.values() if row is not None else ():
                self._drop(fragment_id)
        if not rows:
            self._rows.pop(partition, None)
        return self._retired_result()

    def drain(self) -> dict[str, Any]:
        """Remove everything and reject further additions: retired_handles has every managed fragment.  A RuntimeError
        while reads pin fragments."""
        if self._pins:
            raise RuntimeError(f"cannot drain DataProto catalog with {len(self._pins)} active read(s)")
        self._retired.update({i: f.handle for i, f in self._fragments.items() if f.managed})
        for books in (self._rows, self._fragments, self._answers):
            books.clear()
        self._drained = True
        return self._retired_result()

    def ack_retired(self, handles: Sequence[Handle]) -> dict[str, Any]:
        """Acknowledge that the caller has removed retired fragments; returns the remaining ones.  A ValueError for a handle
        that differs from the returned one."""
        for handle in handles:
            ref, one_form = _read(handle)
            found = next((i for i, retired in self._retired.items() if retired == one_form), None)
            if found is not None:
                del self._retired[found]
                continue
            named = [r.manifest_key for r in ref.stage_refs.values()]
            if len(named) == 1 and named[0] in self._retired:
                raise ValueError(f"retired DataProto fragment mismatch: {named[0]!r}")
        return self._retired_result()

    # ---- queries ----

    def resolve(self, partition: str, keys: Sequence[str], fields: Optional[Sequence[str]] = None, *,
                pin: bool = False) -> dict[str, Any]:
        """Locate fields of rows: field_groups, each with fields that share locations and a (fragment, row) for each key;
        handles by fragment; tags, meta_info.  A ValueError for unknown rows, or rows without all the fields.

        pin: keep the fragments until release_read() of the read_token."""
        partition, keys = _text(partition, "partition"), _names(keys, "keys")
        rows = self._rows.get(partition, {})
        missing = [key for key in keys if key not in rows]
        if missing:
            raise ValueError(f"keys were not found in partition {partition!r}: {missing}")
        selected = self._fields(rows, keys) if fields is None else list(_names(fields, "field names"))
        if not selected:
            raise ValueError("requested keys do not contain any fields")
        for key in keys:
            without = [name for name in selected if name not in rows[key].fields]
            if without:
                raise ValueError(f"fields are not ready for key {key!r}: {without}")
        groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
        for name in selected:
            groups.setdefault(tuple(rows[key].fields[name] for key in keys), []).append(name)
        used = tuple({fragment_id for locations in groups for fragment_id, _ in locations})
        handles = {i: copy.deepcopy(self._fragments[i].handle) for i in used}
        meta_info: dict[str, Any] = {}
        for handle in handles.values():
            for name, value in handle.get("meta_info", {}).items():
                if meta_info.setdefault(name, copy.deepcopy(value)) != value:
                    raise ValueError(f"conflicting DataProto meta_info value for {name!r}")
        result = {"keys": list(keys), "tags": [copy.deepcopy(rows[key].tag) for key in keys], "fields": selected,
                  "field_groups": [{"fields": names, "locations": list(at)} for at, names in groups.items()],
                  "handles": handles, "meta_info": meta_info}
        if pin:
            self._last_pin += 1
            self._pins[self._last_pin] = used
            for fragment_id in used:
                self._fragments[fragment_id].readers += 1
            result["read_token"] = self._last_pin
        return result

    def release_read(self, token: int) -> dict[str, Any]:
        """End a read; harmless if it has already ended.  retired_handles as remove()."""
        for fragment_id in self._pins.pop(token, ()):
            self._fragments[fragment_id].readers -= 1
            self._retire_unused(fragment_id)
        return self._retired_result()

    def list(self, partition: Optional[str] = None) -> dict[str, dict[str, Any]]:
        """Tags by partition and key, of one or all partitions."""
        wanted = self._rows if partition is None else {_text(partition, "partition")} & set(self._rows)
        return {name: {key: copy.deepcopy(row.tag) for key, row in self._rows[name].items()} for name in wanted}


class DataProtoCatalogTransfer:
    """DataProtoCatalogTransfer(transfer, catalog_call)

    Stores data with a MooncakeBundleTransfer and registers it in a catalog, which may be in another process:
    catalog_call(name, *args, **kwargs) calls its method of that name.  The next call, drain() and close() retry failed calls
    of the catalog.  Removes the fragments that the catalog retires.  Thread-safe."""

    _RESULTS_ATTR = "_mooncake_catalog_results"

    def __init__(self, transfer: Any, catalog_call: Callable[..., Any]) -> None:
        self.transfer = transfer
        self._catalog_call = catalog_call
        self._lock = _locks.rlock()
        # pending work: publications (operation, method, args, kwargs), operations to acknowledge, results to release
        self._publications: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = []
        self._acks: list[str] = []
        self._results: list[Any] = []

    def put(self, data: Any, *, partition: str, keys: Sequence[str],
            tags: Optional[Sequence[Mapping[str, Any]]] = None, **put_kwargs: Any) -> dict[str, Any]:
        """Store a DataProto with a row for each key, and publish it; without data, publish only tags.  Returns the result of
        DataProtoCatalog.publish().  put_kwargs are passed to the transfer's put().

        If the catalog fails twice, its exception is raised, but a later call may still publish the data."""
        self._catch_up()
        partition, keys = _text(partition, "partition"), _names(keys, "keys")
        tags = _tags(tags, len(keys))
        if data is None and tags is None:
            raise ValueError("a catalog update requires tags or DataProto data")
        handle = None
        if data is not None:
            self._check_rows(data, keys)
            handle = self._exported(self.transfer.put(data, type="dataproto", partition=partition, **put_kwargs),
                                    self.transfer.cleanup_dataproto)
        return self._told_twice((uuid.uuid4().hex, "publish", (partition, keys), {"tags": tags, "handle": handle}))

    def append(self, fragment_id: str, handle: Handle, data: Any, *, partition: str, keys: Sequence[str], stage: str,
               **append_kwargs: Any) -> dict[str, Any]:
        """Store more fields of a fragment's rows, and publish them.  Returns the result of DataProtoCatalog.publish_append().
        If the fragment has changed meanwhile, removes the stored fields and raises ValueError."""
        self._catch_up()
        fragment_id, partition = _text(fragment_id, "fragment_id"), _text(partition, "partition")
        keys = _names(keys, "keys")
        if append_kwargs.get("overwrite"):
            raise ValueError("catalog append does not support overwrite")
        self._check_rows(data, keys)
        ref, before = _read(handle)
        if ref.partition != partition:
            raise ValueError("DataProto handle partition does not match Catalog partition")
        plan = self._catalog_call("resolve", partition, keys, list(ref.field_index))
        if plan["handles"].get(fragment_id) != before:
            raise ValueError(f"stale DataProto append handle: {fragment_id!r}")
        after = self._exported(self.transfer.append_dataproto_fields(before, data, stage=stage, **append_kwargs),
                               lambda appended: self.transfer.cleanup_dataproto_append(before, appended))
        result = self._told_twice((uuid.uuid4().hex, "publish_append", (fragment_id, partition, keys),
                                   {"previous_handle": before, "handle": after}))
        if result.get("append_rejected") is not None:
            raise ValueError(result["append_rejected"])
        return result

    @staticmethod
    def _check_rows(data: Any, keys: Sequence[str]) -> None:
        if len(data) != len(keys):
            raise ValueError(f"DataProto batch size {len(data)} does not match {len(keys)} logical keys")

    @staticmethod
    def _exported(ref: Any, take_back: Callable[[Any], None]) -> dict[str, Any]:
        from mooncake.structured_object_store import export_dataproto_ref

        try:
            return export_dataproto_ref(ref)
        except Exception:
            # without a handle, nothing would ever remove the data
            take_back(ref)
            raise

    def resolve(self, partition: str, keys: Sequence[str], fields: Optional[Sequence[str]] = None) -> dict[str, Any]:
        """DataProtoCatalog.resolve(pin=True); end the read with release_read(read_token)."""
        return self._catalog_call("resolve", partition, keys, fields, pin=True)

    def release_read(self, token: int) -> None:
        """End a read, and remove retired fragments."""
        self._clean(self._catalog_call("release_read", token))

    def list(self, partition: Optional[str] = None) -> dict[str, dict[str, Any]]:
        """DataProtoCatalog.list()."""
        return self._catalog_call("list", partition)

    def remove(self, partition: str, keys: Sequence[str]) -> None:
        """Remove rows, and remove retired fragments."""
        self._clean(self._catalog_call("remove", partition, keys))

    # ---- results in a pool's memory ----

    def attach_results(self, output: Any, results: Sequence[Any]) -> None:
        """Attach results to the object that uses their arrays, for release_result()."""
        setattr(output, self._RESULTS_ATTR, list(results))

    def release_result(self, output: Any) -> None:
        """Release the memory of the results attached to an object; harmless if repeated."""
        results = getattr(output, self._RESULTS_ATTR, ()) or ()
        setattr(output, self._RESULTS_ATTR, [])
        self.discard_results(results)

    def discard_results(self, results: Sequence[Any], *, strict: bool = False) -> None:
        """Call the transfer's release_result() of each; failures are retried once now, and again later.  strict: a
        RuntimeError if some remain."""
        self._retry(self._results, self.transfer.release_result, "give memory of results back", strict, results, 2)

    # ---- shutdown and retries ----

    def drain(self) -> None:
        """Finish pending publications, drain the catalog, and remove all managed fragments.  Tries twice."""
        for attempt in range(2):
            try:
                self._retry(self._publications, self._tell, "enter a fragment in the catalog", True)
                self._clean(self._catalog_call("drain"), strict=True)
                return
            except Exception:
                if attempt:
                    raise
                _setup.log.warning("the catalog is not drained, once more", exc_info=True)

    def close(self) -> None:
        """Finish pending work.  A RuntimeError if some of it fails; the caller can retry."""
        self.discard_results((), strict=True)
        self._retry(self._publications, self._tell, "enter a fragment in the catalog", True)
        self._retry(self._acks, self._ack, "acknowledge the entered fragments", True)

    def _catch_up(self) -> None:
        self._retry(self._acks, self._ack, "acknowledge the entered fragments", False)
        self._retry(self._publications, self._tell, "enter a fragment in the catalog", True)

    def _ack(self, operation_id: str) -> None:
        self._catalog_call("ack_publication", operation_id)

    def _told_twice(self, publication: tuple[str, str, tuple[Any, ...], dict[str, Any]]) -> dict[str, Any]:
        try:
            return self._tell(publication)
        except Exception:
            _setup.log.warning("a fragment is not entered in the catalog, once more", exc_info=True)
        try:
            return self._tell(publication)
        except Exception:
            # the catalog may have registered the data before it failed, so keep the data and retry later
            with self._lock:
                self._publications.append(publication)
            raise

    def _tell(self, publication: tuple[str, str, tuple[Any, ...], dict[str, Any]]) -> dict[str, Any]:
        operation_id, method, args, kwargs = publication
        result = self._catalog_call(method, operation_id, *args, **kwargs)
        if result.get("append_rejected"):
            self.transfer.cleanup_dataproto_append(kwargs["previous_handle"], kwargs["handle"])
        self._clean(result)
        self._retry(self._acks, self._ack, "acknowledge the entered fragments", False, [operation_id])
        return result

    def _clean(self, result: Mapping[str, Any], strict: bool = False) -> None:
        """Remove retired fragments; the catalog returns those that failed again later."""
        removed, failed = [], 0
        for handle in result.get("retired_handles", ()):
            try:
                self.transfer.cleanup_dataproto(handle)
                removed.append(handle)
            except Exception:
                failed += 1
                _setup.log.warning("an unreferenced fragment could not be removed", exc_info=True)
        if removed:
            try:
                self._catalog_call("ack_retired", removed)
            except Exception:
                _setup.log.warning("the catalog is not told of fragments that were removed", exc_info=True)
                if strict:
                    raise
        if strict and failed:
            raise RuntimeError(f"failed to clean up {failed} retired DataProto fragment(s)")

    def _retry(self, pending: list[Any], action: Callable[[Any], Any], what: str, strict: bool,
               more: Sequence[Any] = (), times: int = 1) -> None:
        """Run @action for the pending items and @more; items that fail become pending again."""
        with self._lock:
            items = [*pending, *more]
            pending.clear()
        for _ in range(times):
            failed = []
            for item in items:
                try:
                    action(item)
                except Exception:
                    _setup.log.warning("cannot %s", what, exc_info=True)
                    failed.append(item)
            items = failed
        with self._lock:
            pending.extend(items)
            left = len(pending)
        if strict and left:
            raise RuntimeError(f"failed to {what} for {left} item(s)")
