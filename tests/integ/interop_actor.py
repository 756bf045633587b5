# SPDX-License-Identifier: Apache-2.0
"""Upstream's side of the tests with upstream's nodes; see interop_actor.c, which has the same
commands.  VERSION is not an argument here: the environment (MC_TCP_PROTO) forces it."""
import ctypes
import mmap
import os
import socket
import sys
import threading
import time

from mooncake.engine import TransferEngine

WORDS = 131073
BLOCK = 8 * WORDS
THREADS = 8
BATCH = 64
SIZES = [1, 2, 3, 8, 23, 24, 25, 100, 4095, 4096, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 5 << 20]


def make_block():
    words, w = [], 1
    for _ in range(WORDS):
        w = (w * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        words.append(w.to_bytes(8, "little"))
    return b"".join(words)


block = memoryview(make_block())


def pieces(pos, n, seed):
    """Yield (position in the range, bytes of the block) until n bytes are produced."""
    done = 0
    while done < n:
        at = (pos + done + seed * 65537) % BLOCK
        take = min(n - done, BLOCK - at)
        yield done, block[at:at + take]
        done += take


def fill(mem, pos, n, seed):
    for off, want in pieces(pos, n, seed):
        mem[pos + off:pos + off + len(want)] = want


def check(mem, pos, n, seed):
    for off, want in pieces(pos, n, seed):
        if mem[pos + off:pos + off + len(want)] != want:
            sys.exit(f"bytes from {pos + off} on differ, seed {seed}")


def engine(meta, length):
    """Return the engine, the name by which others find it, and its memory."""
    e, name = TransferEngine(), os.environ.get("ACTOR_HOST", "127.0.0.1")
    if meta != "P2PHANDSHAKE":
        with socket.socket() as s:
            s.bind((name, int(os.environ.get("ACTOR_PORT", "0"))))
            name = f"{name}:{s.getsockname()[1]}"
    if e.initialize(name, meta, "tcp", "") != 0:
        sys.exit("initialize failed")
    if meta == "P2PHANDSHAKE":
        name = f"{name}:{e.get_rpc_port()}"
    area = mmap.mmap(-1, length)
    addr = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if e.register_memory(addr, length) != 0:
        sys.exit("register_memory failed")
    return e, name, addr, memoryview(area)


def serve(meta, length):
    e, name, _, mem = engine(meta, length)
    print(name, flush=True)
    for line in sys.stdin:
        word, seed = line.split()
        {"fill": fill, "check": check}[word](mem, 0, length, int(seed))
        print("ok", flush=True)
    del e


def run_sizes(op, e, name, addr, mem, peer, length, seed):
    one = e.transfer_sync_write if op == "write" else e.transfer_sync_read
    for n in SIZES + [length]:
        n = min(n, length)
        pos = length - n
        r = one(name, addr + pos, peer + pos, n)
        if r != 0:
            sys.exit(f"{op} of {n} bytes: {r}")
        if op == "read":
            check(mem, pos, n, seed)


def run_part(op, e, name, addr, peer, begin, end, failed):
    many = e.batch_transfer_sync_write if op == "write" else e.batch_transfer_sync_read
    pos, size = begin, 0
    while pos < end:
        offs, lens = [], []
        while len(offs) < BATCH and pos < end:
            n = min(SIZES[size % len(SIZES)], end - pos)
            size += 1
            offs.append(pos)
            lens.append(n)
            pos += n
        r = many(name, [addr + o for o in offs], [peer + o for o in offs], lens)
        if r != 0:
            failed.append(f"{op} of a batch: {r}")
            return


def drive(op, meta, name, length, seed):
    e, _, addr, mem = engine(meta, length)
    peer = e.get_first_buffer_address(name)
    if peer == 0:
        sys.exit(f"{name}: no such segment")
    if op == "write":
        fill(mem, 0, length, seed)
    run_sizes(op, e, name, addr, mem, peer, length, seed)
    if op == "read":
        ctypes.memset(addr, 0, length)
    failed, part = [], length // THREADS
    threads = [
        threading.Thread(target=run_part, args=(
            op, e, name, addr, peer, part * i, length if i == THREADS - 1 else part * (i + 1), failed))
        for i in range(THREADS)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        sys.exit(failed[0])
    check(mem, 0, length, seed)


def bench_part(many, name, parts, until, moved, failed):
    turn = 0
    while time.monotonic() < until and not failed:
        if many(name, *parts[turn % len(parts)]) != 0:
            failed.append(True)
        moved.append(sum(parts[turn % len(parts)][2]))
        turn += 1


def bench(meta, name, length):
    """Per line "read|write SIZE COUNT SECONDS THREADS": run batches for that time, with their
    requests spread over the threads, then print GB/s (tests/perf/perf_rival.c)."""
    e, _, addr, _ = engine(meta, length)
    peer = e.get_first_buffer_address(name)
    for line in sys.stdin:
        op, size, count, seconds, threads = line.split()
        size, threads = int(size), int(threads)
        count = max(1, int(count) // threads)
        many = e.batch_transfer_sync_write if op == "write" else e.batch_transfer_sync_read
        batches = [
            ([addr + o for o in offs], [peer + o for o in offs], [size] * count)
            for offs in ([b * size * count + i * size for i in range(count)]
                         for b in range(max(threads, length // (size * count))))
        ]
        moved, failed = [], []
        began = time.monotonic()
        parts = [
            threading.Thread(target=bench_part, args=(
                many, name, batches[t::threads], began + float(seconds), moved, failed))
            for t in range(threads)
        ]
        for t in parts:
            t.start()
        for t in parts:
            t.join()
        if failed:
            sys.exit(f"{line}: failed")
        print(sum(moved) / (time.monotonic() - began) / 1e9, flush=True)


if sys.argv[1] == "serve":
    serve(sys.argv[2], int(sys.argv[3]))
elif sys.argv[1] == "bench":
    bench(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    drive(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
