# SPDX-License-Identifier: Apache-2.0
"""The SSD tier through the Python package, with the call sequences of upstream's tests test_offload_on_eviction,
test_ssd_offload_in_evict and test_promotion_on_hit, and of vLLM's connector.

offload.py MASTER DIR - the master offloads on eviction and promotes at the first hit"""

import ctypes
import mmap
import os
import random
import sys
import tempfile
import time
import unittest

import mooncake.store as ms

MASTER, DIR = sys.argv[1:3]
MIB = 1 << 20
SEGMENT = 32 * MIB
SIZE = MIB
MISS = -704


def block(i, size=SIZE):
    return random.Random(i).randbytes(size)


def eventually(check, words, seconds=20):
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise AssertionError(words)
        time.sleep(0.05)


class Offload(unittest.TestCase):
    def setUp(self):
        self.path = tempfile.mkdtemp(dir=DIR)
        self.store = ms.MooncakeDistributedStore()
        # engine, enable_ssd_offload and ssd_offload_path by position, as upstream's test passes them
        self.assertEqual(self.store.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 16 * MIB, "tcp", "", MASTER, None, True,
                                          self.path), 0)

    def tearDown(self):
        self.store.remove_all(True)
        self.store.close()

    def tiers(self, key):
        copies = self.store.get_replica_desc(key)
        return any(c.is_memory_replica() for c in copies), any(c.is_local_disk_replica() for c in copies)

    def put(self, n):
        """Put n blocks; more than memory holds, so that older ones go to the disk.  Returns those on the disk only.

        A put does not wait for the disk: this waits, so that no object is evicted without a copy."""
        for i in range(n):
            self.assertEqual(self.store.put(f"k{i}", block(i)), 0, f"k{i}")
            if i >= SEGMENT // SIZE - 4:
                eventually(lambda i=i: self.tiers(f"k{i - 8}")[1], f"k{i - 8} is not copied to the disk")
        tiers = [self.tiers(f"k{i}") for i in range(n)]
        self.assertNotIn((False, False), tiers)
        on_disk = [i for i in range(n) if not tiers[i][0]]
        self.assertGreaterEqual(len(on_disk), n - SEGMENT // SIZE)
        return on_disk

    def test_all_come_back(self):
        on_disk = self.put(64)
        for i in range(64):
            self.assertEqual(self.store.get(f"k{i}"), block(i), f"k{i}")
        copies = self.store.batch_get_replica_desc([f"k{i}" for i in on_disk])
        self.assertEqual(len(copies), len(on_disk))
        self.assertTrue(os.listdir(self.path))
        self.assertEqual(self.store.remove("k0", True), 0)
        self.assertEqual(self.store.get("k0"), b"")

    def test_a_read_promotes(self):
        i = self.put(48)[0]
        self.assertEqual(self.store.get(f"k{i}"), block(i))
        eventually(lambda: self.tiers(f"k{i}") == (True, True), "the object is not promoted")
        self.assertEqual(self.store.get(f"k{i}"), block(i))

    def test_exist_prefetches(self):
        on_disk = self.put(48)[:4]
        keys = [f"k{i}" for i in on_disk]
        self.assertEqual(self.store.batch_is_exist(keys), [1] * 4)
        self.assertEqual(self.store.batch_is_exist(keys, ms.ExistOptions(prefetch_to_memory=True)), [1] * 4)
        eventually(lambda: all(self.tiers(k)[0] for k in keys), "the objects are not prefetched")
        for k, i in zip(keys, on_disk):
            self.assertEqual(self.store.get(k), block(i))

    def test_batches_of_both_tiers(self):
        on_disk = self.put(48)
        memory = [i for i in range(48) if i not in on_disk]
        mixed = [on_disk[0], memory[-1], on_disk[-1], memory[0]]
        area = mmap.mmap(-1, 4 * SIZE)
        addr = ctypes.addressof(ctypes.c_char.from_buffer(area))
        self.assertEqual(self.store.register_buffer(addr, 4 * SIZE), 0)
        got = self.store.batch_get_into([f"k{i}" for i in mixed] + ["none"],
                                        [addr + n * SIZE for n in range(4)] + [addr], [SIZE] * 5)
        self.assertEqual(got, [SIZE] * 4 + [MISS])
        for n, i in enumerate(mixed):
            self.assertEqual(area[n * SIZE:(n + 1) * SIZE], block(i), f"k{i}")
        # parts of objects, at offsets that no sector has
        parts = [(on_disk[0], 1, 4095), (on_disk[1], 4097, 300001), (memory[-1], 17, 65536)]
        area[:] = bytes(4 * SIZE)
        got = self.store.get_into_ranges([addr], [[f"k{i}" for i, _, _ in parts]],
                                         [[[n * SIZE] for n in range(3)]], [[[at] for _, at, _ in parts]],
                                         [[[size] for _, _, size in parts]])
        self.assertEqual(got, [[[size] for _, _, size in parts]])
        for n, (i, at, size) in enumerate(parts):
            self.assertEqual(area[n * SIZE:n * SIZE + size], block(i)[at:at + size], f"k{i}")
        self.assertEqual(self.store.unregister_buffer(addr), 0)

    def test_unmount_of_the_disk(self):
        i = self.put(48)[0]
        self.assertEqual(self.store.unmount_local_disk_segment(), 0)
        self.assertEqual(self.store.get(f"k{i}"), b"")
        eventually(lambda: self.store.put("after", block(99)) == 0, "memory does not work without the disk")
        self.assertEqual(self.store.get("after"), block(99))

    def test_a_path_alone_switches_nothing_on(self):
        other, path = ms.MooncakeDistributedStore(), tempfile.mkdtemp(dir=DIR)
        self.assertEqual(other.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 0, "tcp", "", MASTER, ssd_offload_path=path), 0)
        other.close()
        self.assertEqual(os.listdir(path), [])


