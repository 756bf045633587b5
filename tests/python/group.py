# SPDX-License-Identifier: Apache-2.0
"""Shared memory and messages between the processes of a group: SharedSegment and RpcInterface of
mooncake.engine.

group.py --torch: mooncake.shared_segment instead."""

import array
import asyncio
import ctypes
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
import unittest

import mooncake.engine as me


def names():
    """Names of this process's files in /dev/shm."""
    return [n for n in os.listdir("/dev/shm") if n.startswith(f"mcss_{os.getpid()}_")]


def pair(size=5000, **other):
    return me.SharedSegment.create("seg", size, 2, 0), me.SharedSegment.create("seg", **{"size": size, "world_size": 2,
                                                                                        "rank_id": 1, **other})


class Shared(unittest.TestCase):
    def test_two_ranks_see_the_same_memory(self):
        (a, blob_a), (b, blob_b) = pair()
        self.assertEqual((len(blob_a), len(blob_b)), (160, 160))
        self.assertEqual((a.ready(), b.base_addr(), a.size(), a.device_addr()), (False, 0, 5000, 0))
        a.complete([blob_a, blob_b])
        b.complete([blob_a, blob_b])
        self.assertTrue(a.ready() and b.ready())
        self.assertNotEqual(a.base_addr(), b.base_addr())
        self.assertEqual(ctypes.string_at(b.base_addr(), 5000), bytes(5000))
        ctypes.memset(a.base_addr() + 4990, 7, 10)
        self.assertEqual(ctypes.string_at(b.base_addr() + 4989, 11), b"\0" + b"\7" * 10)
        self.assertEqual(len(names()), 1)
        del a
        self.assertEqual(names(), [])
        self.assertEqual(ctypes.string_at(b.base_addr() + 4990, 1), b"\7")

    def test_another_process(self):
        a, blob = me.SharedSegment.create("seg", 1 << 20, 2, 0)
        text = ("import sys, ctypes, mooncake.engine as me\n"
                "b, blob = me.SharedSegment.create('seg', 1 << 20, 2, 1)\n"
                "print(blob.hex(), flush=True)\n"
                "b.complete([bytes.fromhex(sys.stdin.readline()), blob])\n"
                "assert ctypes.string_at(b.base_addr(), 5) == b'hello'\n"
                "ctypes.memmove(b.base_addr() + 100, b'there', 5)\n")
        ctypes.memmove(a.base_addr(), b"hello", 5)
        with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
            theirs = bytes.fromhex(p.stdout.readline())
            p.stdin.write(blob.hex() + "\n")
            p.stdin.flush()
            self.assertEqual(p.wait(60), 0)
        a.complete([blob, theirs])
        self.assertEqual(ctypes.string_at(a.base_addr() + 100, 5), b"there")

    def test_wrong_values(self):
        create = me.SharedSegment.create
        for args in (("n", 0, 1, 0), ("n", 1 << 47, 1, 0), ("n", 1, 0, 0), ("n", 1, 2, 2), ("n", 1, 2, -1), ("n", 1, 1, 0, 3)):
            with self.assertRaisesRegex(RuntimeError, "InvalidArgument", msg=args):
                create(*args)
        for args in ((None, 1, 1, 0), ("n", "1", 1, 0), ("n", 1.5, 1, 0), ("n", 1, None, 0)):
            with self.assertRaises(TypeError, msg=args):
                create(*args)
        for other in ({"mmap": False}, {"host_register": True}):
            with self.assertRaisesRegex(RuntimeError, "NotImplemented"):
                create("n", 1, 1, 0, **other)
        # larger than /dev/shm: an error, no SIGBUS, and no file stays
        with self.assertRaisesRegex(RuntimeError, "Memory"):
            create("n", 32 << 40, 1, 0)
        self.assertEqual(names(), [])
        with self.assertRaises(TypeError):
            me.SharedSegment()
        self.assertEqual([me.SharedSegment.supported(), me.SharedSegment.supported(mmap=False),
                          me.SharedSegment.supported(host_register=True)], [True, False, False])

    def test_wrong_blobs(self):
        (a, blob_a), (b, blob_b) = pair()
        _, other = pair(size=9000)[1]
        for blobs in ([], [blob_a], [blob_a, b"xx"], [blob_b, blob_a], [blob_a, other], [blob_a, bytes(160)]):
            with self.assertRaisesRegex(RuntimeError, "InvalidArgument"):
                b.complete(blobs)
        with self.assertRaises(TypeError):
            b.complete([blob_a, None])
        # names of other files are refused
        for name in (b"/../../etc/passwd", b"/x", b"/mcss_1_0123456789abcdeg"):
            evil = blob_a[:12] + len(name).to_bytes(4, "little") + blob_a[16:32] + name.ljust(128, b"\0")
            (_, _), (c, blob_c) = pair()
            with self.assertRaisesRegex(RuntimeError, "names no shared memory"):
                c.complete([evil, blob_c])
        b.complete([blob_a, blob_b])
        with self.assertRaisesRegex(RuntimeError, "already"):
            b.complete([blob_a, blob_b])
        rng = random.Random(7)
        for _ in range(300):
            (_, one), (c, two) = pair()
            blobs = [bytearray(one), bytearray(two)]
            for _ in range(rng.randrange(1, 4)):
                blobs[rng.randrange(2)][rng.randrange(160)] = rng.randrange(256)
            try:
                c.complete(blobs)
            except RuntimeError:
                pass


