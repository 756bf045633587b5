# SPDX-License-Identifier: Apache-2.0
"""RpcInterface: messages of bytes between processes, over TCP.

A message is a frame (magic, kind, 3 zero bytes, length) and its bytes; the receiver answers with a status byte when its
callback has returned.  Both ends must use this package, because upstream's wire format differs."""

import os
import select
import socket
import struct
import threading
import time
import weakref

from mooncake import _guard, _locks
from mooncake._setup import Log

_log = Log("mooncake.engine")

FRAME = struct.Struct("<4sB3xQ")
MAGIC = b"MRP1"
DATA, TENSOR = 1, 2
TAKEN = b"\0"
MESSAGE_MAX = 4 << 30
PEERS_MAX = 256
IDLE_SECONDS = 300
PIECE = 1 << 20


def _address(text):
    """(host, port) of "host:port", "[v6]:port", ":port"."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not host:port")
    return host.strip("[]"), int(port)


def _receive(conn, view, end):
    """Fill @view by @end, or raise.  EOFError: the peer closed."""
    while view:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        conn.settimeout(left)
        n = conn.recv_into(view[:PIECE])
        if n == 0:
            raise EOFError("the peer closed the connection")
        view = view[n:]


def _send(conn, view, end):
    while view:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        conn.settimeout(left)
        view = view[conn.send(view[:PIECE]):]


class _Server:
    """The state of a server's threads; holds no reference to the RpcInterface, which stops the server when freed."""

    def __init__(self, sock, threads, timeout):
        self.sock = sock
        self.timeout = timeout
        self.callbacks = {DATA: None, TENSOR: None}
        self.turns = threading.Semaphore(threads)
        self.lock = _locks.lock()
        self.peers = set()
        self.stopped = threading.Event()
        self.running = False
        self.pid = os.getpid()

    def accept(self):
        while not self.stopped.is_set():
            try:
                conn, _ = self.sock.accept()
            except TimeoutError:
                continue
            except OSError:
                if not self.stopped.wait(0.1):
                    continue
                return
            with self.lock:
                full = len(self.peers) >= PEERS_MAX or self.stopped.is_set()
                if not full:
                    self.peers.add(conn)
            if full:
                conn.close()
                continue
            try:
                threading.Thread(target=self.serve, args=(conn,), name="mooncake-rpc", daemon=True).start()
            except RuntimeError as e:
                _log.error("rpc: no thread for a peer: %s", e)
                self.leave(conn)

    def leave(self, conn):
        with self.lock:
            self.peers.discard(conn)
        conn.close()

    def serve(self, conn):
        try:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self.stopped.is_set():
                if not self.message(conn):
                    break
        except (OSError, EOFError, MemoryError) as e:
            if not self.stopped.is_set() and not isinstance(e, EOFError):
                _log.warning("rpc: a peer is dropped: %s", e or type(e).__name__)
        finally:
            self.leave(conn)

    def message(self, conn):
        head = bytearray(FRAME.size)
        _receive(conn, memoryview(head)[:1], time.monotonic() + IDLE_SECONDS)
        _receive(conn, memoryview(head)[1:], time.monotonic() + self.timeout)
        magic, kind, length = FRAME.unpack(head)
        if magic != MAGIC or kind not in self.callbacks or length > MESSAGE_MAX:
            _log.warning("rpc: peer dropped: it sent an invalid message")
            return False
        data = bytearray()
        # allocate only as bytes arrive, because the announced length may be false; the deadline applies to each piece
        while len(data) < length:
            at = len(data)
            data.extend(bytes(min(PIECE, length - at)))
            with memoryview(data) as view:
                _receive(conn, view[at:], time.monotonic() + self.timeout)
        with self.turns:
            self.call(kind, data)
        _send(conn, memoryview(TAKEN), time.monotonic() + self.timeout)
        return True

    def call(self, kind, data):
        callback = self.callbacks[kind]
        try:
            if callback is not None:
                callback({"source": "", "data": bytes(data)})
        except Exception:
            _log.exception("rpc: the callback for received %s failed", "data" if kind == DATA else "tensors")

    def stop(self):
        self.stopped.set()
        with self.lock:
            peers = list(self.peers)
        # a forked child shares the sockets, so shutdown() there would end the parent's connections
        for s in [self.sock] + peers:
            try:
                if os.getpid() == self.pid:
                    s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.sock.close()


