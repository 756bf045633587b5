# SPDX-License-Identifier: Apache-2.0
"""Byte ranges of structured objects, read into the caller's memory."""

import ctypes
import dataclasses

from cases import case, finish, needs, says

np = needs("numpy")
from mooncake import structured_object_store as so

Range = so.StructuredMemberRange
BYTES = bytes(range(100))


class Store:
    def __init__(self):
        self.objects, self.calls, self.short = {}, [], False

    def put(self, key, value, config=None):
        self.objects[key] = bytes(value)
        return 0

    def get(self, key):
        return self.objects.get(key, b"")

    def remove(self, key, force=False):
        return -704 if self.objects.pop(key, None) is None else 0

    def is_exist(self, key):
        return int(key in self.objects)

    def get_into_ranges(self, addresses, keys, targets, sources, sizes):
        self.calls.append([[[key.rpartition("/")[2] for key in each] for each in keys], targets, sources, sizes])
        for address, *rest in zip(addresses, keys, targets, sources, sizes):
            for key, to, at, n in zip(*rest):
                for one in zip(to, at, n):
                    ctypes.memmove(address + one[0], self.objects[key][one[1]:one[1] + one[2]], one[2])
        return [[[0]] for _ in keys] if self.short else sizes


store = Store()
t = so.MooncakeBundleTransfer(store, default_chunk_bytes=32)
ref = t.put_object({"b": BYTES, "i": np.arange(20, dtype=np.int32)})
spec = t.read_spec(ref)
memory = ctypes.create_string_buffer(4096 + 64)
AT = -(-ctypes.addressof(memory) // 64) * 64


def into(size=64, at=AT, owner=memory, **more):
    return so.raw_destination(at, size, owner, **{"pre_registered": True, **more})


def read(ranges, destinations=None, spec=spec):
    """The calls of the store, and the bytes that were read."""
    ctypes.memset(AT, 0, 200)
    store.calls.clear()
    destinations = {"b": into()} if destinations is None else destinations
    got = t.materialize_ranges_into(spec, ranges, destinations)
    return [store.calls, ctypes.string_at(AT, 99), sorted(got.objects) == sorted(destinations)]


def prepared(ranges, destination=None):
    return list(dataclasses.astuple(t.prepare_member_ranges(spec, ranges, into() if destination is None else destination)))


case("one range", lambda: read([Range("b", 5, 20, 2)]))
case("across chunks", lambda: read([Range("b", 20, 50, 0)]))
case("several ranges", lambda: read([Range("b", 90, 5, 10), Range("b", 0, 5, 0), Range("b", 5, 5, 5)]))
case("aligned", lambda: read([Range("b", 8, 8, 16, 8)]))
case("two members", lambda: read([Range("b", 0, 4, 0), Range("i", 60, 12, 4)], {"b": into(), "i": into(60, AT + 64)}))
for name, ranges in (("none", []), ("no range", ["b"]), ("unknown member", [Range("x", 0, 4, 0)]), ("empty name", [Range("", 0, 4, 0)]),
                     ("negative", [Range("b", -1, 4, 0)]), ("no bytes", [Range("b", 0, 0, 0)]), ("beyond the member", [Range("b", 98, 4, 0)]),
                     ("beyond the destination", [Range("b", 0, 4, 62)]), ("text", [Range("b", "0", 4, 0)]),
                     ("bool", [Range("b", True, 4, 0)]), ("alignment 3", [Range("b", 3, 3, 3, 3)]), ("unaligned", [Range("b", 4, 8, 0, 8)]),
                     ("overlap", [Range("b", 0, 4, 0), Range("b", 8, 4, 2)])):
    says(f"ranges: {name}", lambda: read(ranges), "references unselected member", "aligned to 8 bytes", "overlap", "power of two",
         "exceeds source or destination bounds", "must be non-negative", "requires ranges", "non-empty string", "must be an integer")
says("ranges: unaligned array", lambda: read([Range("i", 2, 4, 0)], {"i": into()}), "aligned to 4 bytes")
for name, destinations in (("none", {}), ("another member", {"b": into(), "i": into()}), ("an array", {"b": np.zeros(64, np.uint8)}),
                           ("no owner", {"b": into(owner=None)}), ("not registered", {"b": into(pre_registered=False)}),
                           ("odd address", {"b": into(at=AT + 1)}), ("overlapping", {"b": into(), "i": into(at=AT)})):
    says(f"destinations: {name}", lambda: read([Range("b", 0, 8, 0, 8)] + [Range("i", 0, 4, 0)] * (name == "overlapping"), destinations),
         "must match range members", "must map members to raw_destination", "owner is required", "pre_registered", "aligned", "overlap")
says("spec with slices", lambda: read([Range("i", 0, 4, 0)], {"i": into()}, spec.slice_member("i", 0, 0, 2)), "cannot be combined")
says("member not selected", lambda: read([Range("b", 0, 4, 0)], None, spec.select_members(["i"])), "unselected")

case("plan", lambda: prepared([Range("i", 28, 12, 8), Range("i", 40, 4, 20), Range("i", 0, 8, 0)]))
case("plan of bytes", lambda: prepared([Range("b", 30, 10, 0)]))
says("plan of nothing", lambda: prepared([]), "requires StructuredMemberRange values")
plan = t.prepare_member_ranges(spec, [Range("i", 28, 12, 8)], into())


def by_plan(value, destination=None):
    ctypes.memset(AT, 0, 200)
    other = t.put_object(value)
    got = t.materialize_prepared_ranges_into(t.read_spec(other), plan, into() if destination is None else destination)
    return [np.frombuffer(ctypes.string_at(AT, 24), np.int32).tolist(), list(got.objects)]


case("plan used again", lambda: by_plan({"i": np.arange(100, 120, dtype=np.int32)}))
for name, value in (("shape", {"i": np.arange(19, dtype=np.int32)}), ("type", {"i": np.arange(20, dtype=np.uint32)}),
                    ("name", {"j": np.arange(20, dtype=np.int32)})):
    says(f"plan of another {name}", lambda: by_plan(value), "prepare ranges again", "unselected")
says("plan for a small destination", lambda: by_plan({"i": np.arange(20, dtype=np.int32)}, into(16)), "bounds are invalid")
says("not a plan", lambda: t.materialize_prepared_ranges_into(spec, None, into()), "must be PreparedStructuredMemberRanges")
for name, values in (("source", {"source_offsets": ((29,),)}), ("destination", {"destination_bytes": 8}), ("index", {"chunk_indices": (9,)}),
                     ("list", {"sizes": [(4,)]}), ("lengths", {"sizes": ((4,), (4,))}), ("alignment", {"alignment": 2})):
    says(f"plan with a wrong {name}", lambda: dataclasses.replace(plan, **values) and None, "bounds", "tuple", "differ", "element width")


def short():
    store.short = True
    return read([Range("b", 5, 20, 2)])


says("too few bytes", short, "returned byte count differs")
store.get_into_ranges = None
says("store without ranges", lambda: so.MooncakeBundleTransfer(store).materialize_ranges_into(spec, [Range("b", 5, 20, 2)], {"b": into()}))

finish({})
