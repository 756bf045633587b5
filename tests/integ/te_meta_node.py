# SPDX-License-Identifier: Apache-2.0
"""Upstream's engine as a node of the metadata tests; see te_meta_node.c, which has the same commands."""
import ctypes
import mmap
import sys

from mooncake.engine import TransferEngine

BLOCK = 65521


def pattern(length, seed):
    block = bytes(((k * 131 + seed * 7) >> 3) & 255 for k in range(BLOCK))
    return (block * (length // BLOCK + 1))[:length]


def main():
    meta, name, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
    e = TransferEngine()
    if e.initialize(name, meta, "tcp", "") != 0:
        sys.exit("initialize failed")
    area = mmap.mmap(-1, length)
    addr = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if e.register_memory(addr, length) != 0:
        sys.exit("register_memory failed")
    print("ok", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "end":
            break
        seed, r = int(words[-1]), 0
        if words[0] in ("fill", "write"):
            area[:] = pattern(length, seed)
        if words[0] == "read":
            ctypes.memset(addr, 0, length)
        if words[0] in ("read", "write"):
            peer = e.get_first_buffer_address(words[1])
            move = e.transfer_sync_write if words[0] == "write" else e.transfer_sync_read
            r = move(words[1], addr, peer, length) if peer else "no such segment"
        if r != 0:
            print(f"{words[0]}: {r}", flush=True)
        elif words[0] in ("read", "check") and area[:] != pattern(length, seed):
            print("the bytes differ", flush=True)
        else:
            print("ok", flush=True)
    e.unregister_memory(addr)


main()
