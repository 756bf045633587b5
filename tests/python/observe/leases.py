# SPDX-License-Identifier: Apache-2.0
"""A lease ends exactly after the master's default_kv_lease_ttl (here TTL seconds), and remove() works then."""

import sys
import time

import mooncake.store as ms
from cases import case, finish

TTL = 0.5
ROUNDS = 10


def store(master):
    s = ms.MooncakeDistributedStore()
    assert s.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", master) == 0
    return s


def removed_after(s, name, use):
    """The results of ROUNDS times: put, use, wait for the end of the lease, remove."""
    answers = []
    for i in range(ROUNDS):
        key = f"{name} {i}"
        s.put(key, b"x" * 1000)
        use(key)
        time.sleep(TTL)
        answers.append(s.remove(key))
    return answers


def main(master):
    s = store(master)
    case("remove after is_exist", lambda: removed_after(s, "exist", s.is_exist))
    case("remove after batch_is_exist", lambda: removed_after(s, "batch", lambda key: s.batch_is_exist([key])))
    case("remove after get", lambda: removed_after(s, "get", s.get))
    s.put("leased", b"x")
    s.is_exist("leased")
    case("remove during the lease", lambda: s.remove("leased"))
    s.close()
    finish({})


main(sys.argv[1])
