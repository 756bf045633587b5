# SPDX-License-Identifier: Apache-2.0
"""secure_hostile.py COMMAND ... - a peer on the path, or one without a key, for secure_hostile.sh.

proxy PORTS TARGET RECORD CHANGE...    listen at a port for each change, forward its connections to TARGET with their
                                       ClientHello changed, and write the bytes of each client to RECORD.CHANGE.NUMBER.
                                       CHANGE: none, one of CHANGES, or plain: answer with plain bytes. The ports are
                                       in the file PORTS. Ends with its standard input, and says which clients spoke TLS
replay TARGET RECORD                   send recorded bytes again; print the answers of TARGET
hello TARGET FILE CHANGE...            send changed ClientHellos with the credential FILE and a right binder; print the
                                       answers
plain TARGET MAGIC                     send the hello of a client without TLS; print the answer
flood TARGET FILE COUNT SOURCE...      open COUNT connections that end within the handshake, wait for the end of the
                                       standard input, and print how many the server has closed
find SECRETS WHERE...                  print the secrets (lines of a name and hex) that are there, as bytes, in hex, in
                                       base64. WHERE: a directory; a process ID: its arguments and environment;
                                       memory:PID: its memory that a core dump has, if this user may (no base64)"""
import base64
import hashlib
import hmac
import os
import resource
import select
import socket
import struct
import sys
import threading
import time

SECONDS = 5


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


# ---- ClientHello ----

def vector(size, data):
    return len(data).to_bytes(size, "big") + data


class Hello:
    """The fields of a ClientHello; extensions is a list of (type, bytes)."""

    def __init__(self, message=None):
        self.random, self.session = os.urandom(32), os.urandom(32)
        self.ciphers, self.extensions = b"\x13\x01", []
        if not message:
            return
        at = 4 + 2
        self.random = message[at:at + 32]
        at += 32
        self.session, at = self.take(message, at, 1)
        self.ciphers, at = self.take(message, at, 2)
        _, at = self.take(message, at, 1)
        rest, _ = self.take(message, at, 2)
        at = 0
        while at < len(rest):
            kind = int.from_bytes(rest[at:at + 2], "big")
            body, at = self.take(rest, at + 2, 2)
            self.extensions.append((kind, body))

    @staticmethod
    def take(data, at, size):
        length = int.from_bytes(data[at:at + size], "big")
        return data[at + size:at + size + length], at + size + length

    def message(self):
        body = b"\x03\x03" + self.random + vector(1, self.session) + vector(2, self.ciphers) + b"\x01\x00"
        body += vector(2, b"".join(struct.pack(">H", kind) + vector(2, data) for kind, data in self.extensions))
        return b"\x01" + vector(3, body)

    def replace(self, kind, data):
        """An extension with other data; None: it is removed."""
        self.extensions = [(k, data if k == kind else d) for k, d in self.extensions if k != kind or data is not None]


VERSIONS, GROUPS, SHARES, MODES, EARLY, PSK = 43, 10, 51, 45, 42, 41


def change(hello, how):
    if how == "old-version":
        hello.replace(VERSIONS, b"\x02\x03\x03")
    elif how == "no-version":
        hello.replace(VERSIONS, None)
    elif how == "psk_ke":
        hello.replace(MODES, b"\x01\x00")
    elif how == "early-data":
        hello.extensions.insert(-1, (EARLY, b""))
    elif how == "ciphers":
        hello.ciphers = b"\x13\x02\x13\x03\xc0\x2f\x00\xff"
    elif how == "no-share":
        hello.replace(SHARES, b"\x00\x00")
    elif how == "no-key":
        hello.replace(PSK, None)


CHANGES = "old-version no-version psk_ke early-data ciphers no-share no-key".split()


def record(message):
    return b"\x16\x03\x01" + vector(2, message)


def expand(key, label, context):
    info = struct.pack(">H", 32) + vector(1, b"tls13 " + label) + vector(1, context)
    return hmac.digest(key, info + b"\x01", "sha256")


def credential(path):
    words = dict(line.split(None, 1) for line in open(path).read().splitlines() if line and line[0] != "#")
    return words["identity"].encode(), bytes.fromhex(words["key"])


