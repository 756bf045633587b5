# SPDX-License-Identifier: Apache-2.0
"""Every method of the store and the engine with arbitrary arguments, in random combinations.

abuse.py MASTER SEED CALLS: Python exceptions and numbers are fine; a crash, a hang, SystemError, or
a store that no longer works are failures.  After a failure, the calls are on stderr."""

import array
import ast
import ctypes
import faulthandler
import gc
import logging
import math
import mmap
import os
import random
import signal
import sys
import threading
import time

import mooncake.engine as me
import mooncake.store as ms

MASTER, SEED, CALLS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ARENA = 4 << 20
# Nothing else is mapped there, not even by AddressSanitizer: an access beyond the end hits a hole.
ARENA_AT = 1 << 45
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
FIXED = 0x100000		# MAP_FIXED_NOREPLACE

rng = random.Random(SEED)
faulthandler.enable()
logging.disable(logging.CRITICAL)


def arena(at, writable):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    got = libc.mmap(at, ARENA, 3 if writable else 1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | FIXED, -1, 0)
    assert got == at, (hex(at), ctypes.get_errno())
    return at


MEMORY, READ_ONLY = arena(ARENA_AT, True), arena(ARENA_AT + (1 << 36), False)


class Raises:
    """An object on which every operation raises."""

    def __init__(self, error):
        self.error = error

    def fail(self, *args):
        raise self.error

    __index__ = __int__ = __len__ = __iter__ = __getitem__ = __bool__ = __str__ = __fspath__ = fail


class Shrinks(list):
    """A sequence that is shorter the second time."""

    def __getitem__(self, i):
        value = super().__getitem__(i)
        self.clear()
        return value


def cycle():
    c = []
    c.append(c)
    return c


def key():
    return rng.choice(["", "k", "k1", "k2", "a\0b", "ä✓", "\ud800", b"\xff", b"", "k" * 4096, "k" * 4097, "x/y", ".", "t", "s",
                       bytearray(b"ba"), f"r{rng.randrange(50)}"])


def number():
    return rng.choice([0, 1, -1, 3, 7, 64, 4095, 4096, 4097, 65536, ARENA, ARENA + 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 53,
                       2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1, 2 ** 64, -2 ** 63, True, rng.randrange(100000)])


def size():
    return rng.choice([0, 1, 3, 64, 304, 400, 4096, 65536, 100000, 1 << 20, ARENA, number()])


def pointer():
    """AddressSanitizer reserves addresses that belong to no object."""
    p = rng.choice([MEMORY, MEMORY, MEMORY + 1, MEMORY + 4096, MEMORY + rng.randrange(ARENA), MEMORY + ARENA - 1,
                       MEMORY + ARENA, MEMORY - 1, READ_ONLY, READ_ONLY + ARENA - 8, 0, 1, 4096, 2 ** 47, 2 ** 64 - 1, number()])
    return 4096 if SANITIZED and 0x7fff8000 <= p < 0x10007fff8000 else p


def value():
    return rng.choice([b"", b"x", b"value" * 100, bytearray(5000), memoryview(b"ro"), memoryview(bytes(100))[::3],
                       array.array("d", [1, math.nan]), memoryview(bytes(24)).cast("B", [2, 3, 4]), os.urandom(70000),
                       memoryview(b"abcd").cast("c"), mmap.mmap(-1, 4096)])


def config():
    c = ms.ReplicateConfig()
    for _ in range(rng.randrange(3)):
        name = rng.choice(["replica_num", "with_hard_pin", "preferred_segments", "preferred_segment", "group_ids", "data_type",
                           "soft_pin_action", "soft_pin_ttl_ms", "prefer_alloc_in_same_node"])
        try:
            setattr(c, name, rng.choice([number(), True, ["a", "b"], "10.0.0.1:5", ms.TENSOR, ms.SoftPinAction.ENABLE, None, key()]))
        except (TypeError, ValueError, OverflowError):
            pass
    return c


def junk():
    return rng.choice([None, 1.5, math.nan, "text", b"bytes", (), {}, {"a": 1}, object(), Raises(KeyError("mine")),
                       Raises(ZeroDivisionError()), Shrinks([1, 2, 3]), cycle(), range(3), iter([1]), print, ms, {1, 2}, ["x", 5],
                       [None], [[[]]], 10 ** 400, -1, 2 ** 64, complex(1, 1), type, memoryview(b"x"), config(), ms.TENSOR,
                       lambda *a: 1 / 0])


def many(one):
    return [one() for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3, 7]))]


