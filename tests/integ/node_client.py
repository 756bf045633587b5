# SPDX-License-Identifier: Apache-2.0
# node_client.py LIBRARY WHAT ... - a program of the node that uses the library's C API.
#	dummy HOST:PORT		upstream's dummy client: puts, gets, and then waits to be killed
#	auto MASTER		finds the daemon automatically
#	refused NAME		connects to the abstract socket NAME and is refused
#	squat NAME		listens at this name, and prints whether a program that connects sends anything
import ctypes
import signal
import socket
import struct
import sys

lib, what, where = ctypes.CDLL(sys.argv[1]), sys.argv[2], sys.argv[3].encode()
lib.mooncake_store_create.restype = ctypes.c_void_p
lib.mooncake_store_alloc_from_mem_pool.restype = ctypes.c_void_p
lib.mooncake_store_get_into.restype = ctypes.c_int64


def check(got, wanted):
    assert got == wanted, f"{got}, wanted {wanted}"


def use(s, name, p):
    ctypes.memset(p, 0x5a, 100000)
    check(lib.mooncake_store_put_from(s, name, ctypes.c_void_p(p), ctypes.c_size_t(100000), None), 0)
    ctypes.memset(p, 0, 100000)
    check(lib.mooncake_store_get_into(s, name, ctypes.c_void_p(p), ctypes.c_size_t(100000)), 100000)
    check(ctypes.string_at(p, 100000), b"\x5a" * 100000)
    check(lib.mooncake_store_is_exist(s, name), 1)
    check(lib.mooncake_store_health_check(s), 0)


if what == "refused":
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(b"\0" + where)
    status, = struct.unpack_from("i", sock.recv(256), 8)
    check(status, -13)
    check(sock.recv(256), b"")
    sys.exit(0)

if what == "squat":
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.bind(b"\0" + where)
    except OSError:
        print("taken", flush=True)
        sys.exit(0)
    sock.listen()
    print("ready", flush=True)
    conn = sock.accept()[0]
    if conn.recv(4096):
        print("told", flush=True)
    print("came", flush=True)
    signal.pause()

store = ctypes.c_void_p(lib.mooncake_store_create())
if what == "dummy":
    check(lib.mooncake_store_setup_dummy(store, ctypes.c_size_t(1 << 20), ctypes.c_size_t(1 << 20), where), 0)
    use(store, b"dummy", lib.mooncake_store_alloc_from_mem_pool(store, ctypes.c_size_t(100000)))
    print("ready", flush=True)
    signal.pause()
else:
    check(lib.mooncake_store_setup(store, b"127.0.0.1", b"", ctypes.c_uint64(0), ctypes.c_uint64(0), b"tcp", b"",
                                   where), 0)
    memory = ctypes.create_string_buffer(100000)
    use(store, b"auto", ctypes.addressof(memory))
    print("ready", flush=True)
    signal.pause()
