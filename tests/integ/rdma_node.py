# SPDX-License-Identifier: Apache-2.0
"""A node with one NIC for tests of RDMA between our engine and upstream's, whichever the interpreter imports.

    rdma_node.py serve NAME NICS BYTES                     register memory, print its segment, serve until stdin ends
    rdma_node.py drive NAME NICS SEGMENT THREADS SIZE...   each thread writes every size to a place of its own, reads
                                                           it back, and compares all bytes
"""
import ctypes
import mmap
import sys
import threading

from mooncake.engine import TransferEngine

BLOCK = 65521


def pattern(length, seed):
    block = bytes(((k * 131 + seed * 7) >> 3) & 255 for k in range(BLOCK))
    return (block * (length // BLOCK + 1))[:length]


def engine(name, nics):
    e = TransferEngine()
    if e.initialize(name, "P2PHANDSHAKE", "rdma", nics) != 0:
        sys.exit("initialize failed")
    return e


def memory(e, length):
    area = mmap.mmap(-1, length)
    addr = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if e.register_memory(addr, length) != 0:
        sys.exit("register_memory failed")
    return area, addr


def serve(name, nics, length):
    e = engine(name, nics)
    area, addr = memory(e, int(length))
    print(f"{name.partition(':')[0]}:{e.get_rpc_port()}", flush=True)
    sys.stdin.read()
    e.unregister_memory(addr)


def drive(name, nics, segment, threads, *sizes):
    sizes = [int(s) for s in sizes]
    threads, room = int(threads), max(sizes)
    e = engine(name, nics)
    area, addr = memory(e, 2 * threads * room)
    there = e.get_first_buffer_address(segment)
    errors = []

    def run(i):
        send, back = 2 * i * room, (2 * i + 1) * room
        for k, size in enumerate(sizes):
            want = pattern(size, 31 * i + k)
            area[send:send + size] = want
            area[back:back + size] = bytes(size)
            r = e.transfer_sync_write(segment, addr + send, there + i * room, size)
            if r == 0:
                r = e.transfer_sync_read(segment, addr + back, there + i * room, size)
            if r != 0:
                errors.append(f"thread {i}, {size} bytes: {r}")
            elif area[back:back + size] != want:
                errors.append(f"thread {i}, {size} bytes: the bytes differ")

    each = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for t in each:
        t.start()
    for t in each:
        t.join()
    e.unregister_memory(addr)
    print("\n".join(errors) or "ok", flush=True)
    return len(errors)


sys.exit({"serve": serve, "drive": drive}[sys.argv[1]](*sys.argv[2:]))
