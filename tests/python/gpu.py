# SPDX-License-Identifier: Apache-2.0
"""Every call of the store that takes the caller's memory, with memory of a GPU, which this process and the kernel cannot
access: the fake one, or the machine's (tests/gpu/run).

gpu.py MASTER [DAEMON]; with DAEMON the store is the daemon's"""

import hashlib
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["top_srcdir"], "tests", "lib"))

import gpu_memory as gpu  # noqa: E402
import mooncake._store as native  # noqa: E402
import mooncake.store as ms  # noqa: E402

MASTER = sys.argv[1]
DAEMON = sys.argv[2] if len(sys.argv) > 2 else ""
SIZE = (3 << 20) + 4567


def data(name, size=SIZE):
    block = hashlib.sha512(name.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


class Store(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = ms.MooncakeDistributedStore()
        if DAEMON:
            assert cls.s.setup_dummy(0, 1 << 20, DAEMON) == 0
        else:
            assert cls.s.setup("127.0.0.1", "P2PHANDSHAKE", 128 << 20, 16 << 20, "tcp", "", MASTER) == 0
        cls.at = gpu.alloc(4 * SIZE)
        assert cls.s.register_buffer(cls.at, 4 * SIZE) == 0

    @classmethod
    def tearDownClass(cls):
        assert cls.s.unregister_buffer(cls.at) == 0
        cls.s.close()

    def setUp(self):
        self.key = self.id().rpartition(".")[2]
        gpu.fill(self.at, bytes(4 * SIZE))

    def holds(self, at, name, size=SIZE):
        self.assertTrue(gpu.bytes_at(at, size) == data(name, size), name)

    def test_one(self):
        gpu.fill(self.at + 1, data("a"))
        self.assertEqual(self.s.put_from(self.key, self.at + 1, SIZE), 0)
        self.assertTrue(self.s.get(self.key) == data("a"))
        self.assertEqual(self.s.get_into(self.key, self.at + 2 * SIZE, SIZE), SIZE)
        self.holds(self.at + 2 * SIZE, "a")
        gpu.fill(self.at, data("b"))
        self.assertEqual(self.s.upsert_from(self.key, self.at, SIZE), 0)
        self.assertTrue(self.s.get(self.key) == data("b"))

    def test_memory_that_is_not_registered(self):
        at = gpu.alloc(SIZE)
        gpu.fill(at, data("c"))
        self.assertEqual(self.s.put_from(self.key, at, SIZE), 0)
        gpu.fill(at, bytes(SIZE))
        self.assertEqual(self.s.get_into(self.key, at, SIZE), SIZE)
        self.holds(at, "c")

    def test_batches(self):
        keys = [f"{self.key}-{i}" for i in range(40)]
        n = 50000
        ptrs = [self.at + i * n for i in range(40)]
        for k, p in zip(keys, ptrs):
            gpu.fill(p, data(k, n))
        self.assertEqual(self.s.batch_put_from(keys, ptrs, [n] * 40), [0] * 40)
        gpu.fill(self.at, bytes(40 * n))
        self.assertEqual(self.s.batch_get_into(keys, ptrs[::-1], [n] * 40), [n] * 40)
        for k, p in zip(keys, ptrs[::-1]):
            self.holds(p, k, n)
        for k, p in zip(keys, ptrs):
            gpu.fill(p, data(k + "new", n))
        self.assertEqual(self.s.batch_upsert_from(keys, ptrs, [n] * 40), [0] * 40)
        self.assertTrue(self.s.get(keys[7]) == data(keys[7] + "new", n))

    def test_many_buffers(self):
        sizes = [4096, 1, 65536, 100000, 333] * 20
        ptrs, at = [], self.at
        for n in sizes:
            ptrs.append(at)
            at += n + 61
        whole = data("parts", sum(sizes))
        done = 0
        for p, n in zip(ptrs, sizes):
            gpu.fill(p, whole[done:done + n])
            done += n
        self.assertEqual(self.s.batch_put_from_multi_buffers([self.key], [ptrs], [sizes]), [0])
        self.assertTrue(self.s.get(self.key) == whole)
        gpu.fill(self.at, bytes(at - self.at))
        self.assertEqual(self.s.batch_get_into_multi_buffers([self.key], [ptrs], [sizes]), [sum(sizes)])
        self.assertTrue(b"".join(gpu.bytes_at(p, n) for p, n in zip(ptrs, sizes)) == whole)

    def test_ranges(self):
        self.assertEqual(self.s.put(self.key, data("r")), 0)
        if not DAEMON:
            got = self.s.get_into_ranges([self.at], [[self.key]], [[[3, 70000]]], [[[7, 1 << 20]]], [[[65536, 1234567]]])
            self.assertEqual(got, [[[65536, 1234567]]])
            self.assertTrue(gpu.bytes_at(self.at + 3, 65536) == data("r")[7:7 + 65536])
            self.assertTrue(gpu.bytes_at(self.at + 70000, 1234567) == data("r")[1 << 20:(1 << 20) + 1234567])

    def test_sessions(self):
        gpu.fill(self.at, data("s"))
        self.assertEqual(self.s.batch_put_session_start([self.key], [SIZE]), [0])
        half = SIZE // 2
        self.assertEqual(self.s.batch_put_from_multi_buffer_ranges(
            [self.key], [[self.at, self.at + half]], [[half, SIZE - half]], [[0, half]]), [SIZE])
        self.assertEqual(self.s.batch_put_session_end([self.key]), [0])
        self.assertTrue(self.s.get(self.key) == data("s"))
        self.assertEqual(self.s.batch_get_session_start([self.key]), [0])
        self.assertEqual(self.s.batch_get_into_multi_buffer_ranges(
            [self.key], [[self.at + 2 * SIZE, self.at + 3 * SIZE]], [[half, 99]], [[half, 5]]), [half + 99])
        self.s.batch_get_session_end([self.key])
        self.assertTrue(gpu.bytes_at(self.at + 2 * SIZE, half) == data("s")[half:2 * half])
        self.assertTrue(gpu.bytes_at(self.at + 3 * SIZE, 99) == data("s")[5:104])

    def test_tensors_in_device_memory(self):
        import array
        self.assertEqual(self.s.put_tensor(self.key, memoryview(array.array("f", range(30000)))), 0)
        size = self.s.get_size(self.key)
        whole = self.s.get(self.key)
        gpu.fill(self.at, whole)
        self.assertEqual(self.s.put_tensor_from(self.key + "-copy", self.at, size), 0)
        self.assertTrue(self.s.get(self.key + "-copy") == whole)
        self.assertEqual(self.s.upsert_tensor_from(self.key + "-copy", self.at, size), 0)

    def test_what_memory_is(self):
        self.assertEqual(native.gpu_of(self.at), 0)
        self.assertEqual(native.gpu_of(id(self)), -1)
        self.assertTrue(native.mapped(self.at, SIZE))
        # beyond the allocation
        self.assertEqual(self.s.register_buffer(self.at, 1 << 40), -600)
        self.assertEqual(self.s.put_from(self.key, self.at, 1 << 40), -600)

    @unittest.skipUnless(gpu.FAKE, "needs the fake driver")
    def test_failures_are_errors(self):
        gpu.fill(self.at, data("f"))
        for call in ("cuEventSynchronize", "cuEventRecord"):
            gpu.settings("FAKE_CUDA_FAIL", f"{call}:*:999,cuMemcpy:*:999")
            self.assertLess(self.s.put_from(self.key, self.at, SIZE), 0)
            self.assertEqual(self.s.is_exist(self.key), 0)
        gpu.settings("FAKE_CUDA_FAIL", "")
        self.assertEqual(self.s.put_from(self.key, self.at, SIZE), 0)
        gpu.settings("FAKE_CUDA_FAIL", "cuEventSynchronize:*:999,cuMemcpy:*:999")
        self.assertLess(self.s.get_into(self.key, self.at, SIZE), 0)
        gpu.settings("FAKE_CUDA_FAIL", "")
        gpu.fill(self.at, bytes(SIZE))
        self.assertEqual(self.s.get_into(self.key, self.at, SIZE), SIZE)
        self.holds(self.at, "f")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
