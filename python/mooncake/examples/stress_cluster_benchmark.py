# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.examples.stress_cluster_benchmark --role=prefill|decode: measure a pool.

Start the role prefill first: it puts the objects key0, key1, ... in batches.  The role decode, on another host and within
--wait-time of the end of prefill, reads them into registered memory and compares every byte.  The role and the addresses
may also be variables: ROLE, PROTOCOL, DEVICE_NAME, LOCAL_HOSTNAME, MC_METADATA_SERVER, MASTER_SERVER."""

import argparse
import collections
import logging
import math
import mmap
import os
import statistics
import sys
import threading
import time

from mooncake.store import MooncakeDistributedStore

log = logging.getLogger("stress_cluster_benchmark")

MIB = 1 << 20
# Result of an object whose bytes are not those that prefill put.
WRONG_BYTES = "wrong bytes"


def readable(size):
    power = min(int(math.log(size, 1024)), 4) if size else 0
    return f"{size / 1024 ** power:.2f} {('B', 'KB', 'MB', 'GB', 'TB')[power]}"


class Numbers:
    """Results of batches: their times, the bytes of the objects that succeeded, and the codes of the others."""

    def __init__(self):
        self.seconds, self.bytes, self.objects = [], 0, 0
        self.codes = collections.Counter()
        self.began, self.ended = math.inf, 0.0

    def add(self, other):
        self.seconds += other.seconds
        self.bytes += other.bytes
        self.objects += other.objects
        self.codes += other.codes
        self.began, self.ended = min(self.began, other.began), max(self.ended, other.ended)

    def report(self, title):
        if not self.seconds:
            log.error("%s: no batch was carried out", title)
            return
        ms = [1000 * s for s in self.seconds]
        failed, busy, wall = sum(self.codes.values()), sum(self.seconds), self.ended - self.began

        def quantile(n):
            return statistics.quantiles(ms, n=n)[-1] if len(ms) >= n else max(ms)

        lines = [f"=== {title} PERFORMANCE STATISTICS ===", f"Total operations: {self.objects}",
                 f"  Succeeded: {self.objects - failed} ({100 * (self.objects - failed) / self.objects:.2f}%)",
                 f"  Failed:    {failed}", f"Total data transferred: {readable(self.bytes)}",
                 f"Total wall time: {wall:.2f} seconds", f"Total operation time: {busy:.2f} seconds",
                 "Latency metrics (of a batch):", f"  Mean latency: {statistics.mean(ms):.2f} ms", f"  Min latency:  {min(ms):.2f} ms",
                 f"  Max latency:  {max(ms):.2f} ms", f"  P90 latency:  {quantile(10):.2f} ms",
                 f"  P99 latency:  {quantile(100):.2f} ms", f"  P999 latency: {quantile(1000):.2f} ms", "Throughput metrics:",
                 f"  Operations/sec (operation time): {self.objects / busy:.2f}",
                 f"  Operations/sec (wall time):      {self.objects / wall:.2f}",
                 f"  Throughput (operation time):     {self.bytes / busy / MIB:.2f} MB/s",
                 f"  Throughput (wall time):          {self.bytes / wall / MIB:.2f} MB/s"]
        if self.codes:
            lines += ["Error codes encountered:"] + [f"  Code {code}: {n} times" for code, n in self.codes.items()]
        log.info("%s", "\n".join(["", *lines, "=" * 50]))


class Worker(threading.Thread):
    """One client of the pool, for the keys from first on."""

    def __init__(self, args, first, count, start):
        super().__init__(name=f"Worker-{first}", daemon=True)
        self.args, self.keys, self.start_together = args, range(first, first + count), start
        self.numbers, self.error = Numbers(), None

    def run(self):
        try:
            self.work()
        except Exception as e:
            self.error = e
            self.start_together.abort()

    def work(self):
        a = self.args
        store = MooncakeDistributedStore()
        code = store.setup(a.local_hostname, a.metadata_server, a.global_segment_size * MIB, a.local_buffer_size * MIB, a.protocol,
                           a.device_name, a.master_server)
        if code:
            raise RuntimeError(f"Store setup failed with return code {code}")
        memory = mmap.mmap(-1, a.batch_size * a.value_length)
        view = memoryview(memory)
        address = store_address(view)
        try:
            code = store.register_buffer(address, len(view))
            if code:
                raise RuntimeError(f"Buffer registration failed with return code {code}")
            self.start_together.wait(300)
            self.numbers.began = time.perf_counter()
            for at in range(0, len(self.keys), a.batch_size):
                self.batch(store, view, address, self.keys[at:at + a.batch_size])
            self.numbers.ended = time.perf_counter()
            log.info("%s: %s phase completed. Failed operations: %d. Waiting %d seconds...", self.name, a.role.capitalize(),
                     sum(self.numbers.codes.values()), a.wait_time)
            # the objects of prefill are in this process
            time.sleep(a.wait_time)
        finally:
            store.close()

    def batch(self, store, view, address, keys):
        size, put = self.args.value_length, self.args.role == "prefill"
        names, addresses = [f"key{k}" for k in keys], [address + i * size for i in range(len(keys))]
        for i, k in enumerate(keys):
            view[i * size:(i + 1) * size] = bytes([k % 256 if put else ~k % 256]) * size
        began = time.perf_counter()
        codes = (store.batch_put_from if put else store.batch_get_into)(names, addresses, [size] * len(keys))
        self.numbers.seconds.append(time.perf_counter() - began)
        self.numbers.objects += len(keys)
        for i, (k, code) in enumerate(zip(keys, codes)):
            if code == size and not put and view[i * size:(i + 1) * size] != bytes([k % 256]) * size:
                code = WRONG_BYTES
            if code == (0 if put else size):
                self.numbers.bytes += size
            else:
                self.numbers.codes[code] += 1
                log.warning("%s: error_code=%s", names[i], code)


def store_address(view):
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def parse_arguments():
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="stress_cluster_benchmark", description="Measure a pool.",
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--role", choices=("prefill", "decode"), default=env("ROLE"), required="ROLE" not in os.environ,
        help="prefill puts objects, decode reads them")
    add("--protocol", default=env("PROTOCOL", "tcp"), help="tcp or rdma")
    add("--device-name", default=env("DEVICE_NAME", ""), help="NICs for rdma; default: all")
    add("--local-hostname", default=env("LOCAL_HOSTNAME", "127.0.0.1"), help="address of this host for its peers")
    add("--metadata-server", default=env("MC_METADATA_SERVER", "P2PHANDSHAKE"), help="see setup()")
    add("--master-server", default=env("MASTER_SERVER", "127.0.0.1:50051"), help="the master's HOST:PORT")
    add("--global-segment-size", type=int, default=10000, help="memory of each worker for the pool, in MB")
    add("--local-buffer-size", type=int, default=512, help="see setup(), in MB")
    add("--max-requests", type=int, default=1200, help="number of objects")
    add("--value-length", type=int, default=4 * MIB, help="bytes of an object")
    add("--batch-size", type=int, default=1, help="objects of a call")
    add("--wait-time", type=int, default=20, help="seconds after the last object; prefill keeps its objects that long")
    add("--num-workers", type=int, default=1, help="clients, each in a thread of its own")
    add("--detailed-stats", action="store_true", help="also a report of each worker")
    args = parser.parse_args()
    if args.role not in ("prefill", "decode"):
        parser.error(f"ROLE is {args.role!r}, not prefill or decode")
    if min(args.max_requests, args.value_length, args.batch_size, args.num_workers) < 1 or args.max_requests < args.num_workers:
        parser.error("the numbers of objects, bytes and workers must be at least 1, with an object for each worker")
    return args


def main():
    """Exit status 0: every object succeeded."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(name)s - %(levelname)s - %(message)s")
    args = parse_arguments()
    log.info("Role: %s, protocol: %s, %d objects of %s, %d in a batch, %d workers", args.role.upper(), args.protocol,
             args.max_requests, readable(args.value_length), args.batch_size, args.num_workers)
    start = threading.Barrier(args.num_workers)
    each, more = divmod(args.max_requests, args.num_workers)
    workers, first = [], 0
    for i in range(args.num_workers):
        workers.append(Worker(args, first, each + (i < more), start))
        first += each + (i < more)
    for worker in workers:
        worker.start()
    total = Numbers()
    for worker in workers:
        worker.join()
        if worker.error is not None:
            log.error("%s failed: %s: %s", worker.name, type(worker.error).__name__, worker.error)
        elif args.detailed_stats:
            worker.numbers.report(worker.name)
        total.add(worker.numbers)
    total.report(args.role.upper() if args.num_workers == 1 else "COMBINED")
    bad = bool(total.codes) or any(w.error is not None for w in workers)
    if not bad:
        log.info("Test completed successfully!")
    return bad


if __name__ == "__main__":
    sys.exit(main())
