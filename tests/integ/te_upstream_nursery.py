# SPDX-License-Identifier: Apache-2.0
"""Thousands of upstream nodes: the package is imported once, and each node is a child of this
process, which has no threads.  Per line of input start one node that offers that many bytes,
and print its name and pid."""
import ctypes
import mmap
import os
import signal
import sys

from mooncake.engine import TransferEngine

PR_SET_PDEATHSIG = 1


def node(length):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    engine = TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
        sys.exit("initialize failed")
    area = mmap.mmap(-1, length)
    if engine.register_memory(ctypes.addressof(ctypes.c_char.from_buffer(area)), length) != 0:
        sys.exit("register_memory failed")
    print(f"127.0.0.1:{engine.get_rpc_port()} {os.getpid()}", flush=True)
    while True:
        signal.pause()


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
while line := sys.stdin.readline():
    if os.fork() == 0:
        node(int(line))
