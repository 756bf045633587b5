# SPDX-License-Identifier: Apache-2.0
"""Which rows and fields, under names of their own, lie in which stored DataProto.

DataProtoCatalog keeps the books, in one process; DataProtoCatalogTransfer, in any, puts data and has it entered, through
a call that reaches the catalog.  A fragment is one DataProto of one stage, whose rows have keys; a later fragment with
the same fields takes the rows over.  Fragments that a transfer has published are managed: when nothing names one any
more, and no reader holds it, the catalog gives its handle out to be removed from the store, again and again until
that is acknowledged.

Handles are those of structured_object_store.export_dataproto_ref().  What is returned is the caller's, and may be JSON
or pickled.  Wrong arguments are ValueErrors or TypeErrors, and change nothing."""

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
        raise ValueError(f"{what} is a text with characters")
    return value


def _names(values: Any, what: str) -> tuple[str, ...]:
    """Names that are all others; a ValueError for none."""
    if isinstance(values, str):
        raise ValueError(f"{what} are several texts, not one")
    names = tuple(values)
    if not names or not all(isinstance(n, str) and n for n in names):
        raise ValueError(f"{what} are one or more texts with characters")
    if len(set(names)) < len(names):
        raise ValueError(f"{what} are there twice")
    return names


def _tags(tags: Optional[Sequence[Mapping[str, Any]]], count: int) -> Optional[list[dict[str, Any]]]:
    if tags is None:
        return None
    if len(tags) != count:
        raise ValueError("there is a tag for each key")
    if not all(isinstance(tag, Mapping) for tag in tags):
        raise TypeError("a tag is a mapping")
    return [copy.deepcopy(dict(tag)) for tag in tags]


def _read(handle: Handle) -> tuple[Any, dict[str, Any]]:
    """The reference of a handle, and the handle in its one form."""
    # numpy, which that needs, is no need of who only asks for names
    from mooncake.structured_object_store import export_dataproto_ref, import_dataproto_ref

    ref = import_dataproto_ref(handle)
    return ref, export_dataproto_ref(ref)


@dataclass
class _Fragment:
    """A stored DataProto: its handle, how many fields of rows name it, and how many reads hold it."""

    handle: dict[str, Any]
    managed: bool
    references: int = 0
    readers: int = 0


@dataclass
class _Row:
    """What is known under a key: a tag, and where each field lies: (fragment, row in it)."""

    tag: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, tuple[str, int]] = field(default_factory=dict)


