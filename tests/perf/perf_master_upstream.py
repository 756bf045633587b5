# SPDX-License-Identifier: Apache-2.0
"""CPU time per key in a master, measured by the same program for either package.

perf_master_upstream.py MASTER PID: contributes memory, then prints microseconds of the master's CPU
per key of a put (start and end) and of an exist, in batches of 500."""

import os
import sys
import time

from mooncake.store import MooncakeDistributedStore

MIB = 1 << 20
BATCH = 500
PUTS = 20000
EXISTS = 200000


def main():
    out = os.dup(1)
    os.dup2(2, 1)
    master, pid = sys.argv[1], int(sys.argv[2])
    # clock id of all threads of that process, computed like clock_getcpuclockid()
    clock = (~pid << 3) | 2
    s = MooncakeDistributedStore()
    if s.setup("127.0.0.1", "P2PHANDSHAKE", 512 * MIB, 16 * MIB, "tcp", "", master):
        sys.exit("setup failed")
    name = f"perf-{os.getpid()}"
    batches = [[f"{name}-{i + j:056d}" for j in range(BATCH)] for i in range(0, PUTS, BATCH)]
    values = [b"x" * 64] * BATCH
    began = time.clock_gettime(clock)
    for keys in batches:
        if s.put_batch(keys, values):
            sys.exit("a put failed")
    put = (time.clock_gettime(clock) - began) / PUTS
    began = time.clock_gettime(clock)
    for i in range(EXISTS // BATCH):
        if s.batch_is_exist(batches[i % len(batches)]) != [1] * BATCH:
            sys.exit("a key is missing")
    exist = (time.clock_gettime(clock) - began) / EXISTS
    s.remove_all(True)
    s.close()
    os.write(out, f"{put * 1e6:.4f} {exist * 1e6:.4f}\n".encode())
    os._exit(0)


main()
