# SPDX-License-Identifier: Apache-2.0
"""structured_object_store on a store object that the caller wrote: its methods that are called, and the results."""

import ctypes
import json

from cases import case, finish, needs, says

np = needs("numpy")
from mooncake import structured_object_store as so

NAMES = {"batch_get_into", "get_into_ranges", "register_buffer", "unregister_buffer", "get_tensor"}


class Config:
    group_ids = None


class Store:
    """A dict with the methods that the caller names beside put, get, remove and is_exist."""

    def __init__(self, *more):
        self.objects, self.calls, self.groups = {}, [], set()
        for name in NAMES - set(more):
            setattr(self, name, None)

    def put(self, key, value, config=None):
        self.groups.add(repr(getattr(config, "group_ids", None)))
        self.objects[key] = bytes(value)
        return 0

    def get(self, key):
        return self.objects.get(key, b"")

    def remove(self, key, force=False):
        return -704 if self.objects.pop(key, None) is None else 0

    def is_exist(self, key):
        return int(key in self.objects)

    def register_buffer(self, address, size):
        self.calls.append("register_buffer")
        return 0

    def unregister_buffer(self, address):
        return 0

    def batch_get_into(self, keys, addresses, sizes):
        self.calls.append("batch_get_into")
        for key, address, size in zip(keys, addresses, sizes):
            ctypes.memmove(address, self.objects[key][:size], size)
        return [len(self.objects[key]) for key in keys]

    def get_into_ranges(self, addresses, keys, targets, sources, sizes):
        self.calls.append("get_into_ranges")
        for address, *rest in zip(addresses, keys, targets, sources, sizes):
            for key, to, at, n in zip(*rest):
                for one in zip(to, at, n):
                    ctypes.memmove(address + one[0], self.objects[key][one[1]:one[1] + one[2]], one[2])
        return sizes

    def get_tensor(self, key):
        return f"tensor of {len(self.objects[key])} bytes"


class Lease:
    def __init__(self, pool, size):
        self.memory = ctypes.create_string_buffer(size)
        self.ptr, self.size, self.pool = ctypes.addressof(self.memory), size, pool

    def release(self):
        self.pool.released += 1


class Pool:
    """A pool with the minimum of a signature."""

    def __init__(self):
        self.sizes, self.released = [], 0

    def acquire(self, size):
        self.sizes.append(size)
        return Lease(self, size)


DATA = {"bytes": b"0123456789", "array": np.arange(6).reshape(2, 3)}


def reading(*more, names=None):
    """Kinds of the members that are read, and the methods that were called."""
    store = Store(*more)
    t = so.MooncakeBundleTransfer(store)
    ref = t.put_object(DATA)
    got = t.materialize(t.read_spec(ref).select_members(names)).objects
    return [sorted((name, type(value).__name__) for name, value in got.items()), sorted(set(store.calls)),
            all(bytes(value) == bytes(DATA[name]) for name, value in got.items())]


case("bytes: plain store", lambda: reading(names=["bytes"]))
case("bytes: store with ranges", lambda: reading("get_into_ranges", "register_buffer", "unregister_buffer", names=["bytes"])[0])
case("array: plain store", lambda: reading(names=["array"]))
case("array: batch_get_into, no register_buffer", lambda: reading("batch_get_into"))
case("array: get_into_ranges, no register_buffer", lambda: reading("get_into_ranges"))


def with_pool():
    store, pool = Store("get_into_ranges"), Pool()
    return so.MooncakeBundleTransfer(store, buffer_pool=pool), so.MooncakeBundleTransfer(store).put_object(DATA), pool


def pooled():
    t, ref, pool = with_pool()
    got = t.get_object(ref)
    kinds = sorted((name, isinstance(value, np.ndarray), bytes(value) == bytes(DATA[name])) for name, value in got.items())
    held = pool.released
    t.release_result(got)
    t.release_result(got)
    return [kinds, sorted(pool.sizes), held, pool.released]


def freed():
    t, ref, pool = with_pool()
    t.get_object(ref)
    return pool.released


case("pool of the caller", pooled)
case("pool of the caller: result freed", freed)


