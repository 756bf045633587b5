# SPDX-License-Identifier: Apache-2.0
"""The doors of the REST service: its connections, the origin, type and token of its requests, and the files that it may
mount."""

import asyncio
import ipaddress
import os
import resource
import socket
import ssl
import stat
import urllib.parse

from aiohttp import web

# Seconds from the accept to the end of the first header, and from an answer to the end of the next header.
HEADER_SECONDS = 10
IDLE_SECONDS = 75
CONNECTIONS_MAX = 4096
BACKLOG = 128


class Refused(Exception):
    """A request that is answered with this HTTP status, text, and more members of the JSON object."""

    def __init__(self, status, text, **more):
        super().__init__(text)
        self.status = status
        self.more = more


# ---- connections ----

class _Connection(web.RequestHandler):
    """An incoming connection; it reports its states to the Guard."""

    def __init__(self, guard, server):
        super().__init__(server, loop=asyncio.get_running_loop(), access_log=None, keepalive_timeout=IDLE_SECONDS)
        self.guard = guard

    def connection_made(self, transport):
        super().connection_made(transport)
        self.guard.opened(self)

    def connection_lost(self, exc):
        self.guard.closed(self)
        super().connection_lost(exc)

    async def finish_response(self, *args):
        try:
            return await super().finish_response(*args)
        finally:
            self.guard.answered(self)


