# SPDX-License-Identifier: Apache-2.0
"""Call every method of mooncake.store in all variants, and print the results as JSON.

The same script runs on upstream's package and on ours: observe.py MASTER.  Pointers, ports and
times are left out."""

import array
import ctypes
import json
import sys

import mooncake.store as ms

results = {}


def case(name, call):
    try:
        value = call()
    except Exception as e:
        value = type(e).__name__
    if isinstance(value, (bytes, bytearray)):
        value = value.decode("latin-1") if len(value) < 100 else f"{len(value)} bytes"
    results[name] = value


def config(**fields):
    c = ms.ReplicateConfig()
    for name, value in fields.items():
        setattr(c, name, value)
    return c


def life(master):
    s = ms.MooncakeDistributedStore()
    case("new: health", s.health_check)
    case("new: close", s.close)
    case("new: get", lambda: s.get("a"))
    case("new: put_from", lambda: s.put_from("a", 4096, 10))
    case("new: upsert", lambda: s.upsert("a", b"x"))
    case("new: multi", lambda: s.batch_put_from_multi_buffers([], [], []))
    case("setup: six arguments", lambda: s.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", ""))
    case("setup: unknown keyword", lambda: s.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", master, bogus=1))
    case("setup: negative size", lambda: s.setup("127.0.0.1", "P2PHANDSHAKE", -1, 0, "tcp", "", master))
    base = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_addr": master}
    for name, value in (("percent", "50%"), ("word", "abc"), ("negative", -1), ("tiny", 1000)):
        case(f"setup: dict size {name}", lambda: s.setup({**base, "global_segment_size": value}))
    case("setup: dict without hostname", lambda: s.setup({"metadata_server": "P2PHANDSHAKE"}))
    case("setup: dict without metadata", lambda: s.setup({"local_hostname": "127.0.0.1"}))
    case("setup: empty dict", lambda: s.setup({}))
    case("setup: empty hostname", lambda: s.setup("", "P2PHANDSHAKE", 0, 0, "tcp", "", master))
    for text in ("32 MB", "32m", "0.03125 GB", "33554432", 33554432.0):
        case(f"setup: dict size {text}", lambda: s.setup({**base, "global_segment_size": text}))
        s.close()
    case("setup: unknown key in dict", lambda: s.setup({**base, "bogus": 1}))
    s.close()
    case("setup: rdma without a device", lambda: s.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "rdma", "", master))
    s.close()
    case("setup: keywords", lambda: s.setup(local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE",
                                            global_segment_size=64 << 20, local_buffer_size=32 << 20, protocol="tcp",
                                            rdma_devices="", master_server_addr=master))
    case("open: health", s.health_check)
    return s


def values(s):
    case("put", lambda: s.put("a", b"hello"))
    case("get", lambda: s.get("a"))
    case("put: again", lambda: s.put("a", b"other value"))
    case("get: first stays", lambda: s.get("a"))
    case("miss: get", lambda: s.get("missing"))
    case("miss: get_buffer", lambda: s.get_buffer("missing"))
    case("miss: get_size", lambda: s.get_size("missing"))
    case("miss: is_exist", lambda: s.is_exist("missing"))
    case("miss: remove", lambda: s.remove("missing"))
    case("get_size", lambda: s.get_size("a"))
    case("is_exist", lambda: s.is_exist("a"))
    case("get_batch", lambda: [v.decode() for v in s.get_batch(["a", "missing", "a"])])
    case("batch_is_exist", lambda: s.batch_is_exist(["a", "missing", "a"]))
    case("batch_is_exist: none", lambda: s.batch_is_exist([]))
    case("put: empty value", lambda: s.put("empty", b""))
    case("upsert: empty value", lambda: s.upsert("empty", b""))
    case("put_batch: an empty value", lambda: s.put_batch(["e1", "e2"], [b"x", b""]))
    case("put_batch: an empty value stores", lambda: s.is_exist("e1"))
    case("put_batch", lambda: s.put_batch(["b1", "b2"], [b"x", b"y"]))
    case("put_batch: stored", lambda: s.batch_is_exist(["b1", "b2"]))
    case("put_batch: lengths", lambda: s.put_batch(["b1", "b2"], [b"x"]))
    case("put_batch: none", lambda: s.put_batch([], []))
    case("put_parts", lambda: s.put_parts("parts", b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]))
    case("put_parts: value", lambda: s.get("parts"))
    case("put_parts: some empty", lambda: s.put_parts("parts2", b"", b"x", b""))
    case("put_parts: value of some empty", lambda: s.get("parts2"))
    case("put_parts: none", lambda: s.put_parts("parts3"))
    case("put_parts: none stored", lambda: s.is_exist("parts3"))
    case("put: int array", lambda: s.put("ints", array.array("i", [1, 2, 3])))
    case("put: int array stored", lambda: s.get_size("ints"))
    case("put: strided", lambda: s.put("strided", memoryview(b"abcdef")[::2]))
    case("put: strided stored", lambda: s.get("strided"))
    for name, value in (("str", "text"), ("None", None), ("int", 7)):
        case(f"put: {name}", lambda: s.put("wrong", value))
    case("put: config None", lambda: s.put("wrong", b"x", config=None))
    case("put: unknown keyword", lambda: s.put("wrong", b"x", bogus=1))
    for name, key in (("int", 5), ("None", None)):
        case(f"key: {name}", lambda: s.put(key, b"x"))
    case("key: empty put", lambda: s.put("", b"x"))
    case("key: empty upsert", lambda: s.upsert("", b"x"))
    case("key: empty exist", lambda: s.is_exist(""))
    case("key: empty get_size", lambda: s.get_size(""))
    case("key: empty remove", lambda: s.remove(""))
    for name, key in (("NUL", "a\0b"), ("slash", "x/y//z"), ("newline", "a\nb"), ("unicode", "schlüssel✓"),
                      ("bytes", b"\xff\xfe"), ("255", "k" * 255), ("4096", "k" * 4096), ("4097", "k" * 4097)):
        case(f"key: {name}", lambda: [s.put(key, b"v"), s.is_exist(key), s.get(key).decode()])


