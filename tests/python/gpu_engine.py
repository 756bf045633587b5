# SPDX-License-Identifier: Apache-2.0
"""mooncake.engine with memory of a GPU, the fake one or the machine's, in this process and in another: transfers, transfers on a stream, and the
end of a process in the middle of a copy."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["top_srcdir"], "tests", "lib"))

import gpu_memory as gpu  # noqa: E402
import mooncake.engine as me  # noqa: E402

MIB = 1 << 20
SIZE = 12 * MIB


def pattern(n, seed):
    block = bytes((i * 131 + seed * 17 + (i >> 8) * 7) & 255 for i in range(65536))
    return (block * (n // len(block) + 1))[:n]


def opened():
    e = me.TransferEngine()
    assert e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    at = gpu.alloc(SIZE)
    assert e.register_memory(at, SIZE, "cuda:0") == 0
    return e, f"127.0.0.1:{e.get_rpc_port()}", at


class Peer:
    """Another process with device memory full of pattern @seed."""

    def __init__(self, seed, **env):
        self.p = subprocess.Popen([sys.executable, __file__, "peer", str(seed)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, env={**os.environ, **env})
        self.name, self.at = json.loads(self.p.stdout.readline())

    def differs(self, seed):
        """Position of the first byte that is not the one of the pattern; -1."""
        self.p.stdin.write(f"{seed}\n")
        self.p.stdin.flush()
        return int(self.p.stdout.readline())

    def kill(self):
        self.p.kill()
        self.p.wait()
        self.p.stdin.close()
        self.p.stdout.close()

    def end(self):
        self.p.stdin.close()
        assert self.p.wait(30) == 0
        self.p.stdout.close()


def first_difference(at, seed):
    got, wanted = gpu.bytes_at(at, SIZE), pattern(SIZE, seed)
    if got == wanted:
        return -1
    return next(i for i in range(SIZE) if got[i] != wanted[i])


def peer(seed):
    out = os.dup(1)
    os.dup2(2, 1)
    _, name, at = opened()
    gpu.fill(at, pattern(SIZE, seed))
    os.write(out, (json.dumps([name, at]) + "\n").encode())
    for line in sys.stdin:
        os.write(out, f"{first_difference(at, int(line))}\n".encode())


def stream_failure():
    """Ends with 1: the transfer fails when the stream gets there."""
    e, name, at = opened()
    e.transfer_write_on_cuda(name, at, at + 4 * SIZE, MIB, gpu.stream())
    time.sleep(30)


class Transfers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.e, cls.name, cls.at = opened()

    def test_other_process(self):
        p = Peer(3)
        self.assertEqual(self.e.transfer_sync_read(p.name, self.at, p.at, SIZE), 0)
        self.assertEqual(first_difference(self.at, 3), -1)
        gpu.fill(self.at, pattern(SIZE, 4))
        self.assertEqual(self.e.transfer_sync_write(p.name, self.at, p.at, SIZE), 0)
        self.assertEqual(p.differs(4), -1)
        n, step = 4096, SIZE // 4096
        gpu.fill(self.at, pattern(SIZE, 5))
        self.assertEqual(self.e.batch_transfer_sync_write(p.name, [self.at + i * step for i in range(n)],
                                                          [p.at + i * step for i in range(n)], [step] * n), 0)
        self.assertEqual(p.differs(5), -1)
        batch = self.e.batch_transfer_async_read(p.name, [self.at], [p.at], [SIZE])
        self.assertEqual(self.e.get_batch_transfer_status([batch]), 0)
        self.assertEqual(self.e.transfer_sync_read(p.name, self.at, p.at + 1, SIZE), -1)
        p.end()

    def test_on_a_stream(self):
        p = Peer(6)
        s = gpu.stream()
        other = gpu.alloc(SIZE)
        gpu.fill(other, pattern(SIZE, 7))
        if gpu.FAKE:
            gpu.settings("FAKE_CUDA_COPY_US", 20000)
        gpu.fill(self.at, pattern(SIZE, 8))
        begun = time.monotonic()
        # the source gets its bytes before the transfer on the stream, and others after it
        gpu.copy(self.at, other, SIZE, s)
        self.e.transfer_write_on_cuda(p.name, self.at, p.at, SIZE, s)
        queued = time.monotonic() - begun
        gpu.fill(other, pattern(SIZE, 7))
        later = gpu.alloc(SIZE)
        gpu.fill(later, bytes(SIZE))
        gpu.copy(self.at, later, SIZE, s)
        gpu.synchronize(s)
        if gpu.FAKE:
            gpu.settings("FAKE_CUDA_COPY_US", 0)
        self.assertEqual(p.differs(7), -1)
        self.assertLess(queued, 1)
        self.assertEqual(gpu.bytes_at(self.at, SIZE), bytes(SIZE))
        self.e.batch_transfer_read_on_cuda(p.name, [self.at], [p.at], [SIZE], s)
        gpu.synchronize(s)
        self.assertEqual(first_difference(self.at, 7), -1)
        # the default stream
        self.e.transfer_read_on_cuda(p.name, later, p.at, SIZE)
        gpu.synchronize(0)
        self.assertEqual(first_difference(later, 7), -1)
        with self.assertRaises(RuntimeError):
            self.e.batch_transfer_write_on_cuda(p.name, [self.at], [], [1])
        p.end()

    def test_a_failure_on_a_stream_ends_the_process(self):
        r = subprocess.run([sys.executable, __file__, "stream_failure"], stderr=subprocess.PIPE, text=True, timeout=30)
        self.assertEqual(r.returncode, 1)
        self.assertIn("a transfer on a GPU's stream failed, ending the process", r.stderr)

    def test_a_peer_that_ends_in_the_middle_of_a_copy(self):
        for how in (signal.SIGKILL, signal.SIGSTOP):
            p = Peer(9, FAKE_CUDA_COPY_US="100000")
            batch = self.e.batch_transfer_async_write(p.name, [self.at], [p.at], [SIZE])
            time.sleep(0.2)
            p.p.send_signal(how)
            if how == signal.SIGSTOP:
                time.sleep(1)
                p.p.send_signal(signal.SIGCONT)
                self.assertEqual(self.e.get_batch_transfer_status([batch]), 0)
                self.assertEqual(gpu.bytes_at(self.at, SIZE) == pattern(SIZE, 9), p.differs(9) == -1)
                p.end()
            else:
                # a real GPU may have copied all bytes before
                self.assertIn(self.e.get_batch_transfer_status([batch]), (-1,) if gpu.FAKE else (-1, 0))
                p.kill()

    def test_a_writer_that_ends_in_the_middle_of_a_copy(self):
        p = Peer(10)
        w = subprocess.Popen([sys.executable, __file__, "writer", p.name, str(p.at)], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "FAKE_CUDA_COPY_US": "100000"})
        w.stdout.readline()
        time.sleep(0.25)
        w.kill()
        w.wait()
        w.stdout.close()
        # the peer serves on
        gpu.fill(self.at, pattern(SIZE, 12))
        self.assertEqual(self.e.transfer_sync_write(p.name, self.at, p.at, SIZE), 0)
        self.assertEqual(p.differs(12), -1)
        p.end()


def writer(name, at):
    e, _, mine = opened()
    gpu.fill(mine, pattern(SIZE, 11))
    e.batch_transfer_async_write(name, [mine], [int(at)], [SIZE])
    print("begun", flush=True)
    time.sleep(30)


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        peer(int(sys.argv[2]))
    elif sys.argv[1:2] == ["writer"]:
        writer(*sys.argv[2:])
    elif sys.argv[1:2] == ["stream_failure"]:
        stream_failure()
    else:
        unittest.main(argv=[sys.argv[0], "-v"])
