# SPDX-License-Identifier: Apache-2.0
"""Ranged reads: get_into_ranges(), snapshots for it, and lists of unequal length."""

import ctypes
import sys
import time

from cases import case, finish, says
from mooncake.store import MooncakeDistributedStore, RangedReadSnapshot

LEASE_S = 0.5
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
memory = ctypes.create_string_buffer(1 << 16)
at = ctypes.addressof(memory)
store.put("ra", b"0123456789")
store.put("rb", b"abcdefghij")


def read(name, *lists, get=store.get_into_ranges):
    """Record the result, and the offset and bytes of all writes."""
    ctypes.memset(at, ord("."), len(memory))
    case(name, lambda: get(*lists))
    raw = memory.raw
    head = len(raw) - len(raw.lstrip(b"."))
    case(f"{name}: written", lambda: [head if head < len(raw) else -1, raw.strip(b".")])


def bounds():
    assert store.register_buffer(at, 4096) == 0
    read("inside", [at], [["ra", "rb"]], [[[0, 20], [40]]], [[[0, 5], [3]]], [[[10, 5], [4]]])
    read("one fragment ends behind the registered memory", [at], [["ra", "rb"]], [[[4090, 0], [40]]], [[[0, 0], [3]]],
         [[[10, 2], [4]]])
    read("one begins behind it", [at], [["ra", "rb"]], [[[8000], [40]]], [[[0], [3]]], [[[10], [4]]])
    read("from the middle of it", [at + 4000], [["ra"]], [[[90, 90]]], [[[0, 0]]], [[[10, 6]]])
    assert store.register_buffer(at + 8192, 4096) == 0
    read("in another registered memory", [at], [["ra"]], [[[8192]]], [[[0]]], [[[10]]])
    store.unregister_buffer(at + 8192)
    read("address overflow", [at], [["ra"]], [[[2**64 - 1]]], [[[0]]], [[[5]]])
    read("null", [0], [["ra"]], [[[0]]], [[[0]]], [[[5]]])
    read("outside of the object", [at], [["ra", "rb"]], [[[0, 50], [100]]], [[[5, 0], [11]]], [[[6, 5], [1]]])
    read("nothing", [at], [["ra", "gone"]], [[[0, 0], [0]]], [[[10, 11], [0]]], [[[0, 0], [0]]])
    read("a miss", [at], [["gone", "rb", ""]], [[[0, 20], [40], [60]]], [[[0, 0], [0], [0]]], [[[1, 1], [2], [3]]])
    case("negative", lambda: store.get_into_ranges([at], [["ra"]], [[[-1]]], [[[0]]], [[[5]]]))
    case("float", lambda: store.get_into_ranges([at], [["ra"]], [[[0]]], [[[0]]], [[[1.5]]]))
    case("flat", lambda: store.get_into_ranges([at], ["ra"], [[[0]]], [[[0]]], [[[1]]]))


def unequal():
    good = [[5], [0], [4]]
    for name, lists in (("destinations", ([[0], [9]], [[0, 1], [9]], [[1, 1], [9]])),
                        ("sources", ([[0, 1], [9]], [[0], [9]], [[1, 1], [9]])),
                        ("sizes", ([[0, 1], [9]], [[0, 1], [9]], [[1], [9]]))):
        dst, src, size = ([one[0], one[1] if i else good[1]] for i, one in enumerate(lists))
        read(f"fewer {name}", [at], [["ra", "rb"]], [[lists[0][0], good[0]]], [[lists[1][0], good[1]]],
             [[lists[2][0], good[2]]])
    read("fewer keys", [at], [["ra"]], [[[0], [20]]], [[[0], [0]]], [[[1], [1]]])
    read("more keys", [at], [["ra", "rb"]], [[[0]]], [[[0]]], [[[1]]])
    read("more keys than sources", [at], [["ra", "rb"]], [[[0, 1], [20]]], [[[0, 1]]], [[[1, 1], [1]]])
    read("more keys than destinations", [at], [["ra", "rb"]], [[[0]]], [[[0, 1], [3]]], [[[1, 1], [1]]])
    read("one of two buffers", [at, at + 100], [["ra"], ["rb"]], [[[0]], [[0]]], [[[0]], [[0]]], [[[5]], [[5], [5]]])
    read("more buffers", [at, at], [["ra", "rb"]], [[[0, 2], [9]]], [[[0, 0], [0]]], [[[1, 1], [1]]])
    read("fewer buffers", [at], [["ra"], ["rb"]], [[[0]], [[0]]], [[[0]], [[0]]], [[[1]], [[1]]])
    read("fewer outer sizes", [at, at], [["ra"], ["rb"]], [[[0]], [[0, 1]]], [[[0]], [[0, 1]]], [[[1]]])
    read("no buffers", [], [], [], [], [])
    read("no keys", [at], [[]], [[]], [[]], [[]])
    read("no fragments", [at], [["ra", "gone"]], [[[], []]], [[[], []]], [[[], []]])
    for call in (store.batch_get_tensor_into, store.batch_put_tensor_from, store.batch_upsert_tensor_from):
        case(f"{call.__name__}: fewer buffers", lambda: call(["a", "b"], [at], [10]))
        case(f"{call.__name__}: fewer sizes", lambda: call(["a", "b"], [at, at], [10]))
        case(f"{call.__name__}: more buffers", lambda: call(["a"], [at, at], [10, 10]))
        case(f"{call.__name__}: nothing", lambda: call(["a", "b"], [], []))
    for call in (store.batch_get_tensor_with_tp_into, store.batch_put_tensor_with_tp_from):
        for size in (1, 2):
            case(f"{call.__name__}: {size}: fewer buffers", lambda: call(["a", "b"], [at], [10], 0, size))
            case(f"{call.__name__}: {size}: more buffers", lambda: call(["a"], [at, at], [10, 10], 0, size))


