# SPDX-License-Identifier: Apache-2.0
"""Upstream's structured_object_store and ours, on our store: each reads the other's objects, and they
have the same names, signatures and fields.

structured_upstream.py UPSTREAM_PACKAGE MASTER"""

import dataclasses
import importlib.util
import inspect
import json
import os
import sys
import types

from structured_data import ROWS, check, check_dict, columns, members, np, opened, torch
from mooncake import structured_object_store as ours

UPSTREAM, MASTER = sys.argv[1:]
spec = importlib.util.spec_from_file_location("upstream_structured", os.path.join(UPSTREAM, "structured_object_store.py"))
upstream = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = upstream
spec.loader.exec_module(upstream)
assert not ours.__file__.startswith(UPSTREAM) and upstream.__file__.startswith(UPSTREAM)

one, other = opened(MASTER), opened(MASTER)
# columns that upstream's package cannot store, or changes
COLUMNS_NOT = {
    "nothing": "a column of None only is a ValueError",
    "numbers": "an empty list makes floats of all",
    "dims": "a row without dimensions becomes one of one dimension",
    "tree": "a list of arrays and None is a TypeError",
}


def test_names():
    for name, value in vars(upstream).items():
        if name.startswith("_") or isinstance(value, types.ModuleType) or getattr(value, "__module__", "") in (
                "typing", "dataclasses", "contextlib", "concurrent.futures.thread", "types", "collections.abc",
                "concurrent.futures._base", "__future__"):
            continue
        mine = getattr(ours, name, None)
        assert mine is not None, f"{name} is not there"
        if dataclasses.is_dataclass(value):
            def fields(cls):
                return [(f.name, f.default) for f in dataclasses.fields(cls)]

            assert fields(mine) == fields(value) and mine.__dataclass_params__.frozen == value.__dataclass_params__.frozen, name
            assert mine.__eq__ is not object.__eq__
        elif isinstance(value, (int, str)):
            assert mine == value, name
        if inspect.isclass(value):
            methods = {n: m for n, m in vars(value).items() if not n.startswith("_") and callable(getattr(m, "__func__", m))}
            if getattr(value, "_is_protocol", False):
                continue
            methods["__init__"] = value.__init__
            for n in methods:
                same_signature(getattr(value, n), getattr(mine, n), f"{name}.{n}")
        elif inspect.isfunction(value):
            same_signature(value, mine, name)


def same_signature(theirs, mine, what):
    def shape(call):
        # without the parameter that is new in 0.3.14
        return [(p.name, p.kind, p.default) for p in inspect.signature(call).parameters.values() if p.name != "batch_slices"]

    assert shape(theirs) == shape(mine), f"{what}: {shape(theirs)} and {shape(mine)}"


def directions():
    for name, writer, reader in (("upstream to ours", upstream, ours), ("ours to upstream", ours, upstream)):
        yield name, writer, reader, writer.MooncakeBundleTransfer(one, default_chunk_bytes=700), reader.MooncakeBundleTransfer(other)


def test_objects():
    for what, writer, _, put, get in directions():
        data = members()
        for policy in (None, writer.BundleTransferPolicy(copy_mode="copy")):
            # upstream has no array without dimensions
            expected = {**data, "scalar": np.array([3.5])}
            ref = put.put_object(data, policy=policy)
            check_dict(expected, get.get_object({"manifest_key": ref.manifest_key}), what)
            part = get.read_spec({"manifest_key": ref.manifest_key}).select_members(["c", "strided"])
            part = part.slice_member("c", 0, 3, 40, 2)
            check(data["c"][3:40:2], get.materialize(part).objects["c"], what)
            get.remove_bundle({"manifest_key": ref.manifest_key})
            assert one.remove_all(True) == 0, what
    # the same keys, sizes and metadata
    kinds = []
    for module in (upstream, ours):
        t = module.MooncakeBundleTransfer(one, default_chunk_bytes=700)
        data = {k: v for k, v in members().items() if k != "scalar"}
        ref = t.put_object(data)
        manifest = json.dumps(ref.manifest, sort_keys=True).replace(ref.manifest["object_id"], "ID")
        kinds.append((manifest, t.materialize(t.read_spec(ref)).metadata))
        t.remove_bundle(ref)
    assert kinds[0] == kinds[1], kinds


