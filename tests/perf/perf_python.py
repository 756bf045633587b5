# SPDX-License-Identifier: Apache-2.0
"""The Python package against upstream's wheel, in turn within the same minutes.

perf_python.py OURS_PYTHON OURS_MASTER [UPSTREAM_PYTHON UPSTREAM_MASTER]: the driver
(PERF_ROWS=TEXT: only rows with TEXT in their name; PERF_ROUNDS=N: number of rounds).  It runs
itself as workers, two processes for each package: one that owns memory and a measured one without
memory; then one that has its own memory."""

import ctypes
import os
import statistics
import subprocess
import sys
import threading
import time

MIB = 1 << 20
ROUNDS = int(os.environ.get("PERF_ROUNDS", "5"))


# ---- a worker ---------------------------------------------------------------------------------------


def memory(size):
    raw = (ctypes.c_char * size)()
    ctypes.memset(raw, 7, size)
    return raw, ctypes.addressof(raw)


def p50(call, n):
    times = []
    for i in range(n):
        began = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


class Worker:
    def __init__(self, store, master):
        self.s = store
        self.master = master
        self.raw, self.ptr = memory(256 * MIB)
        store.register_buffer(self.ptr, 256 * MIB)
        self.value = bytes(4096)

    def put_4k(self):
        r = p50(lambda i: self.s.put(f"p4-{i}", self.value), 500)
        self.s.batch_remove([f"p4-{i}" for i in range(500)], True)
        return r

    def get_4k(self):
        self.s.put("g4", self.value)
        return p50(lambda i: self.s.get("g4"), 1000)

    def by_address(self, get):
        """Time of a call with an address relative to that of the same call with bytes, 4 KiB, in turn, with other
        work of the caller before each call."""
        other, bytes_took, took = bytearray(1 << 20), [], []
        for i in range(400):
            keys, at = (f"by-{i}", f"at-{i}"), self.ptr + i * 4096
            if get:
                self.s.put(keys[0], self.value)
                self.s.put(keys[1], self.value)
                calls = (lambda: self.s.get(keys[0]), lambda: self.s.get_into(keys[1], at, 4096))
            else:
                calls = (lambda: self.s.put(keys[0], self.value), lambda: self.s.put_from(keys[1], at, 4096))
            for k in (i & 1, 1 - (i & 1)):
                other[:] = bytes(1 << 20)
                began = time.perf_counter()
                calls[k]()
                (took if k else bytes_took).append(time.perf_counter() - began)
        self.s.remove_all(True)
        return statistics.median(took) / statistics.median(bytes_took)

    def put_by_address(self):
        return self.by_address(False)

    def get_by_address(self):
        return self.by_address(True)

    def exist(self, n):
        keys = [f"e-{i}" for i in range(n)]
        self.s.put_batch(keys[:500], [b"x"] * 500)
        self.s.batch_is_exist(keys)
        r = p50(lambda i: self.s.batch_is_exist(keys), 20)
        self.s.remove_all(True)
        return r

    def exist_500(self):
        return self.exist(500)

    def exist_5000(self):
        return self.exist(5000)

    def batch(self, n, size, get):
        keys = [f"b-{i}" for i in range(n)]
        ptrs, sizes = [self.ptr + i * size for i in range(n)], [size] * n
        best = None
        for _ in range(3):
            self.s.batch_remove(keys, True)
            began = time.perf_counter()
            put = self.s.batch_put_from(keys, ptrs, sizes)
            middle = time.perf_counter()
            got = self.s.batch_get_into(keys, ptrs, sizes)
            end = time.perf_counter()
            assert put == [0] * n and got == sizes, (put[:3], got[:3])
            took = end - middle if get else middle - began
            best = took if best is None else min(best, took)
        self.s.remove_all(True)
        return n * size / best / 1e9 if size >= MIB else best * 1e6 / n

    def put_500x4k(self):
        return self.batch(500, 4096, False)

    def get_500x4k(self):
        return self.batch(500, 4096, True)

    def put_32x1m(self):
        return self.batch(32, MIB, False)

    def get_32x1m(self):
        return self.batch(32, MIB, True)

    def put_32x4m(self):
        return self.batch(32, 4 * MIB, False)

    def get_32x4m(self):
        return self.batch(32, 4 * MIB, True)

    def threads(self, n):
        """GB/s of get_into of 1 MiB by n threads."""
        key = ["th"]
        assert self.s.batch_put_from(key, [self.ptr], [MIB]) == [0]
        calls = 400 // n

        def work(k):
            at = self.ptr + k * MIB
            for _ in range(calls):
                assert self.s.get_into("th", at, MIB) == MIB

        threads = [threading.Thread(target=work, args=(k,)) for k in range(n)]
        began = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        took = time.perf_counter() - began
        self.s.remove_all(True)
        return calls * n * MIB / took / 1e9

    def threads_1(self):
        return self.threads(1)

    def threads_10(self):
        return self.threads(10)

    def again(self, segment):
        """ms of a setup() of another store with that much memory."""
        import mooncake.store as ms

        s = ms.MooncakeDistributedStore()
        began = time.perf_counter()
        code = s.setup("127.0.0.1", "P2PHANDSHAKE", segment, 16 * MIB, "tcp", "", self.master)
        took = (time.perf_counter() - began) * 1e3
        s.close()
        assert code == 0
        return took

    def setup_4g(self):
        return self.again(4 << 30)

    def one(self, get):
        """GB/s of put_from() or get_into() of 1 MiB, one at a time."""
        keys = [f"o-{i}" for i in range(64)]
        took = 0.0
        for i, key in enumerate(keys):
            if get:
                assert self.s.put_from(key, self.ptr + i * MIB, MIB) == 0
            began = time.perf_counter()
            code = self.s.get_into(key, self.ptr + i * MIB, MIB) if get else self.s.put_from(key, self.ptr + i * MIB, MIB)
            took += time.perf_counter() - began
            assert code == (MIB if get else 0), code
        self.s.remove_all(True)
        return len(keys) * MIB / took / 1e9

    def put_1m(self):
        return self.one(False)

    def get_1m(self):
        return self.one(True)

    def own(self, n, size, one_by_one, get):
        """Puts or gets of n objects in this process's own segment: speed relative to memcpy of the
        same bytes, best of each, in turn."""
        keys, sizes = [f"own-{i}" for i in range(n)], [size] * n
        ptrs = [self.ptr + i * size for i in range(n)]
        room, to = memory(n * size)

        def copy():
            for i in range(n):
                ctypes.memmove(to + i * size, ptrs[i], size)

        def call(what, batch, good):
            if one_by_one:
                got = [what(key, at, size) for key, at in zip(keys, ptrs)]
            else:
                got = batch(keys, ptrs, sizes)
            assert got == [good] * n, got[:3]

        best = [1e9, 1e9]
        for _ in range(5):
            self.s.batch_remove(keys, True)
            if get:
                call(self.s.put_from, self.s.batch_put_from, 0)
            for k in range(2):
                began = time.perf_counter()
                if not k:
                    copy()
                elif get:
                    call(self.s.get_into, self.s.batch_get_into, size)
                else:
                    call(self.s.put_from, self.s.batch_put_from, 0)
                best[k] = min(best[k], time.perf_counter() - began)
        self.s.remove_all(True)
        del room
        return best[0] / best[1]

    def own_put_1m(self):
        return self.own(64, MIB, True, False)

    def own_get_1m(self):
        return self.own(64, MIB, True, True)

    def own_put_32x1m(self):
        return self.own(32, MIB, False, False)

    def own_get_32x1m(self):
        return self.own(32, MIB, False, True)

    def own_put_32x4m(self):
        return self.own(32, 4 * MIB, False, False)

    def own_get_32x4m(self):
        return self.own(32, 4 * MIB, False, True)

    def memcpy(self):
        """GB/s over the working set of 32 x 4 MiB."""
        other, to = memory(128 * MIB)
        best = 1e9
        for _ in range(3):
            began = time.perf_counter()
            ctypes.memmove(to, self.ptr, 128 * MIB)
            best = min(best, time.perf_counter() - began)
        return 128 * MIB / best / 1e9


