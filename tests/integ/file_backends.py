#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The system calls with which the file caches of vLLM, SGLang and LMCache use a directory.

One class for each back end of a released version (see the class); store, present and load make its
system calls in its order, with the paths that it uses.  Usage:

    file_backends.py DIR_A DIR_B [NAME...]    store through DIR_A, read through DIR_B, both ways
    file_backends.py --full DIR               DIR has less room than the objects need
    file_backends.py --list                   the names
"""
import errno
import hashlib
import mmap
import os
import random
import subprocess
import sys
import threading
import time

BLOCK = 4096


def content(seed, size):
    return random.Random(seed).randbytes(size)


class Aligned:
    """Memory that is aligned for O_DIRECT."""

    def __init__(self, size):
        self.size = size
        self.map = mmap.mmap(-1, -(-size // BLOCK) * BLOCK)
        self.view = memoryview(self.map)[:size]

    @classmethod
    def of(cls, data):
        a = cls(len(data))
        a.view[:] = data
        return a


def write_once(fd, data):
    """Write all bytes with one call: none of these back ends continues after a short write."""
    n = os.write(fd, data)
    if n != len(data):
        raise OSError(errno.EIO, "short write: %d of %d" % (n, len(data)))


def pwrite_file(path, data, flags, mode=0o666):
    fd = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        write_once(fd, data)
    except OSError:
        close_any(fd)
        raise
    os.close(fd)


def close_any(fd):
    try:
        os.close(fd)
    except OSError:
        pass


def unlink_any(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def read_once(path, size, flags=0):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        buf = Aligned(size)
        n = os.readv(fd, [memoryview(buf.map)])
        return bytes(buf.view[:n])
    finally:
        os.close(fd)


def random_hex(n):
    return os.urandom(n).hex()


class Backend:
    sizes = (64 << 10, 1 << 20, 5 << 20)
    overwrites = False		# a second store of a key gives it new bytes

    def __init__(self, root):
        self.root = root

    def setup(self):
        os.stat(self.root)


class VllmFs(Backend):
    """vLLM 0.33.0, fs tier of TieringOffloadingSpec (extension fs_io_C)."""

    def setup(self):
        os.stat(self.root)
        self.dir = os.path.join(self.root, "model_" + "ab" * 6)
        os.makedirs(self.dir, exist_ok=True)
        config = os.path.join(self.dir, "config.json")
        try:
            os.stat(config)
        except FileNotFoundError:
            pwrite_file(config, b"{}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        probe = os.path.join(self.dir, ".o_direct_probe_%s.tmp" % random_hex(4))
        pwrite_file(probe, Aligned(BLOCK).view,
                    os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
        os.unlink(probe)

    def path(self, key):
        h = hashlib.sha256(key.encode()).hexdigest()
        return os.path.join(self.dir, "m_r0", h[:3], h[3:5] + "_g0", h + ".bin")

    def present(self, key):
        return os.access(self.path(key), os.F_OK)

    def store(self, key, data):
        final = self.path(key)
        if self.present(key):
            return
        parents = []
        d = os.path.dirname(final)
        while True:
            try:
                os.stat(d)
                break
            except FileNotFoundError:
                parents.append(d)
                d = os.path.dirname(d)
        for d in reversed(parents):
            try:
                os.mkdir(d)
            except FileExistsError:
                pass
        tmp = "%s_%s.tmp" % (final, random_hex(4))
        try:
            pwrite_file(tmp, Aligned.of(data).view,
                        os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
            os.rename(tmp, final)
        except OSError:
            unlink_any(tmp)
            raise

    def load(self, key, size):
        return read_once(self.path(key), size, os.O_DIRECT)


class VllmExample(Backend):
    """vLLM 0.33.0, ExampleConnector: safetensors files, renamed while they are open."""
    sizes = (131160, (4 << 20) + 88)
    overwrites = True

    def path(self, key):
        return os.path.join(self.root, hashlib.md5(key.encode()).hexdigest(), "layer.safetensors")

    def present(self, key):
        try:
            os.stat(os.path.dirname(self.path(key)))
            return True
        except FileNotFoundError:
            return False

    def store(self, key, data):
        final = self.path(key)
        d = os.path.dirname(final)
        try:
            os.mkdir(d)
        except FileExistsError:
            pass
        tmp = os.path.join(d, ".tmp" + random_hex(3))
        fd = os.open(tmp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, len(data))
            write_once(fd, data)
            os.rename(tmp, final)
        except OSError:
            close_any(fd)
            unlink_any(tmp)
            raise
        os.close(fd)

    def load(self, key, size):
        path = self.path(key)
        try:
            os.mkdir(os.path.dirname(path))
        except FileExistsError:
            pass
        fd1 = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(fd1).st_size
        m1 = mmap.mmap(fd1, size, mmap.MAP_PRIVATE, mmap.PROT_READ)
        fd2 = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        m2 = mmap.mmap(fd2, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        os.posix_fadvise(fd2, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        os.close(fd1)
        os.close(fd2)
        a, b = m1[:], m2[:]
        m2[0:1] = b"!"	# its own copy
        if a != b or m1[0:1] != a[0:1]:
            raise AssertionError("two mappings of one file differ")
        return a


class SglangFile(Backend):
    """SGLang 0.5.23, HiCacheFile: numpy's tofile writes through a dup and closes that first."""

    def path(self, key):
        return os.path.join(self.root, "%s_model_0.bin" % hashlib.sha256(key.encode()).hexdigest())

    def present(self, key):
        try:
            os.stat(self.path(key))
            return True
        except FileNotFoundError:
            return False

    def store(self, key, data):
        final = self.path(key)
        if self.present(key):
            return
        tmp = os.path.join(self.root, ".%s.tmp" % random_hex(16))
        fd = os.open(tmp, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            dup = os.dup(fd)
            try:
                os.lseek(dup, 0, os.SEEK_CUR)
                write_once(dup, data)
            finally:
                os.close(dup)
            os.lseek(fd, 0, os.SEEK_SET)
            os.lseek(fd, len(data), os.SEEK_SET)
        except OSError:
            close_any(fd)
            unlink_any(tmp)
            raise
        os.close(fd)
        os.rename(tmp, final)

    def load(self, key, size):
        return read_once(self.path(key), size)


class SglangFileCapped(SglangFile):
    """The same with max_size and min_free_space: room by statvfs, LRU by st_mtime."""

    def setup(self):
        super().setup()
        self.room()
        self.lru()

    def room(self):
        v = os.statvfs(self.root)
        if v.f_bsize != BLOCK or v.f_frsize * v.f_blocks == 0 or v.f_bavail > v.f_blocks:
            raise AssertionError("statvfs: %r" % (v,))
        return v.f_bavail * v.f_frsize

    def lru(self):
        files = []
        for name in os.listdir(self.root):
            if name.endswith(".bin"):
                st = os.stat(os.path.join(self.root, name))
                files.append((st.st_mtime_ns, st.st_size, name))
        return sorted(files)

    def store(self, key, data):
        if self.room() < len(data):
            for _, _, name in self.lru():
                unlink_any(os.path.join(self.root, name))
        super().store(key, data)
        self.room()


class LmcacheFs(Backend):
    """LMCache 0.5.6, FSConnector (fs://): header and data in two writes, rename over the old file."""
    overwrites = True
    flags = os.O_TRUNC

    def setup(self):
        os.makedirs(self.root, exist_ok=True)

    def path(self, key):
        return os.path.join(self.root, "vllm@meta-llama--L@1@0@%s.data" %
                            hashlib.sha256(key.encode()).hexdigest()[:32])

    def present(self, key):
        return os.path.exists(self.path(key))

    def store(self, key, data):
        final = self.path(key)
        tmp = final[:-5] + ".tmp"
        fd = os.open(tmp, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            write_once(fd, b"H" * 28)
            write_once(fd, data)
            os.close(fd)
            os.rename(tmp, final)
        except OSError:
            close_any(fd)
            unlink_any(tmp)
            raise

    def load(self, key, size):
        fd = os.open(self.path(key), os.O_RDONLY | os.O_CLOEXEC)
        try:
            got = os.read(fd, BLOCK)
            got += os.read(fd, size + 28 - BLOCK)
        finally:
            os.close(fd)
        if got[:28] != b"H" * 28:
            raise AssertionError("header")
        return got[28:]


class LmcacheFsDirect(LmcacheFs):
    """The same with use_odirect: no O_TRUNC, alignment by f_bsize."""

    def setup(self):
        super().setup()
        if os.statvfs(self.root).f_bsize != BLOCK:
            raise AssertionError("f_bsize")

    def store(self, key, data):
        final = self.path(key)
        tmp = final[:-5] + ".tmp"
        try:
            pwrite_file(tmp, Aligned.of(data).view, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o644)
            os.rename(tmp, final)
        except OSError:
            unlink_any(tmp)
            raise

    def load(self, key, size):
        fd = os.open(self.path(key), os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != size:
                raise AssertionError("st_size")
            buf = Aligned(size)
            return bytes(buf.view[:os.readv(fd, [buf.view])])
        finally:
            os.close(fd)


class LmcacheLocalDisk(Backend):
    """LMCache 0.5.6, LocalDiskBackend: the final name is written in place."""
    overwrites = True
    flags = os.O_TRUNC
    direct = 0

    def setup(self):
        os.makedirs(self.root, exist_ok=True)
        os.statvfs(self.root)
        self.index = set()

    def path(self, key):
        return os.path.join(self.root, "vllm@m@1@0@%s.pt" % hashlib.md5(key.encode()).hexdigest())

    def present(self, key):
        return os.path.exists(self.path(key))

    def store(self, key, data):
        pwrite_file(self.path(key), Aligned.of(data).view,
                    os.O_CREAT | os.O_WRONLY | self.flags | self.direct, 0o644)

    def load(self, key, size):
        fd = os.open(self.path(key), os.O_RDONLY | self.direct | os.O_CLOEXEC)
        try:
            buf = Aligned(os.fstat(fd).st_size)
            return bytes(buf.view[:os.readv(fd, [buf.view])])
        finally:
            os.close(fd)


class LmcacheLocalDiskDirect(LmcacheLocalDisk):
    """The same with use_odirect: an existing file is overwritten from its beginning."""
    flags = 0
    direct = os.O_DIRECT


class LmcacheL2Fs(LmcacheLocalDisk):
    """LMCache 0.5.6, L2 adapter fs (MP mode): an existing file is not changed."""
    overwrites = False

    def path(self, key):
        return os.path.join(self.root, "model@0x0@0@%s.data" % hashlib.md5(key.encode()).hexdigest())

    def store(self, key, data):
        final = self.path(key)
        if self.present(key):
            return
        tmp = final[:-5] + ".tmp"
        try:
            pwrite_file(tmp, Aligned.of(data).view,
                        os.O_CREAT | os.O_WRONLY | self.flags | self.direct, 0o644)
            os.rename(tmp, final)
        except OSError:
            unlink_any(tmp)
            raise


class LmcacheL2FsNative(LmcacheL2Fs):
    """LMCache 0.5.6, L2 adapter fs_native (extension lmcache_fs) with O_DIRECT."""
    flags = os.O_TRUNC
    direct = os.O_DIRECT

    def load(self, key, size):
        return read_once(self.path(key), size, os.O_DIRECT)


class LmcacheGds(Backend):
    """LMCache 0.5.6, GdsBackend without GDS: stores go through a shared mapping, after the close."""
    overwrites = True

    def setup(self):
        os.makedirs(self.root, exist_ok=True)
        self.found = []
        for a in os.scandir(self.root):
            if not a.is_dir(follow_symlinks=False):
                continue
            for b in os.scandir(a.path):
                if not b.is_dir(follow_symlinks=False):
                    continue
                for f in os.scandir(b.path):
                    if f.is_file(follow_symlinks=False) and f.name.endswith(".metadata"):
                        self.found.append(self.metadata(f.path))

    @staticmethod
    def metadata(path):
        fd = os.open(path, os.O_RDONLY | os.O_NOATIME | os.O_CLOEXEC)
        try:
            got = os.read(fd, BLOCK)
        finally:
            os.close(fd)
        if len(got) != BLOCK:
            raise AssertionError("metadata of %d bytes" % len(got))
        return got.rstrip(b"\0").decode()

    def path(self, key):
        h = hashlib.md5(key.encode()).hexdigest()
        return os.path.join(self.root, h[:2], h[2:4], h + ".kvcache")

    def present(self, key):
        path = self.path(key) + ".metadata"
        return os.path.exists(path) and self.metadata(path) == key

    def store(self, key, data):
        final = self.path(key)
        for d in (os.path.dirname(os.path.dirname(final)), os.path.dirname(final)):
            try:
                os.mkdir(d)
            except FileExistsError:
                pass
        tmp = "%s.tmp%s" % (final, random_hex(4))
        pwrite_file(tmp, b"\0" * BLOCK, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        fd = os.open(tmp, os.O_RDWR | os.O_CLOEXEC)
        os.ftruncate(fd, BLOCK + len(data))
        # Python's mmap keeps a duplicate of the descriptor, as in LMCache
        m = mmap.mmap(fd, BLOCK + len(data), mmap.MAP_SHARED, mmap.PROT_WRITE)
        os.close(fd)
        m[BLOCK:] = data
        m.close()
        os.rename(tmp, final)
        tmp = "%s.metadata.tmp%s" % (final, random_hex(4))
        uring_write(tmp, key.encode().ljust(BLOCK, b"\0"))
        os.rename(tmp, final + ".metadata")

    def load(self, key, size):
        fd = os.open(self.path(key), os.O_RDONLY | os.O_CLOEXEC)
        if os.fstat(fd).st_size != BLOCK + size:
            os.close(fd)
            raise AssertionError("st_size")
        m = mmap.mmap(fd, BLOCK + size, mmap.MAP_PRIVATE | mmap.MAP_POPULATE, mmap.PROT_READ)
        os.close(fd)
        return m[BLOCK:]


def uring_write(path, data):
    """Write with io_uring through the helper program that the test names, otherwise with write(2)."""
    helper = os.environ.get("URING_WRITE")
    if not helper:
        return pwrite_file(path, data, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    done = subprocess.run([helper, path], input=data, check=False)
    if done.returncode != 0:
        raise OSError(errno.EIO, "io_uring write: status %d" % done.returncode)
    return None


BACKENDS = {
    "vllm_fs": VllmFs,
    "vllm_example": VllmExample,
    "sglang_file": SglangFile,
    "sglang_file_capped": SglangFileCapped,
    "lmcache_fs": LmcacheFs,
    "lmcache_fs_odirect": LmcacheFsDirect,
    "lmcache_local_disk": LmcacheLocalDisk,
    "lmcache_local_disk_odirect": LmcacheLocalDiskDirect,
    "lmcache_l2_fs": LmcacheL2Fs,
    "lmcache_l2_fs_native": LmcacheL2FsNative,
    "lmcache_gds": LmcacheGds,
}


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def opened(name, root):
    d = os.path.join(root, name)
    try:
        os.mkdir(d)
    except FileExistsError:
        pass
    b = BACKENDS[name](d)
    b.setup()
    return b


def both_ways(name, root_a, root_b):
    """Store objects of each size on one node and load them on the other; then again with new bytes."""
    a, b = opened(name, root_a), opened(name, root_b)
    for n, size in enumerate(a.sizes):
        for writer, reader, tag in ((a, b, "ab"), (b, a, "ba")):
            key = "%s-%d-%s" % (name, n, tag)
            check(not reader.present(key), "%s: present before its store" % key)
            data = content(key, size)
            writer.store(key, data)
            check(reader.present(key), "%s: absent on the other node after its store" % key)
            check(reader.load(key, size) == data, "%s: other bytes on the other node" % key)
            check(writer.load(key, size) == data, "%s: other bytes on its own node" % key)
            again = content(key + "2", size)
            reader.store(key, again)
            wanted = again if a.overwrites else data
            check(writer.load(key, size) == wanted, "%s: other bytes after a second store" % key)
    opened(name, root_b)	# after a restart it scans the existing files
    try:
        a.load("never stored", a.sizes[0])
        check(False, "load of an absent key")
    except OSError as e:
        check(e.errno == errno.ENOENT, "load of an absent key: %s" % e)


def racing(name, root_a, root_b, rounds=12):
    """Both nodes store one key at the same time, with the back end's own temporary names, which
    may be the same: at least one store succeeds, and a reader gets the whole value of one of
    the two."""
    a, b = opened(name, root_a), opened(name, root_b)
    size = a.sizes[1]
    for i in range(rounds):
        key = "race-%s-%d" % (name, i)
        data = [content(key + n, size) for n in "ab"]
        results = [None, None]
        gate = threading.Barrier(2)

        def store(n, backend, key=key, data=data, results=results, gate=gate):
            gate.wait()
            try:
                backend.store(key, data[n])
                results[n] = True
            except OSError as e:
                results[n] = e
        threads = [threading.Thread(target=store, args=(n, s)) for n, s in enumerate((a, b))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check(True in results, "%s: no thread stored it: %r" % (key, results))
        for r in (a, b):
            got = r.load(key, size)
            check(got in data, "%s: bytes of neither writer" % key)


def gone(path):
    """The kernel reports the last close asynchronously: until then the name still counts as being written."""
    end = time.monotonic() + 10
    while os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    return not os.path.exists(path)


def full(root):
    """Beside an object that cannot be evicted there is room for small objects and none for large
    ones: storing a large one fails with ENOSPC, in time, and leaves no file.  Small ones are
    stored or evicted, never truncated."""
    for name in BACKENDS:
        # A store through a mapping can be refused only by a signal; the capped back end frees space itself.
        if name in ("lmcache_gds", "sglang_file_capped"):
            continue
        b = opened(name, root)
        stored, evicted = {}, 0
        for i in range(8):
            key = "full-%s-%d" % (name, i)
            large = i % 2 == 1
            data = content(key, b.sizes[-1] if large else b.sizes[0])
            try:
                b.store(key, data)
                check(not large, "%s: found room" % key)
                stored[key] = data
            except OSError as e:
                check(large, "%s: %s" % (key, e))
                check(e.errno in (errno.ENOSPC, errno.EDQUOT), "%s: %s" % (key, e))
                check(gone(b.path(key)), "%s: was refused and exists" % key)
        for key, data in stored.items():
            try:
                check(b.load(key, len(data)) == data, "%s: other bytes" % key)
            except FileNotFoundError:
                evicted += 1
        check(evicted < len(stored), "%s: nothing is left" % name)
        for d, _, files in os.walk(os.path.join(root, name)):
            for f in files:
                unlink_any(os.path.join(d, f))
        print("ok %s in a full pool: %d of %d small ones left" %
              (name, len(stored) - evicted, len(stored)))


def main(args):
    if args == ["--list"]:
        print("\n".join(BACKENDS))
    elif args[0] == "--full":
        full(args[1])
    else:
        for name in args[2:] or BACKENDS:
            both_ways(name, args[0], args[1])
            racing(name, args[0], args[1])
            print("ok", name)


if __name__ == "__main__":
    main(sys.argv[1:])
