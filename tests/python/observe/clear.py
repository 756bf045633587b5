# SPDX-License-Identifier: Apache-2.0
"""batch_replica_clear() with the name of a segment, and without: two stores, so that there are two segments."""

import sys
import time

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

from cases import case, finish

MASTER = sys.argv[1]
MIB = 1 << 20


def store(size):
    s = MooncakeDistributedStore()
    r = s.setup("localhost", "P2PHANDSHAKE", size, 16 * MIB, "tcp", "", MASTER)
    assert r == 0, r
    return s


def copies(s, key):
    return len(s.get_replica_desc(key))


def endpoint(s, key):
    return s.get_replica_desc(key)[0].get_memory_descriptor().buffer_descriptor.transport_endpoint


def wait_until_cleared(s, key, segment):
    """The result of the first clear after the lease of the key."""
    deadline = time.monotonic() + 5
    while True:
        cleared = s.batch_replica_clear([key], segment)
        if cleared or time.monotonic() > deadline:
            return cleared
        time.sleep(0.1)


a, b = store(16 * MIB), store(16 * MIB)
here, there = a.get_hostname(), b.get_hostname()
two, one = ReplicateConfig(), ReplicateConfig()
two.replica_num = 2
one.preferred_segment = here
for key in ("two1", "two2", "two3"):
    assert a.put(key, key.encode() * 1000, two) == 0
for key in ("one1", "one2", "one3"):
    assert a.put(key, key.encode() * 1000, one) == 0
two.preferred_segment = there
two.replica_num = 1
assert a.put("there", b"x", two) == 0

case("copies of two", lambda: copies(a, "two1"))
case("unknown key", lambda: a.batch_replica_clear(["none"], here))
case("unknown key, no segment", lambda: a.batch_replica_clear(["none"]))
case("unknown segment", lambda: a.batch_replica_clear(["two1"], "nowhere:1"))
case("no copy there", lambda: a.batch_replica_clear(["one1"], there))
case("one copy", lambda: wait_until_cleared(a, "two1", here))
case("the other stays", lambda: (copies(a, "two1"), endpoint(a, "two1") == endpoint(a, "there")))
case("the same again", lambda: a.batch_replica_clear(["two1"], here))
case("still read", lambda: a.get("two1") == b"two1" * 1000)
case("leased", lambda: (a.is_exist("two2"), a.batch_replica_clear(["two2"], here)))
case("leased, no segment", lambda: (a.is_exist("two2"), a.batch_replica_clear(["two2"])))
case("after the lease", lambda: wait_until_cleared(a, "two2", there))
case("the only copy", lambda: wait_until_cleared(a, "one1", here))
case("is gone", lambda: a.is_exist("one1"))
case("put again", lambda: (a.put("one1", b"new", one), a.get("one1")))
case("the last copy", lambda: wait_until_cleared(a, "two2", here))
case("is gone too", lambda: a.is_exist("two2"))
case("all copies", lambda: wait_until_cleared(a, "two3", ""))
case("all are gone", lambda: a.is_exist("two3"))
case("by another client", lambda: (a.put("other", b"x", one), b.batch_replica_clear(["other"], here)))
case("several keys", lambda: a.batch_replica_clear(["one2", "none", "one3"], here))
case("one key twice", lambda: (a.put("one4", b"x", one), a.batch_replica_clear(["one4", "one4"], here)))
case("no key", lambda: a.batch_replica_clear([], here))
case("empty key", lambda: a.batch_replica_clear([""], here))
b.close()
a.close()
finish({
    "by another client": ([0, ["other"]], "every client may free copies, as every client may remove objects"),
})
