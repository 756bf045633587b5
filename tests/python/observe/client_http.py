# SPDX-License-Identifier: Apache-2.0
"""enable_client_http_server: /health and /metrics of an embedded client."""

import json
import socket
import sys
import urllib.error
import urllib.request

from cases import case, finish
from mooncake.store import MooncakeDistributedStore


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


PORT = free_port()
stores = []


def opened(port, on=True, form="long"):
    stores.append(MooncakeDistributedStore())
    if form == "long":
        return stores[-1].setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", sys.argv[1], None, False, "", "default",
                                on, port)
    return stores[-1].setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "global_segment_size": "16mb",
                             "local_buffer_size": "16mb", "master_server_addr": sys.argv[1], "enable_client_http_server": on,
                             "client_http_port": port})


def ask(path, port=PORT):
    """Status, type, and the body."""
    try:
        answer = urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30)
    except urllib.error.HTTPError as e:
        answer = e
    return answer.status, answer.headers.get_content_type(), answer.read().decode()


case("off", lambda: opened(PORT, False))
case("off: no server", lambda: ask("/health"))
case("on", lambda: opened(PORT))
case("health", lambda: (ask("/health")[:2], json.loads(ask("/health")[2])))
case("metrics", lambda: (ask("/metrics")[:2], "# TYPE mooncake_client_" in ask("/metrics")[2]))
case("other path", lambda: ask("/other")[0])
case("the same port again", lambda: opened(PORT))
TEXT = free_port()
case("dict, port as text", lambda: opened(str(TEXT), "true", "dict"))
case("dict: health", lambda: ask("/health", TEXT)[0])
for port in (0, 70000):
    case(f"port {port}", lambda: opened(port))
    case(f"port {port}, off", lambda: opened(port, False))
    case(f"dict, port {port}", lambda: opened(port, True, "dict"))
for store in stores:
    store.close()
case("after close", lambda: ask("/health"))
finish({})
