# SPDX-License-Identifier: Apache-2.0
"""rdma_node.py NAME NICS BYTES - a node for tests of RDMA between our engine and upstream's, whichever the interpreter
imports.  It registers BYTES for others and prints its segment.  For each line "SEGMENT THREADS SIZE..." of its input,
each thread writes every size to a place of its own in that segment, reads it back, and compares all bytes; the answer
is "ok" or the errors in one line.  With MANAGED in the environment its memory is the engine's."""
import ctypes
import mmap
import os
import sys
import threading

from mooncake.engine import TransferEngine

BLOCK = 65521


def pattern(length, seed):
    block = bytes(((k * 131 + seed * 7) >> 3) & 255 for k in range(BLOCK))
    return (block * (length // BLOCK + 1))[:length]


def memory(e, length):
    if "MANAGED" in os.environ:
        addr = e.allocate_managed_buffer(length)
        return memoryview((ctypes.c_char * length).from_address(addr)).cast("B"), addr
    area = mmap.mmap(-1, length)
    addr = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if e.register_memory(addr, length) != 0:
        sys.exit("register_memory failed")
    return area, addr


def free(e, addr, length):
    if "MANAGED" in os.environ:
        e.free_managed_buffer(addr, length)
    else:
        e.unregister_memory(addr)


def drive(e, segment, threads, sizes):
    room, errors = max(sizes), []
    area, addr = memory(e, 2 * threads * room)
    there = e.get_first_buffer_address(segment)

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
    free(e, addr, 2 * threads * room)
    return "; ".join(errors) or "ok"


def main():
    name, nics, length = sys.argv[1:]
    e = TransferEngine()
    if e.initialize(name, "P2PHANDSHAKE", "rdma", nics) != 0:
        sys.exit("initialize failed")
    area, addr = memory(e, int(length))
    print(f"{name}:{e.get_rpc_port()}", flush=True)
    for line in sys.stdin:
        segment, threads, *sizes = line.split()
        print(drive(e, segment, int(threads), [int(s) for s in sizes]), flush=True)
    free(e, addr, int(length))
    del area


main()
