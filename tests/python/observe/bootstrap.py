# SPDX-License-Identifier: Apache-2.0
"""KVBootstrapServer: the metadata server inside of a program."""

import os
import socket
import time
import urllib.error
import urllib.request

from cases import case, finish, says
from mooncake.http_metadata_server import KVBootstrapServer, KVPoll

for name in [n for n in os.environ if n.startswith("MC_METADATA_")]:
    del os.environ[name]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def started(host="127.0.0.1", **variables):
    """A server that listens."""
    os.environ.update(variables)
    try:
        server = KVBootstrapServer(free_port(), host)
        server.run()
    finally:
        for name in variables:
            del os.environ[name]
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", server.port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    return server


def ask(server, method, query, data=None, token=None):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/{query}", data, method=method,
                                     headers={"Authorization": token} if token else {})
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as e:
        answer = e
    return [answer.status, answer.headers.get_content_type(), answer.read()]


case("states", lambda: [[s.name, s.value] for s in KVPoll])
server = KVBootstrapServer(port=free_port())
case("defaults", lambda: [server.host, server.max_body_bytes, server.max_keys, server.max_total_bytes, server.max_concurrent_puts,
                          server.auth_token, server.thread, server.store])
case("poll before run", lambda: server.poll().name)
says("all addresses without a token", server.run, "refuses to bind", "authentication token", "MC_METADATA_HTTP_TOKEN")
says("limit of no number", lambda: started(MC_METADATA_MAX_KEYS="x"), "MC_METADATA_MAX_KEYS must be a positive integer")
server = started(MC_METADATA_MAX_KEYS="3", MC_METADATA_MAX_TOTAL_BYTES="60", MC_METADATA_MAX_BODY_BYTES="1000")
case("poll", lambda: server.poll().name)
for number, (method, query, data) in enumerate((
        ("GET", "metadata?key=a", None), ("PUT", "metadata?key=a", b"{1}"), ("GET", "metadata?key=a", None),
        ("PUT", "metadata?key=%20a%20", b"{2}"), ("GET", "metadata?key=+a", None), ("GET", "metadata", None),
        ("GET", "metadata?key=%20", None), ("POST", "metadata?key=a", b"x"), ("GET", "other", None),
        ("PUT", "metadata?key=rpc_meta/a", b"1"), ("PUT", "metadata?key=rpc_meta/a", b"1"),
        ("PUT", "metadata?key=rpc_meta/a", b"2"), ("PUT", "metadata?key=b", bytes(90)), ("PUT", "metadata?key=b", bytes(2000)),
        ("PUT", "metadata?key=c", b""), ("PUT", "metadata?key=d", b"4"), ("DELETE", "metadata?key=c", None),
        ("DELETE", "metadata?key=c", None), ("PUT", "metadata?key=d", b"4"), ("GET", "metadata?key=d", None))):
    case(f"{number} {method} {query}", lambda: ask(server, method, query, data))
server.close()
case("poll after close", lambda: server.poll().name)
server = started(MC_METADATA_HTTP_TOKEN="secret")
for token in (None, "Bearer wrong", "secret", "Basic secret", "bearer secret"):
    case(f"token {token}", lambda: ask(server, "GET", "metadata?key=a", token=token)[0])
server.close()
server = started("0.0.0.0", MC_METADATA_HTTP_ALLOW_INSECURE="1")
case("all addresses on request", lambda: ask(server, "GET", "metadata?key=a")[0])
second = KVBootstrapServer(server.port, "127.0.0.1")
second.run().join(10)
case("busy port", lambda: second.poll().name)
server.close()
finish({})
