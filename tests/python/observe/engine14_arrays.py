# SPDX-License-Identifier: Apache-2.0
"""Transfers whose addresses are in arrays, transfers of pages, and hints (0.3.14)."""

import ctypes
from array import array

import mooncake.engine as me
from cases import case, finish, says


def opened():
    e = me.TransferEngine()
    assert e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return e, f"127.0.0.1:{e.get_rpc_port()}"


def memory(engine, fill):
    """64 KiB of registered memory: object, address."""
    raw = ctypes.create_string_buffer(b"".join(bytes((i >> 6, i & 63, fill, 7)) for i in range(16384)), 65536)
    at = ctypes.addressof(raw)
    assert engine.register_memory(at, 65536) == 0
    return raw, at


def q(*numbers):
    return array("Q", numbers)


def table(*rows):
    kind = "q" if any(n < 0 for r in rows for n in r) else "Q"
    return memoryview(array(kind, [n for r in rows for n in r])).cast("B").cast(kind, [len(rows), len(rows[0])])


a, _ = opened()
b, peer = opened()
mine, m = memory(a, 1)
theirs, t = memory(b, 2)
write, read = a.batch_transfer_sync_write_arrays, a.batch_transfer_sync_read_arrays

# ---- arrays

case("write", lambda: write(peer, q(m, m + 100), q(t + 1000, t), q(100, 50)))
case("written", lambda: (theirs[1000:1100] == mine[0:100], theirs[0:50] == mine[100:150]))
case("read", lambda: read(peer, q(m + 200), q(t + 40000), q(100)))
case("was read", lambda: mine[200:300] == theirs[40000:40100])
case("async", lambda: a.get_batch_transfer_status([a.batch_transfer_async_write_arrays(peer, q(m), q(t + 5000), q(77)),
                                                   a.batch_transfer_async_read_arrays(peer, q(m + 600), q(t + 50000), q(5))]))
case("moved", lambda: (theirs[5000:5077] == mine[0:77], mine[600:605] == theirs[50000:50005]))
case("signed, read-only and long arrays", lambda: (
    write(peer, array("q", [m]), memoryview(bytes(q(t))).cast("Q"), array("l", [9])),
    write(peer, q(*[m] * 5000), q(*[t] * 5000), q(*[8] * 5000))))
case("keywords", lambda: a.batch_transfer_sync_write_arrays(
    target_hostname=peer, buffers=q(m), peer_buffer_addresses=q(t), lengths=q(1), transport_hint="", nic_hint=""))
case("nothing", lambda: (write(peer, q(), q(), q()), write("127.0.0.1:1", q(), q(), q()),
                         a.batch_transfer_async_write_arrays("127.0.0.1:1", q(), q(), q())))
case("nothing, started", lambda: (a.batch_transfer_async_write_arrays(peer, q(), q(), q()) > 0,
                                  a.batch_transfer_async_write(peer, [], [], []) > 0,
                                  a.get_batch_transfer_status([a.batch_transfer_async_read(peer, [], [], [])])))
case("no bytes", lambda: write(peer, q(m), q(t), q(0)))
case("no peer", lambda: (write("127.0.0.1:1", q(m), q(t), q(1)),
                         a.batch_transfer_async_read_arrays("127.0.0.1:1", q(m), q(t), q(1))))
case("outside of the peer's memory", lambda: (write(peer, q(m), q(t + 655360), q(1)), write(peer, q(m), q(t + 65530), q(100))))
says("unequal lengths", lambda: write(peer, q(m), q(t, t), q(1)), "must have the same length")
says("unequal lengths, started", lambda: a.batch_transfer_async_read_arrays(peer, q(m), q(), q(1)), "must have the same length")
says("a negative length", lambda: write(peer, q(m), q(t), array("q", [-1])), "lengths must not contain negative values")
says("a list", lambda: write(peer, [m], [t], [1]))
says("None", lambda: write(peer, None, q(t), q(1)))
says("items of 4 bytes", lambda: write(peer, q(m), array("I", [1]), q(1)), "peer_buffer_addresses", "must hold 8-byte integers")
says("floats", lambda: write(peer, q(m), q(t), array("d", [1])), "lengths", "must hold 8-byte integers")
says("two dimensions", lambda: write(peer, table([m]), q(t), q(1)), "buffers", "one-dimensional")
says("a step", lambda: write(peer, memoryview(q(m, 0, m))[::2], q(t, t), q(1, 1)), "buffers must be contiguous")

# ---- pages

