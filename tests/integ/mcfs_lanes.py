# SPDX-License-Identifier: Apache-2.0
# The calls of an engine without the library: fcntl.ioctl, a Unix socket, and mmap.
import array
import errno
import fcntl
import mmap
import os
import socket
import struct
import sys

MNT, PORT, SOCK = os.environ["MNT"], os.environ["PORT"], os.environ["SOCK"]
DATA = open(os.environ["DATA"], "rb").read()
KEY = 4096


def ioc(direction, number, size):
    return direction << 30 | size << 16 | ord("M") << 8 | number


INFO, EXTENT = ioc(2, 1, 184), ioc(2, 2, 40)
STAT, EXIST = ioc(3, 3, 4144), ioc(3, 4, 9736)
GET, PUT = ioc(3, 5, 4152), ioc(3, 6, 4152)
REMOVE, PREFETCH = ioc(1, 7, 4112), ioc(1, 8, 4112)
PIN, UNPIN = ioc(3, 9, 4152), ioc(1, 10, 16)
BUFFERS, RESERVE = ioc(2, 11, 2056), ioc(1, 12, 16)


def call(fd, cmd, buf):
    return fcntl.ioctl(fd, cmd, buf, True)


def fails(want, fd, cmd, buf):
    before = bytes(buf)
    try:
        call(fd, cmd, buf)
    except OSError as e:
        assert e.errno == want, f"{cmd:#x}: {e}, wanted {errno.errorcode[want]}"
        assert bytes(buf) == before, "written to the caller's buffer after a failure"
        return
    raise AssertionError(f"{cmd:#x} succeeded")


def key(name, flags=0, version=1):
    return bytearray(struct.pack("IIII", version, flags, len(name), 0) + name.ljust(KEY, b"\0"))


def stat(name, version=1):
    return bytearray(struct.pack("II3Q4I", version, len(name), 0, 0, 0, 0, 0, 0, 0) +
                     name.ljust(KEY, b"\0"))


def io(name, token, buf, at, length, flags=0, offset=0):
    return bytearray(struct.pack("IIQIIQQQII", 1, flags, token, buf, len(name), at, length, offset, 0, 0) +
                     name.ljust(KEY, b"\0"))


def pin(name):
    return bytearray(struct.pack("IIQ", 1, len(name), 0) + bytes(40) + name.ljust(KEY, b"\0"))


# ---- any descriptor -------------------------------------------------------------------------------
root = os.open(MNT, os.O_RDONLY)
sub = os.open(MNT + "/dir", os.O_RDONLY)
obj = os.open(MNT + "/obj", os.O_RDONLY)
ctl = os.open(MNT + "/.mcfs/ctl", os.O_RDWR)
text = os.open(MNT + "/.mcfs/version", os.O_RDONLY)
for fd in (root, sub, obj, ctl, text):
    info = bytearray(184)
    assert call(fd, INFO, info) == 0
    version, features, page, nseg, size = struct.unpack_from("4IQ", info)
    assert (version, nseg, size) == (1, 2, 64 << 20), info
    assert page == os.sysconf("SC_PAGESIZE") and features & 1
    assert info[64:].rstrip(b"\0").decode() == f"unix:@mooncake_client_{PORT}.sock"
    # neither terminal ioctls nor our ioctls with another size or direction
    for cmd in (0x5401, ioc(2, 1, 183), ioc(1, 1, 184), ioc(0, 1, 0), ioc(2, 63, 8), ioc(3, 3, 16)):
        fails(errno.ENOTTY, fd, cmd, bytearray(4200))

s = stat(b"obj")
assert call(root, STAT, s) == 0
size, generation = struct.unpack_from("2Q", s, 8)
assert size == len(DATA)
fails(errno.ENOENT, ctl, STAT, stat(b"none"))
fails(errno.EPROTONOSUPPORT, ctl, STAT, stat(b"obj", version=2))
fails(errno.EINVAL, ctl, STAT, stat(b""))
long = stat(b"x")
struct.pack_into("I", long, 4, 5000)
fails(errno.EINVAL, ctl, STAT, long)