def valid_hello(identity, key, how="none"):
    """A ClientHello as our clients send it, with a right binder also after the change."""
    hello = Hello()
    hello.extensions = [(VERSIONS, b"\x02\x03\x04"), (GROUPS, b"\x00\x02\x00\x1d"),
                        (SHARES, vector(2, b"\x00\x1d" + vector(2, os.urandom(32)))), (MODES, b"\x01\x01"),
                        (PSK, vector(2, vector(2, identity) + bytes(4)) + vector(2, vector(1, bytes(32))))]
    change(hello, how)
    message = hello.message()
    if hello.extensions[-1][0] != PSK:
        return record(message)
    begin = message[:-35]
    binder = expand(hmac.digest(bytes(32), key, "sha256"), b"ext binder", hashlib.sha256(b"").digest())
    binder = hmac.digest(expand(binder, b"finished", b""), hashlib.sha256(begin).digest(), "sha256")
    return record(begin + vector(2, vector(1, binder)))


# ---- connections ----

def exchange(target, data):
    """Send the bytes, return all of the answer until the server closes, or None if it does not."""
    with socket.create_connection(address(target), SECONDS) as s:
        got = b""
        try:
            s.sendall(data)
            while part := s.recv(65536):
                got += part
        except TimeoutError:
            return None
        except OSError:
            pass
        return got


def records(data):
    """Types of TLS records; None: there are other bytes."""
    at, types = 0, []
    while at < len(data):
        if len(data) < at + 5 or not 20 <= data[at] <= 23 or data[at + 1] != 3:
            return None
        types.append((data[at], data[at + 5:at + 7]))
        at += 5 + int.from_bytes(data[at + 3:at + 5], "big")
    return types


def answer(data):
    """A word for the answer of a server."""
    types = records(data) if data is not None else None
    if data is None:
        return "open"
    if types is None:
        return "plain"
    if any(kind == 22 for kind, _ in types):
        return "retry" if data[11:15] == b"\xcf\x21\xad\x74" else "handshake"
    alerts = [body[1] for kind, body in types if kind == 21 and len(body) == 2]
    return f"alert {alerts[0]}" if alerts else "closed"


def forward(source, to, keep):
    try:
        while data := source.recv(65536):
            keep.append(data)
            to.sendall(data)
    except OSError:
        pass
    for s in (source, to):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def proxied(client, target, how):
    """One connection of the proxy; returns the client's bytes."""
    first = b""
    client.settimeout(SECONDS)
    while len(first) < 5 or len(first) < 5 + int.from_bytes(first[3:5], "big"):
        part = client.recv(65536)
        if not part:
            return first
        first += part
    kept = [first]
    if how == "plain":
        client.sendall(struct.pack("<IHHIi", 0, 1, 1, 1, 0) + b"HTTP/1.0 200 OK\r\n\r\n")
        try:
            while data := client.recv(65536):
                kept.append(data)
        except OSError:
            pass
        client.close()
        return b"".join(kept)
    server = socket.create_connection(address(target), SECONDS)
    if how != "none":
        end = 5 + int.from_bytes(first[3:5], "big")
        hello = Hello(first[5:end])
        assert hello.message() == first[5:end], "the ClientHello is not understood"
        change(hello, how)
        first = record(hello.message()) + first[end:]
    server.sendall(first)
    back = threading.Thread(target=forward, args=(server, client, []), daemon=True)
    back.start()
    forward(client, server, kept)
    back.join()
    client.close()
    server.close()
    return b"".join(kept)


def proxy(port_file, target, path, *changes):
    listeners = {socket.create_server(("127.0.0.1", 0)): how for how in changes}
    with open(port_file + ".new", "w") as f:
        for listener, how in listeners.items():
            print(how, listener.getsockname()[1], file=f)
    os.rename(port_file + ".new", port_file)
    busy = []

    def serve(client, how, number):
        data = proxied(client, target, how)
        with open(f"{path}.{how}.{number}", "wb") as f:
            f.write(data)
        print(how, "plain" if records(data) is None else "tls", flush=True)

    while True:
        ready, _, _ = select.select([*listeners, sys.stdin], [], [])
        if sys.stdin in ready:
            break
        for listener in ready:
            client, _ = listener.accept()
            busy.append(threading.Thread(target=serve, args=(client, listeners[listener], len(busy)), daemon=True))
            busy[-1].start()
    for thread in busy:
        thread.join(2 * SECONDS)