put, get = a.batch_transfer_sync_write_pages, a.batch_transfer_sync_read_pages
row = [m, 1000, t, 2000, 64]
case("pages", lambda: put(peer, q(0, 2), q(1, 3), table(row, [m + 30000, 400, t + 30000, 800, 40])))
case("pages are there", lambda: (theirs[2000:2064] == mine[0:64], theirs[6000:6064] == mine[2000:2064],
                                 theirs[30800:30840] == mine[30000:30040], theirs[32400:32440] == mine[30800:30840]))
case("pages are read", lambda: (get(peer, q(9, 8), q(7, 20), table(row)),
                                mine[9000:9064] == theirs[14000:14064], mine[8000:8064] == theirs[40000:40064]))
case("in parts", lambda: (put(peer, q(*range(60)), q(*range(2, 32), *range(2, 32)), table(row), 1),
                          put(peer, array("q", range(30)), q(*range(30)), table(row), max_batch_size=7, transport_hint="", nic_hint="")))
case("no pages", lambda: (put(peer, q(), q(), table(row)), put("127.0.0.1:1", q(), q(), table(row))))
case("pages of an absent peer", lambda: (put("127.0.0.1:1", q(0), q(0), table(row)), put(peer, q(0), q(1000000), table(row))))
case("a stride of 0", lambda: put(peer, q(0, 1), q(0, 1), table([m, 0, t, 8, 8])))
says("more pages on one side", lambda: put(peer, q(0, 1), q(0), table(row)), "src_pages and dst_pages must have the same length")
says("a negative page", lambda: put(peer, array("q", [-1]), q(0), table(row)), "src_pages must not contain negative values")
says("four columns", lambda: put(peer, q(0), q(0), table(row[:4])), "fields must be a [rows, 5] array")
says("one dimension", lambda: put(peer, q(0), q(0), q(*row)), "fields must be a [rows, 5] array")
says("pages of two dimensions", lambda: put(peer, table([0, 1]), q(0, 1), table(row)), "src_pages", "one-dimensional")
says("pages of 4 bytes", lambda: put(peer, q(0), array("I", [0]), table(row)), "dst_pages must hold 8-byte integers")
says("a length of 0", lambda: put(peer, q(0), q(0), table(row[:4] + [0])), "positive length")
says("a negative length of a page", lambda: put(peer, q(0), q(0), table(row[:4] + [-1])), "positive length")
says("a negative stride", lambda: put(peer, q(0), q(0), table([m, -1, t, 8, 8])), "non-negative strides")
says("a negative part size", lambda: put(peer, q(0), q(0), table(row), max_batch_size=-1))
says("beyond 2**64", lambda: put(peer, q(1 << 62), q(0), table([m, 8, t, 8, 8])), "2**64")

# ---- hints

HINTS = ("tcp", "rdma", "shm", "nvlink", "no such thing")
case("hints", lambda: [a.transfer_sync_write(peer, m, t, 100, h) for h in HINTS])
case("hints of NICs", lambda: [a.transfer_sync_read(peer, m, t, 100, nic_hint=h) for h in ("mlx5_0", "none", "")])
case("hints everywhere", lambda: (
    a.transfer_sync(peer, m, t, 1, me.Write, None, "tcp", "x"), a.batch_transfer_sync(peer, [m], [t], [1], me.Write, None, "tcp", "x"),
    a.transfer_sync_read(peer, m, t, 1, "tcp", "x"), a.batch_transfer_sync_write(peer, [m], [t], [1], "tcp", "x"),
    a.batch_transfer_sync_read(peer, [m], [t], [1], "tcp", "x"), write(peer, q(m), q(t), q(1), "tcp", "x"),
    a.get_batch_transfer_status([
        a.batch_transfer_async(peer, [m], [t], [1], me.Read, "tcp", "x"), a.batch_transfer_async_write(peer, [m], [t], [1], "tcp", "x"),
        a.batch_transfer_async_read(peer, [m], [t], [1], "tcp", "x"),
        a.batch_transfer_async_write_arrays(peer, q(m), q(t), q(1), "tcp", "x")]),
    a.transfer_submit_write(peer, m, t, 1, "tcp", "x") > 0))
case("a hint that is no text", lambda: a.transfer_sync_write(peer, m, t, 100, 5))
case("a hint of a NIC that is None", lambda: a.transfer_sync_write(peer, m, t, 100, "", None))

case("register_memory", lambda: [a.unregister_memory(m), a.register_memory(m, 65536, "*", True), a.unregister_memory(m),
                                 a.register_memory(buffer_addr=m, capacity=65536, location="*", remote_accessible=False)])
case("SUPPORT_MULTI_PROTOCOL", lambda: me.SUPPORT_MULTI_PROTOCOL)

finish({
    "beyond 2**64": (["ValueError", "2**64"], "upstream transfers another range: the address wraps around"),
})
