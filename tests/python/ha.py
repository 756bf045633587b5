# SPDX-License-Identifier: Apache-2.0
"""ha.py MASTER STOP_FILE: puts and gets of small objects until STOP_FILE exists; then one line with the number of calls,
of failed ones, and the longest call in milliseconds."""
import os
import sys
import time

from mooncake.store import MooncakeDistributedStore

master, stop = sys.argv[1:]
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", master) == 0
print("ready", flush=True)
calls = failed = 0
longest = 0.0


def timed(call, right):
    global calls, failed, longest
    begin = time.monotonic()
    got = call()
    longest = max(longest, time.monotonic() - begin)
    calls += 1
    if got != right:
        failed += 1
        print("failed:", got if not isinstance(got, bytes) else len(got), flush=True)


while not os.path.exists(stop):
    value = b"%d" % calls * 100
    key = "ha/%d" % (calls % 100000)
    timed(lambda: store.put(key, value), 0)
    timed(lambda: store.get(key), value)
print("calls=%d failed=%d longest_ms=%d" % (calls, failed, longest * 1000), flush=True)
store.close()
