# SPDX-License-Identifier: Apache-2.0
"""Words of error messages for which users search: structured objects, DataProto and its catalog."""

import numpy as np

from cases import finish, says
from mooncake.async_store import MooncakeDistributedStoreAsync
from mooncake import structured_object_store as so
from mooncake.dataproto_catalog import DataProtoCatalog


class Store:
    """A dict."""

    def __init__(self):
        self.objects = {}

    def put(self, key, value, config=None):
        self.objects[key] = bytes(value)
        return 0

    def get(self, key):
        return self.objects.get(key, b"")

    def remove(self, key, force=False):
        return -704 if self.objects.pop(key, None) is None else 0

    def is_exist(self, key):
        return int(key in self.objects)


class Config:
    def __init__(self, groups):
        self.group_ids = groups


store = Store()
transfer = so.MooncakeBundleTransfer(store, "texts")
DATA = {"a": np.arange(4), "b": np.ones((4, 2))}
ref = transfer.put(DATA, type="dict")
handle = ref.to_handle() if hasattr(ref, "to_handle") else so.export_ref(ref)
payload = so.StructuredObjectPayload(metadata={}, buffers={"x": np.arange(6).reshape(3, 2), "raw": b"1234"})
whole = transfer.read_spec(transfer.put_structured_object(payload))


def structured():
    says("payload type", lambda: transfer.put(DATA, type="other"), "unsupported Mooncake payload type: 'other'")
    says("payload type of get", lambda: transfer.get(ref, type="other"), "unsupported Mooncake payload type: 'other'")
    says("no buffers", lambda: so.StructuredObjectPayload(), "StructuredObjectPayload requires buffers")
    says("metadata", lambda: transfer.put_structured_object(so.StructuredObjectPayload([1], {"x": b"1"})), "metadata must be a mapping")
    says("layout", lambda: transfer.put_structured_object(so.StructuredObjectPayload({"layout": 1}, {"x": b"1"})),
         "structured metadata layout must be a string")
    says("bytes-like", lambda: transfer.put_bundle(b"", {"x": 5}), "must be bytes-like, got int")
    says("name", lambda: transfer.put_bundle(b"", {"a/b": b"1"}), "invalid bundle buffer name: 'a/b'")
    says("partition", lambda: transfer.put_bundle(b"", {"x": b"1"}, partition=""), "invalid bundle partition: ''")
    says("key_prefix", lambda: so.MooncakeBundleTransfer(store, ""), "key_prefix must be a non-empty key prefix")
    says("member", lambda: transfer.materialize(whole.select_members(["y"])), "unknown", "'y'")
    says("no members", lambda: transfer.materialize(whole.select_members([])), "structured read spec selected no members")
    says("rows of bytes", lambda: transfer.materialize(whole.select_members(["raw"]).slice_member("raw", 0, 0, 1)),
         "structured bytes member raw does not support slicing")
    says("axis", lambda: transfer.materialize(whole.select_members(["x"]).slice_member("x", 1, 0, 1)),
         "slicing currently supports axis=0 only")
    says("step", lambda: transfer.materialize(whole.select_members(["x"]).slice_member("x", 0, 0, 2, -1)), "step must be positive")
    for what, array in (("dtype", np.zeros((3, 2), "f4")), ("shape", np.zeros((2, 2), np.arange(1).dtype))):
        says(f"destination {what}", lambda: transfer.materialize_into(whole.select_members(["x"]), {"x": array}),
             f"structured ndarray field x destination {what} mismatch: expected")
    says("destination type", lambda: transfer.materialize_into(whole.select_members(["x"]), {"x": 5}),
         "destination must be a numpy.ndarray or raw_destination")
    says("group of no texts", lambda: transfer.put(DATA, type="dict", config=Config([5])), "group_ids must contain strings")
    says("two groups", lambda: transfer.put(DATA, type="dict", config=Config(["a", "b"])), "group_ids must contain exactly one")
    store.objects["texts/none"] = b"[]"
    says("manifest", lambda: transfer.materialize(transfer.read_spec({"manifest_key": "texts/none"})), "bundle manifest", "must decode to a dict")
    says("no manifest_key", lambda: transfer.materialize(transfer.read_spec({})), "bundle ref must include manifest_key")