def parallelism():
    p = ms.TensorParallelism()
    p.axes = []
    for kind in rng.sample(["dp", "tp", "ep", "pp", "xx"], rng.randrange(1, 4)):
        a = ms.ParallelAxis()
        a.kind, a.rank, a.size = kind, rng.choice([0, 1, -1, "0"]), rng.choice([1, 2, 3, 10 ** 30])
        a.split_dim = rng.choice([None, 0, 1]) if kind == "tp" else None
        p.axes.append(a)
    return rng.choice([p, p, p, p.axes[0], None])


def target():
    t = ms.ReadTarget()
    t.mode = rng.choice(["as_stored", "shard", "full"])
    t.parallelism = parallelism()
    return t


# Generators of arguments, by parameter name.
KINDS = {
    "key": key, "keys": lambda: many(key), "base_keys": lambda: many(key), "all_keys": lambda: [many(key) for _ in range(2)],
    "buffer_ptr": pointer, "metadata_buffer_ptr": pointer, "buffer_ptrs": lambda: many(pointer), "size": size, "metadata_size": size,
    "sizes": lambda: many(size), "all_buffer_ptrs": lambda: [many(pointer) for _ in range(rng.randrange(3))],
    "all_sizes": lambda: [many(size) for _ in range(rng.randrange(3))],
    "all_src_offsets": lambda: [[many(size)] for _ in range(2)], "all_dst_offsets": lambda: [many(size) for _ in range(2)],
    "value": value, "values": lambda: many(value), "parts": value, "config": config, "tensor": value, "tensors_list": lambda: many(value),
    "force": lambda: rng.choice([True, False, number()]), "regex_pattern": lambda: rng.choice(["", ".", "[", "(a+)+$", "k", "\0", "ä"]),
    "buffers": lambda: many(pointer), "peer_buffer_addresses": lambda: many(pointer), "lengths": lambda: many(size),
    "buffer": pointer, "peer_buffer_address": pointer, "length": size, "buffer_addr": pointer, "capacity": size,
    "buffer_addresses": lambda: many(pointer), "capacities": lambda: many(size), "dest_address": pointer, "source_address": pointer,
    "src_ptr": value, "opcode": lambda: rng.choice([me.Read, me.Write, 0, 1, 7]), "batch_ids": lambda: many(number),
    "target_hostname": lambda: rng.choice([PEER, PEER, "", "127.0.0.1:1", "nobody", "a\0b"]), "batch_id": number,
    "segment_ids": lambda: rng.choice([[], ["x"], "x", [5]]), "path": lambda: rng.choice(["", "/nowhere", "/dev/null", "a\0b", "/dev/shm"]),
    "file_name": lambda: rng.choice(["/nowhere/x", "/dev/null", "", "a\0b", "/dev/shm"]), "segment_name": lambda: rng.choice([PEER, "", "x"]),
    "tp_rank": lambda: rng.choice([0, 1, 2, -1]), "tp_size": lambda: rng.choice([1, 2, 3, 0, -1, 10 ** 6]),
    "split_dim": lambda: rng.choice([0, 1, 5, -1]), "targets": lambda: rng.choice([many(key), many(target), many(lambda: PEER)]),
    "parallelism": parallelism, "parallelisms": lambda: many(parallelism), "writer_partition": parallelism,
    "writer_partitions": lambda: many(parallelism), "target": lambda: rng.choice([target(), None, PEER]),
}
# Left out: they end the store, start another one, wait for ever, or would use all memory of this machine.
LEFT_OUT = {"close", "setup", "setup_dummy", "init_all", "initialize", "initialize_ext", "allocate_and_mount_segment",
            "alloc_from_mem_pool", "allocate_managed_buffer", "start_server", "begin"}


def methods(module, kind):
    """Return name -> parameters, from the .pyi."""
    with open(module.__file__ + "i", encoding="utf-8") as f:
        tree = ast.parse(f.read())
    found = {}
    for node in (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind):
        for f in (n for n in node.body if isinstance(n, ast.FunctionDef)):
            if not f.name.startswith("_") and f.name not in LEFT_OUT:
                found[f.name] = [a.arg for a in f.args.args + f.args.kwonlyargs if a.arg != "self"] + (
                    [f.args.vararg.arg] if f.args.vararg else [])
    assert found
    return found


def arguments(names):
    args = [junk() if rng.random() < 0.15 else KINDS.get(n, junk)() for n in names]
    r = rng.random()
    if r < 0.05 and args:
        args.pop()
    elif r < 0.1:
        args.append(junk())
    if r > 0.9 and args:
        at = rng.randrange(len(args))
        return args[:at], {n: v for n, v in zip(names[at:], args[at:])}
    return args, {}


LAST = [""]
TRACE = open(os.environ["MC_TRACE"], "w", encoding="utf-8", errors="replace") if "MC_TRACE" in os.environ else None


