# SPDX-License-Identifier: Apache-2.0
"""A client with a cache of objects that it reads often (MC_STORE_LOCAL_HOT_*) never returns old bytes."""

import os
import sys

os.environ.update(MC_STORE_MEMCPY="0", MC_STORE_LOCAL_HOT_CACHE_SIZE=str(64 << 20),
                  MC_STORE_LOCAL_HOT_BLOCK_SIZE=str(1 << 20), MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD="1")

import mooncake.store as ms
from cases import case, finish

SIZE = 300000


def store(master, size):
    s = ms.MooncakeDistributedStore()
    assert s.setup("127.0.0.1", "P2PHANDSHAKE", size, 16 << 20, "tcp", "", master) == 0
    return s


def reads(s, key, n=5):
    """The first byte and the length of each of n reads."""
    got = [bytes(s.get(key)) for _ in range(n)]
    return [(g[:1], len(g), g == g[:1] * len(g)) for g in got]


def changed(owner, reader):
    assert owner.remove("hot", True) == 0
    assert owner.put("hot", b"b" * SIZE) == 0
    return reads(reader, "hot")


def removed(owner, reader):
    assert owner.remove("hot", True) == 0
    return reads(reader, "hot", 2)


def batch(owner, reader):
    owner.put("more", b"c" * SIZE)
    reads(reader, "more")
    return [bytes(g) == b"c" * SIZE for g in reader.get_batch(["more", "none", "more"])]


def main(master):
    owner, reader = store(master, 64 << 20), store(master, 0)
    owner.put("hot", b"a" * SIZE)
    case("read often", lambda: reads(reader, "hot"))
    case("another object of this name", lambda: changed(owner, reader))
    case("removed", lambda: removed(owner, reader))
    case("one key twice", lambda: batch(owner, reader))
    reader.close()
    owner.close()
    finish({
        "another object of this name": ([["b", SIZE, True]] * 5, "the cache of upstream returns the old object"),
    })


main(sys.argv[1])
