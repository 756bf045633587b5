# SPDX-License-Identifier: Apache-2.0
"""Upstream's own package as a dummy client of our mooncake_client.

node_upstream.py HOST:PORT CASE [ARGUMENT...]: one case; it prints "ready" where the script waits for it."""
import ctypes
import os
import sys
import time

import mooncake.store as ms

MIB = 1 << 20
NO_OBJECT, INVALID, RPC = -704, -600, -900


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r}, not {wanted!r}")


def client(address, local=16 * MIB, pool=64 * MIB):
    store = ms.MooncakeDistributedStore()
    check("setup_dummy", store.setup_dummy(pool, local, address), 0)
    return store


class Memory:
    """Memory that the client shares with the daemon."""

    def __init__(self, store, size):
        self.store, self.size = store, size
        self.at = store.alloc_from_mem_pool(size)
        check("register_buffer", store.register_buffer(self.at, size), 0)
        self.bytes = (ctypes.c_char * size).from_address(self.at)

    def __setitem__(self, at, data):
        self.bytes[at:at + len(data)] = data

    def get(self, at, size):
        return self.bytes[at:at + size]


def values(store):
    for size in (0, 1, 255, 256, 4096, 65536, 65537, 3 * MIB + 1):
        key, data = f"v{size}", os.urandom(size)
        check("put", store.put(key, data), 0)
        check("put again", store.put(key, b"other"), 0)
        check("get", store.get(key), data)
        check("get_size", store.get_size(key), size)
        check("is_exist", store.is_exist(key), 1)
    for key in ("missing", "v255 ", "V255", "k" * 4000):
        check("get of a miss", store.get(key), b"")
        check("is_exist of a miss", store.is_exist(key), 0)
        check("get_size of a miss", store.get_size(key), NO_OBJECT)
        check("get_buffer of a miss", store.get_buffer(key), None)
        check("remove of a miss", store.remove(key), NO_OBJECT)
    if store.put("k" * 4097, b"x") == 0:
        sys.exit("a key of 4097 bytes was stored")
    check("get_hostname", store.get_hostname(), "")
    check("health_check", store.health_check(), 0)
    buffer = store.get_buffer("v4096")
    check("get_buffer", (buffer.size(), bytes(memoryview(buffer))), (4096, store.get("v4096")))
    del buffer


def batches(store):
    keys = [f"b{i}" for i in range(300)]
    data = [os.urandom(i * 11) for i in range(300)]
    check("put_batch", store.put_batch(keys, data), 0)
    check("get_batch", store.get_batch(keys), data)
    check("batch_is_exist", store.batch_is_exist(keys + ["none"]), [1] * 300 + [0])
    check("get_batch with misses", store.get_batch(["b7", "none", "b8"]), [data[7], b"", data[8]])
    # more than 255 elements have wider counts
    check("batch_get_buffer", [b and b.size() for b in store.batch_get_buffer(["b9", "none"])], [99, None])
    check("put_parts", store.put_parts("parts", b"abc", b"", b"def"), 0)
    check("get of parts", store.get("parts"), b"abcdef")
    check("upsert", store.upsert("parts", b"new"), 0)
    check("get of the new version", store.get("parts"), b"new")
    check("upsert_parts", store.upsert_parts("parts", b"1", b"23"), 0)
    check("upsert_batch", store.upsert_batch(["parts", "b1"], [b"A", b"B"]), 0)
    check("get after upsert_batch", (store.get("parts"), store.get("b1")), (b"A", b"B"))