class DataProtoCatalog:
    """DataProtoCatalog()

    Rows by partition and key.  One call at a time: who shares it among threads or processes sees to that."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, _Row]] = {}
        self._fragments: dict[str, _Fragment] = {}
        self._retired: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._pins: dict[int, tuple[str, ...]] = {}
        self._last_pin = 0
        self._drained = False

    # ---- entering ----

    def update(self, partition: str, keys: Sequence[str], *, tags: Optional[Sequence[Mapping[str, Any]]] = None,
               handle: Optional[Handle] = None) -> dict[str, Any]:
        """Enter tags, added to those that are there, or a fragment with a row for each key, or both: keys, tags, fields
        of these rows, and retired_handles.  The fragment stays the caller's to remove."""
        return self._enter(partition, keys, tags, handle, False)

    def publish(self, operation_id: str, partition: str, keys: Sequence[str], *,
                tags: Optional[Sequence[Mapping[str, Any]]] = None, handle: Optional[Handle] = None) -> dict[str, Any]:
        """update() with a fragment that the catalog manages from now on.  The same operation_id again is answered as the
        first time, and enters nothing, until ack_publication()."""
        operation_id = _text(operation_id, "operation_id")
        if operation_id not in self._answers:
            self._answers[operation_id] = self._enter(partition, keys, tags, handle, handle is not None)
        return copy.deepcopy(self._answers[operation_id])

    def ack_publication(self, operation_id: str) -> None:
        """Forget an answer that has arrived."""
        self._answers.pop(_text(operation_id, "operation_id"), None)

    def publish_append(self, operation_id: str, fragment_id: str, partition: str, keys: Sequence[str], *,
                       previous_handle: Handle, handle: Handle) -> dict[str, Any]:
        """Replace a managed fragment by what has been appended to it, and enter its new fields.  {"append_rejected": why}
        when the fragment is another one by now, or is none that may be replaced.  operation_id as publish()."""
        operation_id = _text(operation_id, "operation_id")
        if operation_id not in self._answers:
            self._answers[operation_id] = self._append(fragment_id, partition, keys, previous_handle, handle)
        return copy.deepcopy(self._answers[operation_id])

    def _append(self, fragment_id: str, partition: str, keys: Sequence[str], before: Handle,
                after: Handle) -> dict[str, Any]:
        if self._drained:
            return {"append_rejected": "the catalog has been drained"}
        fragment_id, partition = _text(fragment_id, "fragment_id"), _text(partition, "partition")
        keys = _names(keys, "keys")
        (old, old_handle), (new, new_handle) = _read(before), _read(after)
        fragment = self._fragments.get(fragment_id)
        if fragment is None or not fragment.managed or fragment.handle != old_handle:
            return {"append_rejected": f"the fragment is another one by now: {fragment_id!r}"}
        if not new.batch_size == old.batch_size == len(keys) or not new.partition == old.partition == partition or (
                new._storage_group_id != old._storage_group_id):
            return {"append_rejected": "the appended data does not belong to this fragment: other rows, partition or group"}
        if any(new.field_index.get(name) != at for name, at in old.field_index.items()):
            return {"append_rejected": "the appended data has other fields than the fragment"}
        rows = self._rows.get(partition, {})
        missing = [key for key in keys if key not in rows]
        if missing:
            return {"append_rejected": f"the partition {partition!r} has not the keys {missing}"}
        fragment.handle = new_handle
        added = [name for name in new.field_index if name not in old.field_index]
        for i, key in enumerate(keys):
            self._point(rows[key], added, fragment_id, i)
        return self._answer(rows, keys)

    def _enter(self, partition: str, keys: Sequence[str], tags: Optional[Sequence[Mapping[str, Any]]],
               handle: Optional[Handle], managed: bool) -> dict[str, Any]:
        if self._drained:
            raise RuntimeError("the catalog has been drained")
        partition, keys = _text(partition, "partition"), _names(keys, "keys")
        added = _tags(tags, len(keys))
        if added is None and handle is None:
            raise ValueError("tags or a handle are wanted")
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
        """Note a fragment: its name, the key of its manifest, and its fields."""
        ref, one_form = _read(handle)
        if len(ref.stage_refs) != 1:
            raise ValueError("a fragment has one stage")
        fragment_id = next(iter(ref.stage_refs.values())).manifest_key
        if ref.batch_size != rows:
            raise ValueError(f"{rows} keys for a fragment of {ref.batch_size} rows")
        if not ref.field_index:
            raise ValueError("a fragment has fields")
        known = self._fragments.get(fragment_id)
        if known is not None and known.handle != one_form:
            raise ValueError(f"another fragment has this name: {fragment_id!r}")
        if known is not None and known.managed != managed:
            raise ValueError(f"a fragment is managed or is not, for good: {fragment_id!r}")
        if fragment_id in self._retired:
            raise ValueError(f"the fragment is about to be removed: {fragment_id!r}")
        self._fragments.setdefault(fragment_id, _Fragment(one_form, managed))
        return fragment_id, tuple(ref.field_index)

    def _point(self, row: _Row, fields: Sequence[str], fragment_id: str, at: int) -> None:
        """These fields of a row lie there now."""
        for name in fields:
            old = row.fields.get(name)
            row.fields[name] = (fragment_id, at)
            self._fragments[fragment_id].references += 1
            if old is not None:
                self._drop(old[0])

    # ---- leaving ----

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
        """Forget rows; those that are not there are none to forget.  retired_handles: what nobody names any more."""
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
        """Forget everything, for good: retired_handles has every managed fragment.  A RuntimeError while reads hold
        some."""
        if self._pins:
            raise RuntimeError(f"{len(self._pins)} reads hold fragments of the catalog")
        self._retired.update({i: f.handle for i, f in self._fragments.items() if f.managed})
        for books in (self._rows, self._fragments, self._answers):
            books.clear()
        self._drained = True
        return self._retired_result()

    def ack_retired(self, handles: Sequence[Handle]) -> dict[str, Any]:
        """Forget handles of retired fragments that have been removed: the others.  A ValueError for a handle that is not
        the one that was given out."""
        for handle in handles:
            ref, one_form = _read(handle)
            found = next((i for i, retired in self._retired.items() if retired == one_form), None)
            if found is not None:
                del self._retired[found]
                continue
            named = [r.manifest_key for r in ref.stage_refs.values()]
            if len(named) == 1 and named[0] in self._retired:
                raise ValueError(f"this is not the handle that was given out: {named[0]!r}")
        return self._retired_result()

    # ---- asking ----

    def resolve(self, partition: str, keys: Sequence[str], fields: Optional[Sequence[str]] = None, *,
                pin: bool = False) -> dict[str, Any]:
        """Where fields of rows lie, in that order: field_groups, each with the fields that lie together and a (fragment,
        row) for each key; handles by fragment; tags, meta_info.  A ValueError for rows that are not there or have not
        all the fields.

        pin: the fragments stay until release_read() of the read_token."""
        partition, keys = _text(partition, "partition"), _names(keys, "keys")
        rows = self._rows.get(partition, {})
        missing = [key for key in keys if key not in rows]
        if missing:
            raise ValueError(f"the partition {partition!r} has not the keys {missing}")
        selected = self._fields(rows, keys) if fields is None else list(_names(fields, "field names"))
        if not selected:
            raise ValueError("these rows have no fields")
        for key in keys:
            without = [name for name in selected if name not in rows[key].fields]
            if without:
                raise ValueError(f"the row {key!r} has not the fields {without}")
        groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
        for name in selected:
            groups.setdefault(tuple(rows[key].fields[name] for key in keys), []).append(name)
        used = tuple({fragment_id for locations in groups for fragment_id, _ in locations})
        handles = {i: copy.deepcopy(self._fragments[i].handle) for i in used}
        meta_info: dict[str, Any] = {}
        for handle in handles.values():
            for name, value in handle.get("meta_info", {}).items():
                if meta_info.setdefault(name, copy.deepcopy(value)) != value:
                    raise ValueError(f"fragments have different meta_info for {name!r}")
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
        """End a read; one that has ended is none to end.  retired_handles as remove()."""
        for fragment_id in self._pins.pop(token, ()):
            self._fragments[fragment_id].readers -= 1
            self._retire_unused(fragment_id)
        return self._retired_result()

    def list(self, partition: Optional[str] = None) -> dict[str, dict[str, Any]]:
        """Tags by partition and key, of one partition or all."""
        wanted = self._rows if partition is None else {_text(partition, "partition")} & set(self._rows)
        return {name: {key: copy.deepcopy(row.tag) for key, row in self._rows[name].items()} for name in wanted}