def tensor(*more):
    """A tensor that put_tensor() of a store has written: its manifest, without torch."""
    store = Store(*more)
    t = so.MooncakeBundleTransfer(store)
    specs = {"t": {"encoding": "torch_tensor", "dtype": "torch.float32", "shape": [2], "element_size": 4}}
    ref = t.put_bundle(json.dumps({"layout": "structured", so.STRUCTURED_FIELD_SPECS_KEY: specs}).encode(), {"t": b"x" * 312})
    ref.manifest["buffers"]["t"].update(kind="tensor", dtype="torch.float32", shape=[2], metadata_bytes=304)
    return t, ref


def of_tensor(*more):
    t, ref = tensor(*more)
    return t.materialize(t.read_spec(ref)).objects["t"]


case("tensor: get_tensor", lambda: of_tensor("get_tensor"))
says("tensor: no get_tensor", of_tensor, "does not support get_tensor")


def groups(value, put):
    store, config = Store(), Config()
    config.group_ids = value
    put(so.MooncakeBundleTransfer(store, default_chunk_bytes=8), config)
    return sorted(store.groups)


def put_object(t, config):
    t.put_object(DATA, config=config)


def put_dataproto(t, config):
    t.put({"batch": {"a": np.arange(4)}}, config=config)


for value in ([""], "", [], ["g"], "g", ["g", "h"], None):
    case(f"group_ids {value!r}", lambda: groups(value, put_object))
for value in ([""], "", ["g"]):
    case(f"group_ids {value!r} of a DataProto", lambda: groups(value, put_dataproto))


def column(values, codec=None):
    t = so.MooncakeBundleTransfer(Store())
    rows = np.empty(len(values), object)
    rows[:] = values
    schemas = {"x": so.FieldSchema(codec)} if codec else None
    ref = t.put({"non_tensor_batch": {"x": rows}}, field_schemas=schemas)
    back = t.get(ref)["non_tensor_batch"]["x"]
    metadata = ref.encoded_non_tensor["x"]["metadata"]
    return [{k: metadata.get(k) for k in ("max_ndim", "row_format", "physical_layout")}, [np.shape(v) for v in back]]


for codec, value in (("utf8_ragged", 1), ("media_bytes", 1.5), ("json_ragged", {1}), ("nonsense", 1)):
    says(f"{codec} of {type(value).__name__}", lambda: column([value, value], codec), "'x'", codec)

ROWS = {"same": [np.zeros(3), np.zeros(3)], "ragged": [np.zeros(3), np.zeros(2)], "null": [np.zeros((2, 2)), None],
        "dimensions": [np.zeros(3), np.zeros((2, 2))], "scalars": [np.array(1.5), np.array(2.5)], "one": [np.zeros((2, 2))],
        "scalar and row": [np.array(1.5), np.zeros(2)], "lists": [[1, 2], [3]], "mixed": [np.zeros(2), [1.5]],
        "empty tail": [np.zeros((2, 0)), np.zeros((3, 0))], "other tail": [np.zeros((2, 3)), np.zeros((2, 4))]}
for name, rows in ROWS.items():
    case(f"rows: {name}", lambda: column(rows))



def choice(values):
    found = so._choose_leaf_codec(values)
    return [found.accepted, found.codec, found.reason, found.normalized_type]


for values in ([1, 2], ["a", None], [b"a"], [[1, 2], [3]], [{"a": 1}], [np.zeros(2), None]):
    case(f"_choose_leaf_codec of {type(values[0]).__name__}", lambda: choice(values))
case("_escape_key", lambda: so._escape_key("a.b[0]\\c"))
case("_decode_manifest", lambda: so._decode_manifest(b'{"version": 1}'))
case("_decode_manifest of a list", lambda: so._decode_manifest(b"[]"))


def grouped(value, keys):
    config = Config()
    config.group_ids = value
    return so._config_for_grouped_keys(config, keys).group_ids


for value in (["g"], "g", [""], [], ["g", "h"], None):
    case(f"_config_for_grouped_keys {value!r}", lambda: grouped(value, 3))

finish({
    "rows: scalar and row": ([{"max_ndim": 1, "row_format": "ndarray", "physical_layout": None}, [[], [2]]],
                             "upstream gives a dimension to the row that has none"),
})