def call(obj, name, args, kwargs):
    f = getattr(obj, name)
    LAST[0] = f"{name} {args!r:.600} {kwargs!r:.300}" if not any(isinstance(a, Raises) for a in args) else name
    if TRACE:
        print(LAST[0], file=TRACE, flush=True)
    began = time.monotonic()
    try:
        f(*args, **kwargs)
    except SystemError as e:
        sys.exit(f"SystemError: {e}: {LAST[0]}")
    except Exception:
        pass
    if time.monotonic() - began > 60:
        sys.exit(f"{time.monotonic() - began:.0f} s: {LAST[0]}")


def opened():
    s = ms.MooncakeDistributedStore()
    assert s.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", MASTER) == 0
    return s


def works(s, n):
    name = f"works-{n}"
    assert s.upsert(name, name.encode()) == 0 and s.get(name) == name.encode(), LAST[0]
    assert s.remove(name, True) == 0


def configs_and_setups(s):
    """setup() with random arguments: an exception or a number at once, and the object is unchanged."""
    t = ms.MooncakeDistributedStore()
    for _ in range(60):
        args = ["127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", MASTER]
        for _ in range(rng.randrange(1, 3)):
            args[rng.randrange(6)] = rng.choice([junk(), "", "a\0b", "ä", number()])
        if isinstance(args[2], int) and args[2] > 1 << 26:
            args[2] = -args[2]
        call(t, "setup", args, {})
        call(t, "setup", [{rng.choice(["local_hostname", "protocol", "global_segment_size", "x", 5]): junk()}], {})
        t.close()
    call(t, "setup_dummy", [junk(), junk(), junk()], {})
    works(s, "setups")


def a_million(s):
    keys = [f"million-{i}" for i in range(10 ** 6)]
    n = len(keys)
    assert len(s.batch_put_from(keys, [MEMORY] * n, [1] * n)) == n
    assert len(s.batch_get_into(keys, [MEMORY] * n, [64] * n)) == n
    assert len(s.batch_remove(keys, True)) == n
    assert s.batch_put_from(keys, [MEMORY] * n, [1]) == [-600] * n
    works(s, "million")


def forked(s, store_methods):
    """Call each method in a child of the process that opened the store."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(120)
        for name, names in store_methods.items():
            call(s, name, [KINDS.get(n, lambda: 0)() for n in names], {})
        s.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, "a forked child"
    works(s, "forked")


def interrupted(s):
    """Signals during calls: the handler's exception is raised, and no call is lost."""
    class Mine(Exception):
        pass

    def handler(*_):
        raise Mine

    old = signal.signal(signal.SIGALRM, handler)
    seen = 0
    for i in range(200):
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.choice([0.0001, 0.0005, 0.002]))
            while True:
                s.upsert(f"i{i % 5}", b"x" * 50000)
                s.batch_get_into([f"i{i % 5}"] * 10, [MEMORY] * 10, [50000] * 10)
        except Mine:
            seen += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)
    assert seen == 200
    works(s, "interrupted")


def in_threads(s, store_methods):
    """Random calls from four threads, while one of their stores is closed."""
    t = opened()
    stop = threading.Event()

    def work():
        while not stop.is_set():
            name = rng.choice(list(store_methods))
            call(rng.choice([s, t]), name, *arguments(store_methods[name]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for x in threads:
        x.start()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        works(s, "threads") if not threads else time.sleep(0.05)
    t.close()
    stop.set()
    for x in threads:
        x.join(120)
        assert not x.is_alive(), "a thread hangs"
    works(s, "threads")


def main():
    global PEER
    PEER = ""
    s = opened()
    e, peer = me.TransferEngine(), me.TransferEngine()
    assert e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0 and peer.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    PEER = f"127.0.0.1:{peer.get_rpc_port()}"
    room = ctypes.create_string_buffer(ARENA)
    assert peer.register_memory(ctypes.addressof(room), ARENA) == 0
    store_methods, engine_methods = methods(ms, "MooncakeDistributedStore"), methods(me, "TransferEngine")
    for k in ("k", "k1", "k2"):
        s.put(k, os.urandom(5000))
    s.put_tensor("t", array.array("f", range(100)))
    for i in range(CALLS):
        if rng.random() < 0.8:
            name = rng.choice(list(store_methods))
            call(s, name, *arguments(store_methods[name]))
        else:
            name = rng.choice(list(engine_methods))
            call(e, name, *arguments(engine_methods[name]))
        if i % 500 == 0:
            works(s, i)
            gc.collect()
    configs_and_setups(s)
    interrupted(s)
    forked(s, store_methods)
    in_threads(s, store_methods)
    if "--million" in sys.argv:
        a_million(s)
    print(f"ok {CALLS} calls of {len(store_methods)} + {len(engine_methods)} methods, seed {SEED}")
    # the interpreter exits with all objects alive


main()