class Rpc(unittest.TestCase):
    def setUp(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{s.getsockname()[1]}"
        self.server = me.create_rpc_server()
        self.assertFalse(self.server.start_server_async())
        self.assertTrue(self.server.initialize_server(self.address, timeout_seconds=5))
        self.got = []
        self.server.set_data_receive_callback(lambda d: self.got.append(d["data"]))
        self.server.set_tensor_receive_callback(lambda d: self.got.append(("tensor", d["data"])))
        self.assertTrue(self.server.start_server_async())
        self.assertFalse(self.server.start_server_async())
        self.client = me.create_rpc_client()
        self.addCleanup(self.server.stop_server)

    def test_data(self):
        big = os.urandom(9 << 20)
        for data in (b"hello", b"", bytearray(b"array"), memoryview(big)):
            self.assertEqual(self.client.send_data(self.address, data), 0)
        self.assertEqual(self.got, [b"hello", b"", b"array", big])
        self.assertIs(me.CoroRPCInterface, me.RpcInterface)

    def test_tensors(self):
        self.assertEqual(self.client.send_tensor(self.address, array.array("f", [1, 2])), 0)
        self.assertEqual(self.client.send_tensor(self.address, memoryview(array.array("i", range(6))).cast("B").cast(
            "i", [2, 3])), 0)
        self.assertEqual(self.client.send_tensor(self.address, array.array("f")), 0)
        self.assertEqual(self.client.send_tensor(self.address, "x"), -1)
        self.assertEqual(self.got, [("tensor", array.array("f", [1, 2]).tobytes()),
                                    ("tensor", array.array("i", range(6)).tobytes()), ("tensor", b"")])

    def test_async(self):
        async def both():
            loop = asyncio.get_running_loop()
            return await asyncio.gather(self.client.send_data_async(self.address, b"a", loop),
                                        self.client.send_tensor_async(self.address, array.array("b", [1]), loop))

        self.assertEqual(asyncio.run(both()), [0, 0])
        self.assertEqual(sorted(map(str, self.got)), sorted(map(str, [b"a", ("tensor", b"\1")])))

    def test_many_threads(self):
        codes = []
        threads = [threading.Thread(target=lambda i=i: codes.extend(
            self.client.send_data(self.address, b"%d" % i) for _ in range(20))) for i in range(10)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((codes, len(self.got)), ([0] * 200, 200))

    def test_callback_that_raises(self):
        self.server.set_data_receive_callback(lambda d: 1 / 0)
        with self.assertLogs("mooncake.engine", "ERROR"):
            self.assertEqual(self.client.send_data(self.address, b"x"), 0)
        self.server.set_data_receive_callback(lambda d: self.got.append(d))
        self.assertEqual(self.client.send_data(self.address, b"x"), 0)
        self.assertEqual(self.got, [{"source": "", "data": b"x"}])
        with self.assertRaises(TypeError):
            self.server.set_data_receive_callback(5)

    def test_nobody_there(self):
        began = time.monotonic()
        with self.assertLogs("mooncake.engine", "ERROR"):
            self.assertEqual(me.RpcInterface().send_data(self.address, b"x"), -1)
            for target in ("127.0.0.1:1", "nonsense", "", "127.0.0.1:99999", "x" * 1000 + ":1"):
                self.assertEqual(self.client.send_data(target, b"x"), -1)
            self.assertFalse(me.RpcInterface().initialize_server(self.address))
            self.assertFalse(me.RpcInterface().initialize_server("nonsense"))
        self.assertLess(time.monotonic() - began, 20)
        for target, data in ((None, b"x"), (5, b"x"), (self.address, None), (self.address, "text"), (self.address, 7)):
            with self.assertRaises(TypeError):
                self.client.send_data(target, data)

    def test_many_descriptors(self):
        """A process with more descriptors than select() supports."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 1100:
            self.skipTest("1100 descriptors are not available")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1100), hard))
        others = [os.open("/dev/null", os.O_RDONLY) for _ in range(1030)]
        try:
            self.assertEqual([self.client.send_data(self.address, b"x") for _ in range(3)], [0] * 3)
        finally:
            for fd in others:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_stop_and_again(self):
        self.assertEqual(self.client.send_data(self.address, b"1"), 0)
        self.server.stop_server()
        self.server.stop_server()
        with self.assertLogs("mooncake.engine", "ERROR"):
            self.assertEqual(self.client.send_data(self.address, b"2"), -1)
        # the client notices that the kept connection is stale
        self.assertTrue(self.server.initialize_server(self.address) and self.server.start_server_async())
        self.assertEqual(self.client.send_data(self.address, b"3"), 0)
        self.assertEqual(self.got, [b"1", b"3"])
        # a blocking call, until another thread stops it
        blocking = me.RpcInterface()
        self.assertTrue(blocking.initialize_server("127.0.0.1:0"))
        t = threading.Thread(target=blocking.start_server)
        t.start()
        blocking.stop_server()
        t.join(30)
        self.assertFalse(t.is_alive())

    def test_hostile_peers(self):
        host, port = self.address.split(":")
        rng = random.Random(3)
        head = b"MRP1\1\0\0\0"
        wrong = [b"GET / HTTP/1.1\r\n\r\n", head + b"\xff" * 8, b"MRP1\7\0\0\0" + bytes(8), head[:5], b""]
        wrong += [rng.randbytes(rng.randrange(1, 64)) for _ in range(50)]
        for data in wrong:
            with socket.create_connection((host, int(port)), 10) as s:
                s.sendall(data)
        # a huge message that is announced and not sent uses no memory, and its connection is closed
        with socket.create_connection((host, int(port)), 10) as s:
            s.sendall(head + (4 << 30).to_bytes(8, "little") + b"x")
            s.settimeout(60)
            with self.assertLogs("mooncake.engine", "WARNING"):
                self.assertEqual(s.recv(1), b"")
        self.assertEqual(self.client.send_data(self.address, b"still there"), 0)
        self.assertEqual(self.got, [b"still there"])

    def test_end_of_the_interpreter(self):
        text = ("import mooncake.engine as me\n"
                "s = me.RpcInterface(); assert s.initialize('127.0.0.1:0'); assert s.start_server_async()\n"
                "a, blob = me.SharedSegment.create('seg', 4096, 1, 0); a.complete([blob])\n"
                "import os; print(os.getpid())\n")
        r = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertEqual([n for n in os.listdir("/dev/shm") if n.startswith(f"mcss_{r.stdout.strip()}_")], [])


def with_torch():
    import tempfile

    import torch
    import torch.multiprocessing as mp

    from mooncake import shared_segment as ss

    assert ss.shared_segment_supported() and not ss.shared_segment_supported(mmap=False)
    one = ss.create_shared_segment("one", {"a": {"count": 2, "shape": (3, 5), "dtype": torch.float32},
                                           "b": {"count": 1, "shape": [7], "dtype": torch.uint8}}, 1, 0)
    assert one.total_size() == 2 * 2 * 4096, one.total_size()
    first = one.tensors("a")[0]
    assert [tuple(t.shape) for t in one.tensors("a")] == [(3, 5)] * 2 and one.tensors("b")[0].dtype == torch.uint8
    first.fill_(2.5)
    assert one.tensors("a")[0].sum() == 37.5 and one.tensors("a")[1].sum() == 0
    assert first.data_ptr() == one.base_addr()
    for blocks in ({}, {"a": {}}, {"a": {"count": 0, "shape": (1,), "dtype": torch.int8}},
                   {"a": {"count": 1, "shape": (), "dtype": torch.int8}}, {"a": {"count": 1, "shape": (1,), "dtype": "x"}}):
        try:
            ss.create_shared_segment("x", blocks, 1, 0)
            raise AssertionError(blocks)
        except ss.SharedSegmentError:
            pass
    with tempfile.TemporaryDirectory() as d:
        mp.spawn(rank, (d + "/group",), nprocs=2)
    print("ok mooncake.shared_segment: one process, two ranks, a declaration that differs")


def rank(r, path):
    import torch
    import torch.distributed as dist

    from mooncake import shared_segment as ss

    dist.init_process_group("gloo", init_method=f"file://{path}", rank=r, world_size=2)
    blocks = {"kv": {"count": 3, "shape": (100, 10), "dtype": torch.bfloat16}}
    s = ss.create_shared_segment("group", blocks, 2, r, owner_rank=1, comm_group=dist.group.WORLD)
    s.tensors("kv")[r].fill_(r + 1)
    dist.barrier()
    assert s.tensors("kv")[1 - r].sum() == 1000 * (2 - r)
    dist.barrier()
    blocks["kv"]["count"] = 3 + r
    try:
        ss.create_shared_segment("group", blocks, 2, r, comm_group=dist.group.WORLD)
        raise AssertionError("declarations differ")
    except ss.SharedSegmentError as e:
        assert "rank" in str(e), e
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:] == ["--torch"]:
        with_torch()
    else:
        unittest.main(verbosity=1)
