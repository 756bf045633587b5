# SPDX-License-Identifier: Apache-2.0
"""Every route of the REST service, right and wrong, then bytes at random.  rest.py PORT"""

import http.client
import json
import os
import random
import socket
import sys

PORT = int(sys.argv[1])


def ask(method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    try:
        c.request(method, path, body=body if body is None or isinstance(body, (bytes, str)) else json.dumps(body))
        r = c.getresponse()
        data = r.read()
        return r.status, json.loads(data) if r.getheader("content-type", "").startswith("application/json") else data
    finally:
        c.close()


def expect(answer, *wanted):
    status, body = ask(*answer)
    assert status == wanted[0], (answer, status, body)
    if status >= 400:
        assert isinstance(body, dict) and body["error"], (answer, body)
    if len(wanted) > 1:
        assert body == wanted[1], (answer, body)
    return body


def routes():
    expect(("PUT", "/api/put", {"key": "a/b c", "value": "grüße"}), 200, {"status": "success"})
    expect(("GET", "/api/get/a/b%20c"), 200, "grüße".encode())
    expect(("GET", "/api/exist/a/b%20c"), 200, {"exists": True})
    expect(("GET", "/api/exist/none"), 200, {"exists": False})
    expect(("GET", "/api/get/none"), 404)
    expect(("DELETE", "/api/remove/none"), 500)
    expect(("PUT", "/api/put", {"key": "r", "value": "x"}), 200)
    expect(("DELETE", "/api/remove/r"), 200, {"status": "success"})
    for body in ("{", "[1]", "null", "\xff", b"\xff\xfe", "", {"key": "a"}, {"key": 5, "value": "x"}, {"key": "a", "value": None},
                 {"key": "", "value": "x"}, '{"key": "\\ud800", "value": "x"}', "[" * 100000):
        expect(("PUT", "/api/put", body), 400)
    got = expect(("POST", "/api/mount", {"size": 1000}), 200)
    assert got["allocated_size"] == 16 << 20 and len(got["segment_ids"]) == 1
    for size in (0, -1, "x", None, True, 1.5):
        expect(("POST", "/api/mount", {"size": size}), 400)
    for ids in (None, [], [5], 5, ""):
        expect(("POST", "/api/unmount", {"segment_ids": ids}), 400)
    for grace in (-1, "x", True, 3601):
        expect(("POST", "/api/unmount", {"segment_ids": got["segment_ids"], "grace_period_seconds": grace}), 400)
        expect(("POST", "/api/unmount_local_disk", {"grace_period_seconds": grace}), 400)
    expect(("POST", "/api/unmount", {"segment_ids": got["segment_ids"] + ["1-2"]}), 500,
           {"error": "not unmounted", "failed_segment_ids": ["1-2"]})
    expect(("POST", "/api/unmount_local_disk"), 200)
    expect(("GET", "/api/nothing"), 404)
    expect(("POST", "/api/put", {}), 405)
    expect(("DELETE", "/api/remove_all"), 200)


def files():
    """Segments over shared memory and files."""
    name = f"mc-rest-{os.getpid()}"
    path = f"/dev/shm/{name}"
    with open(path, "wb") as f:
        f.truncate(8 << 20)
    try:
        got = expect(("POST", "/api/mount_shm", {"name": name, "size": 4 << 20, "offset": 4096}), 200)
        assert len(got["segment_ids"]) == 1
        for bad in ({}, {"name": name}, {"name": "a/b", "size": 4 << 20}, {"name": "..", "size": 4 << 20}, {"name": 5, "size": 1},
                    {"name": name, "size": 0}, {"name": name, "size": "4 MB"}, {"name": name, "size": 4 << 20, "offset": -1},
                    {"name": "a\0b", "size": 4 << 20}, {"name": name, "size": True}):
            expect(("POST", "/api/mount_shm", bad), 400)
        for bad in ({"name": name, "size": 16 << 20}, {"name": name, "size": 4 << 20, "offset": 100},
                    {"name": "mc-there-is-none", "size": 4 << 20}):
            expect(("POST", "/api/mount_shm", bad), 500)
        expect(("POST", "/api/unmount_shm", {"segment_ids": got["segment_ids"][0]}), 200, {"status": "success"})
        expect(("POST", "/api/unmount_shm", {"segment_ids": got["segment_ids"]}), 500,
               {"error": "not unmounted", "failed_segment_ids": got["segment_ids"]})
        # another part takes the place of the first, nothing is lost by a failure
        first = expect(("POST", "/api/reconfigure", {"mode": "decode", "path": path, "size": 4 << 20}), 200)
        assert first["mode"] == "decode" and len(first["segment_ids"]) == 1
        expect(("POST", "/api/reconfigure", {"mode": "decode", "path": path + ".none", "size": 4 << 20}), 500)
        for bad in ({}, {"mode": "both"}, {"mode": "decode"}, {"mode": "decode", "path": path}, {"mode": "decode", "size": 1},
                    {"mode": ["decode"]}, {"mode": "decode", "path": path, "size": -1}):
            expect(("POST", "/api/reconfigure", bad), 400)
        second = expect(("POST", "/api/reconfigure", {"mode": "decode", "path": path, "size": 2 << 20, "offset": 4 << 20}), 200)
        assert second["segment_ids"] != first["segment_ids"]
        expect(("POST", "/api/unmount_shm", {"segment_ids": first["segment_ids"]}), 500)
        expect(("POST", "/api/reconfigure", {"mode": "prefill"}), 200, {"status": "success", "mode": "prefill"})
        expect(("POST", "/api/unmount_shm", {"segment_ids": second["segment_ids"]}), 500)
    finally:
        os.unlink(path)


def oversized():
    """Refused by its length alone; nobody has to send 100 MiB."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=30) as s:
        s.sendall(b"PUT /api/put HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\n")
        block = bytes(1 << 20)
        try:
            for _ in range(120):
                s.sendall(block)
        except OSError:
            pass
        try:
            assert b" 413 " in s.recv(100)
        except ConnectionError:
            pass


def noise():
    rng = random.Random(7)
    seeds = [b"PUT /api/put HTTP/1.1\r\nHost: x\r\nContent-Length: 22\r\n\r\n{\"key\":\"k\",\"value\":\"v\"}",
             b"GET /api/get/k HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /api/mount HTTP/1.1\r\nHost: x\r\n"
             b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"siz\r\n0\r\n\r\n"]
    for _ in range(300):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with socket.create_connection(("127.0.0.1", PORT), timeout=30) as s:
            s.sendall(data[:rng.randrange(len(data) + 1)])
            s.shutdown(socket.SHUT_WR)
            s.settimeout(5)
            try:
                s.recv(4096)
            except OSError:
                pass
    expect(("GET", "/api/exist/none"), 200, {"exists": False})


def slow():
    """Clients that stand still hold nobody up."""
    waiting = [socket.create_connection(("127.0.0.1", PORT), timeout=30) for _ in range(50)]
    for s in waiting:
        s.sendall(b"PUT /api/put HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    expect(("PUT", "/api/put", {"key": "quick", "value": "x"}), 200)
    for s in waiting:
        s.close()


routes()
files()
oversized()
noise()
slow()