class DataProtoCatalogTransfer:
    """DataProtoCatalogTransfer(transfer, catalog_call)

    Puts through a MooncakeBundleTransfer and enters in a catalog: catalog_call(name, *args, **kwargs) calls the method of
    that name, wherever the catalog is.  What could not be told to it is told again with the next call, and with
    drain() and close(); what it has retired is removed from the store.  Any thread may call."""

    _RESULTS_ATTR = "_mooncake_catalog_results"

    def __init__(self, transfer: Any, catalog_call: Callable[..., Any]) -> None:
        self.transfer = transfer
        self._catalog_call = catalog_call
        self._lock = _locks.rlock()
        # what is still to be done: publications (operation, method, args, kwargs), operations to acknowledge, results
        self._publications: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = []
        self._acks: list[str] = []
        self._results: list[Any] = []

    def put(self, data: Any, *, partition: str, keys: Sequence[str],
            tags: Optional[Sequence[Mapping[str, Any]]] = None, **put_kwargs: Any) -> dict[str, Any]:
        """Store a DataProto with a row for each key, and publish it; without data, tags only: the answer of
        DataProtoCatalog.publish().  put_kwargs are the transfer's put()'s.

        When the catalog fails twice its exception is raised, and the data may be entered all the same later."""
        self._catch_up()
        partition, keys = _text(partition, "partition"), _names(keys, "keys")
        tags = _tags(tags, len(keys))
        if data is None and tags is None:
            raise ValueError("tags or data are wanted")
        handle = None
        if data is not None:
            self._check_rows(data, keys)
            handle = self._exported(self.transfer.put(data, type="dataproto", partition=partition, **put_kwargs),
                                    self.transfer.cleanup_dataproto)
        return self._told_twice((uuid.uuid4().hex, "publish", (partition, keys), {"tags": tags, "handle": handle}))

    def append(self, fragment_id: str, handle: Handle, data: Any, *, partition: str, keys: Sequence[str], stage: str,
               **append_kwargs: Any) -> dict[str, Any]:
        """Store more fields of a fragment's rows, and publish them: DataProtoCatalog.publish_append()'s answer.  A
        ValueError when the fragment is another one by now; what was stored is removed then."""
        self._catch_up()
        fragment_id, partition = _text(fragment_id, "fragment_id"), _text(partition, "partition")
        keys = _names(keys, "keys")
        if append_kwargs.get("overwrite"):
            raise ValueError("an append cannot overwrite")
        self._check_rows(data, keys)
        ref, before = _read(handle)
        if ref.partition != partition:
            raise ValueError("the handle is of another partition")
        plan = self._catalog_call("resolve", partition, keys, list(ref.field_index))
        if plan["handles"].get(fragment_id) != before:
            raise ValueError(f"the fragment is another one by now: {fragment_id!r}")
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
            raise ValueError(f"{len(keys)} keys for {len(data)} rows")

    @staticmethod
    def _exported(ref: Any, take_back: Callable[[Any], None]) -> dict[str, Any]:
        from mooncake.structured_object_store import export_dataproto_ref

        try:
            return export_dataproto_ref(ref)
        except Exception:
            # nobody will know of it
            take_back(ref)
            raise

    def resolve(self, partition: str, keys: Sequence[str], fields: Optional[Sequence[str]] = None) -> dict[str, Any]:
        """DataProtoCatalog.resolve(pin=True); release_read() of its read_token ends the read."""
        return self._catalog_call("resolve", partition, keys, fields, pin=True)

    def release_read(self, token: int) -> None:
        """End a read, and remove what the catalog has retired."""
        self._clean(self._catalog_call("release_read", token))

    def list(self, partition: Optional[str] = None) -> dict[str, dict[str, Any]]:
        """DataProtoCatalog.list()."""
        return self._catalog_call("list", partition)

    def remove(self, partition: str, keys: Sequence[str]) -> None:
        """Forget rows, and remove what the catalog has retired."""
        self._clean(self._catalog_call("remove", partition, keys))

    # ---- results that lie in a pool's memory ----

    def attach_results(self, output: Any, results: Sequence[Any]) -> None:
        """Note with an object which results its arrays are of, for release_result()."""
        setattr(output, self._RESULTS_ATTR, list(results))

    def release_result(self, output: Any) -> None:
        """Give the memory of the results of an object back; again is harmless."""
        results = getattr(output, self._RESULTS_ATTR, ()) or ()
        setattr(output, self._RESULTS_ATTR, [])
        self.discard_results(results)

    def discard_results(self, results: Sequence[Any], *, strict: bool = False) -> None:
        """The transfer's release_result() of each, twice if it fails, and later once more.  strict: a RuntimeError when
        some are left."""
        self._retry(self._results, self.transfer.release_result, "give memory of results back", strict, results, 2)

    # ---- ends ----

    def drain(self) -> None:
        """Publish what is left, drain the catalog, and remove all that it managed.  Tried twice."""
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
        """Do what is left.  A RuntimeError when something cannot be done; it can be called again."""
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
            # it may be entered: only the catalog can say, so that it is asked again and nothing removed
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
        """Removes what the catalog has retired; what fails it gives out again."""
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
            raise RuntimeError(f"{failed} unreferenced fragments could not be removed")

    def _retry(self, pending: list[Any], action: Callable[[Any], Any], what: str, strict: bool,
               more: Sequence[Any] = (), times: int = 1) -> None:
        """Does what is pending, and @more; what fails is pending again."""
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
            raise RuntimeError(f"cannot {what}: {left} of them")
