# SPDX-License-Identifier: Apache-2.0
"""A store with wrong input, threads, forks, signals, and at the interpreter's exit.

behaviour.py MASTER MASTER_PID"""

import array
import asyncio
import copy
import ctypes
import enum
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import mooncake
import mooncake.store as ms
from mooncake.async_store import MooncakeDistributedStoreAsync

MASTER, MASTER_PID = sys.argv[1], int(sys.argv[2])
MIB = 1 << 20


def opened(segment=64 * MIB, **more):
    s = ms.MooncakeDistributedStore()
    args = dict(local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE", global_segment_size=segment,
                local_buffer_size=0, protocol="tcp", rdma_devices="", master_server_addr=MASTER)
    assert s.setup(**{**args, **more}) == 0
    return s


class Memory:
    """Memory with a known address."""

    def __init__(self, data):
        self.raw = ctypes.create_string_buffer(bytes(data), len(data))
        self.ptr = ctypes.addressof(self.raw)


class WithStore(unittest.TestCase):
    def setUp(self):
        self.s = opened()

    def tearDown(self):
        self.s.close()


class WrongInput(WithStore):
    def test_types(self):
        s, m = self.s, Memory(b"x" * 100)
        for call in (
            lambda: s.put(), lambda: s.put("k"), lambda: s.put(None, b"x"), lambda: s.put(["k"], b"x"),
            lambda: s.put("k", "text"), lambda: s.put("k", None), lambda: s.put("k", b"x", 5),
            lambda: s.put("k", b"x", None), lambda: s.put("k", b"x", nope=1), lambda: s.put("k", b"x", key="k"),
            lambda: s.put("k", b"x", ms.ReplicateConfig(), 1), lambda: s.put_from("k", "p", 1),
            lambda: s.put_from("k", m.ptr, -1), lambda: s.put_from("k", m.ptr, 2 ** 64), lambda: s.put_from("k", 1.5, 1),
            lambda: s.get(7), lambda: s.get_into("k", None, 1), lambda: s.batch_is_exist(None),
            lambda: s.batch_is_exist("abc"), lambda: s.batch_is_exist([1]), lambda: s.batch_is_exist({"a"}),
            lambda: s.batch_put_from(["a"], m.ptr, [1]), lambda: s.batch_put_from(["a"], ["x"], [1]),
            lambda: s.batch_put_from_multi_buffers(["a"], [m.ptr], [[1]]), lambda: s.put_parts(),
            lambda: s.put_parts("k", 5), lambda: s.put_batch(["a"], [5]), lambda: s.register_buffer("x", 1),
            lambda: s.remove(), lambda: s.remove_by_regex(5), lambda: ms.ReplicateConfig(nope=1),
            lambda: ms.ReplicateConfig(1), lambda: ms.BufferHandle(), lambda: s.get_buffer(b"k", b"k"),
        ):
            with self.assertRaises(TypeError):
                call()
        self.assertEqual(s.batch_is_exist(["k", "a"]), [0, 0])

    def test_setup_names_the_argument(self):
        args = ["127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", MASTER]
        s = ms.MooncakeDistributedStore()
        with self.assertRaisesRegex(TypeError, "bogus"):
            s.setup(*args, ssd_offload_path="x", bogus=1)
        with self.assertRaisesRegex(TypeError, "master_server_addr"):
            s.setup(*args[:6])
        with self.assertLogs("mooncake.store", "WARNING") as log:
            self.assertEqual(s.setup({"local_hostname": "127.0.0.1", "metadata_server": "", "protocl": "tcp",
                                      "master_server_address": MASTER}), 0)
        self.assertIn('did you mean "protocol"', "".join(log.output))
        s.close()

    def test_setup_says_why(self):
        s = ms.MooncakeDistributedStore()
        for change, why in (({"master_server_addr": ""}, "empty"), ({"master_server_addr": "http://x"}, "http://x"),
                            ({"protocol": "bogus"}, "bogus"), ({"metadata_server": "ftp://x"}, "ftp"),
                            ({"local_hostname": None}, "local_hostname"), ({"global_segment_size": 4096}, "MiB"),
                            ({"protocol": "rpc_only", "global_segment_size": MIB}, "rpc_only"),
                            ({"master_server_addr": "127.0.0.1:99999"}, "99999")):
            args = dict(local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE", global_segment_size=0,
                        local_buffer_size=0, protocol="tcp", rdma_devices=None, master_server_addr=MASTER)
            with self.assertLogs("mooncake.store", "ERROR") as log:
                self.assertEqual(s.setup(**{**args, **change}), -600, change)
            self.assertIn(why, "".join(log.output))
        began = time.monotonic()
        with self.assertLogs("mooncake.store", "ERROR") as log:
            self.assertEqual(s.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1"), -1)
        self.assertLess(time.monotonic() - began, 8)
        self.assertIn("127.0.0.1:1: connection refused", "".join(log.output))
        self.assertEqual(s.health_check(), 1)

    def test_two_protocols(self):
        """Clients of one pool that request different protocols: RDMA on a machine without such a
        NIC uses tcp, a client that requests an unavailable protocol gets a warning, and all read each other's objects, from unregistered
        memory."""
        with self.assertLogs("mooncake.store", "WARNING") as log:
            other = opened(protocol="rdma", rdma_devices="mlx5_0")
            self.assertEqual(opened(segment=0, protocol="efa").close(), 0)
            more = other.allocate_and_mount_segment(16 * MIB, "cxl")
            self.assertEqual((more["ret"], other.unmount_and_free_segment(more["segment_ids"])), (0, 0))
        said = "".join(log.output)
        for name in ("efa", "cxl"):
            self.assertEqual(said.count(f'protocol "{name}" is not available, continuing with tcp'), 1, said)
        with self.assertLogs("mooncake.store", "ERROR") as log:
            self.assertEqual(other.allocate_and_mount_segment(16 * MIB, "rmda")["ret"], -1)
            self.assertEqual(other.mount_segment("/dev/shm/none", 16 * MIB, 0, "rmda")["ret"], -600)
        self.assertEqual("".join(log.output).count('did you mean "rdma"'), 2)
        none = opened(segment=0, protocol="rpc_only")
        stores = (self.s, other, none)
        for i, writer in enumerate(stores):
            data = os.urandom(300000)
            m = Memory(data)
            self.assertEqual(writer.put_from(f"p{i}", m.ptr, len(data)), 0)
            for reader in stores:
                to = Memory(bytes(len(data)))
                self.assertEqual(reader.get_into(f"p{i}", to.ptr, len(data)), len(data))
                self.assertEqual(to.raw.raw, data)
        other.close()
        none.close()

    def test_masters_that_are_none(self):
        """Within 5 s, plus the delay of a slow machine: an error with host, port and cause."""
        silent = socket.socket()
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        closed = socket.socket()
        closed.bind(("127.0.0.1", 0))
        http = socket.socket()
        http.bind(("127.0.0.1", 0))
        http.listen(8)

        def answer():
            c, _ = http.accept()
            c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
            c.close()

        threading.Thread(target=answer, daemon=True).start()
        for address in (f"127.0.0.1:{silent.getsockname()[1]}", f"127.0.0.1:{closed.getsockname()[1]}",
                        f"127.0.0.1:{http.getsockname()[1]}", "no-such-host.invalid:50051"):
            s = ms.MooncakeDistributedStore()
            began = time.monotonic()
            with self.assertLogs("mooncake.store", "ERROR") as log:
                self.assertLess(s.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", address), 0)
            took = time.monotonic() - began
            text = "".join(log.output)
            self.assertIn(address.rpartition(":")[0], text)
            self.assertIn(address.rpartition(":")[2], text)
            self.assertGreater(len(text.partition(address)[2]), 5, text)
            self.assertLess(took, 9, text)
        for listener in (silent, closed, http):
            listener.close()

    def test_before_setup_and_after_close(self):
        new, closed, m = ms.MooncakeDistributedStore(), opened(), Memory(b"x" * 10)
        closed.close()
        for s in (new, closed):
            for call in (lambda: s.put("k", b"x"), lambda: s.put_parts("k", b"x"), lambda: s.put_batch(["k"], [b"x"]),
                         lambda: s.put_from("k", m.ptr, 1), lambda: s.upsert("k", b"x"), lambda: s.get_into("k", m.ptr, 1),
                         lambda: s.is_exist("k"), lambda: s.get_size("k"), lambda: s.remove("k"), lambda: s.remove_all(),
                         lambda: s.remove_by_regex("."), lambda: s.register_buffer(m.ptr, 1)):
                self.assertEqual(call(), -600)
            for call in (lambda: s.batch_put_from(["a", "b"], [m.ptr] * 2, [1, 1]), lambda: s.batch_is_exist(["a", "b"]),
                         lambda: s.batch_get_into(["a", "b"], [m.ptr] * 2, [1, 1]), lambda: s.batch_remove(["a", "b"]),
                         lambda: s.batch_put_from_multi_buffers(["a", "b"], [[m.ptr]] * 2, [[1]] * 2),
                         lambda: s.batch_get_into_multi_buffers(["a", "b"], [[m.ptr]] * 2, [[1]] * 2),
                         lambda: s.batch_put_session_start(["a", "b"], [1, 1]), lambda: s.batch_get_session_start(["a", "b"])):
                self.assertEqual(call(), [-600, -600])
            self.assertEqual((s.get("k"), s.get_batch(["a", "b"])), (b"", [b"", b""]))
            self.assertEqual((s.get_buffer("k"), s.batch_get_buffer(["a", "b"])), (None, [None, None]))
            self.assertEqual((s.get_hostname(), s.health_check(), s.close(), s.close()), ("", 1, 0, 0))

    def test_lengths_and_sizes(self):
        s, m = self.s, Memory(b"x" * 100)
        self.assertEqual(s.batch_put_from(["a", "b"], [m.ptr], [1, 1]), [-600, -600])
        self.assertEqual(s.batch_get_into(["a"], [m.ptr, m.ptr], [1]), [-600])
        self.assertEqual(s.batch_put_from_multi_buffers(["a", "b"], [[m.ptr]], [[1], [1]]), [-600, -600])
        self.assertEqual(s.batch_put_from_multi_buffers(["a", "b"], [[], [0]], [[], [5]]), [-600, -600])
        self.assertEqual(s.batch_put_from(["a", "b"], [0, m.ptr], [1, 0]), [-600, -600])
        self.assertEqual(s.put_from("a", 0, 5), -600)
        self.assertEqual(s.put_from("a", m.ptr, 1 << 62), -600)
        self.assertEqual(s.register_buffer(m.ptr, 2 ** 64 - 1), -600)
        self.assertEqual(s.batch_is_exist(["a", "b"]), [0, 0])

    def test_ranges_do_not_begin_before_the_memory(self):
        m = Memory(b"." * 100)
        self.assertEqual(self.s.put("r", bytes(range(10))), 0)
        for at, dst, src, size in (([m.ptr + 50], -1, 0, 10), ([m.ptr + 50], -50, 0, 1), ([-1], m.ptr + 51, 0, 10),
                                   ([m.ptr], 0, -1, 1), ([m.ptr], 0, 0, -1)):
            with self.assertRaises(TypeError):
                self.s.get_into_ranges(at, [["r", "r"]], [[[0], [dst]]], [[[0], [src]]], [[[10], [size]]])
            self.assertEqual(m.raw.raw, b"." * 100)
        self.assertEqual(self.s.get_into_ranges([m.ptr], [["r"]], [[[50]]], [[[0]]], [[[10]]]), [[[10]]])
        self.assertEqual(m.raw.raw[49:61], b"." + bytes(range(10)) + b".")

    def test_registrations_are_counted(self):
        s, m = self.s, Memory(bytes(8192))
        self.assertEqual([s.register_buffer(m.ptr, 8192), s.register_buffer(m.ptr, 8192), s.register_buffer(m.ptr, 4096)], [0] * 3)
        self.assertEqual([s.unregister_buffer(m.ptr) for _ in range(4)], [0, 0, 0, -600])

    def test_a_million_keys(self):
        keys = [f"key-{i}" for i in range(1000000)]
        self.s.put("key-999999", b"x")
        found = self.s.batch_is_exist(keys)
        self.assertEqual((len(found), sum(found), found[-1]), (1000000, 1, 1))

    def test_keys_are_bytes(self):
        keys = ["a", "a\0", "a\0b", "ä", b"\xff", "k" * 4096, "a/b", "a//b", " ", "\n"]
        self.assertEqual(self.s.put_batch(keys, [str(i).encode() for i in range(len(keys))]), 0)
        self.assertEqual(self.s.get_batch(keys), [str(i).encode() for i in range(len(keys))])
        with self.assertRaises(UnicodeEncodeError):
            self.s.put("\ud800", b"x")

    def test_a_nul_is_no_end(self):
        """A method that takes a text up to a NUL must refuse the NUL instead of using the part before it."""
        s = self.s
        keys = ["user1", "user2"]
        self.assertEqual(s.put_batch(keys, [b"1", b"2"]), 0)
        for pattern in ("\0x", "user\0a", "\0", "user1\0"):
            self.assertEqual(s.remove_by_regex(pattern, True), -600, pattern)
        self.assertEqual(s.batch_is_exist(keys), [1, 1])
        self.assertEqual((s.put("a\0b", b"x"), s.remove_by_regex("^a\\0b$", True)), (0, 1))
        args = dict(local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE", global_segment_size=0, local_buffer_size=0,
                    protocol="tcp", rdma_devices="", master_server_addr=MASTER)
        for name, value in (("tenant_id", "someone\0else"), ("local_hostname", "127.0.0.1\0x"), ("tenant_id", "\0")):
            with self.assertLogs("mooncake.store", "ERROR") as log:
                self.assertEqual(ms.MooncakeDistributedStore().setup(**{**args, name: value}), -600)
            self.assertIn("NUL", "".join(log.output))
        here = s.get_hostname()
        other = opened()
        self.assertEqual(other.create_copy_task("user1", [here + "\0x"]), ((0, 0), -600))
        self.assertEqual(other.create_move_task("user1", here, other.get_hostname() + "\0x"), ((0, 0), -600))
        # a segment of that name does not exist: the next name is used
        c = ms.ReplicateConfig(preferred_segment=here + "\0x", preferred_segments=[here + "\0", other.get_hostname()])
        self.assertEqual(s.put("preferred", b"x", c), 0)
        self.assertEqual([d.get_memory_descriptor().buffer_descriptor.transport_endpoint
                          for d in s.get_replica_desc("preferred")], [other.get_hostname()])
        other.close()

    def test_values_are_all_their_bytes(self):
        s = self.s
        self.assertEqual((s.put("i", array.array("i", [1, 2, 3])), len(s.get("i"))), (0, 12))
        self.assertEqual((s.put("s", memoryview(bytes(range(10)))[::3]), s.get("s")), (0, b"\0\3\6\t"))
        self.assertEqual((s.put("r", memoryview(b"abc")[::-1]), s.get("r")), (0, b"cba"))
        two = memoryview(bytes(range(6))).cast("B", (2, 3))
        self.assertEqual((s.put("2d", two), s.get("2d")), (0, bytes(range(6))))
        self.assertEqual((s.put_parts("p", two, array.array("h", [1])), s.get("p")), (0, bytes(range(6)) + b"\1\0"))

    def test_an_index_that_raises(self):
        class Bad:
            def __index__(self):
                raise KeyError("mine")

        class Shrinks:
            def __index__(self):
                lists[0].clear()
                return 4096

        with self.assertRaises(TypeError):
            self.s.put_from("k", Bad(), 1)
        lists = [[Shrinks(), 1, 2]]
        self.assertEqual(self.s.batch_put_from_multi_buffers(["k"], lists, [[0, 0, 0]]), [-600])


class Handles(WithStore):
    def test_memory_outlives_everything(self):
        self.s.put("h", b"0123456789")
        view = memoryview(self.s.get_buffer("h"))
        views = [memoryview(h) for h in self.s.batch_get_buffer(["h"] * 50)]
        self.s.remove("h", True)
        self.s.close()
        gc.collect()
        self.assertEqual(bytes(view), b"0123456789")
        view[0] = ord("x")
        self.assertTrue(all(bytes(v) == b"0123456789" for v in views))

    def test_engines_config(self):
        c = ms.ReplicateConfig(replica_num=2, with_hard_pin=True)
        self.assertEqual((c.replica_num, c.with_hard_pin, c.with_soft_pin), (2, True, False))
        c.with_soft_pin = True
        self.assertEqual(c.soft_pin_action, ms.SoftPinAction.ENABLE)
        c.group_ids = ["g1", "g2"]
        m = Memory(b"x" * 10)
        self.assertEqual(self.s.batch_put_from(["a", "b"], [m.ptr] * 2, [10, 10], c), [0, 0])
        self.assertEqual(self.s.batch_put_from(["c"], [m.ptr], [10], c), [-600])
        c.group_ids = ["g3"]
        self.assertEqual(self.s.batch_put_from(["c"], [m.ptr], [10], c), [0])

    def test_buffer_pool(self):
        with self.assertRaisesRegex(RuntimeError, "not initialized"):
            mooncake.BufferPool(ms.MooncakeDistributedStore())
        pool = mooncake.BufferPool(self.s, max_regions=1, default_timeout=0.05)
        with pool.acquire(1000) as lease:
            lease.buffer[:5] = b"hello"
            self.assertEqual(lease.size, 1000)
            self.assertEqual(self.s.put_from("bp", lease.ptr, 5), 0)
            with self.assertRaisesRegex(RuntimeError, "timed out"):
                pool.acquire(MIB)
            with self.assertRaises(RuntimeError):
                pool.acquire(MIB, block=False)
            with self.assertRaisesRegex(RuntimeError, "active leases"):
                pool.close()
        self.assertEqual(self.s.get("bp"), b"hello")
        with self.assertRaisesRegex(RuntimeError, "lease is closed"):
            lease.ptr
        waiting = pool.acquire(MIB)
        threading.Timer(0.05, waiting.release).start()
        pool.acquire(MIB, timeout=20).release()
        pool.close()
        with self.assertRaisesRegex(RuntimeError, "pool is closed"):
            pool.acquire(1)

    def test_a_pool_lends_nothing_twice(self):
        """Memory that a view still shows stays lent, even after its lease has ended."""
        pool = mooncake.BufferPool(self.s, max_bytes=MIB, block_on_exhaustion=False)
        first, second = pool.acquire(65536).buffer, pool.acquire(65536).buffer
        first[:4], second[:4] = b"1111", b"2222"
        self.assertEqual(bytes(first[:4]), b"1111")
        lease = pool.acquire(1000)
        third, address = lease.buffer, lease.ptr
        part = third[10:20]
        third.release()
        with self.assertRaisesRegex(RuntimeError, "views"):
            lease.release()
        self.assertEqual((lease.ptr, len(lease.buffer)), (address, 1000))
        part.release()
        lease.release()
        lease.release()
        with pool.acquire(1000) as again:
            self.assertEqual(again.ptr, address)
        # a view that survives the with block is an error, but does not replace the block's own exception
        with self.assertRaisesRegex(RuntimeError, "views"):
            with pool.acquire(1000) as lease:
                left = lease.buffer
        with self.assertRaisesRegex(KeyError, "mine"):
            with pool.acquire(1000) as lease:
                more = lease.buffer
                raise KeyError("mine")
        del lease
        gc.collect()
        with pool.acquire(1000) as other:
            other.buffer[:4] = b"3333"
        self.assertEqual((bytes(left[:4]), bytes(more[:4])), (bytes(4), bytes(4)))
        with self.assertRaisesRegex(RuntimeError, "active leases"):
            pool.close()
        del first, second, left, more
        gc.collect()
        pool.close()

    def test_a_config_is_copied(self):
        class Mine(ms.ReplicateConfig):
            pass

        values = dict(replica_num=2, nof_replica_num=3, dfs_replica_num=4, soft_pin_action=ms.SoftPinAction.ENABLE, soft_pin_ttl_ms=5,
                      with_hard_pin=True, preferred_segment="a:1", preferred_segments=["b:2"], preferred_nof_segments=["c:3"],
                      prefer_alloc_in_same_node=True, data_type=ms.TENSOR, group_ids=["g"])
        c = Mine(**values)
        c.note = "mine"
        for made in (copy.copy(c), copy.copy(copy.copy(c))):
            self.assertEqual({name: getattr(made, name) for name in values}, values)
            self.assertEqual((type(made), made.note), (Mine, "mine"))
        made.group_ids, made.replica_num = None, 1
        self.assertEqual((c.group_ids, c.replica_num, copy.copy(ms.ReplicateConfig()).group_ids), (["g"], 2, None))

    def test_replicas_in_absent_tiers_are_refused(self):
        """Upstream's codes, of every call that stores, and nothing is stored."""
        s, m = self.s, Memory(b"x" * 100)
        for change, code in (({"nof_replica_num": 1000}, -600), ({"dfs_replica_num": 1}, -1601), ({"dfs_replica_num": 2}, -600),
                             ({"nof_replica_num": 1, "dfs_replica_num": 1}, -1601)):
            c = ms.ReplicateConfig(**change)
            calls = {"put": lambda: s.put("t", b"x", c), "upsert": lambda: s.upsert("t", b"x", c),
                     "put_parts": lambda: s.put_parts("t", b"x", b"y", config=c),
                     "put_batch": lambda: s.put_batch(["t", "u"], [b"x", b"y"], c),
                     "put_from": lambda: s.put_from("t", m.ptr, 100, c),
                     "put_from_with_metadata": lambda: s.put_from_with_metadata("t", m.ptr, m.ptr, 50, 50, c),
                     "batch_put_from": lambda: s.batch_put_from(["t", "u"], [m.ptr] * 2, [100] * 2, c),
                     "batch_upsert_from": lambda: s.batch_upsert_from(["t", "u"], [m.ptr] * 2, [100] * 2, c),
                     "multi": lambda: s.batch_put_from_multi_buffers(["t", "u"], [[m.ptr]] * 2, [[100]] * 2, c),
                     "session": lambda: s.batch_put_session_start(["t", "u"], [100] * 2, c),
                     "tensor": lambda: s.pub_tensor("t", memoryview(b"x"), c)}
            for name, call in calls.items():
                got = call()
                self.assertEqual(got, [code] * 2 if isinstance(got, list) else code, (change, name))
        self.assertEqual(s.batch_is_exist(["t", "u"]), [0, 0])

    def test_memory_without_access_is_not_registered(self):
        s = self.s
        m = Memory(bytes(3 * 4096))
        page = (m.ptr + 4095) & ~4095
        libc = ctypes.CDLL(None)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.assertEqual(libc.mprotect(page, 4096, 0), 0)
        try:
            self.assertEqual((s.register_buffer(page, 4096), s.register_buffer(m.ptr, 3 * 4096)), (-600, -600))
            self.assertEqual(s.unregister_buffer(page), -600)
        finally:
            self.assertEqual(libc.mprotect(page, 4096, 3), 0)
        self.assertEqual((s.register_buffer(page, 4096), s.unregister_buffer(page)), (0, 0))

    def test_sessions_tell_what_became_of_the_bytes(self):
        """A key that another client has written meanwhile gives -705; the options are those given
        at the start."""
        s, m, keys = self.s, Memory(b"x" * 100), ["w1", "w2", "w3"]
        c = ms.ReplicateConfig(group_ids=["g1", "g2", "g3"], prefer_alloc_in_same_node=True)
        self.assertEqual(s.batch_put_session_start(keys, [100] * 3, c), [0] * 3)
        c.group_ids, c.replica_num = ["other"], 70000
        self.assertEqual(s.batch_put_from_multi_buffer_ranges(keys, [[m.ptr]] * 3, [[100]] * 3, [[0]] * 3), [100] * 3)
        self.assertEqual(s.put("w2", b"another's"), 0)
        self.assertEqual(s.batch_put_session_end(keys), [0, -705, 0])
        self.assertEqual(s.get_batch(keys), [b"x" * 100, b"another's", b"x" * 100])
        self.assertEqual(s.batch_put_session_end(keys), [-600] * 3)
        for key, group, code in (("w1", "other", -600), ("w1", "g1", 0), ("w3", "g3", 0)):
            self.assertEqual(s.upsert(key, b"y", ms.ReplicateConfig(group_ids=[group])), code)
        with self.assertRaises(TypeError):
            s.batch_put_session_start(["w4"], [1], 5)
        self.assertEqual(s.batch_put_session_end(["w4"]), [-600])

    def test_no_disk(self):
        s, new = self.s, ms.MooncakeDistributedStore()
        self.assertEqual((s.unmount_local_disk_segment(), s.unmount_local_disk_segment(grace_period_seconds=3)), (0, 0))
        self.assertEqual((new.unmount_local_disk_segment(), new.get_offload_rpc_read_count()), (-1, 0))
        self.assertEqual(s.get_offload_rpc_read_count(), 0)
        for call in (lambda: s.unmount_local_disk_segment(-1), lambda: s.unmount_local_disk_segment("x"), ms.DiskDescriptor):
            with self.assertRaises(TypeError):
                call()

    def test_segments(self):
        got = self.s.allocate_and_mount_segment(1000)
        self.assertEqual((got["ret"], got["allocated_size"], len(got["segment_ids"])), (0, 16 * MIB, 1))
        self.assertEqual(self.s.allocate_and_mount_segment(0), {"ret": -1, "segment_ids": [], "allocated_size": 0})
        self.assertEqual(self.s.unmount_and_free_segment(got["segment_ids"]), 0)
        self.assertEqual(self.s.unmount_and_free_segment(got["segment_ids"]), -1)

    def test_groups_types_and_pins(self):
        s, m = self.s, Memory(b"x" * 100)
        c = ms.ReplicateConfig(group_ids=["g", "g"], data_type=ms.KVCACHE, soft_pin_action=ms.SoftPinAction.ENABLE)
        self.assertEqual(s.batch_put_from(["g1", "g2"], [m.ptr] * 2, [100, 50], c), [0, 0])
        self.assertEqual(s.batch_put_from_multi_buffers(["g3"], [[m.ptr]], [[5]], ms.ReplicateConfig(
            group_ids=["g" * 1025])), [-600])
        self.assertEqual((s.get("g1"), s.get("g2")), (b"x" * 100, b"x" * 50))
        # an upsert must not change the group, and reports that
        self.assertEqual(s.upsert("g1", b"y", ms.ReplicateConfig(group_ids=["other"])), -600)
        self.assertEqual(s.upsert("g1", b"y", ms.ReplicateConfig(group_ids=["g"])), 0)
        self.assertEqual(s.put("p", b"x", ms.ReplicateConfig(prefer_alloc_in_same_node=True)), -600)
        self.assertEqual(s.batch_put_from_multi_buffers(["p"], [[m.ptr]], [[5]], ms.ReplicateConfig(
            prefer_alloc_in_same_node=True)), [0])

    def test_a_hard_pin_holds(self):
        s = self.s
        self.assertEqual(s.put("hard", b"h" * MIB, ms.ReplicateConfig(with_hard_pin=True)), 0)
        self.assertEqual(s.put("plain", b"p" * MIB), 0)
        for i in range(130):
            self.assertEqual(s.put(f"filler-{i}", bytes(MIB)), 0)
        self.assertEqual((s.get("plain"), s.get("hard")), (b"", b"h" * MIB))

    def test_what_is_asked_for_stays(self):
        """Until the lease has expired: a query of size or replicas usually precedes a read."""
        for i, ask in enumerate((self.s.is_exist, self.s.get_size, self.s.get_replica_desc)):
            self.assertEqual(self.s.put(f"asked-{i}", b"x"), 0)
            ask(f"asked-{i}")
            self.assertEqual(self.s.remove(f"asked-{i}"), -706, ask)
            self.assertEqual(self.s.remove(f"asked-{i}", True), 0)

    def test_tenants_when_the_master_has_none(self):
        t = opened(0, tenant_id="someone")
        self.assertEqual((t.put("tk", b"x"), t.get("tk")), (0, b"x"))
        t.close()

    def test_tasks(self):
        other = opened()
        here = ms.ReplicateConfig(preferred_segment=self.s.get_hostname())
        self.assertEqual(self.s.put("copied", b"x" * 100000, here), 0)
        none = (0, 0)
        self.assertEqual(other.create_copy_task("copied", []), (none, -600))
        self.assertEqual(other.create_copy_task("copied", ["10.9.8.7:1"]), (none, -600))
        self.assertEqual(other.create_copy_task("missing", [other.get_hostname()]), (none, -704))
        self.assertEqual(other.create_move_task("copied", "a", "a"), (none, -600))
        self.assertEqual(other.query_task((1, 2)), (None, -1400))
        task, code = other.create_copy_task("copied", [other.get_hostname()])
        self.assertEqual(code, 0)
        end = time.monotonic() + 30
        answer, code = other.query_task(task)
        while answer.status not in (ms.SUCCESS, ms.TaskStatus.FAILED) and time.monotonic() < end:
            answer, code = other.query_task(task)
        self.assertEqual((answer.status, answer.type, answer.id, code), (ms.SUCCESS, ms.TaskType.REPLICA_COPY, task, 0))
        # the named copy moves, not another one
        third = opened()
        task, code = third.create_move_task("copied", other.get_hostname(), third.get_hostname())
        self.assertEqual(code, 0)
        end = time.monotonic() + 30
        while third.query_task(task)[0].status not in (ms.SUCCESS, ms.TaskStatus.FAILED) and time.monotonic() < end:
            pass
        where = {d.get_memory_descriptor().buffer_descriptor.transport_endpoint for d in third.get_replica_desc("copied")}
        self.assertEqual(where, {self.s.get_hostname(), third.get_hostname()})
        # the object survives its first owner
        self.s.close()
        self.assertEqual(other.get("copied"), b"x" * 100000)
        third.close()
        other.close()

    def test_async(self):
        s = MooncakeDistributedStoreAsync()
        self.assertEqual(s.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                                  "master_server_addr": MASTER}), 0)

        async def work():
            self.assertEqual(await s.async_put("as", b"1"), 0)
            return await asyncio.gather(s.async_get("as"), s.async_is_exist("as"), s.async_get("nope"))

        self.assertEqual(asyncio.run(work()), [b"1", 1, b""])
        with self.assertRaises(AttributeError):
            s.async_nope
        s.close()

    def test_host_memory(self):
        a = ms.MooncakeHostMemAllocator()
        ptr = a.alloc(MIB)
        self.assertEqual(ctypes.string_at(ptr, 8), bytes(8))
        self.assertEqual((a.free(ptr), a.free(ptr), a.free(12345), a.alloc(0)), (0, -1, -1, 0))


