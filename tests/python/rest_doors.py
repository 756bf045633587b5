# SPDX-License-Identifier: Apache-2.0
"""Strangers can neither reach the REST service over the network nor through a user's browser, and its clients cannot mount
files without permission, take all memory, or shut others out with connections.

rest_doors.py closed PORT FILE: a service without options; FILE is not its business
rest_doors.py open PORT DIRECTORY FILE: --segment_dir=DIRECTORY --max_mounted_size=64mb
rest_doors.py crowd PORT: a service under "ulimit -n 256" """

import hashlib
import http.client
import json
import os
import socket
import sys
import time

MODE, PORT = sys.argv[1], int(sys.argv[2])
MIB = 1 << 20
JSON = {"Content-Type": "application/json"}
CROWD = 300


def ask(method, path, body=None, headers=JSON, timeout=60):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=timeout)
    try:
        c.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        r = c.getresponse()
        data = r.read()
        return r.status, json.loads(data)
    finally:
        c.close()


def expect(status, words, *request, **more):
    got, body = ask(*request, **more)
    assert got == status, (request, more, got, body)
    assert words in str(body), (request, body)
    return body


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def decode(path, size=4 * MIB):
    return "POST", "/api/reconfigure", {"mode": "decode", "path": path, "size": size}


def closed(precious):
    """The default: loopback only, no files."""
    try:
        socket.create_connection(("127.0.0.2", PORT), timeout=10).close()
        raise AssertionError("the service listens on all addresses")
    except ConnectionRefusedError:
        pass
    before = digest(precious)
    expect(403, "--segment_dir", *decode(precious))
    expect(403, "--segment_dir", *decode("/proc/self/mem"))
    put = ("PUT", "/api/put", {"key": "k", "value": "v"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp"):
        expect(415, "application/json", *put, headers={"Content-Type": kind})
        expect(415, "application/json", *decode(precious), headers={"Content-Type": kind})
    expect(415, "application/json", *put, headers={})
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{PORT + 1}", f"https://127.0.0.1:{PORT}.evil.example", "http://[",
                   "file://"):
        expect(403, "origin", *put, headers={**JSON, "Origin": origin})
        expect(403, "origin", "DELETE", "/api/remove_all", headers={"Origin": origin})
    # a name that was made to point here: the browser sends it as Host, too
    expect(403, "origin", *put, headers={**JSON, "Origin": f"http://evil.example:{PORT}", "Host": f"evil.example:{PORT}"})
    expect(200, "False", "GET", "/api/exist/k")
    expect(200, "success", *put, headers={**JSON, "Origin": f"http://127.0.0.1:{PORT}"})
    expect(200, "success", "DELETE", "/api/remove/k", headers={"Origin": f"http://localhost:{PORT}", "Host": f"localhost:{PORT}"})
    assert digest(precious) == before


def opened(directory, precious):
    """Files below the directory, by whatever name, and the service's own shared memory; no more bytes than allowed."""
    before = digest(precious)
    inside = os.path.join(directory, "below", "segment")
    os.mkdir(os.path.dirname(inside))
    for path in (inside, directory + "-not"):
        with open(path, "wb") as f:
            f.truncate(8 * MIB)
    os.symlink(inside, os.path.join(directory, "good"))
    os.symlink(precious, os.path.join(directory, "bad"))
    os.symlink(os.path.dirname(precious), os.path.join(directory, "out"))
    for path in (precious, directory + "-not", directory, os.path.join(directory, "bad"),
                 os.path.join(directory, "out", os.path.basename(precious)),
                 os.path.join(directory, "..", os.path.basename(precious)), "relative"):
        expect(403, "outside of the directories of --segment_dir", *decode(path))
    for path in (inside, os.path.join(directory, "good"), os.path.join(directory, "below", "..", "good")):
        expect(200, "success", *decode(path))
    expect(200, "success", "POST", "/api/reconfigure", {"mode": "prefill"})
    assert digest(precious) == before
    shared_memory(precious)
    # the limit counts everything that is mounted, and only that
    expect(507, "--max_mounted_size", "POST", "/api/mount", {"size": 80 * MIB})
    first = expect(200, "success", "POST", "/api/mount", {"size": 33 * MIB})["segment_ids"]
    expect(507, "16777216 that may still be mounted", "POST", "/api/mount", {"size": 17 * MIB})
    expect(507, "--max_mounted_size", *decode(inside, 17 * MIB))
    expect(500, "", *decode(inside + ".none", 16 * MIB))
    expect(500, "", *decode(inside, 16 * MIB))
    expect(200, "success", *decode(inside, 4 * MIB))
    expect(507, "12582912 that may", "POST", "/api/mount", {"size": 16 * MIB})
    expect(200, "success", "POST", "/api/unmount", {"segment_ids": first})
    expect(200, "success", "POST", "/api/mount", {"size": 48 * MIB})


def shared_memory(precious):
    names = [f"mc-doors-{os.getpid()}-{i}" for i in range(3)]
    paths = ["/dev/shm/" + name for name in names]
    try:
        for path in paths[:2]:
            with open(path, "wb") as f:
                f.truncate(4 * MIB)
        os.symlink(precious, paths[2])
        ids = expect(200, "success", "POST", "/api/mount_shm", {"name": names[0], "size": 4 * MIB})["segment_ids"]
        expect(200, "success", "POST", "/api/unmount_shm", {"segment_ids": ids})
        expect(500, "", "POST", "/api/mount_shm", {"name": names[2], "size": 4 * MIB})
        if os.geteuid() == 0:
            os.chown(paths[1], 65534, 65534)
            expect(403, "not a file of this service's user", "POST", "/api/mount_shm", {"name": names[1], "size": 4 * MIB})
            assert open(paths[1], "rb").read() == bytes(4 * MIB)
        else:
            print("# not root: no file of another user")
    finally:
        for path in paths:
            if os.path.lexists(path):
                os.unlink(path)


def served(what):
    began = time.monotonic()
    for i in range(3):
        expect(200, "success", "PUT", "/api/put", {"key": f"{what}-{i}", "value": "x"}, timeout=30)
    took = time.monotonic() - began
    assert took < 20, (what, took)


def crowd():
    """Connections without a whole request give way to others, and end by themselves."""
    half = b"PUT /api/put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    for what, text in (("header", half), ("body", half + b"\r\n{"), ("nothing", b"")):
        crowd = []
        for _ in range(CROWD):
            crowd.append(socket.create_connection(("127.0.0.1", PORT), timeout=30))
            crowd[-1].sendall(text)
        served(what)
        for s in crowd:
            s.close()
    # a header that never ends
    with socket.create_connection(("127.0.0.1", PORT), timeout=0.5) as s:
        began, ended = time.monotonic(), False
        s.sendall(half)
        while not ended and time.monotonic() - began < 30:
            try:
                s.sendall(b"a")
                ended = s.recv(100) == b""
            except TimeoutError:
                pass
            except ConnectionError:
                ended = True
        assert ended, "a header may take longer than 30 s"
    # a connection may be kept and used again later than a header may take
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    c.connect()
    kept = c.sock
    for pause in (0, 0, 12):
        time.sleep(pause)
        c.request("GET", "/api/exist/header-0")
        assert json.loads(c.getresponse().read()) == {"exists": True} and c.sock is kept
    c.close()


if MODE == "closed":
    closed(sys.argv[3])
elif MODE == "open":
    opened(sys.argv[3], sys.argv[4])
else:
    crowd()
