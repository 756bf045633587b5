# SPDX-License-Identifier: Apache-2.0
"""Columns of matrices of a DataProto: batch_slices of get()."""

from cases import case, finish, needs, says

np = needs("numpy")
from mooncake import structured_object_store as so


class Store:
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


t = so.MooncakeBundleTransfer(Store(), default_chunk_bytes=40)
ref = t.put({"batch": {"m": np.arange(24, dtype=np.int32).reshape(4, 6), "v": np.arange(4), "n": np.ones((4, 2))},
             "non_tensor_batch": {"x": np.arange(4)}})


def read(slices, **more):
    got = t.get(ref, batch_slices=slices, **more)["batch"]
    return {name: [str(value.dtype), value.tolist(), value.flags.c_contiguous] for name, value in got.items()}


for name, columns in (("some", slice(1, 3)), ("all", slice(None)), ("from the end", slice(-2, None)), ("none", slice(3, 3)),
                      ("beyond", slice(4, 99)), ("reversed bounds", slice(4, 2)), ("step 1", slice(0, 2, 1))):
    case(f"columns: {name}", lambda: read({"m": columns}))
for name, rows in (("slice", slice(1, 3)), ("slice with a step", slice(0, 4, 2)), ("indices", [3, 0, 3]), ("no rows", [])):
    case(f"rows and columns: {name}", lambda: read({"m": slice(1, 3)}, rows=rows, batch_fields=["m"]))
case("two matrices", lambda: read({"m": slice(0, 1), "n": slice(1, 2)}))
case("one field", lambda: read({"m": slice(0, 1)}, batch_fields=["m"]))
for name, slices, more in (("step", {"m": slice(0, 4, 2)}, {}), ("vector", {"v": slice(0, 1)}, {}), ("not a slice", {"m": 1}, {}),
                           ("unknown", {"q": slice(0, 1)}, {}), ("not selected", {"m": slice(0, 1)}, {"batch_fields": ["v"]}),
                           ("other section", {"x": slice(0, 1)}, {})):
    says(f"wrong: {name}", lambda: read(slices, **more), "column slice step must be None or 1", "is not a dense matrix", "must be a slice",
         "unknown DataProto field", "is not selected")


def into(shape, dtype=np.int32):
    room = np.zeros(shape, dtype)
    got = t.get(ref, batch_slices={"m": slice(1, 3)}, destinations={"m": room})["batch"]["m"]
    return [room.tolist(), got is room]


case("destination", lambda: into((4, 2)))
case("destination of another shape", lambda: into((4, 3)))
case("destination of another type", lambda: into((4, 2), np.int64))

finish({})