names = [b"obj", b"none", b"", b"obj"]
e = bytearray(9736)
struct.pack_into("II", e, 0, 1, len(names))
for i, name in enumerate(names):
    struct.pack_into("H", e, 8 + 2 * i, len(name))
e[8 + 1536:8 + 1536 + 10] = b"".join(names)
assert call(root, EXIST, e) == 2
assert bytes(e[8 + 1024:8 + 1028]) == b"\1\0\0\1"
struct.pack_into("II", e, 0, 1, 513)
fails(errno.EINVAL, root, EXIST, e)
struct.pack_into("II", e, 0, 1, 2)
struct.pack_into("HH", e, 8, 8000, 193)
fails(errno.EINVAL, root, EXIST, e)

# ---- location of an object --------------------------------------------------------------------------
x = bytearray(40)
assert call(obj, EXTENT, x) == 0
_, segment, offset, length, gen, crc, _ = struct.unpack("IIQQQII", x)
assert (segment, length, gen) == (0, len(DATA), generation) and offset % 64 == 0
fails(errno.EINVAL, root, EXTENT, bytearray(40))
fails(errno.EINVAL, ctl, EXTENT, bytearray(40))

p = pin(b"obj")
assert call(ctl, PIN, p) == 0
number, = struct.unpack_from("Q", p, 8)
assert struct.unpack_from("IIQQQ", p, 16) == (1, 0, offset, length, gen)
call(root, INFO, info)
assert struct.unpack_from("Q", info, 40) == (1,)
fails(errno.EINVAL, root, UNPIN, bytearray(struct.pack("IIQ", 1, 0, number)))
fails(errno.EINVAL, ctl, UNPIN, bytearray(struct.pack("IIQ", 1, 0, number + (1 << 32))))
assert call(ctl, UNPIN, bytearray(struct.pack("IIQ", 1, 0, number))) == 0
fails(errno.EINVAL, ctl, UNPIN, bytearray(struct.pack("IIQ", 1, 0, number)))
fails(errno.ENOENT, ctl, PIN, pin(b"none"))
assert call(ctl, PREFETCH, key(b"obj")) == 0
# this pin ends with its descriptor
other = os.open(MNT + "/.mcfs/ctl", os.O_RDWR)
assert call(other, PIN, pin(b"obj")) == 0
os.close(other)

# ---- the segment's memory as a file -----------------------------------------------------------------
call(root, INFO, info)
path = MNT + "/.mcfs/segments/0"
if struct.unpack_from("I", info, 4)[0] & 2:
    fd = os.open(path, os.O_RDONLY)
    with mmap.mmap(fd, 64 << 20, prot=mmap.PROT_READ) as view:
        assert view[offset:offset + length] == DATA
    assert os.pread(fd, length, offset) == DATA
    os.close(fd)
    for flags in (os.O_RDWR, os.O_WRONLY):
        try:
            os.open(path, flags)
            raise AssertionError("a segment was opened for writing")
        except OSError as err:
            assert err.errno == errno.EACCES, err
    print("segments use passthrough")
else:
    try:
        os.open(path, os.O_RDONLY)
        raise AssertionError("a segment was opened without passthrough")
    except OSError as err:
        assert err.errno == errno.EOPNOTSUPP, err
    print("no passthrough here")

# ---- a buffer of the client, over the socket --------------------------------------------------------
MSG = struct.Struct("IHHiIQQII24s192s")


def connect(where):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(where)
    return sock


def ask(sock, kind, number=0, size=0, fd=-1, magic=0x676e6972):
    msg = MSG.pack(magic, 1, kind, 0, number, size, 0, 0, 0, b"", b"")
    anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd >= 0 else []
    sock.sendmsg([msg], anc)
    data, anc, _, _ = sock.recvmsg(MSG.size, socket.CMSG_SPACE(4))
    if not data:
        return None
    fds = array.array("i")
    for _, _, raw in anc:
        fds.frombytes(raw)
    return MSG.unpack(data), list(fds)