def memory(store):
    m = Memory(store, MIB)
    text = os.urandom(1000)
    m[0] = text
    check("put_from", store.put_from("m1", m.at, 1000), 0)
    check("get_into", store.get_into("m1", m.at + 4096, 2000), 1000)
    check("its bytes", m.get(4096, 1000), text)
    check("get_into of too little memory", store.get_into("m1", m.at + 4096, 999), INVALID)
    check("get_into of a miss", store.get_into("none", m.at, 10), NO_OBJECT)
    check("batch_put_from", store.batch_put_from(["m2", "m3"], [m.at, m.at + 10], [10, 20]), [0, 0])
    check("batch_get_into", store.batch_get_into(["m2", "none", "m3", "m3"], [m.at + 8192 + 64 * i for i in range(4)],
                                                 [10, 10, 64, 19]), [10, NO_OBJECT, 20, INVALID])
    check("their bytes", (m.get(8192, 10), m.get(8192 + 128, 20)), (text[:10], text[10:30]))
    check("upsert_from", store.upsert_from("m1", m.at + 1, 9), 0)
    check("batch_upsert_from", store.batch_upsert_from(["m2"], [m.at + 2], [5]), [0])
    check("the new versions", (store.get("m1"), store.get("m2")), (text[1:10], text[2:7]))
    check("batch_put_from_multi_buffers",
          store.batch_put_from_multi_buffers(["m4", "m5"], [[m.at, m.at + 100], [m.at + 5]], [[3, 4], [6]]), [0, 0])
    check("its value", store.get("m4"), text[:3] + text[100:104])
    check("batch_get_into_multi_buffers",
          store.batch_get_into_multi_buffers(["m4", "none", "m5"], [[m.at + 20000, m.at + 30000], [m.at], [m.at + 40000]],
                                             [[2, 5], [1], [6]]), [7, NO_OBJECT, 6])
    check("its bytes", m.get(20000, 2) + m.get(30000, 5), text[:3] + text[100:104])
    check("put_from_with_metadata", store.put_from_with_metadata("m6", m.at + 8, m.at, 4, 2), 0)
    check("its value", store.get("m6"), text[:2] + text[8:12])
    check("get_into_ranges",
          store.get_into_ranges([m.at + 50000], [["m1", "none"]], [[[0, 4], [8]]], [[[1, 5], [0]]], [[[3, 99], [1]]]),
          [[[3, INVALID], [NO_OBJECT]]])
    check("its bytes", m.get(50000, 3), text[2:5])
    for at, size in ((m.at + MIB - 1, 2), (m.at - 1, 2), (id(store), 8), (m.at, 1 << 62), (2 ** 64 - 1, 2)):
        check("put_from of other memory", store.put_from("m7", at, size), INVALID)
        check("get_into other memory", store.get_into("m1", at, size), INVALID)
    check("a part of shared memory", store.register_buffer(m.at + 4096, 4096), -1)
    check("unregister_buffer", store.unregister_buffer(m.at), 0)
    check("put_from after it", store.put_from("m7", m.at, 8), INVALID)
    check("the key", store.is_exist("m7"), 0)


def config(store):
    c = ms.ReplicateConfig()
    c.with_hard_pin, c.preferred_segments, c.preferred_segment = True, ["here", "there"], "elsewhere"
    c.group_ids, c.data_type = ["g"], ms.ObjectDataType.WEIGHT
    c.soft_pin_action, c.soft_pin_ttl_ms = ms.SoftPinAction.ENABLE, 777
    check("put with options", store.put("c1", b"v", c), 0)
    check("put_batch with one group for two keys", store.put_batch(["c2", "c3"], [b"a", b"b"], c), INVALID)
    c.group_ids = ["g", "h"]
    check("put_batch with two groups", store.put_batch(["c2", "c3"], [b"a", b"b"], c), 0)
    c = ms.ReplicateConfig()
    c.soft_pin_ttl_ms = 5
    check("soft_pin_ttl_ms without a pin", store.put("c4", b"v", c), INVALID)
    c = ms.ReplicateConfig()
    c.dfs_replica_num = 1
    check("dfs_replica_num", store.put("c4", b"v", c), -1601)


def removal(store):
    check("remove", store.remove("v1", True), 0)
    check("remove_by_regex", store.remove_by_regex("^m[12]$", True), 2)
    check("a bad expression", store.remove_by_regex("(", True) < 0, True)
    check("batch_remove", store.batch_remove(["m3", "none"], True), [0, NO_OBJECT])
    check("query_task", store.query_task((1, 2)), (None, -1400))
    check("create_copy_task", store.create_copy_task("m4", ["no-such-segment"])[1] < 0, True)
    check("remove_all", store.remove_all(True) > 300, True)
    check("is_exist after it", store.is_exist("b5"), 0)


def all_calls(address):
    store = client(address)
    for case in (values, batches, memory, config, removal):
        case(store)
    check("close", store.close(), 0)


