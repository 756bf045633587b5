# SPDX-License-Identifier: Apache-2.0
"""Scatter transfers and their tickets (0.3.14)."""

import ctypes
import os
import subprocess
import sys

import mooncake.engine as me
from cases import case, finish, says

Status = me.ScatterTransferCompletionStatus


def opened():
    e = me.TransferEngine()
    assert e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return e, f"127.0.0.1:{e.get_rpc_port()}"


def memory(engine, fill):
    raw = ctypes.create_string_buffer(b"".join(bytes((i >> 6, i & 63, fill, 7)) for i in range(16384)), 65536)
    at = ctypes.addressof(raw)
    assert engine.register_memory(at, 65536) == 0
    return raw, at


def drained(ticket, ms=20000):
    return [ticket.drain(ms).name, ticket.status.name, ticket.drained]


def at_once(ticket):
    return [ticket.status.name, ticket.drained]


a, _ = opened()
b, peer = opened()
mine, m = memory(a, 1)
theirs, t = memory(b, 2)
put, get = a.submit_scatter_write, a.submit_scatter_read
put_now, get_now = a.scatter_transfer_sync_write_with_ticket, a.scatter_transfer_sync_read_with_ticket

case("write", lambda: drained(put(peer, [m], [1000], [t], [1000], [[0, 100]], [[500, 0]], [[10, 20]])))
case("written", lambda: (theirs[500:510] == mine[0:10], theirs[0:20] == mine[100:120]))
case("read of two ranges", lambda: drained(get(peer, (m, m + 2000), (1000, 1000), (t + 40000, t + 50000), (1000, 1000),
                                               ((7,), (1, 200)), ((0,), (4, 8)), ((10,), (1, 9)))))
case("was read", lambda: (mine[7:17] == theirs[40000:40010], mine[2001] == theirs[50004], mine[2200:2209] == theirs[50008:50017]))
case("complete at return", lambda: (at_once(put_now(peer, [m], [1000], [t], [1000], [[0]], [[0]], [[10]])),
                                    at_once(get_now(peer, [m], [1000], [t], [1000], [[0]], [[0]], [[10]]))))
case("before drain", lambda: at_once(put(peer, [m], [1000], [t], [1000], [[0]], [[0]], [[10]])))
case("keywords", lambda: drained(put(endpoint=peer, local_base_addresses=[m], local_capacities=[1000], remote_base_addresses=[t],
                                     remote_capacities=[1000], local_offsets=[[0]], remote_offsets=[[0]], lengths=[[1]])))
case("many fragments", lambda: drained(put(peer, [m], [65536], [t], [65536], [list(range(0, 40000, 8))],
                                           [list(range(0, 40000, 8))], [[8] * 5000])))
case("no fragments", lambda: (drained(put(peer, [m], [1], [t], [1], [[]], [[]], [[]])), drained(put(peer, [], [], [], [], [], [], []))))
case("no bytes", lambda: drained(put(peer, [m], [1000], [t], [1000], [[0]], [[0]], [[0]])))

# ---- failures: a ticket, not an exception

case("ranges of unequal number", lambda: (drained(put(peer, [m], [1000, 1], [t], [1000], [[0]], [[0]], [[1]])),
                                          drained(put_now(peer, [m], [1000], [t], [1000], [[0], [0]], [[0]], [[1]]))))
case("fragments of unequal number", lambda: drained(put(peer, [m], [1000], [t], [1000], [[0, 1]], [[0]], [[1]])))
case("outside of the local range", lambda: drained(put(peer, [m], [1000], [t], [1000], [[995]], [[0]], [[10]])))
case("outside of the remote range", lambda: drained(get(peer, [m], [1000], [t], [1000], [[0]], [[995]], [[10]])))
case("an offset that wraps around", lambda: drained(put(peer, [m], [1000], [t], [1000], [[(1 << 64) - 5]], [[0]], [[10]])))
case("a range that wraps around", lambda: (drained(put(peer, [(1 << 64) - 10], [100], [t], [1000], [[0]], [[0]], [[1]])),
                                           drained(put(peer, [m], [100], [(1 << 64) - 10], [1000], [[0]], [[0]], [[1]]))))
case("no local memory", lambda: drained(put(peer, [0], [100], [t], [100], [[0]], [[0]], [[1]])))
case("outside of the peer's memory", lambda: drained(put(peer, [m], [1000], [t], [100000], [[0]], [[70000]], [[10]])))
case("one of two fails", lambda: drained(put(peer, [m, m], [1000, 1000], [t, m], [1000, 1000], [[0], [0]], [[0], [0]], [[10], [10]])))
case("no peer", lambda: (drained(put("127.0.0.1:1", [m], [10], [t], [10], [[0]], [[0]], [[10]])),
                         at_once(get_now("127.0.0.1:1", [m], [10], [t], [10], [[0]], [[0]], [[10]]))))

# ---- arguments

one = put(peer, [m], [1000], [t], [1000], [[0]], [[0]], [[10]])
case("times", lambda: [one.drain(n).name for n in (20000, 0, 1 << 40)])
for name, value in (("negative", -1), ("fraction", 0.5), ("None", None), ("text", "1")):
    case(f"a time: {name}", lambda value=value: one.drain(value))
case("a time by name", lambda: one.drain(timeout_ms=1))
case("a ticket of one's own", lambda: me.ScatterTransferTicket())
case("a status of one's own", lambda: setattr(one, "status", 1))
case("a negative offset", lambda: put(peer, [m], [1000], [t], [1000], [[-1]], [[0]], [[10]]))
case("text for a list", lambda: put(peer, "x", [1000], [t], [1000], [[0]], [[0]], [[10]]))
case("flat lists", lambda: put(peer, [m], [1000], [t], [1000], [0], [0], [10]))
case("a hint", lambda: put(peer, [m], [1000], [t], [1000], [[0]], [[0]], [[10]], "tcp"))
case("statuses", lambda: [(s.name, s.value, int(s), s == Status(s.value), s == s.value) for s in (
    Status.COMPLETED, Status.FAILED_DRAINED, Status.COMPLETION_UNKNOWN)])

# ---- ends

CHILD = """
import ctypes, os, sys, mooncake.engine as me
e = me.TransferEngine(); e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
m = ctypes.create_string_buffer(1 << 20); e.register_memory(ctypes.addressof(m), 1 << 20)
os.write(1, b"peer %d %d\\n" % (e.get_rpc_port(), ctypes.addressof(m))); sys.stdin.readline()
"""


def the_peer_ends():
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, env=dict(os.environ)) as child:
        line = next(x for x in child.stdout if x.startswith("peer "))
        _, port, at = line.split()
        name = f"127.0.0.1:{port}"
        found = [drained(put(name, [m], [1000], [int(at)], [1000], [[0]], [[0]], [[10]]))]
        child.kill()
    return found + [drained(put(name, [m], [1000], [int(at)], [1000], [[0]], [[0]], [[10]]))]


case("the peer ends", the_peer_ends)


def the_engine_ends_first():
    global a, put, get, put_now, get_now
    ticket = put(peer, [m], [1000], [t], [1000], [[60]], [[700]], [[10]])
    del a, put, get, put_now, get_now
    return drained(ticket), theirs[700:710] == mine[60:70]


case("the engine ends first", the_engine_ends_first)
finish({})
