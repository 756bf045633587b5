# SPDX-License-Identifier: Apache-2.0
"""setup_dummy(): a process without own memory uses its host's daemon.  dummy.py MASTER DAEMON"""

import ctypes
import os
import sys
import time

import mooncake.store as ms

MASTER, DAEMON = sys.argv[1:]
MIB = 1 << 20


def opened():
    s = ms.MooncakeDistributedStore()
    assert s.setup_dummy(16 * MIB, 16 * MIB, DAEMON) == 0
    return s


def expect(got, wanted):
    assert got == wanted, (got, wanted)


s, direct = opened(), ms.MooncakeDistributedStore()
expect(direct.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", MASTER), 0)
expect(s.health_check(), 0)
value = os.urandom(3 * MIB)
expect((s.put("k", value), s.get("k") == value, direct.get("k") == value), (0, True, True))
expect((s.put("k", b"other"), s.get_size("k"), s.is_exist("none"), s.get("none")), (0, 3 * MIB, 0, b""))

# memory of the pool, memory outside of it, batches
at = s.alloc_from_mem_pool(4 * MIB)
assert at and at % 4096 == 0
keys, ptrs, sizes = [f"b{i}" for i in range(64)], [at + i * 1000 for i in range(64)], [1000] * 64
ctypes.memmove(at, value, 64000)
expect(s.batch_put_from(keys, ptrs, sizes), [0] * 64)
outside = ctypes.create_string_buffer(64000)
there = ctypes.addressof(outside)
expect(s.batch_get_into(keys, [there + i * 1000 for i in range(64)], sizes), sizes)
assert outside.raw == value[:64000]
expect(s.batch_put_from(["o"], [there], [64000]), [0])
expect(s.batch_get_into(["o", "none"], [at + MIB] * 2, [64000] * 2), [64000, -704])
assert ctypes.string_at(at + MIB, 64000) == value[:64000]
expect(s.batch_is_exist(keys + ["none"]), [1] * 64 + [0])

# probes, and ranges with and without a snapshot
expect((s.probe_key("b0"), s.probe_key("none"), s.batch_probe_key(["b0", "none", "b1"])), (1, 0, [1, 0, 1]))
snapshot = s.prepare_get_into_ranges_snapshot(["b0", "b1", "none"])
for read in (s.get_into_ranges, lambda *a: s.get_into_ranges_from_snapshot(snapshot, *a)):
    ctypes.memset(there, 0, 64000)
    expect(read([there], [["b0", "none", "b1"]], [[[0], [50], [100, 200]]], [[[10], [0], [0, 990]]],
                [[[50], [5], [30, 11]]]), [[[50], [-704], [30, -600]]])
    expect((outside.raw[:60], outside.raw[100:130]), (value[10:60] + bytes(10), value[1000:1030]))
expect(s.get_into_ranges_from_snapshot(snapshot, [there], [["b2"]], [[[0]]], [[[0]]], [[[5]]]), [[[-600]]])
expect((s.alloc_from_mem_pool(1 << 40), s.alloc_from_mem_pool(0)), (0, 0))

# The daemon keeps objects that its clients read; their removal by a client succeeds at once, that by others at
# the end of the lease.
TTL = 0.5


def removed(remover, wait):
    results = []
    for i in range(5):
        key = f"r{i}"
        expect(s.put(key, value[:100000]), 0)
        expect((len(s.get(key)), len(s.get_buffer(key))), (100000, 100000))
        if wait:
            s.is_exist(key)
        time.sleep(wait)
        results.append(remover.remove(key))
        s.remove(key, True)
    return results


expect(removed(s, 0), [0] * 5)
expect(removed(s, TTL), [0] * 5)
expect(removed(direct, TTL), [0] * 5)
expect(s.upsert("k", b"new"), 0)
expect((s.get("k"), direct.get("k"), s.remove("k", True), s.get("k")), (b"new", b"new", 0, b""))
expect((s.close(), s.put("k", b"x"), s.alloc_from_mem_pool(1)), (0, -600, 0))

# wrong input, and no daemon
for args in ((MIB, MIB, ""), (MIB, MIB, "off"), (MIB, MIB, "a\0b")):
    expect(s.setup_dummy(*args), -600)
assert s.setup_dummy(MIB, MIB, "127.0.0.1:1") < 0
for args in ((-1, MIB, DAEMON), (MIB, "x", DAEMON), (MIB, MIB, None), (MIB, MIB)):
    try:
        s.setup_dummy(*args)
        raise AssertionError(args)
    except TypeError:
        pass
# a second setup succeeds
expect(s.setup_dummy(MIB, MIB, DAEMON), 0)
expect(s.get("o") == value[:64000], True)
print("ok")
