# SPDX-License-Identifier: Apache-2.0
"""mooncake.engine: two engines in this process, and one in another."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from array import array

import mooncake.engine as me

MIB = 1 << 20


class Memory:
    def __init__(self, data):
        self.size = len(data)
        self.raw = ctypes.create_string_buffer(bytes(data), len(data))
        self.ptr = ctypes.addressof(self.raw)

    def bytes(self, at=0, n=None):
        return ctypes.string_at(self.ptr + at, self.size - at if n is None else n)


def pattern(n, seed=1):
    return bytes((i * 131 + seed) & 255 for i in range(256)) * (n // 256) + bytes(n % 256)


def opened():
    e = me.TransferEngine()
    assert e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return e, f"127.0.0.1:{e.get_rpc_port()}"


class TwoEngines(unittest.TestCase):
    def setUp(self):
        self.a, self.a_name = opened()
        self.b, self.b_name = opened()
        self.mine, self.theirs = Memory(pattern(4 * MIB)), Memory(bytes(4 * MIB))
        self.assertEqual(self.a.register_memory(self.mine.ptr, self.mine.size), 0)
        self.assertEqual(self.b.register_memory(self.theirs.ptr, self.theirs.size, "cpu:0"), 0)

    def tearDown(self):
        del self.a, self.b

    def test_write_and_read(self):
        a, m, t = self.a, self.mine, self.theirs
        self.assertEqual(a.transfer_sync_write(self.b_name, m.ptr, t.ptr + 100, MIB), 0)
        self.assertEqual(t.bytes(100, MIB), m.bytes(0, MIB))
        self.assertEqual(a.transfer_sync_read(self.b_name, m.ptr + 2 * MIB, t.ptr + 100, MIB), 0)
        self.assertEqual(m.bytes(2 * MIB, MIB), m.bytes(0, MIB))
        self.assertEqual(a.transfer_sync(self.b_name, m.ptr, t.ptr, 5, me.TransferOpcode.Write), 0)
        self.assertEqual(a.transfer_sync(target_hostname=self.b_name, buffer=m.ptr, peer_buffer_address=t.ptr,
                                         length=5, opcode=me.TransferEngine.TransferOpcode.Read), 0)
        self.assertEqual(a.transfer_sync_write(self.b_name, m.ptr, t.ptr, 0), 0)

    def test_batches(self):
        a, m, t, n = self.a, self.mine, self.theirs, 3000
        at, to, len_ = [m.ptr + i * 1000 for i in range(n)], [t.ptr + (n - 1 - i) * 1000 for i in range(n)], [1000] * n
        self.assertEqual(a.batch_transfer_sync_write(self.b_name, at, to, len_), 0)
        self.assertTrue(all(t.bytes((n - 1 - i) * 1000, 1000) == m.bytes(i * 1000, 1000) for i in range(n)))
        self.assertEqual(a.batch_transfer_sync_read(self.b_name, at[:5], to[:5], len_[:5]), 0)
        self.assertEqual(a.batch_transfer_sync_write(self.b_name, at, to[:5], len_), -1)
        self.assertEqual(a.batch_transfer_sync_write(self.b_name, [], [], []), 0)

    def test_async(self):
        a, m, t = self.a, self.mine, self.theirs
        ids = [a.batch_transfer_async_write(self.b_name, [m.ptr + i * MIB], [t.ptr + i * MIB], [MIB]) for i in range(4)]
        self.assertTrue(all(ids))
        self.assertEqual(a.get_batch_transfer_status(ids), 0)
        self.assertEqual(t.bytes(), m.bytes())
        self.assertEqual(a.get_batch_transfer_status(ids), -1)
        one = a.transfer_submit_write(self.b_name, m.ptr, t.ptr, 1000)
        status = 0
        while status == 0:
            status = a.transfer_check_status(one)
        self.assertEqual(status, 1)
        self.assertEqual((a.transfer_check_status(one), a.transfer_check_status(0), a.transfer_check_status(12345)), (-1,) * 3)
        self.assertEqual(a.get_batch_transfer_status([a.batch_transfer_async(self.b_name, [m.ptr], [t.ptr], [9],
                                                                             me.Read)]), 0)
        bad = a.batch_transfer_async_read(self.b_name, [m.ptr], [t.ptr + 5 * MIB], [9])
        self.assertEqual(a.get_batch_transfer_status([bad]), -1)

    def test_refusals(self):
        a, m, t = self.a, self.mine, self.theirs
        self.assertEqual(a.transfer_sync_write(self.b_name, m.ptr, t.ptr + 4 * MIB - 5, 10), -1)
        self.assertEqual(a.transfer_sync_write(self.b_name, m.ptr, 4096, 10), -1)
        began = time.monotonic()
        self.assertEqual(a.transfer_sync_write("127.0.0.1:1", m.ptr, t.ptr, 10), -1)
        self.assertEqual(a.transfer_sync_write("", m.ptr, t.ptr, 10), -1)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual((a.register_memory(m.ptr, 100), a.register_memory(m.ptr + 8 * MIB, 0)), (-7, -1))
        self.assertEqual(a.unregister_memory(m.ptr + 1), -3)
        self.assertEqual((a.unregister_memory(m.ptr), a.unregister_memory(m.ptr)), (0, -3))
        self.assertEqual((a.send_probe(self.b_name), a.send_probe("127.0.0.1:1")), (0, -102))
        for call in (lambda: a.transfer_sync_write(5, m.ptr, t.ptr, 10), lambda: a.register_memory("x", 1),
                     lambda: a.transfer_sync_write(self.b_name, m.ptr, t.ptr, -1), lambda: a.initialize("x"),
                     lambda: a.batch_transfer_sync_write(self.b_name, m.ptr, t.ptr, 1), lambda: me.TransferNotify(1, 2),
                     lambda: a.transfer_sync(self.b_name, m.ptr, t.ptr, 1, "write"), lambda: a.register_memory(1)):
            with self.assertRaises(TypeError):
                call()
        self.assertEqual(a.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), -1)

    def test_notifies(self):
        note = me.TransferNotify("who", "grüße")
        self.assertEqual(self.a.transfer_sync(self.b_name, self.mine.ptr, self.theirs.ptr, 10, me.Write, note), 0)
        got, end = [], time.monotonic() + 10
        while not got and time.monotonic() < end:
            got = self.b.get_notifies()
        self.assertEqual([(n.name, n.msg) for n in got], [("who", "grüße")])
        self.assertEqual(self.a.batch_transfer_sync(self.b_name, [], [], [], me.Write, me.TransferNotify("none", "all")), 0)
        self.assertEqual([(n.name, n.msg) for n in self.b.get_notifies()], [("none", "all")])
        self.assertEqual(self.a.batch_transfer_sync("127.0.0.1:1", [], [], [], me.Write, note), -1)
        self.assertEqual(self.b.get_notifies(), [])

    def test_memory(self):
        b = self.b
        self.assertEqual(self.a.get_first_buffer_address(self.b_name), self.theirs.ptr)
        self.assertEqual(self.a.get_first_buffer_address("127.0.0.1:1"), 0)
        ptr = b.allocate_managed_buffer(100000)
        self.assertNotEqual(ptr, 0)
        self.assertEqual(b.write_bytes_to_buffer(ptr, b"hello", 5), 0)
        self.assertEqual(b.write_bytes_to_buffer(ptr, b"hello", 6), -1)
        self.assertEqual(b.read_bytes_from_buffer(ptr, 5), b"hello")
        self.assertEqual(self.a.transfer_sync_read(self.b_name, self.mine.ptr, ptr, 5), 0)
        self.assertEqual(self.mine.bytes(0, 5), b"hello")
        self.assertEqual((b.free_managed_buffer(ptr, 100000), b.free_managed_buffer(ptr, 100000)), (0, -1))
        self.assertEqual(b.allocate_managed_buffer(0), 0)
        more = [Memory(bytes(1000)) for _ in range(3)]
        self.assertEqual(b.batch_register_memory([x.ptr for x in more], [1000] * 3), 0)
        self.assertEqual(b.batch_register_memory([more[0].ptr], [1, 2]), -1)
        self.assertEqual(b.batch_unregister_memory([x.ptr for x in more]), 0)
        self.assertTrue(b.get_local_topology().startswith("{"))
        self.assertNotEqual(b.get_engine_ptr(), 0)

    def test_threads(self):
        wrong = []

        def work(i):
            for _ in range(200):
                at = i * 100000
                if self.a.transfer_sync_write(self.b_name, self.mine.ptr + at, self.theirs.ptr + at, 100000):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])
        self.assertEqual(self.theirs.bytes(0, MIB - 48576), self.mine.bytes(0, MIB - 48576))


CHILD = ("import mooncake.engine as me, ctypes, sys\n"
         "e = me.TransferEngine(); e.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '')\n"
         "m = ctypes.create_string_buffer(8 << 20); p = ctypes.addressof(m)\n"
         "e.register_memory(p, 8 << 20)\n"
         "print(e.get_rpc_port(), p, flush=True); sys.stdin.readline()\n")


class Scatter(unittest.TestCase):
    """Behaviours that upstream does not have, or cannot show; observe/engine14_*.py compares the others."""

    Status = me.ScatterTransferCompletionStatus

    def whole(self, e, name, mine, ptr, n):
        return e.submit_scatter_write(name, [mine.ptr], [n], [ptr], [n], [[0]], [[0]], [[n]])

    def test_a_silent_peer(self):
        """A ticket is unknown while its transfers run; the time limit of transfers ends it.  With the hint "tcp" the
        bytes do not go through memory of this host, for which the peer need not run."""
        os.environ.update(MC_TRANSFER_TIMEOUT="5", MC_FORCE_TCP="1")
        over_tcp, _ = opened()
        del os.environ["MC_FORCE_TCP"]
        hinted, _ = opened()
        mine, n = Memory(pattern(8 * MIB)), 64
        with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            port, ptr = map(int, child.stdout.readline().split())
            name = f"127.0.0.1:{port}"
            for e in (over_tcp, hinted):
                self.assertIs(self.whole(e, name, mine, ptr, 100).drain(10000), self.Status.COMPLETED)
            child.send_signal(signal.SIGSTOP)
            try:
                began = time.monotonic()
                lists = [[mine.ptr] * n, [8 * MIB] * n, [ptr] * n, [8 * MIB] * n, [[0]] * n, [[0]] * n, [[8 * MIB]] * n]
                ticket = over_tcp.submit_scatter_write(name, *lists)
                running = hinted.batch_transfer_async_write(name, lists[0], lists[2], lists[1], "tcp")
                self.assertEqual((ticket.drain(100), ticket.drained), (self.Status.COMPLETION_UNKNOWN, False))
                self.assertEqual((ticket.drain(20000), ticket.drained), (self.Status.FAILED_DRAINED, True))
                self.assertEqual(hinted.get_batch_transfer_status([running]), -1)
                self.assertLess(time.monotonic() - began, 20)
            finally:
                child.send_signal(signal.SIGCONT)
                del os.environ["MC_TRANSFER_TIMEOUT"]
            child.stdin.close()

    def test_the_end_of_a_ticket_waits(self):
        """Dropping a ticket ends only after its bytes have arrived; the engine stays open until then."""
        a, _ = opened()
        b, name = opened()
        mine, theirs = Memory(pattern(64 * MIB)), Memory(bytes(64 * MIB))
        self.assertEqual(b.register_memory(theirs.ptr, theirs.size), 0)
        ticket = self.whole(a, name, mine, theirs.ptr, mine.size)
        del a
        self.assertEqual((ticket.status, ticket.drained), (self.Status.COMPLETION_UNKNOWN, False))
        del ticket
        self.assertEqual(theirs.bytes(), mine.bytes())

    def test_many_threads_drain_one_ticket(self):
        a, _ = opened()
        b, name = opened()
        mine, theirs = Memory(pattern(MIB)), Memory(bytes(MIB))
        self.assertEqual(b.register_memory(theirs.ptr, MIB), 0)
        for _ in range(50):
            ticket, results = self.whole(a, name, mine, theirs.ptr, MIB), []
            threads = [threading.Thread(target=lambda: results.append(ticket.drain(10000))) for _ in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(results, [self.Status.COMPLETED] * 6)

    def test_failures_are_logged(self):
        e, name = opened()
        m = Memory(bytes(100))
        other = me.TransferEngine()
        for engine, peer, room, said in ((other, name, 100, "not initialized"), (e, "127.0.0.1:1", 100, "127.0.0.1:1"),
                                         (e, name, 5, "range 0: fragment 0 is outside of the local range")):
            with self.assertLogs("mooncake.engine", "ERROR") as log:
                ticket = engine.submit_scatter_read(peer, [m.ptr], [room], [m.ptr], [100], [[0]], [[0]], [[10]])
            self.assertIs(ticket.status, self.Status.FAILED_DRAINED)
            self.assertIn(said, log.output[0])

    def test_unknown_hints_are_logged_once(self):
        text = ("import mooncake.engine as me, ctypes\n"
                "e = me.TransferEngine(); assert e.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '') == 0\n"
                "m = ctypes.create_string_buffer(100); p = ctypes.addressof(m); assert e.register_memory(p, 100) == 0\n"
                "name = f'127.0.0.1:{e.get_rpc_port()}'\n"
                "for i in range(3):\n"
                "    assert e.transfer_sync_write(name, p, p + 50, 10, 'rmda', '') == 0\n"
                "    assert e.transfer_sync_write(name, p, p + 50, 10, 'tcp') == 0\n")
        said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True).stderr
        self.assertEqual(said.count("transport=rmda"), 1, said)
        self.assertNotIn("transport=tcp", said)

    def test_memory_of_this_engine_only(self):
        a, _ = opened()
        b, name = opened()
        here, there = Memory(b"x" * 100), Memory(bytes(100))
        self.assertEqual(b.register_memory(there.ptr, 100, "*", False), 0)
        self.assertEqual((a.transfer_sync_write(name, here.ptr, there.ptr, 100), there.bytes()), (-1, bytes(100)))
        self.assertEqual(a.transfer_sync_read(name, here.ptr, there.ptr, 100), -1)

    def test_numpy(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("no numpy")
        a, _ = opened()
        b, name = opened()
        mine, theirs = Memory(pattern(MIB)), Memory(bytes(MIB))
        self.assertEqual(b.register_memory(theirs.ptr, MIB), 0)
        at = np.arange(100, dtype=np.uint64) * 100
        for kind in (np.uint64, np.int64):
            args = (at + mine.ptr).astype(kind), (at[::-1] + theirs.ptr).astype(kind), np.full(100, 100, kind)
            self.assertEqual(a.batch_transfer_sync_write_arrays(name, *args), 0)
        self.assertTrue(all(theirs.bytes(9900 - i * 100, 100) == mine.bytes(i * 100, 100) for i in range(100)))
        fields = np.array([[mine.ptr, 64, theirs.ptr, 128, 64]], dtype=np.int64)
        pages = np.arange(100)
        self.assertEqual(a.batch_transfer_sync_write_pages(name, pages, pages + 5, fields, 7), 0)
        self.assertTrue(all(theirs.bytes((i + 5) * 128, 64) == mine.bytes(i * 64, 64) for i in range(100)))
        self.assertEqual(a.batch_transfer_sync_write_pages(name, pages, pages, fields[:0]), 0)
        for wrong in (at.astype(">u8"), at.astype(np.uint32), at.reshape(10, 10), at[::2]):
            with self.assertRaises(TypeError):
                a.batch_transfer_sync_write_arrays(name, wrong, at, at)
        with self.assertRaisesRegex(TypeError, "C-contiguous"):
            a.batch_transfer_sync_write_pages(name, pages, pages, np.asfortranarray(np.repeat(fields, 2, 0)))

    def test_memory_without_access_is_not_transferred(self):
        a, _ = opened()
        b, name = opened()
        theirs = Memory(bytes(100))
        self.assertEqual(b.register_memory(theirs.ptr, 100), 0)
        numbers = array("Q", [4096]), array("Q", [theirs.ptr]), array("Q", [10])
        self.assertEqual(a.batch_transfer_sync_read_arrays(name, *numbers), -1)
        self.assertEqual(a.batch_transfer_async_write_arrays(name, *numbers), 0)
        fields = memoryview(array("Q", [4096, 0, theirs.ptr, 0, 10])).cast("B").cast("Q", [1, 5])
        self.assertEqual(a.batch_transfer_sync_read_pages(name, numbers[2], numbers[2], fields), -1)
        with self.assertLogs("mooncake.engine", "ERROR"):
            self.assertTrue(a.submit_scatter_write(name, [4096], [9], [theirs.ptr], [9], [[0]], [[0]], [[9]]).drained)


class Others(unittest.TestCase):
    def test_before_initialize(self):
        e = me.TransferEngine()
        self.assertEqual((e.get_rpc_port(), e.get_engine_ptr(), e.get_notifies(), e.send_probe("x"), e.register_memory(1, 1),
                          e.transfer_sync_write("x", 1, 1, 1), e.batch_transfer_async_write("x", [1], [1], [1]),
                          e.get_batch_transfer_status([1]), e.allocate_managed_buffer(5), e.get_local_topology()),
                         (0, 0, [], -1, -1, -1, 0, -1, 0, ""))
        for server in ("", "bogus://x"):
            with self.assertLogs("mooncake.engine", "ERROR"):
                self.assertEqual(e.initialize("127.0.0.1", server, "tcp", ""), -1)

    def test_another_process(self):
        text = ("import mooncake.engine as me, ctypes, sys\n"
                "e = me.TransferEngine(); e.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '')\n"
                "m = ctypes.create_string_buffer(b'from there' * 1000); p = ctypes.addressof(m)\n"
                "e.register_memory(p, 10000)\n"
                "print(e.get_rpc_port(), p, flush=True); sys.stdin.readline()\n"
                "assert m.raw[:10] == b'from here!'\n")
        e, _ = opened()
        with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            port, ptr = map(int, child.stdout.readline().split())
            mine = Memory(bytes(10000))
            self.assertEqual(e.transfer_sync_read(f"127.0.0.1:{port}", mine.ptr, ptr, 10000), 0)
            self.assertEqual(mine.bytes(), b"from there" * 1000)
            here = Memory(b"from here!")
            self.assertEqual(e.transfer_sync_write(f"127.0.0.1:{port}", here.ptr, ptr, 10), 0)
            child.stdin.close()
            self.assertEqual(child.wait(20), 0)
        self.assertEqual(e.transfer_sync_write(f"127.0.0.1:{port}", here.ptr, ptr, 10), -1)

    def test_peer_that_was_replaced(self):
        """A peer is killed and restarted under its name, with memory at the same address and at
        another one: the new peer is used at once."""
        text = ("import mooncake.engine as me, ctypes, sys\n"
                "libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\n"
                "p = libc.mmap(ctypes.c_void_p(int(sys.argv[1])), ctypes.c_size_t(1 << 16), 3, 0x100022, -1, 0)\n"
                "assert p == int(sys.argv[1])\n"
                "ctypes.memmove(p, sys.argv[2].encode() * 1000, 10000)\n"
                "e = me.TransferEngine(); assert e.initialize(sys.argv[3], sys.argv[4], 'tcp', '') == 0\n"
                "assert e.register_memory(p, 1 << 16) == 0\n"
                "print('ready', flush=True); sys.stdin.readline()\n")
        server, name = os.environ["METADATA"], "127.0.0.1:17777"
        e = me.TransferEngine()
        self.assertEqual(e.initialize("127.0.0.1", server, "tcp", ""), 0)
        # below the addresses that the kernel assigns, and free under the sanitizers
        mine, at = Memory(bytes(10000)), 0x7e9000000000
        for where, what in ((at, "the first."), (at, "the second"), (at + (1 << 20), "the third.")):
            with subprocess.Popen([sys.executable, "-c", text, str(where), what, name, server], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) as child:
                self.assertEqual(child.stdout.readline(), "ready\n")
                self.assertEqual(e.transfer_sync_read(name, mine.ptr, where, 10000), 0)
                self.assertEqual(mine.bytes(), what.encode() * 1000)
                self.assertEqual(e.transfer_sync_write(name, mine.ptr, where, 10000), 0)
                child.kill()

    def test_a_nul_is_no_end(self):
        """A name with a NUL is refused, not used up to the NUL."""
        e, name = opened()
        mine = Memory(b"x" * 100)
        self.assertEqual(e.register_memory(mine.ptr, 100), 0)
        self.assertGreater(e.get_first_buffer_address(name), 0)
        for call in (lambda: e.transfer_sync_write(name + "\0x", mine.ptr, mine.ptr + 50, 10), lambda: e.send_probe(name + "\0x"),
                     lambda: e.get_first_buffer_address(name + "\0x"),
                     lambda: me.TransferEngine().initialize("127.0.0.1\0x", "P2PHANDSHAKE", "tcp", "")):
            with self.assertRaisesRegex(ValueError, "NUL"):
                call()
        self.assertEqual(e.transfer_sync_write(name, mine.ptr, mine.ptr + 50, 10), 0)

    def test_protocols(self):
        """An unavailable protocol gives a warning; the engine then uses an available one, as
        upstream's does."""
        names = (("efa", "continuing with tcp"), ("flagcx", "continuing with tcp"), ("rmda", 'did you mean "rdma"'), ("bogus", 'unknown protocol "bogus"'))
        for name, said in names:
            e = me.TransferEngine()
            with self.assertLogs("mooncake.engine", "WARNING") as log:
                self.assertEqual(e.initialize("127.0.0.1", "P2PHANDSHAKE", name, ""), 0)
            self.assertIn(said, "".join(log.output))
            peer, peer_name = opened()
            here, there = Memory(b"over what is there"), Memory(bytes(18))
            # an unregistered local buffer can be used, the peer's buffer must be registered
            self.assertEqual(peer.register_memory(there.ptr, 18), 0)
            self.assertEqual(e.transfer_sync_write(peer_name, here.ptr, there.ptr, 18), 0)
            self.assertEqual(there.bytes(), here.bytes())
            nobodys = Memory(bytes(18))
            self.assertEqual(e.transfer_sync_write(peer_name, here.ptr, nobodys.ptr, 18), -1)

    def test_memory_without_access_is_not_registered(self):
        e, _ = opened()
        m = Memory(bytes(3 * 4096))
        page = (m.ptr + 4095) & ~4095
        libc = ctypes.CDLL(None)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.assertEqual(libc.mprotect(page, 4096, 0), 0)
        try:
            self.assertEqual((e.register_memory(page, 4096), e.batch_register_memory([m.ptr], [m.size])), (-1, -1))
            self.assertEqual((e.register_memory(4096, 100), e.unregister_memory(page)), (-1, -3))
        finally:
            self.assertEqual(libc.mprotect(page, 4096, 3), 0)
        self.assertEqual((e.register_memory(page, 4096), e.unregister_memory(page)), (0, 0))

    def test_with_the_store(self):
        from mooncake import _setup

        e, name = opened()
        self.assertEqual(_setup.hostname_of(name, e.get_engine()), "127.0.0.1")
        self.assertEqual(_setup.hostname_of("[::1]:5", e.get_engine()), "[::1]")
        self.assertEqual(_setup.hostname_of(name, None), name)


if __name__ == "__main__":
    unittest.main(verbosity=1)
