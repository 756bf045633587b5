# SPDX-License-Identifier: Apache-2.0
"""Every route of the REST service with valid and invalid requests, then random bytes.

rest.py PORT DIR: with files in DIR, which is a --segment_dir of the service
rest.py PORT --late MASTER_PID HTTP: a service that waits one second for a body, and whose master is killed here; HTTP is
its client_http_port"""

import http.client
import json
import os
import random
import signal
import socket
import sys

PORT = int(sys.argv[1])


def ask(method, path, body=None, port=PORT):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        c.request(method, path, body=body if body is None or isinstance(body, (bytes, str)) else json.dumps(body),
                  headers={} if body is None else {"Content-Type": "application/json; charset=utf-8"})
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
           {"error": "Unmount and free failed, ret=-1", "failed_segment_ids": ["1-2"]})
    expect(("POST", "/api/unmount_local_disk"), 400)
    expect(("POST", "/api/unmount_local_disk", {}), 200)
    expect(("GET", "/api/nothing"), 404)
    expect(("POST", "/api/put", {}), 405)
    expect(("DELETE", "/api/remove_all"), 200)


def files(directory):
    """Segments in shared memory and files."""
    name = f"mc-rest-{os.getpid()}"
    shared, path = f"/dev/shm/{name}", f"{directory}/segment"
    for created in (shared, path):
        with open(created, "wb") as f:
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
               {"error": "Unmount failed for one or more segments", "failed_segment_ids": got["segment_ids"]})
        # another part replaces the first one; a failure loses nothing
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
        os.unlink(shared)


