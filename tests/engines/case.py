# SPDX-License-Identifier: Apache-2.0
"""One store connector of a released engine between two processes, with our package; or one of its file
back ends on two mounts.

case.py CASE MASTER_PROGRAM RPC_PORT HTTP_PORT: start the master and two workers; one puts, the
other one queries and reads, and compares every byte: normally, while the pool is too small, and
after the master was killed and restarted.  case.py --worker CASE MASTER ROLE: a worker, which reads
lines of JSON.

A CASE is a module (sglang_hicache and so on) with PINS, the required packages, and a class
Engine(master, role) with put(names), exists(names) -> [bool] and get(names) -> [bytes or None]; the
payload of a name is payload(name, SIZE).  Or it is files:KIND, a class of files.py with the same
methods; each worker then has its own mount, mount_of(role)."""

import hashlib
import importlib
import json
import os
import subprocess
import sys
import time

POOL = 64 << 20		# bytes of each worker
SECONDS = 60


def payload(name, size):
    """Bytes that are unique for the name."""
    block = hashlib.sha256(name.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def readme(marker, master):
    """Configuration in README.md after the line that begins with @marker, for this master and host."""
    path = os.path.join(os.environ["top_srcdir"], "README.md")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = text[text.index("\n" + marker):]
    block = text.split("```", 2)[1].strip()
    for shown, here in (("10.0.0.1:50051", master), ("10.0.0.2", "127.0.0.1"), ("64gb", str(POOL)),
                        ("68719476736", str(POOL))):
        block = block.replace(shown, here)
    return block


def case_of(name):
    """Engine, SIZE and PINS of a case."""
    module, _, kind = name.partition(":")
    case = importlib.import_module(module)
    return (case.KINDS[kind], case.KINDS[kind].SIZE, case.KINDS[kind].PINS) if kind else (case.Engine, case.SIZE, case.PINS)


def mount_of(role):
    return os.path.join(os.environ["MC_MOUNTS"], role)


# ---- a worker ----


def worker(module, master, role):
    # the engine's output goes to stderr
    out = os.dup(1)
    os.dup2(2, 1)
    engine, size, _ = case_of(module)
    engine = engine(master, role)

    def answer(value):
        os.write(out, (json.dumps(value) + "\n").encode())

    answer("ready")
    for line in sys.stdin:
        what, names = json.loads(line)
        try:
            got = getattr(engine, what)(names)
            if what == "get":
                got = [None if g is None else g == payload(n, size) for n, g in zip(names, got)]
            answer(got)
        except Exception as e:
            answer({"error": f"{type(e).__name__}: {e}"})
    sys.stdout.flush()
    sys.stderr.flush()
    # the interpreter exits with whatever the engine leaves: threads, open stores


class Worker:
    def __init__(self, module, master, role):
        self.p = subprocess.Popen([sys.executable, __file__, "--worker", module, master, role], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)

    def read(self):
        line = self.p.stdout.readline()
        if not line:
            sys.exit(f"FAILED: a worker ended with {self.p.wait(30)}")
        return json.loads(line)

    def ask(self, what, names):
        self.p.stdin.write(json.dumps([what, names]) + "\n")
        self.p.stdin.flush()
        return self.read()

    def end(self):
        self.p.stdin.close()
        return self.p.wait(SECONDS)


# ---- the case ----


class Master:
    def __init__(self, program, rpc, http):
        self.args = [program, f"--rpc_port={rpc}", f"--metrics_port={http}", "--default_kv_lease_ttl=500"]
        self.addr = f"127.0.0.1:{rpc}"
        self.start()

    def start(self):
        self.p = subprocess.Popen(self.args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        self.p.kill()
        self.p.wait()


class Mount:
    """A node: mcfs from the build directory, with POOL bytes."""

    def __init__(self, master, role):
        self.dir = mount_of(role)
        os.makedirs(self.dir)
        self.p = subprocess.Popen([os.path.join(os.environ["top_builddir"], "mcfs", "mcfs"), "-f", master, self.dir,
                                   f"--global_segment_size={POOL}", "--setup_timeout=20s", "--port=0", "--log=err"])
        end = time.monotonic() + SECONDS
        while not os.path.ismount(self.dir):
            if self.p.poll() is not None or time.monotonic() > end:
                sys.exit(f"FAILED: {self.dir} is not mounted: {self.p.poll()}")
            time.sleep(0.05)

    def end(self):
        self.p.terminate()
        return self.p.wait(SECONDS)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"FAILED: {what}: {got!r}, not {wanted!r}")


def plainly(one, other):
    names = [f"plain-{i}" for i in range(16)]
    expect("exists before", other.ask("exists", names), [False] * 16)
    one.ask("put", names)
    expect("exists", other.ask("exists", names), [True] * 16)
    expect("get", other.ask("get", names), [True] * 16)
    expect("get of what is not there", other.ask("get", ["never-put"]), [None])
    other.ask("put", ["back"])
    expect("get of the other's", one.ask("get", ["back"]), [True])
    print("ok put, exists, get between two processes", flush=True)


def crowded(one, other, size):
    """Put three times as much as the pool holds: some are evicted, none is wrong, and names that
    exist can be read."""
    count = 3 * 2 * POOL // size
    step = max(1, min(16, count // 12))
    there = misses = 0
    for at in range(0, count, step):
        names = [f"crowd-{i}" for i in range(at, at + step)]
        one.ask("put", names)
        found = other.ask("exists", names)
        got = other.ask("get", names)
        if isinstance(found, dict) or isinstance(got, dict):
            sys.exit(f"FAILED: under eviction: {found} {got}")
        for f, g in zip(found, got):
            expect("payload under eviction", g is False, False)
            expect("exists, but cannot be read", f and g is None, False)
            there, misses = there + (g is True), misses + (g is None)
    first = other.ask("exists", [f"crowd-{i}" for i in range(step)])
    if all(first) or there < count // 4:
        sys.exit(f"FAILED: under eviction: {there} of {count} read, {misses} missed, the first {step}: {first}")
    print(f"ok under eviction: {there} of {count} were there, {misses} were not, none was wrong", flush=True)


def restarted(one, other, master):
    """While the master is down no call hangs; after its restart, new objects can be put and read."""
    master.kill()
    began = time.monotonic()
    got = other.ask("get", ["plain-0"])
    if not isinstance(got, dict):
        expect("a wrong payload without a master", got[0] is False, False)
    if time.monotonic() - began > 40:
        sys.exit(f"FAILED: a get without a master took {time.monotonic() - began:.0f} s")
    master.start()
    end = time.monotonic() + SECONDS
    n = 0
    while True:
        names = [f"after-{n}-{i}" for i in range(4)]
        n += 1
        one.ask("put", names)
        if other.ask("exists", names) == [True] * 4 and other.ask("get", names) == [True] * 4:
            break
        if time.monotonic() > end:
            sys.exit(f"FAILED: nothing can be put {SECONDS} s after the master's restart")
        time.sleep(0.2)
    print(f"ok over a restart of the master: {time.monotonic() - began:.1f} s, {n} attempts", flush=True)


def main(module, program, rpc, http):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    _, size, pins = case_of(module)
    missing = [name for name in pins if importlib.util.find_spec(name) is None]
    if missing:
        print(f"SKIP: {', '.join(missing)} is not installed")
        sys.exit(77)
    master = Master(program, rpc, http)
    workers, mounts = [], []
    try:
        if ":" in module:
            mounts = [Mount(master.addr, role) for role in ("one", "other")]
        workers = [Worker(module, master.addr, role) for role in ("one", "other")]
        for w in workers:
            expect("start", w.read(), "ready")
        plainly(*workers)
        crowded(*workers, size)
        restarted(*workers, master)
        expect("how the workers end", [w.end() for w in workers], [0, 0])
        print("ok both processes end by themselves, without close()")
        expect("how the mounts end", [m.end() for m in mounts], [0] * len(mounts))
    finally:
        for w in workers:
            if w.p.poll() is None:
                w.p.kill()
        for m in mounts:
            if m.p.poll() is None:
                m.end()
        master.kill()


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
