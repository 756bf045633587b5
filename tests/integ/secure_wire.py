# SPDX-License-Identifier: Apache-2.0
"""The traffic of a pool, for secure_wire.sh.

secure_wire.py capture FILE
    Write the frames of the loopback to FILE, each after its length (4 bytes), until SIGTERM.  Print "ready", and at
    the end the number of frames; exit status 1 if the kernel dropped some.
secure_wire.py range LIBRARY MASTER KEY
    Read three ranges of the object with mcs_get_range(), and compare them with file KEY.
secure_wire.py search FILE VALUE WORD...
    Reassemble each direction of each TCP connection.  Print the bytes of payload, then "value" if 16 bytes of VALUE, a
    file that repeats 16 bytes, are in one of them, at any offset, and each WORD that is."""

import ctypes
import os
import select
import signal
import socket
import struct
import sys

ETH_P_ALL = 3
PACKET_HOST = 0
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_RCVBUFFORCE = 33


def capture(path):
    """A frame of the loopback arrives twice, as sent and as received; the latter are kept."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 28)
    s.bind(("lo", 0))
    # Frames that have arrived before the signal are read, too.
    end, wake = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(wake, b"."))
    frames = ends = 0
    with open(path, "wb") as f:
        print("ready", flush=True)
        while True:
            ready = select.select([s, end], [], [], 0 if ends else None)[0]
            if s in ready:
                frame, where = s.recvfrom(1 << 18)
                if where[2] == PACKET_HOST:
                    f.write(struct.pack("=I", len(frame)) + frame)
                    frames += 1
            elif end in ready and not ends:
                os.read(end, 1)
                ends = 1
            elif ends:
                break
    dropped = struct.unpack("=II", s.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
    print(frames)
    return 1 if dropped else 0


def read_ranges(library, master, path):
    class Bytes(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    lib = ctypes.CDLL(library)
    lib.mcs_get_range.restype = ctypes.c_int64
    lib.mcs_get_range.argtypes = [ctypes.c_void_p, Bytes, ctypes.c_uint64, ctypes.POINTER(Bytes), ctypes.c_int,
                                  ctypes.c_int64]
    conf = (ctypes.c_void_p * 512)()
    lib.mcs_conf_init_size(conf, ctypes.c_size_t(ctypes.sizeof(conf)))
    # struct mcs_conf begins with its size and the address of the master.
    address = ctypes.create_string_buffer(master.encode())
    conf[1] = ctypes.addressof(address)
    store = ctypes.c_void_p()
    if lib.mcs_open(conf, ctypes.byref(store)) < 0:
        return 1
    name = path.rsplit("/", 1)[-1].encode()
    with open(path, "rb") as f:
        value = f.read()
    bad = 0
    for offset, length in ((1, 100), (4097, 70000), (len(value) - 300, 300)):
        buf = ctypes.create_string_buffer(length)
        iov = Bytes(ctypes.addressof(buf), length)
        key = Bytes(ctypes.cast(ctypes.c_char_p(name), ctypes.c_void_p), len(name))
        got = lib.mcs_get_range(store, key, offset, ctypes.byref(iov), 1, 5000)
        bad |= got != length or buf.raw != value[offset:offset + length]
    lib.mcs_close(store)
    return int(bad)


def streams(path):
    """The payload of each direction of each connection."""
    with open(path, "rb") as f:
        data = f.read()
    at, first, found = 0, {}, {}
    while at < len(data):
        size = struct.unpack_from("=I", data, at)[0]
        frame = data[at + 4:at + 4 + size]
        at += 4 + size
        kind, ip = frame[12:14], frame[14:]
        if kind == b"\x08\x00" and ip[9] == socket.IPPROTO_TCP:
            header, length = (ip[0] & 15) * 4, struct.unpack_from("!H", ip, 2)[0]
            # Segments of more than 64 KiB, which only the loopback has, do not tell their length.
            length = length or len(ip)
            ends = ip[12:20]
        elif kind == b"\x86\xdd" and ip[6] == socket.IPPROTO_TCP:
            header, length = 40, len(ip)
            ends = ip[8:40]
        else:
            continue
        tcp = ip[header:length]
        ports, seq = tcp[:4], struct.unpack_from("!I", tcp, 4)[0]
        payload = tcp[(tcp[12] >> 4) * 4:]
        if tcp[13] & 2:
            # A port may be used again: a new connection has its own stream.
            first[ends + ports] = (seq + 1, at)
        begin, number = first.setdefault(ends + ports, (seq, at))
        stream = found.setdefault((ends + ports, number), bytearray())
        offset = (seq - begin) & 0xffffffff
        if not payload or offset > 1 << 31:
            continue
        if len(stream) < offset + len(payload):
            stream.extend(bytes(offset + len(payload) - len(stream)))
        stream[offset:offset + len(payload)] = payload
    return list(found.values())


def search(path, value, words):
    with open(value, "rb") as f:
        block = f.read(16)
    all_streams = streams(path)
    print(sum(len(s) for s in all_streams))
    if any(block[i:] + block[:i] in s for i in range(16) for s in all_streams):
        print("value")
    for word in words:
        if any(word.encode() in s for s in all_streams):
            print(word)
    return 0


def main():
    command, args = sys.argv[1], sys.argv[2:]
    if command == "capture":
        return capture(args[0])
    if command == "range":
        return read_ranges(*args)
    return search(args[0], args[1], args[2:])


if __name__ == "__main__":
    sys.exit(main())
