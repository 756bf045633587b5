# SPDX-License-Identifier: Apache-2.0
"""perf_ha.py MASTER DIRECTORY: a get every millisecond.  Each time that the file DIRECTORY/ask appears: a line with the
longest call in ms and the number of failed ones since the last time.  Ends when DIRECTORY/end appears."""
import os
import sys
import time

from mooncake.store import MooncakeDistributedStore

master, where = sys.argv[1:]
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", master) == 0
assert store.put("ha/key", b"value" * 100) == 0
print("ready", flush=True)
longest, failed = 0.0, 0
while not os.path.exists(where + "/end"):
    begin = time.monotonic()
    failed += store.get("ha/key") != b"value" * 100
    longest = max(longest, time.monotonic() - begin)
    if os.path.exists(where + "/ask"):
        print("%d %d" % (longest * 1000, failed), flush=True)
        longest, failed = 0.0, 0
        os.unlink(where + "/ask")
    time.sleep(0.001)
store.close()