class Threads(unittest.TestCase):
    def test_ten_threads_and_a_close(self):
        s = opened()
        value, wrong, stop = bytes(range(256)) * 256, [], threading.Event()

        def work(n):
            i = 0
            while not stop.is_set():
                key = f"t{n}-{i % 7}"
                r = s.upsert(key, value)
                got = s.get(key)
                # after close() both return their error
                if r not in (0, -600) or got not in (value, b""):
                    wrong.append((r, len(got)))
                i += 1

        threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
        for t in threads:
            t.start()
        while s.batch_is_exist([f"t{n}-0" for n in range(10)]) != [1] * 10:
            pass
        began = time.monotonic()
        s.close()
        took = time.monotonic() - began
        stop.set()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])
        self.assertLess(took, 4)

    def test_six_stores(self):
        stores = [opened(16 * MIB) for _ in range(6)]
        self.assertEqual([s.put(f"six{i}", b"x") for i, s in enumerate(stores)], [0] * 6)
        stores.pop(0).close()
        self.assertTrue(all(s.health_check() == 0 for s in stores))
        self.assertEqual(stores[0].put("more", b"x"), 0)
        del stores

    def test_segment_of_a_file(self):
        """Objects are stored in the file, from the offset on, and are removed by unmount_segment()."""
        s = opened(0)
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as f:
            f.truncate(10 * MIB)
            got = s.mount_segment(f.name, 5 * MIB, 4096)
            self.assertEqual((got["ret"], len(got["segment_ids"])), (0, 1))
            value = os.urandom(100000)
            self.assertEqual((s.put("in-file", value), s.get("in-file")), (0, value))
            t = opened(0)
            self.assertEqual(t.get("in-file"), value)
            t.close()
            with open(f.name, "rb") as g:
                at = g.read().find(value)
            self.assertTrue(4096 <= at < 4096 + 4 * MIB, at)
            self.assertEqual(s.put("too large", bytes(6 * MIB)), -200)
            self.assertEqual(s.unmount_segment(got["segment_ids"]), 0)
            self.assertEqual((s.unmount_segment(got["segment_ids"]), s.get("in-file")), (-1, b""))
            with self.assertLogs("mooncake.store", "ERROR") as log:
                for args in ((f.name, 13 * MIB), (f.name, MIB), (f.name, 2 * MIB, 5), ("/nowhere", 2 * MIB), ("/dev/shm", 2 * MIB)):
                    self.assertEqual(s.mount_segment(*args), {"ret": -1, "segment_ids": []})
            self.assertIn("/nowhere: No such file", "".join(log.output))
            for args in ((f.name, 0), (f.name, -1), (f.name, 1 << 60), (f.name, MIB, -1), ("", MIB)):
                self.assertEqual(s.mount_segment(*args), {"ret": -600, "segment_ids": []})
            for args in ((f.name, "x"), (f.name, None), (None, MIB), (f.name, MIB, 1.5), ()):
                with self.assertRaises(TypeError):
                    s.mount_segment(*args)
        s.close()
        self.assertEqual(s.mount_segment("/dev/null", 2 * MIB), {"ret": -1, "segment_ids": []})

    def test_replica_clear(self):
        s, t = opened(16 * MIB), opened(16 * MIB)
        here, there = (ms.ReplicateConfig(preferred_segment=x.get_hostname()) for x in (s, t))
        self.assertEqual([s.put("c1", b"x", here), s.put("c2", b"x", there), s.put("c3", b"x", ms.ReplicateConfig(replica_num=2))],
                         [0, 0, 0])
        self.assertEqual(s.batch_replica_clear(["c1", "c2", "c3", "none"], "no:1"), [])
        self.assertEqual(s.batch_replica_clear(["c1", "c2", "c3", "none"], t.get_hostname()), ["c2", "c3"])
        self.assertEqual(s.batch_is_exist(["c1", "c2"]), [1, 0])
        # the object is leased now
        self.assertEqual(s.batch_replica_clear(["c1", "c3", "none"]), ["c3"])
        end = time.monotonic() + 20
        while s.batch_replica_clear(["c1"], s.get_hostname()) != ["c1"]:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        self.assertEqual((s.batch_is_exist(["c1", "c2", "c3"]), s.batch_replica_clear([])), ([0, 0, 0], []))
        s.close()
        t.close()
        self.assertEqual(s.batch_replica_clear(["c1"]), [])

    def test_setup_twice(self):
        s = opened()
        s.put("k", b"x")
        self.assertEqual(s.setup("127.0.0.1", "P2PHANDSHAKE", 16 * MIB, 0, "tcp", "", MASTER), 0)
        self.assertEqual((s.is_exist("k"), s.put("k", b"y")), (0, 0))
        s.close()