sock = connect(f"\0mooncake_client_{PORT}.sock")
assert ask(sock, 2)[0][3] == -1024, "a request before HELLO"
hello, _ = ask(sock, 1)
token = hello[6]
assert hello[3] == 0 and hello[8] == 2
mem = os.memfd_create("engine", os.MFD_ALLOW_SEALING)
os.truncate(mem, 1 << 20)
view = mmap.mmap(mem, 1 << 20)
reply, _ = ask(sock, 3, size=1 << 20, fd=mem)
assert reply[3] == 0
number = reply[4]
for bad in (lambda: ask(sock, 3, size=1 << 20), lambda: ask(sock, 3, size=2 << 20, fd=mem),
            lambda: ask(sock, 3, size=100, fd=os.open("/etc/passwd", os.O_RDONLY)),
            lambda: ask(sock, 3, size=100, fd=os.pipe()[0]), lambda: ask(sock, 99),
            lambda: ask(sock, 4, number=77), lambda: ask(sock, 5, number=3), lambda: ask(sock, 2, number=9)):
    assert bad()[0][3] < 0

view[4096:4096 + len(DATA)] = DATA
assert call(ctl, PUT, io(b"by ioctl", token, number, 4096, len(DATA))) == 0
assert open(MNT + "/by ioctl", "rb").read() == DATA
g = io(b"obj", token, number, 500000, 1000, offset=1234)
# the mount does not pay for pages that the client has never touched
fails(errno.EFAULT, ctl, GET, g)
fails(errno.EFAULT, ctl, PUT, io(b"holes", token, number, 900000, 5000))
assert os.lseek(mem, 900000, os.SEEK_HOLE) == 900000 and not os.path.exists(MNT + "/holes")
view[:] = view[:4096 + len(DATA)].ljust(1 << 20, b"\0")
assert call(ctl, GET, g) == 0
assert struct.unpack_from("Q", g, 32) == (1000,) and view[500000:501000] == DATA[1234:2234]
fails(errno.EEXIST, ctl, PUT, io(b"obj", token, number, 0, 10, flags=2))
fails(errno.ERANGE, ctl, GET, io(b"obj", token, number, (1 << 20) - 5, 10))
fails(errno.ERANGE, ctl, GET, io(b"obj", token, number, 1 << 63, 1 << 63))
fails(errno.ENOENT, ctl, GET, io(b"obj", token, 99, 0, 10))
fails(errno.ENOENT, ctl, GET, io(b"obj", token ^ 1, number, 0, 10))
fails(errno.EINVAL, ctl, PUT, io(b"obj", token, number, 0, 10, flags=0x10))
b = bytearray(2056)
assert call(root, BUFFERS, b) == 0
assert struct.unpack_from("IIQQIIi", b) == (1, 1, token, 1 << 20, number, os.getuid(), os.getpid())

assert call(ctl, REMOVE, key(b"by ioctl", 1)) == 0
assert not os.path.exists(MNT + "/by ioctl")
fails(errno.ENOENT, ctl, REMOVE, key(b"by ioctl"))

# ---- memory for a file that is being written --------------------------------------------------------
w = os.open(MNT + "/new", os.O_WRONLY | os.O_CREAT)
assert call(w, RESERVE, bytearray(struct.pack("IIQ", 1, 0, 1 << 20))) == 0
fails(errno.EBADF, obj, RESERVE, bytearray(struct.pack("IIQ", 1, 0, 1 << 20)))
os.write(w, b"x")
os.close(w)
assert os.stat(MNT + "/new").st_size == 1

# ---- an invalid message ends only its connection -----------------------------------------------------
mad = connect(SOCK)
assert ask(mad, 1, magic=1) is None
short = connect(SOCK)
short.send(b"short")
assert short.recv(100) == b""
assert ask(sock, 4, number=number)[0][3] == 0
# descriptors that are open when the program ends: pins and buffers are released
ask(sock, 3, size=1 << 20, fd=mem)
call(ctl, PIN, pin(b"obj"))
sys.exit(0)