def dataproto():
    says("rows of unequal fields", lambda: transfer.put({"batch": {"a": np.arange(2), "b": np.arange(3)}}),
         "DataProto fields have inconsistent batch sizes")
    says("one name twice", lambda: transfer.put({"batch": {"a": np.arange(2)}, "non_tensor_batch": {"a": np.array(["x", "y"])}}),
         "overlap", "Duplicate keys")
    says("dict of no mapping", lambda: transfer.put(5, type="dict"), "flat dict payload must be a mapping")
    says("field", lambda: transfer.get(ref, type="dict", fields=["c"]), "unknown DataProto fields: ['c']")
    says("fields twice", lambda: transfer.get(ref, type="dict", fields=["a"], batch_fields=["b"]),
         "fields cannot be combined with batch_fields or non_tensor_fields")
    says("row", lambda: transfer.get(ref, type="dict", rows=[4]), "out of range")
    says("row of no integer", lambda: transfer.get(ref, type="dict", rows=["1"]), "DataProto row indices must be integers")
    says("rows", lambda: transfer.get(ref, type="dict", rows=5), "DataProto rows must be a slice")
    says("append of other rows", lambda: transfer.append_dataproto_fields(ref, {"batch": {"c": np.arange(3)}}, stage="s"),
         "DataProto append batch size 3 does not match ref batch size 4")
    says("append of a field again", lambda: transfer.append_dataproto_fields(ref, {"batch": {"a": np.arange(4)}}, stage="s"),
         "DataProto fields already exist: ['a']")
    says("no handle", lambda: transfer.get({**handle, "type": "x"}, type="dict"), "not a Mooncake DataProto ref handle")
    says("handle of no type", lambda: transfer.get(5, type="dict"), "expected MooncakeDataProtoRef or DataProto handle, got int")
    says("handle version", lambda: transfer.get({**handle, "version": 9}, type="dict"), "unsupported DataProto ref handle version: 9")
    says("handle kind", lambda: transfer.get({**handle, "kind": "x"}, type="dict"), "unsupported DataProto ref handle kind: 'x'")


def rejected(answer):
    raise ValueError(answer["append_rejected"])


def catalog():
    c = DataProtoCatalog()
    c.update("p", ["k"], tags=[{"t": 1}])
    says("partition of no text", lambda: c.update("", ["k"], tags=[{}]), "partition must be a non-empty string")
    says("keys as text", lambda: c.update("p", "k", tags=[{}]), "keys must be a sequence of non-empty strings")
    says("empty key", lambda: c.update("p", [""], tags=[{}]), "keys must be non-empty strings")
    says("keys twice", lambda: c.update("p", ["k", "k"], tags=[{}, {}]), "keys must be unique")
    says("tags", lambda: c.update("p", ["k"], tags=[]), "tags must have the same length as keys")
    says("tag", lambda: c.update("p", ["k"], tags=[5]), "tags must be mappings")
    says("nothing", lambda: c.update("p", ["k"]), "catalog update requires tags or a DataProto handle")
    says("batch size", lambda: c.update("p", ["k"], handle=handle), "DataProto batch size 4 does not match 1 logical keys")
    says("absent key", lambda: c.resolve("p", ["k", "none"]), "keys were not found in partition 'p': ['none']")
    says("no fields", lambda: c.resolve("p", ["k"]), "requested keys do not contain any fields")
    says("field not ready", lambda: c.resolve("p", ["k"], ["a"]), "fields are not ready for key 'k': ['a']")
    says("append to no fragment", lambda: rejected(c.publish_append("1", "f", "p", ["k"], previous_handle=handle, handle=handle)),
         "stale DataProto append handle: 'f'")
    c.drain()
    says("drained", lambda: c.update("p", ["k"], tags=[{}]), "DataProto catalog is drained")


says("async name", lambda: MooncakeDistributedStoreAsync().async_nothing, "has no attribute 'async_nothing' (nor 'nothing')")
says("value of no bytes", lambda: MooncakeDistributedStoreAsync().put_parts("k", 5), "a bytes-like object is required, not 'int'")
structured()
dataproto()
catalog()
finish({})
