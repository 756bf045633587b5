# SPDX-License-Identifier: Apache-2.0
"""Tokens and TLS of the REST service.

rest_tokens.py DIRECTORY: it has cert and key, a certificate for 127.0.0.1 that signs itself"""

import asyncio
import json
import os
import socket
import ssl
import sys

from mooncake import _rest
from mooncake.mooncake_store_service import MooncakeStoreService

CERT, KEY = (os.path.join(sys.argv[1], name) for name in ("cert", "key"))
# token -> role and tenant
HOLDERS = {role: (role, "") for role in ("reader", "client", "node", "admin", "metrics")}
HOLDERS["own"], HOLDERS["other"] = ("client", "blue"), ("client", "red")


class Store:
    def __init__(self):
        self.calls = 0

    def health_check(self):
        return 0

    def put(self, key, data):
        self.calls += 1
        return 0

    def remove_all(self):
        self.calls += 1
        return 0

    def batch_is_exist(self, keys):
        self.calls += 1
        return [0]

    def allocate_and_mount_segment(self, *args):
        self.calls += 1
        return {"ret": 0, "segment_ids": [], "allocated_size": 0}


async def ask(port, method, path, token=None, body=None, tls=None, headers=""):
    """Status, header and body of the answer."""
    data = b"" if body is None else json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}"
    if token is not None:
        head += f"Authorization: {token}\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    text = (await asyncio.wait_for(reader.read(), 20)).decode()
    writer.close()
    return int(text.split()[1]) if text.startswith("HTTP/") else 0, text


async def served(identify, tls=None, tokens=True):
    os.environ["MOONCAKE_MASTER"] = "127.0.0.1:1"
    service = MooncakeStoreService(cli_config={"tenant_id": "blue"}, tls=tls)
    service.store, service.tokens, service.identify = Store(), tokens, identify
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    await service.start_http_service(port)
    return service, port


async def ended(service):
    service.store = None
    await service.stop()


async def tokens():
    service, port = await served(HOLDERS.get)
    put = ("PUT", "/api/put")
    for token in (None, "", "Bearer", "Bearer ", "Bearer nobody", "Basic client", "client"):
        for method, path in (put, ("GET", "/api/exist/k"), ("HEAD", "/api/exist/k"), ("GET", "/none"), ("POST", "/health")):
            status, text = await ask(port, method, path, token, {"key": "k", "value": "v"})
            assert status == 401 and "WWW-Authenticate: Bearer\r\n" in text, (token, method, path, text)
        status, text = await ask(port, "GET", "/health", token)
        assert status == 200 and '"healthy"' in text, text
    assert service.store.calls == 0
    rows = ((*put, {"key": "k", "value": "v"}, "client node admin"), ("GET", "/api/exist/k", None, "reader client node admin"),
            ("DELETE", "/api/remove_all", None, "admin"), ("POST", "/api/mount", {"size": 1}, "node admin"))
    for method, path, body, allowed in rows:
        for role in ("reader", "client", "node", "admin", "metrics"):
            status, text = await ask(port, method, path, "Bearer " + role, body)
            assert status == (200 if role in allowed.split() else 403), (method, path, role, text)
    assert (await ask(port, "GET", "/none", "bearer  reader"))[0] == 404
    assert (await ask(port, "GET", "/api/exist/k", "Bearer own"))[0] == 200
    assert (await ask(port, "GET", "/api/exist/k", "Bearer other"))[0] == 403
    # the rules about browsers are first
    status, text = await ask(port, *put, None, {}, headers="Origin: http://evil.example\r\n")
    assert status == 403 and "evil.example" in text, text
    await ended(service)


async def without_a_check():
    service, port = await served(None)
    assert (await ask(port, "GET", "/api/exist/k", "Bearer admin"))[0] == 401
    assert (await ask(port, "GET", "/health"))[0] == 200
    await ended(service)
    service, port = await served(None, tokens=False)
    assert (await ask(port, "GET", "/api/exist/k"))[0] == 200
    await ended(service)


async def tls():
    service, port = await served(HOLDERS.get, _rest.tls_of(CERT, KEY))
    trusts = ssl.create_default_context(cafile=CERT)
    assert (await ask(port, "GET", "/api/exist/k", "Bearer reader", tls=trusts))[0] == 200
    assert (await ask(port, "GET", "/api/exist/k", tls=trusts))[0] == 401
    try:
        await ask(port, "GET", "/health", tls=ssl.create_default_context())
        raise AssertionError("the certificate of a stranger was accepted")
    except ssl.SSLCertVerificationError:
        pass
    try:
        assert (await ask(port, "GET", "/health"))[0] == 0
    except (ConnectionError, IndexError):
        pass
    await ended(service)


def files():
    assert _rest.tls_of("", "") is None
    for cert, key, words in ((CERT, "", "needed together"), ("", KEY, "needed together"), (KEY, KEY, "no certificate")):
        try:
            _rest.tls_of(cert, key)
            raise AssertionError((cert, key))
        except ValueError as e:
            assert words in str(e), e
    os.chmod(KEY, 0o644)
    try:
        _rest.tls_of(CERT, KEY)
        raise AssertionError("others may read the key")
    except ValueError as e:
        assert "chmod 600" in str(e), e


asyncio.run(tokens())
asyncio.run(without_a_check())
asyncio.run(tls())
files()