# ---- floods ----

def flood(target, path, count, sources):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit[1], count + 100), limit[1]))
    identity, key = credential(path)
    whole, conns, failed, begun = valid_hello(identity, key), [], 0, time.monotonic()
    for i in range(count):
        try:
            s = socket.socket()
            s.bind((sources[i % len(sources)], 0))
            s.settimeout(SECONDS)
            s.connect(address(target))
            s.sendall((b"", whole[:len(whole) // 2], whole)[i // len(sources) % 3])
            conns.append(s)
        except OSError:
            failed += 1
    print(f"opened {len(conns)} failed {failed} seconds {time.monotonic() - begun:.1f}", flush=True)
    sys.stdin.read()
    closed = 0
    for s in conns:
        s.setblocking(False)
        try:
            while s.recv(65536):
                pass
            closed += 1
        except BlockingIOError:
            pass
        except OSError:
            closed += 1
    print(f"closed {closed} open {len(conns) - closed}")


# ---- secrets ----

def forms_of(path, in_base64):
    """{bytes: name and form} of the secrets in a file."""
    forms = {}
    for line in open(path):
        name, text = line.split()
        raw = bytes.fromhex(text)
        forms.update({raw: f"{name} as bytes", text.encode(): f"{name} in hex"})
        forms[text.upper().encode()] = f"{name} in HEX"
        for skip in range(3 if in_base64 else 0):
            # without the characters that depend on the bytes before and behind
            data = base64.b64encode(bytes(skip) + raw)[4 if skip else 0:-4]
            forms[data] = forms[data.replace(b"+", b"-").replace(b"/", b"_")] = f"{name} in base64"
    return forms


def of_process(pid, name):
    try:
        return open(f"/proc/{pid}/{name}", "rb").read()
    except PermissionError:
        return b""


def dumped(pid):
    """The memory of the process that a core dump would have."""
    try:
        maps, mem = open(f"/proc/{pid}/smaps").read().split("\n"), open(f"/proc/{pid}/mem", "rb", 0)
    except PermissionError:
        return
    area, own, resident = None, False, 0
    for line in maps:
        words = line.split()
        if words and words[0] == "Rss:":
            resident = int(words[1])
        elif words and words[0] == "VmFlags:" and resident and own and "wr" in words and "dd" not in words:
            begin, end = area
            for at in range(begin, end, 1 << 16):
                try:
                    # the pieces overlap, so that no secret is cut
                    data = os.pread(mem.fileno(), min(end - at, (1 << 16) + 256), at)
                except OSError:
                    break
                if data.count(0) < len(data):
                    yield f"{begin:x}", data
        elif words and words[0].count("-") == 1 and not words[0].endswith(":"):
            area, own = [int(word, 16) for word in words[0].split("-")], words[4] == "0"


def find(path, where):
    forms = forms_of(path, not where.startswith("memory:"))
    if where.startswith("memory:"):
        sources = dumped(where[7:])
    elif where.isdigit():
        sources = [(name, of_process(where, name)) for name in ("cmdline", "environ")]
    else:
        files = [os.path.join(d, f) for d, _, names in os.walk(where) for f in names]
        sources = ((f, open(f, "rb").read()) for f in files)
    for name, data in sources:
        for form, what in forms.items():
            if form in data:
                print(f"{where} {name}: {what}")


def main(command, *args):
    if command == "proxy":
        proxy(*args)
    elif command == "replay":
        print(answer(exchange(args[0], open(args[1], "rb").read())))
    elif command == "hello":
        for how in args[2:]:
            print(how, answer(exchange(args[0], valid_hello(*credential(args[1]), how))))
    elif command == "plain":
        magic, version, least = (int(word, 0) for word in args[1].split(","))
        body = struct.pack("<IHHQQQBI", magic, version, least, 0, 78, 1, 0, 0)
        got = exchange(args[0], struct.pack("<IHHIi", len(body), 1, 0, 1, 0) + body)
        print(answer(got), len(got or b""), got[:16].hex() if got else "")
    elif command == "flood":
        flood(args[0], args[1], int(args[2]), args[3:])
    elif command == "find":
        for where in args[1:]:
            find(args[0], where)
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
