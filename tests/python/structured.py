# SPDX-License-Identifier: Apache-2.0
"""mooncake.structured_object_store: one client gets objects that another one has put, whole and in
parts.

structured.py MASTER"""

import gc
import inspect
import json
import sys
import types

from structured_data import ROWS, check, check_dict, columns, members, np, opened, same, torch
from mooncake import structured_object_store as so
from mooncake.store import BufferPool, ReplicateConfig

MASTER = sys.argv[1]
one, other = opened(MASTER), opened(MASTER)


def raises(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as e:
        assert type(e) is kind, repr(e)
        return str(e)
    raise AssertionError(f"{call} does not raise {kind}")


def keys_of(manifest):
    parts = [manifest["meta"], *manifest["buffers"].values()]
    return [chunk["key"] for part in parts for chunk in part["chunks"]]


class Recording:
    """A store that records the calls."""

    def __init__(self, store):
        self.store, self.calls = store, []

    def __getattr__(self, name):
        found = getattr(self.store, name)

        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return found(*args, **kwargs)

        return call


class Little:
    """A store with the minimum of methods."""

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


def test_objects():
    for chunk in (700, so.DEFAULT_BUNDLE_CHUNK_BYTES):
        writer = so.MooncakeBundleTransfer(one, default_chunk_bytes=chunk)
        reader = so.MooncakeBundleTransfer(other)
        ref = writer.put_object(members())
        for known in (ref, {"manifest_key": ref.manifest_key}, so.RemoteBundleRef(ref.manifest_key, {}),
                      {"manifest_key": ref.manifest_key, "manifest": ref.manifest}):
            check_dict(members(), reader.get_object(known), f"chunks of {chunk}")
        assert ref.manifest_key.startswith("bundle/default/") and ref.manifest_key.endswith("/manifest")
        base = ref.manifest_key[:-len("/manifest")]
        whole = ref.manifest["buffers"]["bytes"]
        assert ref.manifest["object_id"] == base[len("bundle/"):]
        if chunk == 700:
            assert [c["bytes"] for c in whole["chunks"]] == [700] * 14 + [440], whole
            assert whole["chunks"][3]["key"] == f"{base}/buffer/bytes/chunk/3"
        else:
            assert whole["chunks"] == [{"key": f"{base}/buffer/bytes", "bytes": 10240}]
        assert ref.manifest["buffers"]["empty"] == {"key": f"{base}/buffer/empty", "bytes": 0, "chunks": []}
        keys = [ref.manifest_key, *keys_of(ref.manifest)]
        assert one.batch_is_exist(keys) == [1] * len(keys)
        assert json.loads(other.get(ref.manifest_key)) == ref.manifest
        reader.remove_bundle({"manifest_key": ref.manifest_key})
        assert one.batch_is_exist(keys) == [0] * len(keys)
        for known in (ref, {"manifest_key": ref.manifest_key}):
            writer.remove_bundle(known)
        raises(ValueError, reader.get_object, {"manifest_key": ref.manifest_key})
        raises(RuntimeError, reader.get_object, ref)
    single = so.MooncakeBundleTransfer(one, key_prefix="/a/b/").put_object(members()["c"], partition="p")
    assert single.manifest_key.startswith("a/b/p/")
    reader = so.MooncakeBundleTransfer(other, "a/b")
    check(members()["c"], reader.get_object(single), "one array")
    raises(ValueError, so.MooncakeBundleTransfer(other).get_object, single)
    reader.remove_bundle(single)
    assert one.remove_all(True) == 0


def test_results():
    t = so.MooncakeBundleTransfer(one)
    ref = t.put_object({"b": b"bytes", "e": b""})
    got = t.get_object(ref)
    # upstream's package returns an array unless the value is empty
    assert type(got["b"]) is np.ndarray and got["b"].dtype == np.uint8 and got["b"].flags.writeable and got["e"] == b""
    t.remove_bundle(ref)
    low = t.put_bundle(b"any bytes at all", {"x": b"123"}, max_inflight_put=2)
    assert low.manifest["meta"]["bytes"] == 16 and one.get(low.manifest["meta"]["key"]) == b"any bytes at all"
    t.remove_bundle(low)
    little = so.MooncakeBundleTransfer(Little(), default_chunk_bytes=1000)
    plain = {k: v for k, v in members().items() if torch is None or not isinstance(v, torch.Tensor)}
    ref = little.put_object(plain)
    got = little.get_object(ref)
    assert type(got["bytes"]) is bytes
    check_dict(plain, got, "a store with few methods")
    part = little.read_spec(ref).select_members(["c"]).slice_member("c", 0, 3, 40)
    check(plain["c"][3:40], little.materialize(part).objects["c"], "rows of a store with few methods")
    little.remove_bundle(ref)
    assert not little.store.objects


def test_specs():
    t = so.MooncakeBundleTransfer(one, default_chunk_bytes=500)
    data = members()
    ref = t.put_structured_object(so.StructuredObjectPayload({"k": [1, None]}, data), "p")
    spec = t.read_spec(ref)
    result = t.materialize(spec.select_members(["c", "bytes"]))
    assert set(result.objects) == {"c", "bytes"} and result.metadata["k"] == [1, None]
    assert result.metadata["layout"] == "structured"
    for cut in ((0, 50, 1), (10, 20, 1), (1, 50, 7), (40, 900, 2), (20, 10, 1), (-5, 50, 1)):
        wanted = spec.select_members(["c", "strided"]).slice_member("c", 0, *cut)
        got = t.materialize(wanted).objects
        check(data["c"][slice(*cut)], got["c"], f"rows {cut}")
        check(data["strided"], got["strided"], "the member beside")
        assert wanted.member_slice("c") == so.StructuredMemberSlice(0, *cut) and wanted.member_slice("x") is None
        into = np.zeros_like(data["c"][slice(*cut)])
        assert t.materialize_into(wanted, {"c": into}).objects["c"] is into
        check(data["c"][slice(*cut)], into, f"rows {cut} into")
        if torch is not None:
            wanted = spec.select_members(["tensor"]).slice_member("tensor", 0, *cut)
            check(data["tensor"][slice(*cut)] if cut[0] >= 0 else data["tensor"][-5:], t.materialize(wanted).objects["tensor"],
                  f"rows {cut} of a tensor")
    into = np.zeros((50, 20), "float32")
    raw = so.raw_destination(into.ctypes.data, into.nbytes, into)
    got = t.materialize_into(spec.select_members(["c"]), {"c": raw}).objects["c"]
    check(data["c"], into, "raw destination")
    assert got.ctypes.data == into.ctypes.data and one.register_buffer(into.ctypes.data, into.nbytes) == 0
    into[:] = 0
    t.materialize_into(spec.select_members(["c"]), {"c": so.raw_destination(into.ctypes.data, into.nbytes, pre_registered=True)})
    check(data["c"], into, "registered destination")
    one.unregister_buffer(into.ctypes.data)
    for bad in (np.zeros((50, 20)), np.zeros((49, 20), "float32"), np.zeros((50, 40), "float32")[:, ::2], raw.__class__(1, 4, None)):
        raises(ValueError, t.materialize_into, spec.select_members(["c"]), {"c": bad})
    raises(TypeError, t.materialize_into, spec, {"c": bytearray(4000)})
    raises(ValueError, t.materialize_into, spec, {"bytes": into})
    raises(ValueError, t.materialize, spec.slice_member("bytes", 0, 0, 1))
    raises(ValueError, t.materialize, spec.slice_member("c", 1, 0, 1))
    raises(ValueError, t.materialize, spec.slice_member("c", 0, 0, 1, 0))
    raises(ValueError, t.materialize, spec.slice_member("scalar", 0, 0, 1))
    raises(ValueError, t.materialize, spec.select_members([]))
    raises(KeyError, t.materialize, spec.select_members(["nobody"]))
    t.remove_bundle(ref)


def test_arguments():
    t = so.MooncakeBundleTransfer(one)
    for kwargs in ({"partition": "a/b"}, {"partition": ""}, {"partition": "a\n"}, {"chunk_bytes": 0},
                   {"max_inflight_put": 0}, {"policy": so.BundleTransferPolicy(put_mode="no")},
                   {"policy": so.BundleTransferPolicy(copy_mode="no")}):
        raises(ValueError, t.put_object, {"x": b"1"}, **kwargs)
    for name in ("a/b", "", "a\0", 1):
        raises(ValueError, t.put_object, {name: b"1"})
    for value in (1, None, "text", [b"x"], np.array([1, None])):
        raises(TypeError, t.put_object, {"x": b"1", "y": value})
    raises(ValueError, so.MooncakeBundleTransfer, one, "//")
    raises(ValueError, so.MooncakeBundleTransfer, one, "x", 0)
    raises(TypeError, so.StructuredObjectPayload, {})
    raises(TypeError, t.put_structured_object, so.StructuredObjectPayload({"x": object()}, {}))
    raises(ValueError, t.put_structured_object, so.StructuredObjectPayload({so.STRUCTURED_FIELD_SPECS_KEY: 1}, {}))
    raises(ValueError, t.put_structured_object, so.StructuredObjectPayload({"layout": 1}, {}))
    raises(RuntimeError, t.put_object, {"x": b"1"}, policy=so.BundleTransferPolicy(copy_mode="zero_copy"))
    raises(ValueError, t.put, {}, type="list")
    raises(ValueError, t.get_object, {})
    raises(TypeError, t.get, {"type": "else"})
    assert one.remove_all(True) == 0


def flat():
    return {"dense": np.arange(ROWS * 50).reshape(ROWS, 50), "note": "for all", **{k: v for k, (v, _) in columns().items()}}


def test_columns():
    t = so.MooncakeBundleTransfer(one, default_chunk_bytes=600)
    reader = so.MooncakeBundleTransfer(other)
    ref = t.put(flat(), type="dict")
    handle = json.loads(json.dumps(so.export_ref(ref)))
    assert so.is_dataproto_ref_handle(handle) and so.export_ref(so.import_ref(handle)) == handle
    for name, (_, codec) in columns().items():
        assert ref.encoded_non_tensor[name]["codec"] == codec, (name, ref.encoded_non_tensor[name]["codec"])
    assert ref.batch_size == ROWS and ref.meta_info == {"note": "for all"} and "note" not in ref.field_index
    for rows in (None, slice(None), slice(1, 3), slice(0, ROWS, 2), slice(4, 1), [5, 0, 0, -2], [], (3,),
                 so.StructuredMemberSlice(0, 2, 5, 2)):
        plain = slice(rows.start, rows.end, rows.step) if isinstance(rows, so.StructuredMemberSlice) else rows
        picked = range(ROWS)[slice(None) if rows is None else plain] if isinstance(plain, (slice, type(None))) else plain
        expected = {k: v if k == "note" else v[list(picked)] if k == "dense" else [v[i] for i in picked]
                    for k, v in flat().items()}
        check_dict(expected, reader.get(handle, type="dict", rows=rows), f"rows {rows}")
        got = reader.get(ref, rows=rows)
        assert set(got) == {"batch", "non_tensor_batch", "meta_info"} and set(got["batch"]) == {"dense"}
        for name, column in got["non_tensor_batch"].items():
            assert column.dtype == object and column.shape == (len(picked),), (name, column)
            check(expected[name], list(column), f"rows {rows} of {name}")
    got = reader.get(ref, fields=["text", "dense"], meta_info_keys=[])
    assert list(got["batch"]) == ["dense"] and list(got["non_tensor_batch"]) == ["text"] and got["meta_info"] == {}
    assert list(reader.get(ref, batch_fields=["dense"])["non_tensor_batch"]) == []
    into = np.zeros((2, 50), "int64")
    assert reader.get(ref, fields=["dense"], rows=[4, 1], destinations={"dense": into})["batch"]["dense"] is into
    check(flat()["dense"][[4, 1]], into, "rows into")
    raises(KeyError, reader.get, ref, fields=["nobody"])
    raises(ValueError, reader.get, ref, fields=["text"], batch_fields=["dense"])
    raises(IndexError, reader.get, ref, rows=[ROWS])
    raises(TypeError, reader.get, ref, rows=[1.5])
    raises(TypeError, reader.get, ref, rows="12")
    raises(ValueError, reader.get, ref, rows=slice(None, None, -1))
    view = reader.dataproto_manifest_view(handle)
    assert view["batch_fields"]["dense"]["spec"] == {"encoding": "ndarray", "dtype": "<i8", "shape": [ROWS, 50]}
    about = view["non_tensor_fields"]["text"]
    assert about["member"] == "non_tensor_batch.text" and about["spec"]["codec"] == "utf8_ragged"
    assert about["spec"]["payload_specs"]["offsets"]["dtype"] == "<i8" and view["batch_size"] == ROWS
    assert view["stages"]["default"]["dataproto"]["batch_size"] == ROWS and view["meta_info_keys"] == ["note"]
    reader.cleanup_dataproto(handle)
    reader.cleanup_dataproto(handle)
    assert one.remove_all(True) == 0


def test_only_rows_travel():
    t = so.MooncakeBundleTransfer(one)
    ref = t.put({"a": np.zeros((1000, 1000)), "t": ["x" * 1000] * 1000}, type="dict")
    seen = Recording(other)
    got = so.MooncakeBundleTransfer(seen).get(ref, type="dict", rows=slice(10, 12))
    assert got["a"].shape == (2, 1000) and got["t"] == ["x" * 1000] * 2
    moved = sum(sum(args[2]) for name, args, _ in seen.calls if name == "batch_get_into")
    moved += sum(sum(map(sum, args[4][0])) for name, args, _ in seen.calls if name == "get_into_ranges")
    assert moved < 30000 and not [c for c in seen.calls if c[0] == "get" and "manifest" not in c[1][0]], moved
    t.cleanup_dataproto(ref)


class Proto:
    def __init__(self, batch=None, non_tensor_batch=None, meta_info=None):
        self.batch, self.non_tensor_batch, self.meta_info = batch, non_tensor_batch, meta_info


class Made(Proto):
    @classmethod
    def from_dict(cls, tensors, non_tensors, meta_info=None):
        out = cls(tensors, non_tensors, meta_info)
        out.made = True
        return out


def test_dataproto():
    t = so.MooncakeBundleTransfer(one)
    data = Proto({"a": np.ones((3, 2))}, {"n": np.array(["x", None, "y"], object), "u": np.array([b"1", b"22", b"3"]),
                                          "plain": ["p", "q", "r"]}, {"m": {"deep": [1, 2.5]}})
    ref = t.put_dataproto(data, namespace="ns", partition="part", stage="s")
    assert (ref.namespace, ref.partition, ref.batch_size, list(ref.stage_refs)) == ("ns", "part", 3, ["s"])
    assert ref.stage_refs["s"].manifest_key.startswith("bundle/part/")
    for cls in (Proto, Made, None, dict):
        got = t.get_dataproto(ref, data_cls=cls)
        assert (type(got) is cls) if cls else type(got) is dict
        assert cls is not Made or got.made
        batch, columns_, meta = (got["batch"], got["non_tensor_batch"], got["meta_info"]) if type(got) is dict else (
            got.batch, got.non_tensor_batch, got.meta_info)
        check(data.batch, batch, "batch")
        check({**data.non_tensor_batch, "plain": np.array(["p", "q", "r"], object)}, columns_, "non_tensor_batch")
        assert meta == data.meta_info
    assert "cannot be constructed from batch" in raises(TypeError, t.get, ref, data_cls=int)
    t.cleanup_dataproto(ref)
    for bad in ({"batch": {"a": np.ones(2)}, "non_tensor_batch": {"b": np.ones(3)}},
                {"batch": {"a": np.ones(2)}, "non_tensor_batch": {"a": np.ones(2)}},
                {"non_tensor_batch": {"x": np.array([object(), 1], object)}},
                {"non_tensor_batch": {"x": np.array([np.array([1, "a"], object)] * 2 + [None], object)}}):
        raises(ValueError, t.put, bad)
    only = t.put({"meta_info": {"m": 1}, "batch": None})
    assert only.batch_size == 0 and only.stage_refs == {} and t.get(only)["meta_info"] == {"m": 1}
    raises(TypeError, so.export_ref, t.put({"meta_info": {"m": object()}}))
    mapping = types.SimpleNamespace(items=lambda: [("a", np.ones(2))])
    ref = t.put(types.SimpleNamespace(batch=mapping))
    check({"a": np.ones(2)}, t.get(ref)["batch"], "anything with items")
    t.cleanup_dataproto(ref)
    for change in ({"type": "x"}, {"version": 3}, {"version": 2}, {"kind": "x"}, {"stage_refs": []}, {"batch_size": -1},
                   {"field_index": {"a": {"stage": "no", "member": "m", "section": "batch"}}}, {"global_indexes": [True]},
                   {"field_index": {"a": {"stage": "s", "member": "m", "section": "x"}}}, {"storage_group_id": ""}):
        raises(ValueError, so.import_ref, {**{k: v for k, v in so.export_ref(ref).items() if k != "storage_group_id"}, **change})
    assert one.remove_all(True) == 0


def test_schemas():
    t = so.MooncakeBundleTransfer(one)
    S = so.FieldSchema
    cases = [
        ([1, 2, None], S("typed_ragged", metadata={"dtype": "int16"}), [1, 2, None]),
        ([np.arange(2), np.arange(3), None], S("typed_ragged", metadata={"dtype": "float32"}),
         [np.arange(2, dtype="f4"), np.arange(3, dtype="f4"), None]),
        ([[1, 2], np.arange(2), None], S("typed_ragged"), [[1, 2], np.arange(2), None]),
        ([1, None, 3], S("ndarray", metadata={"dtype": "float64"}), [1.0, None, 3.0]),
        ([1, None, 3], S("ndarray"), [1, None, 3]),
        ([{"a": 1}, None, [1, "x"]], S("json_ragged"), [{"a": 1}, None, [1, "x"]]),
        (["a", "b", 1], S("msgpack_ragged"), ["a", "b", 1]),
        ([b"a", b"", None], S("media_bytes"), [b"a", b"", None]),
        (["a", "b", None], S("auto"), ["a", "b", None]),
    ]
    if torch is not None:
        cases += [
            ([torch.ones(2), None, torch.ones(2, 2)], S("ragged_tensor"), [torch.ones(2), None, torch.ones(2, 2)]),
            ([{"a": torch.ones(1), "b": torch.zeros(2)}, None, {"b": torch.ones(3)}], S("ragged_tensor_dict"),
             [{"a": torch.ones(1), "b": torch.zeros(2)}, None, {"b": torch.ones(3)}]),
        ]
    for values, schema, expected in cases:
        ref = t.put({"dense": np.ones(3), "x": values}, type="dict",
                    field_schemas={"x": S(schema.codec, schema.nullable, {**schema.metadata, "section": "non_tensor_batch"})})
        codec = ref.encoded_non_tensor["x"]["codec"]
        assert codec == {"auto": "utf8_ragged"}.get(schema.codec, schema.codec), codec
        check(expected, t.get(ref, type="dict")["x"], f"schema {schema}")
        check([expected[2], expected[0]], t.get(ref, type="dict", rows=[2, 0])["x"], f"rows of schema {schema}")
        t.cleanup_dataproto(ref)
    column = {"non_tensor_batch": {"x": np.array(["a", None], object)}}
    raises(ValueError, t.put, column, field_schemas={"x": S("utf8_ragged", nullable=False)})
    raises(ValueError, t.put, column, field_schemas={"x": S("utf8_ragged", metadata={"section": "batch"})})
    raises(ValueError, t.put, column, field_schemas={"x": S("no such codec")})
    raises(ValueError, t.put, column, field_schemas={"x": S("ndarray", metadata={"dtype": "O"})})
    raises(ValueError, t.put, {"a": [1, 2], "b": [1]}, type="dict")
    ref = t.put({"a": [1, 2], "b": [1]}, type="dict", field_schemas={"b": S("auto", metadata={"section": "meta_info"})})
    assert t.get(ref, type="dict") == {"a": [1, 2], "b": [1]} and ref.meta_info == {"b": [1]}
    t.cleanup_dataproto(ref)
    assert one.remove_all(True) == 0


def test_values():
    """Columns that upstream's package does not accept, or changes."""
    t = so.MooncakeBundleTransfer(one)
    for values, expected in (
            ([{1: "a", (1, 2): None}, None], [{1: "a", (1, 2): None}, None]),
            ([[1.5, 2 ** 60 + 1], [2]], None), ([1.5, 2 ** 60 + 1], None), ([2 ** 63, -1], None),
            ([[True, False], [True]], None), ([1, "a", None, 2.5, b"b", True], None),
            ([("a", 1), None, ("b",)], [["a", 1], None, ["b"]]), ([{"a": (1, "b")}, {}], [{"a": [1, "b"]}, {}]),
            ([{"a": np.int32(3), "b": "c"}, {}], [{"a": 3, "b": "c"}, {}]), ([np.array([True, False]), np.array([True])], None),
            ([[np.ones(2), None], [np.ones(3)]], None), ([[], [1]], None), ([np.float32(1.5), 2.7], [1.5, 2.7])):
        ref = t.put({"non_tensor_batch": {"x": values}})
        got = t.get(so.export_ref(ref))["non_tensor_batch"]["x"]
        check(values if expected is None else expected, list(got), f"the column {values}")
        check(values[-1:] if expected is None else expected[-1:], list(t.get(ref, rows=[-1])["non_tensor_batch"]["x"]), f"{values}")
        t.cleanup_dataproto(ref)


def test_append():
    t = so.MooncakeBundleTransfer(one, default_chunk_bytes=100)
    first = t.put({"a": np.arange(40).reshape(2, 20), "t": ["x", "y"]}, type="dict", stage="s")
    second = t.append_dataproto_fields(first, {"b": np.ones((2, 30))}, stage="s")
    third = t.append_dataproto_fields(so.export_ref(second), {"non_tensor_batch": {"u": ["p", None]}, "meta_info": {"m": 1}}, stage="z")
    assert set(first.field_index) == {"a", "t"} and set(third.stage_refs) == {"s", "z"}
    fresh = so.import_ref(so.export_ref(first))
    check_dict({"a": np.arange(40).reshape(2, 20), "t": ["x", "y"]}, t.get(fresh, type="dict"), "the object before the append")
    everything = {"a": np.arange(40).reshape(2, 20), "t": ["x", "y"], "b": np.ones((2, 30)), "u": ["p", None], "m": 1}
    check_dict(everything, t.get(so.export_ref(third), type="dict"), "appended")
    raises(ValueError, t.append_dataproto_fields, third, {"a": np.ones(2)}, stage="s")
    raises(ValueError, t.append_dataproto_fields, third, {"c": np.ones(3)}, stage="s")
    raises(ValueError, t.append_dataproto_fields, third, {"b": np.ones(2)}, stage="s", overwrite=True)
    # undone: the previous version is valid again
    t.cleanup_dataproto_append(second, third)
    t.cleanup_dataproto_append(second, third)
    raises(ValueError, t.get, so.import_ref(so.export_ref(third)), fields=["u"])
    t.cleanup_dataproto_append(first, so.export_ref(second))
    check_dict({"a": np.arange(40).reshape(2, 20), "t": ["x", "y"]}, t.get(fresh, type="dict"), "after the append was undone")
    assert one.batch_is_exist(keys_of(second.stage_refs["s"].manifest))[-5:] == [0] * 5
    # an append is removed together with its object
    again = t.append_dataproto_fields(first, {"b": np.ones((2, 30))}, stage="s")
    again = t.append_dataproto_fields(again, {"c": np.ones(2)}, stage="s")
    check(np.ones(2), t.get(so.export_ref(again), type="dict")["c"], "appended twice")
    replaced = t.append_dataproto_fields(
        again, {"a": np.zeros(2), "b": np.ones(2), "c": np.ones(2), "t": np.ones(2)}, stage="s", overwrite=True)
    check(np.ones(2), t.get(replaced, type="dict")["t"], "overwritten")
    assert one.is_exist(first.stage_refs["s"].manifest_key) == 0 and replaced.encoded_non_tensor == {}
    t.cleanup_dataproto(replaced)
    assert one.remove_all(True) == 0, "the object before the append stays"


def test_groups():
    seen = Recording(one)
    t = so.MooncakeBundleTransfer(seen, default_chunk_bytes=100)
    config = ReplicateConfig()
    config.with_soft_pin, config.preferred_segments, config.group_ids = True, ["nobody:1"], ["mine"]

    def groups():
        found = {}
        for name, args, kwargs in seen.calls:
            if name.startswith(("put", "pub")):
                keys = args[0] if name == "put_batch" else [args[0]]
                c = kwargs["config"]
                assert len(c.group_ids) == len(keys) and c.with_soft_pin == config.with_soft_pin, (name, c)
                found.update(zip(keys, c.group_ids))
        seen.calls.clear()
        return found

    ref = t.put({"a": np.ones((2, 40)), "t": ["x", "y"]}, type="dict", config=config)
    found = groups()
    assert set(found.values()) == {"mine"} and set(found) == {ref.stage_refs["default"].manifest_key,
                                                             *keys_of(ref.stage_refs["default"].manifest)}
    assert config.group_ids == ["mine"] and so.export_ref(ref)["storage_group_id"] == "mine"
    more = t.append_dataproto_fields(ref, {"b": np.ones(2)}, stage="z", config=config)
    assert set(groups().values()) == {"mine"}
    config.group_ids = ["another"]
    raises(ValueError, t.append_dataproto_fields, ref, {"c": np.ones(2)}, stage="y", config=config)
    config.group_ids = ["a", "b"]
    raises(ValueError, t.put, {"a": np.ones(2)}, config=config)
    raises(ValueError, t.put_object, {"a": b"x"}, config=config)
    t.cleanup_dataproto(more)
    config.with_soft_pin = False
    fresh = t.put({"a": np.ones(2)})
    assert len(set(groups().values())) == 1 and fresh._storage_group_id.startswith("structured-")
    t.cleanup_dataproto(fresh)
    assert one.remove_all(True) == 0


def test_threads():
    data = {"x": np.arange(3 << 20, dtype=np.uint8), "y": b"y" * 100}
    for policy in (so.BundleTransferPolicy(4, "parallel"), so.BundleTransferPolicy(4, "batch"), so.BundleTransferPolicy(2)):
        t = so.MooncakeBundleTransfer(one, default_chunk_bytes=100000)
        ref = t.put_object(data, policy=policy)
        check_dict(data, so.MooncakeBundleTransfer(other).get_object(ref), f"{policy}")
        t.remove_bundle(ref)


def test_byte_ranges():
    """More cases: observe/structured_ranges.py."""
    t = so.MooncakeBundleTransfer(one, default_chunk_bytes=100)
    data = bytes(range(256)) * 3
    ref = t.put_object({"b": data})
    memory = np.zeros(512, np.uint8)
    assert other.register_buffer(memory.ctypes.data, memory.nbytes) == 0
    reader = so.MooncakeBundleTransfer(other)
    into = so.raw_destination(memory.ctypes.data, memory.nbytes, memory, pre_registered=True)
    ranges = [so.StructuredMemberRange("b", 50, 300, 100), so.StructuredMemberRange("b", 700, 7, 3)]
    spec = reader.read_spec({"manifest_key": ref.manifest_key})
    plan = reader.prepare_member_ranges(spec, ranges, into)
    for call, what in ((reader.materialize_ranges_into, (ranges, {"b": into})), (reader.materialize_prepared_ranges_into, (plan, into))):
        memory[:] = 0
        call(spec, *what)
        assert memory.tobytes() == bytes(3) + data[700:707] + bytes(90) + data[50:350] + bytes(112)
    t.remove_bundle(ref)
    raises(ValueError, reader.materialize_prepared_ranges_into, spec, plan, into)
    assert other.unregister_buffer(memory.ctypes.data) == 0


def test_columns_of_matrices():
    """More cases: observe/structured_columns.py."""
    t = so.MooncakeBundleTransfer(one, default_chunk_bytes=100)
    batch = {"m": np.arange(60).reshape(5, 12)}
    if torch is not None:
        batch["t"] = torch.arange(60.).reshape(5, 12)
    for policy in (None, so.BundleTransferPolicy(copy_mode="copy")):
        ref = t.put({"batch": batch}, policy=policy)
        got = t.get(ref, batch_slices=dict.fromkeys(batch, slice(3, 9)))["batch"]
        check_dict({name: value[:, 3:9] for name, value in batch.items()}, got, "columns")
        got = t.get(ref, rows=[4, 0], batch_slices=dict.fromkeys(batch, slice(-1, None)))["batch"]
        check_dict({name: value[[4, 0]][:, -1:] for name, value in batch.items()}, got, "columns of rows")
        t.cleanup_dataproto(ref)


class Keeper(Little):
    """A store with tensors in a format of its own."""

    def put_tensor(self, key, tensor, config=None):
        self.objects[key] = tensor.clone()
        return 0

    pub_tensor = put_tensor

    def get_tensor(self, key):
        return self.objects.get(key)


def test_tensors_of_another_store():
    if torch is None:
        return
    store = Keeper()
    t = so.MooncakeBundleTransfer(store)
    for config in (None, ReplicateConfig()):
        ref = t.put_object({"t": torch.arange(6.).reshape(2, 3)}, config=config)
        check(torch.arange(6.).reshape(2, 3), t.get_object(ref)["t"], "get_tensor")
        del store.objects[ref.manifest["buffers"]["t"]["key"]]
        assert "found no tensor" in raises(RuntimeError, t.get_object, ref)
    store.get_tensor = None
    assert "does not support get_tensor" in raises(RuntimeError, t.get_object, ref)


def test_pool():
    pool = BufferPool(other, max_bytes=4 << 20, block_on_exhaustion=False)
    t = so.MooncakeBundleTransfer(other, buffer_pool=pool)
    data = {"x": np.arange(1 << 20, dtype=np.uint8), "y": np.arange(1000)}
    ref = so.MooncakeBundleTransfer(one).put_object(data)
    got = t.get_object(ref)
    check_dict(data, got, "in a pool's memory")
    address = got["x"].ctypes.data
    cut = got["x"][5:10]
    # the view keeps the memory until it is freed
    del got
    gc.collect()
    second = t.get_object(ref)
    assert second["x"].ctypes.data != address and bytes(cut) == bytes(range(5, 10))
    t.release_result({"deep": [(cut,)]})
    t.release_result(second)
    t.release_result(second)
    third = t.get_object(ref)
    assert address in (third["x"].ctypes.data, t.get_object(ref)["x"].ctypes.data)
    check_dict(data, third, "in memory that was freed")
    t.release_result(third)
    pool.close()
    # a pool that is used up, for which a get would wait: it works without the pool
    pool = BufferPool(other, max_bytes=1 << 20, default_timeout=10)
    t = so.MooncakeBundleTransfer(other, buffer_pool=pool)
    with pool.acquire(1 << 20):
        check_dict(data, t.get_object(ref), "beside a pool that is used up")
    t.remove_bundle(ref)


def test_tensors():
    if torch is None:
        return
    t, reader = so.MooncakeBundleTransfer(one), so.MooncakeBundleTransfer(other)
    data = {"a": torch.arange(24.).reshape(4, 6), "zero": torch.tensor(2.5), "half": torch.ones(4, 2).to(torch.bfloat16),
            "jag": torch.nested.nested_tensor([torch.arange(2), torch.arange(3), torch.arange(0), torch.arange(1)],
                                              layout=torch.jagged)}
    for policy in (None, so.BundleTransferPolicy(copy_mode="copy")):
        ref = t.put_object(data, policy=policy)
        check_dict(data, reader.get_object(ref), f"tensors {policy}")
        assert ref.manifest["buffers"]["zero"].get("format") == (None if policy is None else "torch_save")
        assert ref.manifest["buffers"]["a"].get("kind") == ("tensor" if policy is None else None)
        buffer = np.zeros(304 + 96, np.uint8)
        into = so.tensor_object_buffer(buffer.ctypes.data, buffer.nbytes, buffer)
        got = reader.materialize_into(reader.read_spec(ref).select_members(["a"]), {"a": into}).objects["a"]
        assert torch.equal(got, data["a"]) if policy is None else got is into
        check(data["a"].numpy().reshape(-1), buffer[304:].view("f4"), "into a buffer")
        # put_tensor_from() accepts a tensor object buffer
        again = t.put_object({"b": into})
        check({"b": data["a"]}, reader.get_object(again), "from a buffer")
        part = reader.read_spec(ref).select_members(["a"]).slice_member("a", 0, 1, 3)
        assert reader.materialize_into(part, {"a": so.raw_destination(buffer.ctypes.data, 400, buffer)}).objects["a"]
        check(data["a"][1:3].numpy().reshape(-1), buffer[304:352].view("f4"), "rows into a buffer")
        raises(ValueError, reader.materialize_into, part, {"a": so.tensor_object_buffer(buffer.ctypes.data, 300)})
        raises(ValueError, reader.materialize_into, part, {"a": np.zeros((4, 6), "f4")})
        t.remove_bundle(ref)
        t.remove_bundle(again)
    raises(ValueError, t.put_object, data, policy=so.BundleTransferPolicy(copy_mode="zero_copy"))
    ref = t.put({"batch": {k: data[k] for k in ("a", "half", "jag")}})
    for rows in ([2, 0], [], slice(1, 3), slice(0, 4, 2)):
        got = reader.get(ref, rows=rows)["batch"]
        picked = range(4)[rows] if isinstance(rows, slice) else rows
        check({k: data[k][list(picked)] for k in ("a", "half")}, {k: got[k] for k in ("a", "half")}, f"rows {rows}")
        assert [r.tolist() for r in got["jag"].unbind()] == [data["jag"].unbind()[i].tolist() for i in picked], rows
    raises(TypeError, len, so.tensor_object_buffer(1, 2))
    t.cleanup_dataproto(ref)
    assert one.remove_all(True) == 0


def test_orders_of_memory():
    """A plain put() of an array stores its elements in C order, whatever their order in memory."""
    a = np.arange(60, dtype="int16").reshape(3, 4, 5)
    for value in (np.asfortranarray(a), a.T, a.transpose(1, 0, 2), a[:, ::2, ::-1]):
        wanted = value.tobytes("C")
        assert one.put("order", value) == 0 and one.get("order") == wanted, value.strides
        assert one.put_batch(["order-batch"], [value]) == 0 and one.get("order-batch") == wanted, value.strides
        assert one.put_parts("order-parts", b"<", value, b">") == 0
        assert one.get("order-parts") == b"<" + wanted + b">", value.strides
        assert one.upsert("order", value) == 0 and one.get("order") == wanted, value.strides
        assert one.remove_all(True) == 3


def test_names():
    for name in so.__all__:
        assert hasattr(so, name), name
    for name, method in inspect.getmembers(so.MooncakeBundleTransfer, callable):
        assert name.startswith("_") or (method.__doc__ and inspect.signature(method).return_annotation), name


assert same([1, [np.ones(2)]], [1, [np.ones(2)]]) and not same([np.ones(2)], [np.ones(2, "f4")])
for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok", name, flush=True)
for s in (one, other):
    s.close()