def worker(role, master):
    import mooncake.store as ms

    s = ms.MooncakeDistributedStore()
    segment = 0 if role == "user" else 1 << 30
    out = os.dup(1)
    os.dup2(2, 1)
    code = s.setup("127.0.0.1", "P2PHANDSHAKE", segment, 64 * MIB, "tcp", "", master)
    w = None if role == "owner" else Worker(s, master)
    os.write(out, f"{code}\n".encode())
    for line in sys.stdin:
        name = line.strip()
        try:
            answer = repr(getattr(w, name)())
        except Exception as e:
            answer = f"failed {type(e).__name__} {e}".replace("\n", " ")[:200]
        os.write(out, (answer + "\n").encode())
    s.close()


# ---- the driver -------------------------------------------------------------------------------------


class Child:
    def __init__(self, python, role, master):
        self.p = subprocess.Popen([python, __file__, "--worker", role, master], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.p.stdout.readline().strip() != "0":
            sys.exit(f"{python}: setup failed")

    def ask(self, name):
        self.p.stdin.write(name + "\n")
        self.p.stdin.flush()
        answer = self.p.stdout.readline().strip()
        return None if not answer or answer.startswith("failed") else float(answer)

    def close(self):
        self.p.stdin.close()
        self.p.wait(60)


ROWS = (("put 4 KiB", "put_4k", "us p50", -1), ("get 4 KiB", "get_4k", "us p50", -1),
        ("put_from 4 KiB to put", "put_by_address", "times", -1), ("get_into 4 KiB to get", "get_by_address", "times", -1),
        ("batch_is_exist 500 keys", "exist_500", "us", -1), ("batch_is_exist 5000 keys", "exist_5000", "us", -1),
        ("batch_put_from 500 x 4 KiB", "put_500x4k", "us/key", -1), ("batch_get_into 500 x 4 KiB", "get_500x4k", "us/key", -1),
        ("put_from 1 MiB", "put_1m", "GB/s", 1), ("get_into 1 MiB", "get_1m", "GB/s", 1),
        ("setup with 4 GiB", "setup_4g", "ms", -1),
        ("batch_put_from 32 x 1 MiB", "put_32x1m", "GB/s", 1), ("batch_get_into 32 x 1 MiB", "get_32x1m", "GB/s", 1),
        ("batch_put_from 32 x 4 MiB", "put_32x4m", "GB/s", 1), ("batch_get_into 32 x 4 MiB", "get_32x4m", "GB/s", 1),
        ("get_into 1 MiB, 1 thread", "threads_1", "GB/s", 1), ("get_into 1 MiB, 10 threads", "threads_10", "GB/s", 1),
        ("memcpy 128 MiB", "memcpy", "GB/s", 1))

OWN_ROWS = (("own segment: put_from 1 MiB", "own_put_1m"), ("own segment: get_into 1 MiB", "own_get_1m"),
            ("own segment: batch_put_from 32 x 1 MiB", "own_put_32x1m"), ("own segment: batch_get_into 32 x 1 MiB", "own_get_32x1m"),
            ("own segment: batch_put_from 32 x 4 MiB", "own_put_32x4m"), ("own segment: batch_get_into 32 x 4 MiB", "own_get_32x4m"))


def row(what, figure, value, unit):
    print(f"{what:46} {figure:12} {value:12.2f}  {unit}", flush=True)


def import_ms(python):
    code = "import time; t = time.perf_counter(); import mooncake.store; print((time.perf_counter() - t) * 1e3)"
    out = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120)
    return float(out.stdout.split()[-1])


