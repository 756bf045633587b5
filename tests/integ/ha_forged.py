# SPDX-License-Identifier: Apache-2.0
"""ha_forged.py MAGIC,VERSION,MIN_VERSION COMMAND... - messages of a process that is no master of the cluster.

feed HOST:PORT TERM NONCE RECEIVER [FILE] - begin a copy at a standby, and send FILE as its checkpoint;
    NONCE: 32 digits, or "" for a leader of an older version. Print the status of each message.
join HOST:PORT NAME NONCE - ask that leader to feed NAME; print the status.
slow HOST:PORT HOST N SECONDS - ask that leader for N standbys at HOST, again and again, and confirm
    parts with bytes only after SECONDS. Print "part" at each of those, until killed."""
import socket
import struct
import sys
import threading
import time

HELLO, FEED, JOIN = 1, 48, 49
LEADER = 0x6D6F6F6E63616B65


def text(data):
    return struct.pack("<I", len(data)) + data


def exactly(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def frame(sock):
    length, kind, _, number, status = struct.unpack("<IHHIi", exactly(sock, 16))
    return kind, number, status, exactly(sock, length)


def call(sock, kind, body):
    sock.sendall(struct.pack("<IHHIi", len(body), kind, 0, 1, 0) + body)
    return frame(sock)[2]


def connect(address, source=None):
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), 10, source and (source, 0))
    hello = struct.pack("<IHHQQQB", MAGIC, VERSION, MIN_VERSION, 0, LEADER, 1, 0) + text(b"forged")
    assert call(sock, HELLO, hello) == 0
    return sock


def feed(address, term, nonce, receiver, path=None):
    sock = connect(address)

    def part(begin, data=b"", checkpoint=0):
        body = struct.pack("<QBBBQQ", int(term), begin, checkpoint, checkpoint, 1, 0) + text(data)
        body += struct.pack("<I", 150)
        if nonce:
            body += bytes.fromhex(nonce) + text(receiver.encode())
        return call(sock, FEED, body)

    print(part(1))
    if path:
        with open(path, "rb") as file:
            print(part(0, file.read(), 1))
    print(part(0))


def join(address, name, nonce):
    print(call(connect(address), JOIN, text(name.encode()) + bytes.fromhex(nonce)))


def serve(sock, nonce, delay):
    try:
        while True:
            kind, number, _, body = frame(sock)
            if kind == HELLO:
                reply = struct.pack("<HQQQII", VERSION, 0, 1, 1, 1 << 24, 1 << 24) + text(b"forged") + bytes(16)
            else:
                if struct.unpack_from("<I", body, 27)[0]:
                    print("part", flush=True)
                    time.sleep(delay)
                reply = b"\1" + nonce
            sock.sendall(struct.pack("<IHHIi", len(reply), kind, 1, number, 0) + reply)
    except (EOFError, OSError):
        pass


def slow(address, host, count, delay):
    for number in range(int(count)):
        server = socket.create_server((host, 0))
        threading.Thread(target=standby, args=(server, address, host, number, float(delay)), daemon=True).start()
    while True:
        time.sleep(60)


def standby(server, address, host, number, delay):
    nonce = struct.pack("<QQ", number + 1, 7)
    name = "%s:%d#%016x" % (host, server.getsockname()[1], number)

    def accept():
        while True:
            threading.Thread(target=serve, args=(server.accept()[0], nonce, delay), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    while True:
        try:
            call(connect(address, host), JOIN, text(name.encode()) + nonce)
        except (EOFError, OSError):
            pass
        time.sleep(0.1)


MAGIC, VERSION, MIN_VERSION = (int(word, 0) for word in sys.argv[1].split(","))
{"feed": feed, "join": join, "slow": slow}[sys.argv[2]](*sys.argv[3:])