def snapshots():
    store.put("rc", b"AAAAAAAAAA")
    shot = store.prepare_get_into_ranges_snapshot(["ra", "rb", "rc", "gone", ""])
    case("type of a snapshot", lambda: type(shot) is RangedReadSnapshot)
    case("a snapshot is not created", RangedReadSnapshot)

    def take(name, *keys, snapshot=shot):
        read(f"snapshot: {name}", snapshot, [at], [list(keys)], [[[i * 10] for i in range(len(keys))]], [[[1]] * len(keys)],
             [[[5]] * len(keys)], get=store.get_into_ranges_from_snapshot)

    take("two", "ra", "rb")
    store.put("later", b"llllllllll")
    take("keys that are not in it", "ra", "later", "gone")
    case("its objects are leased", lambda: store.remove("rb"))
    begin = time.monotonic()
    shot2 = store.prepare_get_into_ranges_snapshot(["rc"])
    store.upsert("rc", b"BBBBBBBBBB")
    ctypes.memset(at, ord("."), 10)
    code = store.get_into_ranges_from_snapshot(shot2, [at], [["rc"]], [[[0]]], [[[0]]], [[[5]]])
    # on a slow machine the second half of the lease has begun
    late = time.monotonic() - begin > LEASE_S / 2
    case("the version of the snapshot", lambda: [code, memory.raw[:5] == b"AAAAA" or late])
    time.sleep(LEASE_S * 1.3)
    take("the current version after the lease", "rc", "ra")
    # a busy master notices the end later
    time.sleep(LEASE_S * 3)
    case("the lease has ended", lambda: store.remove("rb"))
    take("removed", "rb", "ra")
    case("an empty snapshot", lambda: type(store.prepare_get_into_ranges_snapshot([])) is RangedReadSnapshot)
    take("twice the same key", "ra", "ra", snapshot=store.prepare_get_into_ranges_snapshot(["ra", "ra"]))
    read("snapshot: fewer sources", shot, [at], [["ra", "ra"]], [[[0, 1], [9]]], [[[0], [0]]], [[[1, 1], [3]]],
         get=store.get_into_ranges_from_snapshot)
    read("snapshot: behind the registered memory", shot, [at], [["ra"]], [[[4090, 0]]], [[[0, 0]]], [[[10, 3]]],
         get=store.get_into_ranges_from_snapshot)
    says("snapshot: None", lambda: store.get_into_ranges_from_snapshot(None, [at], [["ra"]], [[[0]]], [[[0]]], [[[1]]]),
         "belongs to another Store")
    case("snapshot: 5", lambda: store.get_into_ranges_from_snapshot(5, [at], [["ra"]], [[[0]]], [[[0]]], [[[1]]]))
    other = MooncakeDistributedStore()
    assert other.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", sys.argv[1]) == 0
    says("snapshot: of another store", lambda: other.get_into_ranges_from_snapshot(
        shot, [at], [["ra"]], [[[0]]], [[[0]]], [[[1]]]), "belongs to another Store")
    other.close()


read("memory that is not registered", [at], [["ra"]], [[[0]]], [[[0]]], [[[10]]])
bounds()
unequal()
snapshots()
store.close()
WHY = "memory need not be registered"
PART = "the fragment's own memory gets the bytes that the object has"
finish({
    "memory that is not registered": ([[[10]]], WHY),
    "memory that is not registered: written": ([0, "0123456789"], WHY),
    "outside of the object: written": ([0, "56789" + 45 * "." + "01234"], PART),
})