def main(args):
    only = os.environ.get("PERF_ROWS", "")
    packages = [("ours", args[0], args[1])] + ([("upstream", args[2], args[3])] if len(args) > 2 else [])
    times = {name: [] for name, _, _ in packages}
    for _ in range(ROUNDS):
        for name, python, _ in packages:
            times[name].append(import_ms(python))
    for name in times:
        row("import mooncake.store", name, statistics.median(times[name]), "ms")
    children = [(name, Child(python, "owner", master), Child(python, "user", master)) for name, python, master in packages]
    for what, method, unit, better in ROWS:
        if only and only not in what:
            continue
        values = {name: [] for name, _, _ in children}
        for _ in range(ROUNDS):
            for name, _, user in children:
                v = user.ask(method)
                if v is not None:
                    values[name].append(v)
        middle = {n: statistics.median(v) for n, v in values.items() if v}
        for n, v in middle.items():
            row(what, n, v, unit)
        if len(middle) == 2 and method != "memcpy" and unit != "times":
            ratio = middle["ours"] / middle["upstream"]
            row(what, "x upstream", ratio if better > 0 else 1 / ratio, "times as fast")
    for _, owner, user in children:
        user.close()
        owner.close()
    own(packages, only)


def own(packages, only):
    """Start a process of each package that has the only segment."""
    children = [(name, Child(python, "alone", master)) for name, python, master in packages]
    for what, method in OWN_ROWS:
        if only and only not in what:
            continue
        values = {name: [] for name, _ in children}
        for _ in range(ROUNDS):
            for name, child in children:
                v = child.ask(method)
                if v is not None:
                    values[name].append(v)
        for name, v in values.items():
            if v:
                row(what, name, statistics.median(v), "times memcpy")
    for _, child in children:
        child.close()


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1:])
