# SPDX-License-Identifier: Apache-2.0
"""master_crowd.py HOST PORT N MAGIC,VERSION,MIN_VERSION - open N connections that each register a
client and stay open. Print how many were accepted, refused with an answer, and closed without an
answer; the duration of the slowest answer to the first connection meanwhile, in milliseconds;
and the error numbers of the refusals."""
import socket
import struct
import sys
import time


def hello(number):
    software = b"crowd"
    body = struct.pack("<IHHQQQBI", MAGIC, VERSION, MIN_VERSION, 0, 78, number, 0, len(software)) + software
    register = struct.pack("<QQI", 78, number, len(software)) + software
    return (struct.pack("<IHHIi", len(body), 1, 0, 1, 0) + body +
            struct.pack("<IHHIi", len(register), 2, 0, 2, 0) + register)


def frame(sock):
    head = b""
    while len(head) < 16:
        part = sock.recv(16 - len(head))
        if not part:
            return None
        head += part
    length, _, _, _, status = struct.unpack("<IHHIi", head)
    while length:
        part = sock.recv(length)
        if not part:
            return None
        length -= len(part)
    return status


host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
MAGIC, VERSION, MIN_VERSION = (int(word, 0) for word in sys.argv[4].split(","))
first = socket.create_connection((host, port))
first.sendall(hello(1))
assert frame(first) == 0 and frame(first) == 0
socks, welcome, refused, closed, slowest = [first], 1, {}, 0, 0.0
for number in range(2, count + 1):
    try:
        sock = socket.create_connection((host, port), timeout=20)
        sock.sendall(hello(number))
        socks.append(sock)
    except OSError:
        closed += 1
    if number % 50 == 0:
        # an unknown message gets an answer like any other
        began = time.monotonic()
        first.sendall(struct.pack("<IHHIi", 0, 999, 0, number, 0))
        assert frame(first) not in (0, None)
        slowest = max(slowest, time.monotonic() - began)
for sock in socks[1:]:
    try:
        status = frame(sock)
    except OSError:
        status = None
    if status == 0:
        welcome += 1
    elif status is None:
        closed += 1
    else:
        refused[status] = refused.get(status, 0) + 1
print(welcome, sum(refused.values()), closed, int(slowest * 1000), *refused)