class Guard:
    """The open connections of a server.  A connection waits for its client until a whole request has arrived; the header
    must arrive in time.  At the limit, a new connection replaces the one that has waited longest.  Used by the event
    loop's thread only."""

    def __init__(self, server):
        self._server = server
        self._waiting = {}	# connection -> timer or None; the oldest first
        self._served = set()
        # A quarter: the store needs descriptors, too.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.limit = CONNECTIONS_MAX if files == resource.RLIM_INFINITY else max(8, min(CONNECTIONS_MAX, files // 4))

    async def listen(self, host, port, tls=None):
        """tls: an SSLContext, or None."""
        # asyncio accepts as many connections as its backlog in each of some four turns before it reports the first of
        # them, so a large one would use up the descriptors; the kernel's queue may be longer.
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(self, self._server), host, port, ssl=tls,
                                                                ssl_handshake_timeout=HEADER_SECONDS if tls else None,
                                                                backlog=max(1, min(BACKLOG, self.limit // 8)))
        for one in server.sockets:
            with socket.socket(fileno=os.dup(one.fileno())) as same:
                same.listen(BACKLOG)
        return server

    def opened(self, connection):
        if len(self._waiting) + len(self._served) >= self.limit:
            self._drop(next(iter(self._waiting), connection))
        if connection.transport is not None and not connection.transport.is_closing():
            self._wait(connection, HEADER_SECONDS)

    def header(self, request):
        """The header of a request is complete; its body is limited by the service's own timer."""
        self.closed(request.protocol)
        if request.can_read_body:
            self._waiting[request.protocol] = None
        else:
            self._served.add(request.protocol)

    def body(self, request):
        """The body of a request is complete."""
        self.closed(request.protocol)
        self._served.add(request.protocol)

    def answered(self, connection):
        self.closed(connection)
        if connection.transport is not None:
            self._wait(connection, IDLE_SECONDS)

    def closed(self, connection):
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self._served.discard(connection)

    def _wait(self, connection, seconds):
        self._waiting[connection] = asyncio.get_running_loop().call_later(seconds, self._drop, connection)

    def _drop(self, connection):
        self.closed(connection)
        if connection.transport is not None:
            connection.transport.abort()


# ---- requests ----

def _is_own_name(host):
    """Whether no web page of another site can have this name: an address, or localhost."""
    try:
        ipaddress.ip_address(host or "")
    except ValueError:
        return host == "localhost"
    return True


def check_request(request, own_host):
    """Refuse a request that a web page of another site made the user's browser send, and a body that is not JSON."""
    for origin in request.headers.getall("Origin", []):
        try:
            url = urllib.parse.urlsplit(origin)
            own = url.netloc.lower() == request.host.lower() and (_is_own_name(url.hostname) or url.hostname == own_host)
        except ValueError:
            own = False
        if not own:
            raise Refused(403, f"a web page of the origin {origin[:200]!r} may not use this service")
    if request.can_read_body and request.content_type != "application/json":
        raise Refused(415, f"the Content-Type is {request.content_type[:200]!r}, use application/json")


# ---- tokens and TLS ----

# The roles that may call a route; the names are those of common/principal.h.
OPEN = None
READ = frozenset(("reader", "client", "node", "admin"))
WRITE = READ - {"reader"}
OWN = frozenset(("node", "admin"))
ADMINISTER = frozenset(("admin",))


def credential_path():
    """The file of this process's credential, or None: it has none."""
    return os.environ.get("MC_CREDENTIAL") or None


async def check_token(request, roles, identify, tenant):
    """Refuse a request without a valid token (401), of another role, or of another tenant than the service's (403).

    identify: takes a token, in a thread of its own, and returns its role and tenant ("": all), or None; None: no token is
    valid.  roles: None for an unknown route, which any valid token may ask for."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    holder = None
    if identify is not None and scheme.lower() == "bearer" and token.strip():
        holder = await asyncio.get_running_loop().run_in_executor(None, identify, token.strip())
    if holder is None:
        raise Refused(401, "this needs a valid token: Authorization: Bearer TOKEN")
    role, own = holder
    if roles is not None and role not in roles:
        raise Refused(403, "the role of the peer does not allow this")
    if own and own != tenant:
        raise Refused(403, "the credential is for another tenant than this service")


def tls_of(cert, key):
    """An SSLContext with the files, or None without files.  ValueError, OSError."""
    if bool(cert) != bool(key):
        raise ValueError("--http_tls_cert and --http_tls_key are needed together")
    if not cert:
        return None
    info = os.stat(key)
    if not stat.S_ISREG(info.st_mode) or info.st_mode & 0o077:
        raise ValueError(f"http_tls_key: {key} must be a file that only its owner can read: chmod 600 {key}")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        tls.load_cert_chain(cert, key)
    except ssl.SSLError as e:
        raise ValueError(f"http_tls_cert={cert}, http_tls_key={key}: no certificate with its key: {e}") from None
    return tls


# ---- files ----

def _is_below(path, directories):
    return any(path.startswith(d.rstrip("/") + "/") for d in directories)


def _open_file(path, flags):
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
    except ValueError as e:
        raise Refused(400, f"path: {e}") from None
    except OSError as e:
        raise Refused(500, f"Mount failed: {path}: {e.strerror}") from None


def open_segment(path, directories):
    """A descriptor of the file, which must be below one of the directories; symbolic links count as their targets."""
    if not directories:
        raise Refused(403, "files cannot be mounted: the service was started without --segment_dir=DIRECTORY")
    try:
        real = os.path.realpath(path)
    except ValueError as e:
        raise Refused(400, f"path: {e}") from None
    # before the open, which has effects on devices
    if not _is_below(real, directories):
        raise Refused(403, f"{path} is outside of the directories of --segment_dir")
    fd = _open_file(path, 0)
    # a link may have changed meanwhile
    if not _is_below(os.readlink(f"/proc/self/fd/{fd}"), directories):
        os.close(fd)
        raise Refused(403, f"{path} is outside of the directories of --segment_dir")
    return fd


def open_shm(path):
    """A descriptor of the shared memory, which must be a file of the service's own user."""
    fd = _open_file(path, os.O_NOFOLLOW)
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
        return fd
    os.close(fd)
    raise Refused(403, f"{path} is not a file of this service's user (uid {os.geteuid()})")


# ---- bytes ----

class Room:
    """The bytes that requests may mount together.  Used by the event loop's thread only."""

    def __init__(self, limit):
        self.limit = limit
        self._pending = 0
        self._mounted = {}	# id of a segment -> bytes

    def take(self, size):
        left = self.limit - self._pending - sum(self._mounted.values())
        if size > left:
            raise Refused(507, f"{size} bytes are more than the {max(left, 0)} that may still be mounted "
                               f"(--max_mounted_size={self.limit})")
        self._pending += size

    def mounted(self, size, ids):
        """End a take(): the segment has this id, or ids is empty and nothing was mounted."""
        self._pending -= size
        for one in ids or ():
            self._mounted[one] = size

    def unmounted(self, one):
        self._mounted.pop(one, None)
