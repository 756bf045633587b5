# SPDX-License-Identifier: Apache-2.0
"""BufferPool: arguments, limits, waiting."""

import sys
import threading

from cases import case, finish, says
from mooncake.store import BufferPool, MooncakeDistributedStore

MIB = 1 << 20
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0


def made(**options):
    return type(BufferPool(store, **options)).__name__


def arguments():
    for alignment in (0, 1, 2, 3, 6000, -1, 8, 4096, 8 << 20):
        says(f"alignment {alignment}", lambda: made(alignment=alignment), "positive", "power of two")
    for options in ({"min_size_class": 0}, {"min_size_class": 3}, {"max_size_class": 100}, {"max_bytes": -1},
                    {"max_regions": 0}, {"max_regions": -1}, {"max_bytes": 100}, {"prewarm_count": 3},
                    {"prewarm_size": 100, "prewarm_count": 2}, {"prewarm_size": 0, "prewarm_count": 1},
                    {"max_bytes": 20 * MIB, "prewarm_size": 30 * MIB, "prewarm_count": 1}):
        case(str(options), lambda: made(**options))
    pool = BufferPool(store)
    for size in (0, -1, 1.5, None):
        case(f"acquire({size})", lambda: pool.acquire(size).size)
    says("timeout -1", lambda: pool.acquire(1, timeout=-1).size, "non-negative")
    case("prewarm", lambda: pool.prewarm(1000, 3))


def sizes(pool, *wanted, **options):
    """Sizes of leases that are held at the same time; the last one may be an exception."""
    held = []
    for size in wanted:
        held.append(pool.acquire(size, **options))
    got = [lease.size for lease in held]
    for lease in held:
        lease.release()
    return got


def limits():
    says("beyond max_bytes", lambda: sizes(BufferPool(store, max_bytes=MIB), 2 * MIB))
    says("beyond max_bytes, together", lambda: sizes(BufferPool(store, max_bytes=MIB), *[MIB] * 8, 1000))
    pool = BufferPool(store, max_bytes=20 * MIB)
    words = "exhausted", "exceeds pool capacity", "timed out"
    says("more than ever", lambda: sizes(pool, 30 * MIB), *words)
    says("twice 17 MiB", lambda: sizes(pool, 17 * MIB, 17 * MIB, block=False), *words)
    says("twice 17 MiB, with a timeout", lambda: sizes(BufferPool(store, max_bytes=20 * MIB), 17 * MIB, 17 * MIB, timeout=.1),
         *words)
    says("prewarm too much", lambda: BufferPool(store, max_bytes=20 * MIB).prewarm(17 * MIB, 3))
    pool = BufferPool(store, max_regions=1)
    lease = pool.acquire(1000)
    says("max_regions", lambda: pool.acquire(1000, block=False).size, *words)
    says("close while lent", pool.close, "active leases")
    threading.Timer(.1, lease.release).start()
    case("a release ends the wait", lambda: sizes(pool, 1000))
    says("ptr of a released lease", lambda: lease.ptr, "closed")
    case("close", pool.close)
    case("close again", pool.close)
    says("acquire after close", lambda: pool.acquire(1), "closed")


arguments()
limits()
store.close()
finish({})