class Processes(unittest.TestCase):
    PROLOGUE = ("import mooncake.store as ms, os, sys, threading, time\n"
                "s = ms.MooncakeDistributedStore()\n"
                f"assert s.setup('127.0.0.1', 'P2PHANDSHAKE', 1 << 26, 0, 'tcp', '', '{MASTER}') == 0\n")

    def run_script(self, text, **more):
        return subprocess.run([sys.executable, "-c", self.PROLOGUE + text], timeout=60, **more)

    def test_exit_without_close(self):
        self.assertEqual(self.run_script("s.put('k', b'x')").returncode, 0)

    def test_exit_while_threads_call(self):
        text = ("def work():\n"
                "    while True: s.upsert('k', bytes(100000)); s.get('k')\n"
                "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
                "while s.is_exist('k') != 1: pass\n")
        self.assertEqual(self.run_script(text).returncode, 0)

    def test_exit_with_a_store_in_a_cycle(self):
        self.assertEqual(self.run_script("s.me = s; l = [s]; l.append(l); del s").returncode, 0)

    def test_fork(self):
        # In gcc 12, AddressSanitizer's allocator locks stay locked in a child: fork only while no
        # thread of ours runs.
        still = ("def state(task): return open(f'/proc/self/task/{task}/stat').read().rpartition(')')[2].split()[0]\n"
                 "def others(): return set(os.listdir('/proc/self/task')) - {str(threading.get_native_id())}\n"
                 "while any(state(task) != 'S' for task in others()): time.sleep(0.01)\n")
        text = ((still if "libasan" in os.environ.get("LD_PRELOAD", "") else "") + "pid = os.fork()\n"
                "if pid == 0:\n"
                "    bad = [s.put('k', b'x'), s.is_exist('k'), s.health_check(), s.close()]\n"
                "    t = ms.MooncakeDistributedStore()\n"
                f"    good = [t.setup('127.0.0.1', 'P2PHANDSHAKE', 1 << 24, 0, 'tcp', '', '{MASTER}'), t.put('c', b'x')]\n"
                "    t.close()\n"
                "    os._exit(0 if bad == [-600, -600, 1, 0] and good == [0, 0] else 3)\n"
                "assert os.waitpid(pid, 0)[1] == 0\n"
                "assert s.put('parent', b'x') == 0 and s.health_check() == 0\n")
        self.assertEqual(self.run_script(text).returncode, 0)

    def test_fork_while_locks_are_held(self):
        """Locks held by threads that the child does not have."""
        text = ("from mooncake import _rpc\n"
                "s.put('k', b'x')\n"
                "assert s.batch_get_session_start(['k']) == [0] and s.batch_put_session_start(['w'], [10]) == [0]\n"
                "lease, client = (pool := ms.BufferPool(s)).acquire(10), _rpc._Client(1, 1)\n"
                "held, done = [], threading.Event()\n"
                "def hold():\n"
                "    with s._sessions_lock, s._more_lock, pool._changed, client.lock:\n"
                "        held.append(1)\n"
                "        done.wait()\n"
                "t = threading.Thread(target=hold)\n"
                "t.start()\n"
                "while not held: pass\n"
                "pid = os.fork()\n"
                "if pid == 0:\n"
                "    import signal\n"
                "    signal.alarm(20)\n"
                "    lease.release(); client.close()\n"
                "    os._exit(s.close())\n"
                "code = os.waitpid(pid, 0)[1]\n"
                "done.set()\n"
                "t.join()\n"
                "assert code == 0, code\n")
        self.assertEqual(self.run_script(text).returncode, 0)

    def test_type_files_name_what_there_is(self):
        import ast
        import mooncake.engine as me

        for module in (ms, me):
            with open(module.__file__ + "i", encoding="utf-8") as f:
                tree = ast.parse(f.read())
            for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
                kind = getattr(module, node.name)
                said = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                there = {n for n in dir(kind) if not n.startswith("_") and callable(getattr(kind, n))}
                self.assertEqual(set(), {n for n in said if not hasattr(kind, n) and n != "__buffer__"}, node.name)
                if not issubclass(kind, enum.Enum):
                    self.assertEqual(set(), there - said - {"TransferOpcode"}, node.name)
                for name in there:
                    self.assertTrue(getattr(kind, name).__doc__, f"{node.name}.{name} has no help")

    def test_import_starts_no_thread(self):
        out = subprocess.run([sys.executable, "-c", "import mooncake.store, os; print(len(os.listdir('/proc/self/task')))"],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(out.stdout.strip(), "1")

    def test_two_processes_share(self):
        s = opened()
        self.assertEqual(s.put("shared", b"from here"), 0)
        text = ("assert s.get('shared') == b'from here'\n"
                "c = ms.ReplicateConfig(preferred_segment=s.get_hostname())\n"
                "assert s.put('back', b'from there' * 1000, c) == 0\n"
                "print(s.get_hostname(), flush=True)\n"
                "sys.stdin.read()\n")
        with subprocess.Popen([sys.executable, "-c", self.PROLOGUE + text], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as child:
            self.assertTrue(child.stdout.readline().startswith("127.0.0.1:"))
            self.assertEqual(s.get("back"), b"from there" * 1000)
            child.stdin.close()
            self.assertEqual(child.wait(20), 0)
        # its memory was removed with it
        self.assertEqual(s.get("back"), b"")
        s.close()

    def test_a_master_that_does_not_answer(self):
        """Callers interpret any number but 0 as "exists", so only the batch call reports the error."""
        def stopped(task):
            with open(f"/proc/{MASTER_PID}/task/{task}/stat", encoding="utf-8") as f:
                return f.read().rpartition(")")[2].split()[0] == "T"

        s = ms.MooncakeDistributedStore()
        self.assertEqual(s._open("127.0.0.1", 0, MASTER, timeout_ms=500), (0, ""))
        os.kill(MASTER_PID, signal.SIGSTOP)
        try:
            while not all(stopped(task) for task in os.listdir(f"/proc/{MASTER_PID}/task")):
                pass
            self.assertEqual(s.is_exist("k"), 0)
            self.assertIn(s.batch_is_exist(["k"])[0], (-900, -901))
        finally:
            os.kill(MASTER_PID, signal.SIGCONT)
        self.assertEqual((s.is_exist("k"), s.batch_is_exist(["k"])), (0, [0]))
        s.close()

    def test_interrupt(self):
        """The master is stopped: Ctrl-C raises at the latest at the call's deadline."""
        s = ms.MooncakeDistributedStore()
        self.assertEqual(s._open("127.0.0.1", 0, MASTER, timeout_ms=2000), (0, ""))
        os.kill(MASTER_PID, signal.SIGSTOP)
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            began = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                s.is_exist("k")
                # the call returns its result, then the exception is raised
                time.sleep(5)
            self.assertLess(time.monotonic() - began, 8)
        finally:
            os.kill(MASTER_PID, signal.SIGCONT)
        s.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
