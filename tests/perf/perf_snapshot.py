# SPDX-License-Identifier: Apache-2.0
"""perf_snapshot.py MASTER COUNT DIRECTORY: a node with COUNT small objects.  Then a get every 100 us; the line "longest" has
the longest one each time that the file DIRECTORY/ask appears.  After DIRECTORY/check appears: reads a sample."""
import os
import random
import sys
import time

from mooncake.store import MooncakeDistributedStore

master, count, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
BATCH = 2000


def value(i):
    return (b"%d " % i) * 4


store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 4 << 30, 64 << 20, "tcp", "", master) == 0
begin = time.monotonic()
for first in range(0, count, BATCH):
    part = range(first, min(first + BATCH, count))
    assert store.put_batch(["snapshot/%d" % i for i in part], [value(i) for i in part]) == 0
print("put %d objects in %.1f s" % (count, time.monotonic() - begin), flush=True)
longest = 0.0
while not os.path.exists(where + "/check"):
    i = random.randrange(count)
    begin = time.monotonic()
    got = store.get("snapshot/%d" % i)
    longest = max(longest, time.monotonic() - begin)
    assert got == value(i) or os.path.exists(where + "/stopping"), (i, got)
    time.sleep(0.0001)
    if os.path.exists(where + "/ask"):
        os.rename(where + "/ask", where + "/asked")
        print("longest get %.2f ms" % (longest * 1000), flush=True)
        longest = 0.0
wrong = missing = 0
sample = random.sample(range(count), min(count, 20000))
for first in range(0, len(sample), 500):
    part = sample[first:first + 500]
    for i, got in zip(part, store.get_batch(["snapshot/%d" % i for i in part])):
        missing += not got
        wrong += bool(got) and got != value(i)
print("sample of %d: missing=%d wrong=%d" % (len(sample), missing, wrong), flush=True)
store.close()