class SharedDirectory(unittest.TestCase):
    """MOONCAKE_ENABLE_DFS of upstream: copies in a directory, whose descriptors name the file."""

    def test_descriptor_and_end_of_the_owner(self):
        path = tempfile.mkdtemp(dir=DIR)
        os.environ.update(MOONCAKE_ENABLE_DFS="1", MOONCAKE_DFS_ROOT_DIR=path)
        store, reader = ms.MooncakeDistributedStore(), ms.MooncakeDistributedStore()
        try:
            self.assertEqual(store.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 0, "tcp", "", MASTER), 0)
            self.assertEqual(reader.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", MASTER), 0)
            self.assertEqual(reader.put("dfs", b"1", ms.ReplicateConfig(dfs_replica_num=1)), 0)
            self.assertEqual(reader.put("dfs2", b"1", ms.ReplicateConfig(dfs_replica_num=2)), -600)
        finally:
            del os.environ["MOONCAKE_ENABLE_DFS"], os.environ["MOONCAKE_DFS_ROOT_DIR"]
        self.assertEqual(reader.put("dfs2", b"1", ms.ReplicateConfig(dfs_replica_num=1)), -1601)
        files = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        self.assertEqual(len(files), 1)

        def copied():
            return any(c.is_disk_replica() for i in range(8) for c in reader.get_replica_desc(f"d{i}"))

        i = 0
        while not copied():
            self.assertLess(i, 200, "no copy in the directory")
            self.assertEqual(store.put(f"d{i}", block(i)), 0)
            i += 1
        key = next(f"d{i}" for i in range(8) if any(c.is_disk_replica() for c in reader.get_replica_desc(f"d{i}")))
        copy = next(c for c in reader.get_replica_desc(key) if c.is_disk_replica())
        self.assertFalse(copy.is_memory_replica() or copy.is_local_disk_replica())
        self.assertEqual(copy.get_disk_descriptor().file_path, files[0])
        self.assertEqual(copy.get_disk_descriptor().object_size, SIZE)
        self.assertRaises(RuntimeError, copy.get_memory_descriptor)
        store.close()
        self.assertEqual(reader.get(key), block(int(key[1:])))
        reader.remove_all(True)
        reader.close()


class Nof(unittest.TestCase):
    """Copies on disks of other owners that are said to be reached over NVMe-oF."""

    def test_copies_outlive_the_near_one(self):
        os.environ["MOONCAKE_SSD_NOF"] = "yes"
        owners = [ms.MooncakeDistributedStore() for _ in range(2)]
        for owner in owners:
            self.assertEqual(owner.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", MASTER, None, True,
                                         tempfile.mkdtemp(dir=DIR)), 0)
        del os.environ["MOONCAKE_SSD_NOF"]
        writer, reader = ms.MooncakeDistributedStore(), ms.MooncakeDistributedStore()
        self.assertEqual(writer.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 0, "tcp", "", MASTER), 0)
        self.assertEqual(reader.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", MASTER), 0)
        sizes = {"n1": 1, "n70001": 70001, "n3m": 3 * MIB}

        def disks(key):
            return [c for c in reader.get_replica_desc(key) if c.is_nof_replica()]

        for key, size in sizes.items():
            self.assertEqual(writer.put(key, block(size, size), ms.ReplicateConfig(nof_replica_num=3)), 0)
        self.assertEqual(writer.put("plain", b"1"), 0)
        self.assertEqual(writer.put("none", b"1", ms.ReplicateConfig(nof_replica_num=256)), -600)
        for key in sizes:
            eventually(lambda key=key: len(disks(key)) == 2, f"{key} has no two copies on disks")
            for copy in disks(key):
                self.assertFalse(copy.is_memory_replica() or copy.is_local_disk_replica() or copy.is_disk_replica())
                self.assertRaises(RuntimeError, copy.get_memory_descriptor)
        self.assertEqual(disks("plain"), [])
        writer.close()
        for key, size in sizes.items():
            self.assertEqual(reader.get(key), block(size, size), key)
        self.assertEqual(reader.get("plain"), b"")
        owners[0].close()
        for key, size in sizes.items():
            self.assertEqual(reader.get(key), block(size, size), key)
        reader.remove_all(True)
        reader.close()
        owners[1].close()


unittest.main(argv=sys.argv[:1], verbosity=2)