def large(address):
    """A value of 64 MiB: in the request, and in shared memory."""
    store = client(address, 160 * MIB)
    data = os.urandom(MIB) * 64
    check("put", store.put("large", data), 0)
    check("get", store.get("large") == data, True)
    check("remove", store.remove("large", True), 0)
    m = Memory(store, 64 * MIB)
    m[0] = data
    check("put_from", store.put_from("large", m.at, 64 * MIB), 0)
    m[0] = bytes(64 * MIB)
    check("get_into", store.get_into("large", m.at, 64 * MIB), 64 * MIB)
    check("its bytes", m.get(0, 64 * MIB) == data, True)
    # more than the local memory has
    check("put 2", store.put("large2", data), 0)
    held = store.get_buffer("large")
    check("get_batch", [len(v) for v in store.get_batch(["large", "large2"])], [64 * MIB, 0])
    del held
    check("get_batch of both", [len(v) for v in store.get_batch(["large", "large2"])], [64 * MIB, 64 * MIB])
    check("remove_all", store.remove_all(True), 2)


def keep(address, key):
    """Hold buffers until the process is killed."""
    store = client(address)
    check("put", store.put(key, b"kept " + key.encode()), 0)
    held = [store.get_buffer(key) for _ in range(100)]
    m = Memory(store, MIB)
    print("ready", flush=True)
    time.sleep(600)
    del held, m


def meet(address, own, other):
    """Two clients see each other's values."""
    store = client(address)
    check("put", store.put(own, own.encode() * 1000), 0)
    end = time.monotonic() + 20
    while not store.is_exist(other) and time.monotonic() < end:
        time.sleep(0.02)
    check("get", store.get(other), other.encode() * 1000)


def outlive(address, flag):
    """The daemon is killed and started again: calls fail, later they work, with the same memory."""
    store = client(address)
    m = Memory(store, MIB)
    m[0] = b"before"
    check("put_from", store.put_from("o1", m.at, 6), 0)
    print("ready", flush=True)
    while store.put("o2", b"x") == 0:
        time.sleep(0.02)
    check("get_into without a daemon", store.get_into("o1", m.at, 6) < 0, True)
    print("failed", flush=True)
    while not os.path.exists(flag):
        time.sleep(0.02)
    end = time.monotonic() + 30
    while store.put_from("o3", m.at, 6) != 0 and time.monotonic() < end:
        time.sleep(0.1)
    check("get", store.get("o3"), b"before")
    check("get_into", store.get_into("o3", m.at + 10, 6), 6)
    check("its bytes", m.get(10, 6), b"before")


def silent(address, flag):
    """Stopped for more than 10 s, the client still has the buffer that it holds."""
    store = client(address)
    m = Memory(store, MIB)
    check("put", store.put("s0", b"held"), 0)
    held = store.get_buffer("s0")
    print("ready", flush=True)
    while not os.path.exists(flag):
        time.sleep(0.02)
    end = time.monotonic() + 20
    while store.put_from("s1", m.at, 6) != 0 and time.monotonic() < end:
        time.sleep(0.1)
    check("is_exist", store.is_exist("s1"), 1)
    check("put", store.put("s2", b"else"), 0)
    other = store.get_buffer("s2")
    check("another buffer", bytes(memoryview(other)), b"else")
    check("a held buffer", bytes(memoryview(held)), b"held")
    # upstream's library aborts if a buffer outlives its store
    del held, other


def shrink(address):
    """A client makes its shared memory shorter: only its own calls fail."""
    store = client(address)
    m = Memory(store, 4 * MIB)
    m[0] = b"x" * (4 * MIB)
    check("put_from", store.put_from("h1", m.at, 4 * MIB), 0)
    fds = [int(f) for f in os.listdir("/proc/self/fd")
           if "memfd:mooncake_shm" in (os.readlink(f"/proc/self/fd/{f}") if os.path.exists(f"/proc/self/fd/{f}") else "")]
    fd = next(f for f in fds if os.fstat(f).st_size == 4 * MIB)
    os.ftruncate(fd, MIB)
    check("get_into", store.get_into("h1", m.at, 4 * MIB) < 0, True)
    check("put_from", store.put_from("h2", m.at, 4 * MIB) < 0, True)
    check("get", len(store.get("h1")), 4 * MIB)
    check("h2", store.is_exist("h2"), 0)


def main():
    globals()[sys.argv[2]](sys.argv[1], *sys.argv[3:])


main()
