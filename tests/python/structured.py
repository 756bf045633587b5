# SPDX-License-Identifier: Apache-2.0
"""Upstream's structured objects (pure Python, of another distribution beside ours) on our store.

structured.py UPSTREAM_PACKAGE MASTER"""

import sys

import mooncake

UPSTREAM, MASTER = sys.argv[1:]
mooncake.__path__.append(UPSTREAM)

import mooncake.store as ms
from mooncake import structured_object_store as so

assert not ms.__file__.startswith(UPSTREAM) and so.__file__.startswith(UPSTREAM), (ms.__file__, so.__file__)
try:
    import numpy
except ImportError:
    print("SKIP: no numpy")
    sys.exit(77)


def opened():
    s = ms.MooncakeDistributedStore()
    assert s.setup("127.0.0.1", "P2PHANDSHAKE", 256 << 20, 64 << 20, "tcp", "", MASTER) == 0
    return s


one, other = opened(), opened()
writer, reader = so.MooncakeBundleTransfer(one), so.MooncakeBundleTransfer(other)
value = numpy.arange(100000, dtype="float32").reshape(100, 1000)
data = {"a": value, "b": b"bytes" * 100, "c": [1, "x", None]}
handle = writer.put(data, type="dict")


def find(tree, name):
    """The value of a name, wherever it is put."""
    if isinstance(tree, dict):
        if name in tree:
            return tree[name]
        for sub in tree.values():
            found = find(sub, name)
            if found is not None:
                return found
    return None


got = reader.get(handle)
assert numpy.array_equal(find(got, "a"), value) and find(got, "a").dtype == value.dtype
assert bytes(find(got, "b")) == data["b"] and list(find(got, "c")) == data["c"]
# objects of named buffers, and their end
bundle = writer.put_object({"x": bytes(range(256)) * 1000, "y": value})
back = reader.get_object(bundle)
assert bytes(memoryview(back["x"]).cast("B")) == bytes(range(256)) * 1000, type(back["x"])
before = one.remove_all(True)
assert before >= 4, before
for s in (one, other):
    s.close()
print("ok upstream's structured_object_store on our store: dict and object, put and got by two clients")