class _Client:
    """Connections to peers, kept for the next message."""

    def __init__(self, pool_size, timeout):
        self.pool_size = pool_size
        self.timeout = timeout
        self.lock = _locks.lock()
        self.idle = {}
        self.pid = os.getpid()

    def connect(self, target, end):
        host, port = _address(target)
        with self.lock:
            if self.pid != os.getpid():
                self.idle, self.pid = {}, os.getpid()
            kept = self.idle.get(target, [])
            while kept:
                conn = kept.pop()
                # an idle connection is readable only if the peer has closed it
                asked = select.poll()
                asked.register(conn, select.POLLIN)
                if not asked.poll(0):
                    return conn
                conn.close()
        conn = socket.create_connection((host or "127.0.0.1", port), timeout=max(end - time.monotonic(), 0.001))
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return conn

    def keep(self, target, conn):
        with self.lock:
            kept = self.idle.setdefault(target, [])
            if sum(map(len, self.idle.values())) < self.pool_size:
                kept.append(conn)
                return
        conn.close()

    def send(self, target, kind, view):
        end = time.monotonic() + self.timeout
        conn = self.connect(target, end)
        try:
            _send(conn, memoryview(FRAME.pack(MAGIC, kind, len(view))), end)
            _send(conn, view, end)
            status = bytearray(1)
            _receive(conn, memoryview(status), end)
        except BaseException:
            conn.close()
            raise
        self.keep(target, conn)
        return status == TAKEN

    def close(self):
        with self.lock:
            for kept in self.idle.values():
                for conn in kept:
                    conn.close()
            self.idle.clear()