def buffers(s):
    n = 1 << 20
    memory = ctypes.create_string_buffer(bytes(range(256)) * (n // 256), n)
    a = ctypes.addressof(memory)
    out = ctypes.create_string_buffer(2 * n)
    o = ctypes.addressof(out)
    case("put_from: unregistered", lambda: s.put_from("u", a, 1000))
    case("register", lambda: s.register_buffer(a, n))
    case("register: output", lambda: s.register_buffer(o, 2 * n))
    case("register: again", lambda: s.register_buffer(a, n))
    case("register: inside", lambda: s.register_buffer(a + 4096, 4096))
    case("register: nothing", lambda: s.register_buffer(a, 0))
    case("register: null", lambda: s.register_buffer(0, 10))
    case("unregister: unknown", lambda: s.unregister_buffer(a + 77))
    case("put_from", lambda: s.put_from("f", a, 100000))
    case("put_from: again", lambda: s.put_from("f", a, 10))
    case("put_from: nothing", lambda: s.put_from("f0", a, 0))
    case("put_from: nothing stored", lambda: s.is_exist("f0"))
    case("get_into", lambda: [s.get_into("f", o, 100000), out.raw[:100000] == memory.raw[:100000]])
    case("get_into: larger", lambda: s.get_into("f", o, 200000))
    case("get_into: smaller", lambda: s.get_into("f", o, 99999))
    case("get_into: size 0", lambda: s.get_into("f", o, 0))
    case("get_into: miss", lambda: s.get_into("missing", o, 100))
    case("get_into: text for a pointer", lambda: s.get_into("f", "x", 100))
    case("get_into: negative size", lambda: s.get_into("f", o, -1))
    case("batch_put_from", lambda: s.batch_put_from(["p1", "p2", "p3"], [a, a + 10, a + 20], [10, 20, 30]))
    case("batch_put_from: mixed", lambda: s.batch_put_from(["p1", "q2", ""], [a, a, a], [10, 0, 5]))
    case("batch_put_from: none", lambda: s.batch_put_from([], [], []))
    case("batch_put_from: lengths", lambda: s.batch_put_from(["x1", "x2"], [a], [10, 10]))
    case("batch_put_from: twice", lambda: [s.batch_put_from(["tw", "tw"], [a, a + 1], [10, 20]), s.get_size("tw")])
    case("multi: twice", lambda: [s.batch_put_from_multi_buffers(["tm", "tm"], [[a], [a]], [[10], [20]]),
                                  s.get_size("tm")])
    case("batch_put_from: same node", lambda: s.batch_put_from(["sn"], [a], [10], config(prefer_alloc_in_same_node=True)))
    case("put_from: same node", lambda: s.put_from("sn", a, 10, config(prefer_alloc_in_same_node=True)))
    case("put: same node", lambda: s.put("sn", b"x", config(prefer_alloc_in_same_node=True)))
    case("batch_get_into", lambda: s.batch_get_into(["p1", "missing", "p2", "p1"], [o, o, o, o], [10, 10, 19, 100]))
    case("batch_get_into: none", lambda: s.batch_get_into([], [], []))
    case("batch_get_into: lengths", lambda: s.batch_get_into(["p1", "p2"], [o, o], [10]))
    case("multi: put", lambda: s.batch_put_from_multi_buffers(["m1", "m2"], [[a, a + 100], [a]], [[5, 7], [9]]))
    case("multi: same node", lambda: s.batch_put_from_multi_buffers(["m3"], [[a]], [[5]],
                                                                    config(prefer_alloc_in_same_node=True)))
    case("multi: get", lambda: s.batch_get_into_multi_buffers(["m1", "m2"], [[o, o + 5], [o + 20]], [[5, 7], [9]]))
    case("multi: bytes", lambda: out.raw[:12] == memory.raw[:5] + memory.raw[100:107])
    case("multi: other split", lambda: s.batch_get_into_multi_buffers(["m1"], [[o]], [[12]]))
    case("multi: too short", lambda: s.batch_get_into_multi_buffers(["m1"], [[o]], [[11]]))
    case("multi: too long", lambda: s.batch_get_into_multi_buffers(["m1"], [[o]], [[13]]))
    case("multi: inner lengths", lambda: s.batch_get_into_multi_buffers(["m1"], [[o, o]], [[12]]))
    case("multi: none", lambda: s.batch_put_from_multi_buffers([], [], []))
    case("with_metadata", lambda: [s.put_from_with_metadata("wm", a, a + 200, 100, 16), s.get_size("wm")])
    case("with_metadata: metadata first", lambda: s.get("wm")[:16] == memory.raw[200:216])
    case("with_metadata: none", lambda: [s.put_from_with_metadata("wm0", a, a, 100, 0), s.get_size("wm0")])
    ranges(s, memory, out, a, o)
    case("unregister", lambda: s.unregister_buffer(a))
    s.unregister_buffer(o)


def ranges(s, memory, out, a, o):
    case("ranges", lambda: s.get_into_ranges([o], [["f", "missing"]], [[[0, 50], [0]]], [[[10, 1000], [0]]],
                                             [[[20, 30], [5]]]))
    case("ranges: bytes", lambda: out.raw[:20] == memory.raw[10:30] and out.raw[50:80] == memory.raw[1000:1030])
    case("ranges: beyond", lambda: s.get_into_ranges([o], [["f"]], [[[0]]], [[[99990]]], [[[20]]]))
    case("ranges: nothing", lambda: s.get_into_ranges([o], [["f"]], [[[0]]], [[[0]]], [[[0]]]))
    case("ranges: shape", lambda: s.get_into_ranges([o], [["f"]], [[[0]]], [[[0, 1]]], [[[0]]]))


def replicas(s):
    s.put("rep", b"x" * 100)
    case("replicas", lambda: [len(s.get_replica_desc("rep")), s.get_replica_desc("missing"),
                              sorted(s.batch_get_replica_desc(["rep", "missing"]))])
    d = s.get_replica_desc("rep")[0]
    case("replica: kind", lambda: [d.is_memory_replica(), d.is_disk_replica(), d.is_local_disk_replica()])
    case("replica: status", lambda: d.status.name)
    case("replica: memory", lambda: [d.get_memory_descriptor().buffer_descriptor.size,
                                     d.get_memory_descriptor().buffer_descriptor.buffer_address > 0,
                                     ":" in d.get_memory_descriptor().buffer_descriptor.transport_endpoint])
    case("replica: disk", d.get_disk_descriptor)
    case("replica: keeps the object", lambda: s.remove("rep"))


def sessions(s):
    memory = ctypes.create_string_buffer(bytes(range(256)) * 4)
    a = ctypes.addressof(memory)
    s.register_buffer(a, 1024)
    s.put("old", b"x")
    case("put session: start", lambda: s.batch_put_session_start(["s1", "s2", "old", "s1", "z", ""],
                                                                 [100, 50, 10, 5, 0, 4]))
    case("put session: start none", lambda: s.batch_put_session_start([], []))
    case("put session: start lengths", lambda: s.batch_put_session_start(["q"], [1, 2]))
    case("put session: before its end", lambda: [s.is_exist("s1"), s.get("s1").decode()])
    case("put session: get_size before its end", lambda: s.get_size("s1"))
    case("put session: remove before its end", lambda: [s.remove("s1"), s.remove("s1", True)])
    put = s.batch_put_from_multi_buffer_ranges
    case("put session: write", lambda: put(["s1", "s2", "nope"], [[a, a + 50], [a], [a]], [[50, 50], [50], [10]],
                                           [[0, 50], [0], [0]]))
    case("put session: beyond", lambda: put(["s1"], [[a]], [[50]], [[60]]))
    case("put session: nothing", lambda: put(["s1"], [[a]], [[0]], [[0]]))
    case("put session: inner lengths", lambda: put(["s1"], [[a]], [[1, 2]], [[0]]))
    case("put session: lengths", lambda: put(["s1"], [[a], [a]], [[1]], [[0]]))
    case("put session: none", lambda: put([], [], [], []))
    case("put session: end", lambda: s.batch_put_session_end(["s1", "nope", "old"]))
    case("put session: value", lambda: s.get("s1") == memory.raw[:100])
    case("put session: end again", lambda: s.batch_put_session_end(["s1"]))
    case("put session: revoke", lambda: s.batch_put_session_revoke(["s2", "nope"]) + [s.is_exist("s2")])
    case("put session: end unwritten", lambda: [s.batch_put_session_start(["un"], [10]), s.batch_put_session_end(["un"]),
                                                s.is_exist("un")])
    get = s.batch_get_into_multi_buffer_ranges
    case("get session: start", lambda: s.batch_get_session_start(["s1", "nope", ""]))
    case("get session: read", lambda: get(["s1", "nope"], [[a, a + 10], [a]], [[10, 5], [1]], [[20, 0], [0]]))
    case("get session: bytes", lambda: memory.raw[:15] == bytes(range(20, 30)) + bytes(range(5)))
    case("get session: beyond", lambda: get(["s1"], [[a]], [[10]], [[95]]))
    case("get session: nothing", lambda: get(["s1"], [[a]], [[0]], [[0]]))
    case("get session: lengths", lambda: get(["s1"], [[a, a]], [[1]], [[0]]))
    case("get session: end", lambda: s.batch_get_session_end(["s1", "nope"]))
    case("get session: ended", lambda: get(["s1"], [[a]], [[10]], [[0]]))
    s.unregister_buffer(a)


def handles(s):
    h = s.get_buffer("f")
    view = memoryview(h)
    case("handle: sizes", lambda: [h.size(), len(h), view.nbytes, view.itemsize])
    case("handle: view", lambda: [view.format, view.readonly, view.ndim, view.c_contiguous])
    case("handle: ptr", lambda: ctypes.string_at(h.ptr(), 3) == bytes(view[:3]))
    case("handle: own copy", lambda: s.get_buffer("f").ptr() != h.ptr())
    case("handle: batch", lambda: [x if x is None else len(x) for x in s.batch_get_buffer(["f", "missing", "a"])])
    case("handle: after remove", lambda: [s.remove("f", True), bytes(view[:3]) == b"\0\1\2"])


def names(s):
    s.put_batch(["n1", "n2", "n3"], [b"1", b"2", b"3"])
    case("remove: right after put", lambda: s.remove("n1"))
    case("remove: again", lambda: s.remove("n1"))
    s.is_exist("n2")
    s.get("n3")
    case("remove: after exist", lambda: s.remove("n2"))
    case("remove: after get", lambda: s.remove("n3"))
    case("batch_remove", lambda: s.batch_remove(["n2", "missing", ""]))
    case("batch_remove: force", lambda: s.batch_remove(["n2", "missing", ""], True))
    case("remove: force", lambda: s.remove("n3", force=True))
    case("regex: bad", lambda: s.remove_by_regex("["))
    s.put_batch(["rx-1", "rx-2", "other-rx"], [b"1", b"2", b"3"])
    case("regex", lambda: s.remove_by_regex("^rx-"))
    case("regex: search", lambda: s.remove_by_regex("rx$", force=True))
    case("upsert: new", lambda: s.upsert("up", b"one"))
    case("upsert: other size", lambda: [s.upsert("up", b"three"), s.get("up").decode()])
    case("upsert: resets the lease", lambda: [s.upsert("up", b"4"), s.remove("up")])
    s.put("kept", b"x")
    s.get("kept")
    case("remove_all: leased stay", lambda: [s.remove_all() > 0, s.is_exist("kept")])
    case("remove_all: force", lambda: [s.remove_all(True) > 0, s.is_exist("kept")])
    case("remove_all: none", s.remove_all)


def configs(s):
    case("config: text", lambda: str(ms.ReplicateConfig()))
    case("config: class has group_ids", lambda: hasattr(ms.ReplicateConfig, "group_ids"))
    case("config: group_ids", lambda: [ms.ReplicateConfig().group_ids, config(group_ids=("a",)).group_ids])
    for field, value in (("replica_num", None), ("replica_num", -1), ("replica_num", "x"), ("replica_num", 1.5),
                         ("group_ids", "x"), ("group_ids", [1]), ("preferred_segments", None), ("preferred_segment", 5),
                         ("soft_pin_ttl_ms", -1), ("soft_pin_ttl_ms", 2 ** 70), ("data_type", 2), ("soft_pin_action", 1),
                         ("bogus", 1)):
        case(f"config: {field} = {value!r}", lambda: config(**{field: value}) and "taken")
    case("config: preferred", lambda: [config(preferred_segment="a").preferred_segments,
                                       config(preferred_segments=["b"]).preferred_segment])
    case("config: replicas 0", lambda: s.put("c0", b"x", config(replica_num=0)))
    case("config: two replicas, one segment", lambda: s.put("c2", b"x", config(replica_num=2)))
    case("config: unknown segment", lambda: s.put("cs", b"x", config(preferred_segment="10.9.8.7:1")))
    case("config: hard pin", lambda: s.put("ch", b"x", config(with_hard_pin=True)))
    case("config: soft pin", lambda: s.put("cp", b"x", config(soft_pin_action=ms.SoftPinAction.ENABLE)))
    case("config: soft pin 0 ms", lambda: s.put("cp0", b"x", config(soft_pin_action=ms.SoftPinAction.ENABLE,
                                                                    soft_pin_ttl_ms=0)))
    case("config: preserve with a time", lambda: s.put("cpt", b"x", config(soft_pin_ttl_ms=5)))
    case("config: groups", lambda: s.put("cg", b"x", config(group_ids=["g"])))
    case("config: groups of another length", lambda: s.put("cg2", b"x", config(group_ids=["g", "h"])))
    case("enum", lambda: [int(ms.TENSOR), ms.TENSOR == 2, ms.TENSOR is ms.ObjectDataType.TENSOR or
                          ms.TENSOR == ms.ObjectDataType.TENSOR, ms.COMPLETE.name, int(ms.TaskStatus.SUCCESS)])
    s.remove_all(True)


def put_and_get(s, key, value):
    """A put that fails makes the master evict, possibly the object of the next put: so try several times."""
    for _ in range(20):
        got = [s.put(key, value), s.get(key)[-1:] == value[-1:]]
        if got[1]:
            break
    return got


def full(s):
    big = b"x" * (1 << 20)
    memory = ctypes.create_string_buffer(65 << 20)
    case("full: larger than the segment", lambda: s.put_from("huge", ctypes.addressof(memory), len(memory)))
    case("full: one MiB", lambda: put_and_get(s, "mib", big))


def main():
    s = life(sys.argv[1])
    values(s)
    buffers(s)
    handles(s)
    sessions(s)
    replicas(s)
    names(s)
    configs(s)
    full(s)
    case("close", s.close)
    case("close: again", s.close)
    case("closed: health", s.health_check)
    case("closed: get", lambda: s.get("a"))
    json.dump(results, sys.stdout, indent=1, sort_keys=True, ensure_ascii=True)
    print()


main()