def column_cases(upstream_writes):
    for name, (values, codec) in columns().items():
        if upstream_writes and name in COLUMNS_NOT:
            continue
        yield name, values
    yield "plain numbers", [[1, 2], [3], None, [4], [5], [6]]
    yield "plain ints", [1, 2, None, 4, 5, 6]
    yield "plain lists", [["a", 1], ["b"], None, ["c", None], ["d"], ["e"]]
    yield "plain tree", [{"image": b"png", "n": i} if i % 3 else None for i in range(ROWS)]
    yield "deep tree", [{"a": {"b.c": [None, {"d": np.arange(i + 1)}]}} for i in range(ROWS)]


def test_columns():
    for what, writer, reader, put, get in directions():
        data = {"dense": np.arange(ROWS * 90).reshape(ROWS, 90), "note": {"for": "all"}}
        data.update(column_cases(writer is upstream))
        ref = put.put(data, type="dict", stage="first")
        ref = put.append_dataproto_fields(ref, {"more": np.ones(ROWS)}, stage="first")
        data["more"] = np.ones(ROWS)
        handle = json.loads(json.dumps(writer.export_ref(ref)))
        assert reader.export_ref(reader.import_ref(handle)) == handle
        check_dict(data, get.get(handle, type="dict"), what)
        rows = [4, 0, 3]
        expected = {k: v if k == "note" else v[rows] if isinstance(v, np.ndarray) else [v[i] for i in rows] for k, v in data.items()}
        check_dict(expected, get.get(handle, type="dict", rows=rows), f"{what} rows")
        view = get.dataproto_manifest_view(handle)
        assert view == put.dataproto_manifest_view(ref) and set(view["non_tensor_fields"]) >= {"text", "bytes"}
        # each package undoes the other's append
        after = put.append_dataproto_fields(ref, {"last": np.ones(ROWS)}, stage="first")
        get.cleanup_dataproto_append(handle, json.loads(json.dumps(writer.export_ref(after))))
        check_dict(data, get.get(handle, type="dict"), what)
        get.cleanup_dataproto(handle)
        assert one.remove_all(True) == 0, f"{what}: objects stay"


def test_codecs():
    """The same choice for the same column."""
    for name, values in column_cases(True):
        handles = []
        for module in (upstream, ours):
            t = module.MooncakeBundleTransfer(one)
            ref = t.put({"non_tensor_batch": {"x": np.array([*values, None], object)[:-1]}})
            handles.append(ref.encoded_non_tensor["x"])
            t.cleanup_dataproto(ref)
        mine, theirs = handles[1], handles[0]
        if name == "arrays":
            mine["metadata"].pop("physical_layout", None)
            theirs["metadata"].pop("physical_layout", None)
        assert mine == theirs, f"{name}: {mine} and {theirs}"


def test_tensors():
    if torch is None:
        return
    for what, writer, reader, put, get in directions():
        data = {"a": torch.arange(24.).reshape(4, 6), "zero": torch.tensor(2.5),
                "jag": torch.nested.nested_tensor([torch.arange(2), torch.arange(3), torch.arange(1)], layout=torch.jagged)}
        for policy in (None, writer.BundleTransferPolicy(copy_mode="copy")):
            ref = put.put_object(data, policy=policy)
            check_dict(data, get.get_object({"manifest_key": ref.manifest_key}), what)
            part = get.read_spec({"manifest_key": ref.manifest_key}).select_members(["a"]).slice_member("a", 0, 1, 3)
            check(data["a"][1:3], get.materialize(part).objects["a"], what)
            get.remove_bundle({"manifest_key": ref.manifest_key})
        rows = [{"a": torch.ones(i + 1), "b": torch.zeros(2, i)} if i != 1 else None for i in range(4)]
        schema = writer.FieldSchema("ragged_tensor_dict")
        ref = put.put({"batch": {"a": data["a"]}, "non_tensor_batch": {"d": np.array(rows, object)}}, field_schemas={"d": schema})
        handle = json.loads(json.dumps(writer.export_ref(ref)))
        check(rows, list(get.get(handle)["non_tensor_batch"]["d"]), what)
        check([rows[3], rows[1]], list(get.get(handle, rows=[3, 1])["non_tensor_batch"]["d"]), what)
        get.cleanup_dataproto(handle)
        assert one.remove_all(True) == 0, what


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok", name, flush=True)
for s in (one, other):
    s.close()