def oversized():
    """Refused because of its length: no client has to send 100 MiB."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=30) as s:
        s.sendall(b"PUT /api/put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 200000000\r\n\r\n")
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
    seeds = [b"PUT /api/put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{\"key\":\"k\",\"value\":\"v\"}",
             b"GET /api/get/k HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /api/mount HTTP/1.1\r\nHost: x\r\n"
             b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"siz\r\n0\r\n\r\n"]
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
    """Clients that send nothing do not delay others."""
    waiting = [socket.create_connection(("127.0.0.1", PORT), timeout=30) for _ in range(50)]
    for s in waiting:
        s.sendall(b"PUT /api/put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    expect(("PUT", "/api/put", {"key": "quick", "value": "x"}), 200)
    for s in waiting:
        s.close()


ROUTES = (("PUT", "/api/put"), ("GET", "/api/get/"), ("GET", "/api/exist/"), ("DELETE", "/api/remove/"),
          ("DELETE", "/api/remove_all"), ("POST", "/api/mount"), ("POST", "/api/unmount"), ("POST", "/api/mount_shm"),
          ("POST", "/api/unmount_shm"), ("POST", "/api/reconfigure"), ("POST", "/api/unmount_local_disk"))
WORDS = ("key", "value", "size", "segment_ids", "name", "offset", "mode", "path", "grace_period_seconds", "", "x", "\u00e9")


def anything(rng, depth=0):
    """A random JSON value; sizes that would be allocated stay small."""
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, -1, 1, 4096, 1 << 20, 2 ** 63, -2 ** 63, 2 ** 64, 10 ** 400])
    if kind == 2:
        return rng.choice([0.5, -0.0, 1e308, float("inf"), float("nan")])
    if kind < 6:
        return rng.choice(["", "k", "decode", "prefill", "1-2", "../x", "/etc/passwd", "/dev/zero", "\0", "\ud800", "a" * 5000])
    if kind < 8:
        return {rng.choice(WORDS): anything(rng, depth + 1) for _ in range(rng.randrange(5))}
    return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]


def request_of(rng):
    """Bytes of a request that is valid except for some changes."""
    method, path = rng.choice(ROUTES)
    if rng.random() < 0.1:
        method = rng.choice(["HEAD", "PATCH", "OPTIONS", "TRACE", "", "put", "X" * 3000])
    if path.endswith("/") or rng.random() < 0.1:
        path += rng.choice(["k", "", "%00", "%ff", "%", "../../x", "a" * 5000, "\u00e9", "?force=x&force=true", "//"])
    body = {rng.choice(WORDS): anything(rng) for _ in range(rng.randrange(6))} if rng.random() < 0.8 else anything(rng)
    body = json.dumps(body).encode() if rng.random() < 0.9 else rng.randbytes(rng.randrange(200))
    headers = [b"Host: x"] + [b"Content-Type: application/json"] * (rng.random() < 0.9)
    length = len(body) if rng.random() < 0.8 else rng.choice([0, -1, len(body) + 5, len(body) // 2, 2 ** 40, 10 ** 30])
    if rng.random() < 0.15:
        headers.append(b"Transfer-Encoding: " + rng.choice([b"chunked", b"gzip", b"chunked, chunked"]))
        body = rng.choice([b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), b"fffffffffffffffff\r\n" + body, b"-5\r\n" + body])
    if rng.random() < 0.9:
        headers.append(b"Content-Length: %d" % length)
    for _ in range(rng.choice([0, 0, 0, 1, 2, 200])):
        headers.append(rng.choice([b"Content-Encoding: gzip", b"Expect: 100-continue", b"Connection: upgrade", b"Content-Type: \xff",
                                   b"A: " + b"b" * 9000, b": x", b"no colon", b"Range: bytes=5-1", b"X: \0", b"Content-Length: 3"]))
    return b"%s %s HTTP/1.1\r\n%s\r\n\r\n%s" % (method.encode(), path.encode(), b"\r\n".join(headers), body)


def fuzz(seed, count):
    """Each request is answered with an HTTP status or cut off, in time, and the service continues."""
    rng = random.Random(seed)
    seen = {}
    for i in range(count):
        data = request_of(rng)
        cut = rng.randrange(len(data)) if rng.random() < 0.15 else len(data)
        with socket.create_connection(("127.0.0.1", PORT), timeout=30) as s:
            try:
                s.sendall(data[:cut])
                # a complete request is answered; an incomplete one ends with the connection
                s.settimeout(0.3)
                got = s.recv(4096)
            except TimeoutError:
                s.settimeout(30)
                s.shutdown(socket.SHUT_WR)
                got = s.recv(4096)
            except ConnectionError:
                got = b""
        status = got.split(b" ", 2)[1:2]
        assert not got or (got.startswith(b"HTTP/1.") and 100 <= int(status[0]) < 600), (seed, i, data[:300], got[:300])
        assert b"Traceback" not in got, (seed, i, data[:300], got)
        name = int(status[0]) if got else "cut off"
        seen[name] = seen.get(name, 0) + 1
        if i % 100 == 99:
            expect(("PUT", "/api/put", {"key": f"fuzz-{seed}-{i}", "value": "x"}), 200)
    expect(("GET", "/api/exist/none"), 200, {"exists": False})
    assert seen.get(400, 0) > count // 10 and seen.get(200), seen
    print(f"# seed {seed}: {seen}")


def drip():
    """Headers and body one byte at a time: served like other requests, and concurrently with them."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=30) as s:
        for byte in b'PUT /api/put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 29\r\n\r\n{"key":"drip","value":"drop"}'[:-2]:
            s.sendall(bytes([byte]))
        expect(("PUT", "/api/put", {"key": "beside", "value": "x"}), 200)
        s.sendall(b'"}')
        assert b" 200 " in s.recv(4096)
    expect(("GET", "/api/get/drip"), 200, b"drop")


def late(master, client_http):
    """A body that is late gives 408; without a master no request reports a miss."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=60) as s:
        s.sendall(b'PUT /api/put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"key":')
        answer = s.recv(4096)
        assert b" 408 " in answer, answer
    expect(("PUT", "/api/put", {"key": "k", "value": "x"}), 200)
    expect(("GET", "/api/get/k"), 200, b"x")
    assert ask("GET", "/health", port=client_http) == (200, {"status": "healthy", "code": 0})
    os.kill(master, signal.SIGKILL)
    expect(("GET", "/api/get/none"), 500)
    expect(("GET", "/api/exist/k"), 500)
    assert ask("GET", "/health", port=client_http) == (503, {"status": "master_unreachable", "code": 2})


if sys.argv[2:3] == ["--late"]:
    late(int(sys.argv[3]), int(sys.argv[4]))
    sys.exit(0)
routes()
files(sys.argv[2])
drip()
fuzz(1, 600)
fuzz(int(os.environ.get("MC_SEED", random.randrange(1 << 30))), 300)
oversized()
noise()
slow()
