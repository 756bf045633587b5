# SPDX-License-Identifier: Apache-2.0
"""Peers for security_corpus.sh that need no TLS.

security_peer.py http TABLE TOKENS refused|admitted SEGMENT=NAME SERVER=ADDRESS...
    Send the requests of TABLE (security_http.table) to these servers with each token of TOKENS, a file of lines
    "name token": refused, those that the table refuses; admitted, all others, in the order of the table.
    Each answer that is not the table's is a line; the last line is the number of requests.
security_peer.py hello ADDRESS
    Send the greetings of clients without TLS, of protocol versions 1 to 3, and print the status of each answer.
security_peer.py events ADDRESS
    Subscribe to KV events without a key, and print "refused" or "admitted".
security_peer.py user ADDRESS...
    Connect as the user of this process, without rights there; to same-host sockets of engines without the token of a
    connection.  Print "refused" for each address where the peer ends the connection."""

import http.client
import socket
import struct
import sys

SECONDS = 20
# A column of the table -> the tokens that it stands for; another column has a token of its name.
KINDS = {
    "none": ("", "Bearer", "Bearer ", "Basic {admin}", "{admin}"),
    "bad": ("Bearer {wrong-key}", "Bearer {expired}", "Bearer {other-pool}", "Bearer {future-secret}",
            "Bearer {unknown}", "Bearer {foreign}", "Bearer {ticket}", "Bearer {admin}0", "Bearer admin"),
}


def table_rows(path):
    """(server, method, path, {column: wanted}, query, body) of each row."""
    rows, extra, columns = [], {}, None
    with open(path) as f:
        for line in f:
            word = line.split()
            if line.startswith("# server "):
                columns = word[4:]
            elif word and word[0] == "with":
                is_query = word[3].startswith("?")
                extra[word[1], word[2]] = word[3] if is_query else "", " ".join(word[3 + is_query:])
            elif word and word[0] != "#":
                rows.append((word[0], word[1], word[2], dict(zip(columns, word[3:], strict=True))))
    return [(*row, *extra.get((row[1], row[2]), ("", ""))) for row in rows]


class Server:
    """A connection that is kept; the server may end it after any answer."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=SECONDS)

    def ask(self, method, path, token, body):
        headers = {"Authorization": token} if token else {}
        if body:
            headers["Content-Type"] = "application/json"
        for last in (False, True):
            try:
                self.connection.request(method, path, body or None, headers)
                answer = self.connection.getresponse()
                answer.read()
                return answer.status
            except (ConnectionError, http.client.HTTPException):
                self.connection.close()
                if last:
                    raise


def fits(wanted, status):
    return status not in (401, 403) if wanted == "ok" else status == int(wanted)


def do_http(table, tokens, phase, *addresses):
    with open(tokens) as f:
        known = dict(line.split() for line in f)
    addresses = dict(a.split("=") for a in addresses)
    segment = addresses.pop("SEGMENT", "")
    servers = {name: Server(address) for name, address in addresses.items()}
    asked, wrong = 0, 0
    for server, method, path, cells, query, body in table_rows(table):
        for column, wanted in cells.items():
            refused = wanted in ("401", "403")
            if server not in servers or refused != (phase == "refused"):
                continue
            target = path.replace("{key}", "key") + query.replace("SEGMENT", segment)
            data = body.replace("SEGMENT", segment)
            headers = KINDS.get(column, ("Bearer {%s}" % column,))
            # An answer to HEAD is that to GET without its body.
            for name in (method, "HEAD") if method == "GET" and refused else (method,):
                for header in headers if refused else headers[:1]:
                    status = servers[server].ask(name, target, header.format_map(known), data)
                    asked += 1
                    if not fits(wanted, status):
                        wrong += 1
                        print(f"{server}: {name} {target} with {column} ({header}): {status}, wanted {wanted}")
    print(asked)
    return wrong > 0


def do_hello(address):
    host, port = address.rsplit(":", 1)
    for version in (1, 2, 3):
        body = struct.pack("<IHHQQQB", 0x5346434d, version, 1, 0, 1, version, 0) + struct.pack("<I", 3) + b"old"
        with socket.create_connection((host, int(port)), SECONDS) as s:
            s.sendall(struct.pack("<IHHIi", len(body), 1, 0, 7, 0) + body)
            answer = b""
            while more := s.recv(4096):
                answer += more
        length, kind, flags, request, status = struct.unpack("<IHHIi", answer)
        assert (length, kind, flags, request) == (0, 1, 1, 7), answer
        print(version, status)
    return False


def do_events(address):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), SECONDS) as s:
        # ZMTP 3.0: the greeting with mechanism NULL; a publisher with this mechanism answers with the command READY
        s.sendall(b"\xff" + bytes(8) + b"\x7f\x03\0NULL" + bytes(48))
        answer = b""
        try:
            while b"READY" not in answer and (more := s.recv(4096)):
                answer += more
        except ConnectionError:
            pass
    print("admitted" if b"READY" in answer else "refused")
    return False


def do_user(*addresses):
    for address in addresses:
        try:
            print(address, "refused" if is_refused(address) else "admitted")
        except (PermissionError, ConnectionError):
            print(address, "refused")
    return False


def is_refused(address):
    name = "\0" + address[1:] if address.startswith("@") else address
    engine = name.startswith("\0mooncake-engine-")
    if ":" in address:
        host, port = address.rsplit(":", 1)
        s = socket.create_connection((host, int(port)), SECONDS)
    else:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if name.startswith("\0@") else socket.SOCK_SEQPACKET)
        s.connect(name)
    s.settimeout(2)
    # A hello of engine/shm/map_wire.h with an unknown token.  All others refuse the user before any request.
    if engine:
        s.send(struct.pack("=HHiQQQQII16s", 1, 1, 0, 0x1234, 0, 0, 0, 0, 0, b""))
    try:
        while s.recv(4096):
            # A daemon tells the reason, and then ends the connection.
            if engine:
                return False
    except TimeoutError:
        return False
    return True


sys.exit({"http": do_http, "hello": do_hello, "events": do_events, "user": do_user}[sys.argv[1]](*sys.argv[2:]))