class RpcInterface:
    """Messages of at most 4 GiB between processes: the server listens and runs callbacks, the client sends.  Times are in
    seconds."""

    def __init__(self):
        self._client = None
        self._server = None
        self._callbacks = {DATA: None, TENSOR: None}

    @staticmethod
    def _positive(**values):
        for name, value in values.items():
            if not isinstance(value, int):
                raise TypeError(f"{name} must be int, not {type(value).__name__}")
            if value < 0 or value > 1 << 31:
                raise ValueError(f"{name} must be from 0 to 2147483648")

    def initialize(self, listen_address="", thread_count=0, timeout_seconds=30, pool_size=100):
        """initialize(listen_address: str = "", thread_count: int = 0, timeout_seconds: int = 30, pool_size: int = 100)
        -> bool

        Calls initialize_client(), and initialize_server() if listen_address is given."""
        if not self.initialize_client(pool_size, timeout_seconds):
            return False
        return not listen_address or self.initialize_server(listen_address, thread_count or 8, timeout_seconds)

    def initialize_client(self, pool_size=100, timeout_seconds=30):
        """initialize_client(pool_size: int = 100, timeout_seconds: int = 30) -> bool

        Prepare to send.  pool_size: maximum number of idle connections; timeout_seconds: deadline of one message."""
        self._positive(pool_size=pool_size, timeout_seconds=timeout_seconds)
        if self._client is None:
            self._client = _Client(pool_size, timeout_seconds)
            weakref.finalize(self, self._client.close)
        return True

    def initialize_server(self, listen_address, thread_count=8, timeout_seconds=30):
        """initialize_server(listen_address: str, thread_count: int = 8, timeout_seconds: int = 30) -> bool

        Listen at "host:port", for start_server().  thread_count: maximum number of concurrent callbacks; timeout_seconds:
        drops a peer that stalls within a message for that long.  False if it cannot listen (the log says why)."""
        self._positive(thread_count=thread_count, timeout_seconds=timeout_seconds)
        if not isinstance(listen_address, str):
            raise TypeError(f"listen_address must be str, not {type(listen_address).__name__}")
        if self._server is not None:
            return True
        try:
            host, port = _address(listen_address)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = socket.create_server((host, port), family=family, backlog=PEERS_MAX)
            sock.settimeout(1)
            _guard.warn_of_library(host, "send messages to this program")
        except (OSError, ValueError, UnicodeError) as e:
            _log.error("rpc: cannot listen at %s: %s", listen_address, e)
            return False
        self._server = _Server(sock, max(thread_count, 1), max(timeout_seconds, 1))
        self._server.callbacks.update(self._callbacks)
        weakref.finalize(self, self._server.stop)
        return True

    def start_server_async(self):
        """start_server_async() -> bool: serve in new threads.  False without a server, or if it already runs."""
        server = self._server
        if server is None or server.running or server.stopped.is_set():
            return False
        server.running = True
        threading.Thread(target=server.accept, name="mooncake-rpc", daemon=True).start()
        return True

    def start_server(self):
        """start_server() -> bool: serve until another thread calls stop_server().  False as start_server_async()."""
        server = self._server
        if not self.start_server_async():
            return False
        while not server.stopped.wait(1):
            pass
        return True

    def stop_server(self):
        """stop_server(): stop serving and close the address; harmless if repeated."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _callback(self, kind, callback):
        if not callable(callback):
            raise TypeError(f"a callback must be callable, not {type(callback).__name__}")
        self._callbacks[kind] = callback
        if self._server is not None:
            self._server.callbacks[kind] = callback

    def set_data_receive_callback(self, callback):
        """set_data_receive_callback(callback)

        A thread of the server calls callback({"source": "", "data": bytes}) for each message.  Exceptions of the callback
        are logged; the sender still receives 0."""
        self._callback(DATA, callback)

    def set_tensor_receive_callback(self, callback):
        """set_tensor_receive_callback(callback): as set_data_receive_callback(), for the elements of tensors."""
        self._callback(TENSOR, callback)

    def _deliver(self, target_address, kind, view):
        if not isinstance(target_address, str):
            raise TypeError(f"target_address must be str, not {type(target_address).__name__}")
        if self._client is None:
            _log.error("rpc: initialize_client() has not been called")
            return -1
        if len(view) > MESSAGE_MAX:
            _log.error("rpc: a message of %d bytes is longer than %d", len(view), MESSAGE_MAX)
            return -1
        try:
            return 0 if self._client.send(target_address, kind, view) else -1
        except (OSError, EOFError, ValueError) as e:
            _log.error("rpc: to %s: %s", target_address, e)
            return -1

    def send_data(self, target_address, data):
        """send_data(target_address: str, data: bytes) -> int

        Send a message to "host:port" and wait until the receiver's callback has returned.  0, or -1 (the log says why)."""
        return self._deliver(target_address, DATA, memoryview(data).cast("B"))

    def send_tensor(self, target_address, tensor):
        """send_tensor(target_address: str, tensor) -> int

        Send the elements of a tensor, in C order.  0, or -1, also if the value is not a tensor."""
        from mooncake._api.tensors import elements, memory_at

        found = elements(tensor)
        if found is None:
            _log.error("rpc: send_tensor: not a tensor of a known type")
            return -1
        return self._deliver(target_address, TENSOR, memoryview(memory_at(found.address, found.nbytes)).cast("B")
                             if found.nbytes else memoryview(b""))

    def send_data_async(self, target_address, data, loop):
        """send_data_async(target_address: str, data: bytes, loop: asyncio.AbstractEventLoop) -> awaitable

        send_data() in a thread of the loop's executor."""
        memoryview(data)
        return loop.run_in_executor(None, self.send_data, target_address, data)

    def send_tensor_async(self, target_address, tensor, loop):
        """send_tensor_async(target_address: str, tensor, loop: asyncio.AbstractEventLoop) -> awaitable

        send_tensor() in a thread of the loop's executor."""
        return loop.run_in_executor(None, self.send_tensor, target_address, tensor)


def create_rpc_client(local_rank=0, world_size=1):
    """create_rpc_client(local_rank: int = 0, world_size: int = 1) -> RpcInterface: one that can send."""
    rpc = RpcInterface()
    rpc.initialize_client()
    return rpc


def create_rpc_server(local_rank=0, world_size=1):
    """create_rpc_server(local_rank: int = 0, world_size: int = 1) -> RpcInterface: call its initialize_server()
    with the address next."""
    return RpcInterface()
