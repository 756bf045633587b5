# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.http_metadata_server [--host H] [--port N] [--log-level L]: the key-value server at which
transfer engines meet, the program mooncake_http_metadata_server.

KVBootstrapServer is a smaller one for use inside of a program."""

import argparse
import asyncio
import enum
import hmac
import logging
import os
import threading

from mooncake import _guard
from mooncake.cli import become

log = logging.getLogger("mooncake.metadata")

# Deadlines: until the server listens or failed, for the end of its thread, and for receiving a value.
START_SECONDS = 10
CLOSE_SECONDS = 2
READ_SECONDS = 60


class KVPoll(enum.Enum):
    """States of a KVBootstrapServer; poll() returns Failed or Success."""

    Failed = 0
    Bootstrapping = 1
    WaitingForInput = 2
    Transferring = 3
    Success = 4


def _limit(variable, default):
    text = os.environ.get(variable)
    if not text:
        return default
    if not text.strip().isdigit() or not int(text):
        raise ValueError(f"{variable} must be a positive integer, not {text!r}")
    return int(text)


def _token():
    """The token of the environment, or None."""
    token, path = os.environ.get("MC_METADATA_HTTP_TOKEN"), os.environ.get("MC_METADATA_HTTP_TOKEN_FILE")
    if token and path:
        raise ValueError("MC_METADATA_HTTP_TOKEN and MC_METADATA_HTTP_TOKEN_FILE are both set: unset one")
    if not path:
        return token or None
    with open(path, encoding="utf-8") as f:
        if os.fstat(f.fileno()).st_mode & 0o077:
            raise ValueError(f"{path} must be a file that only its owner can read: chmod 600 {path}")
        token = f.read().removesuffix("\n")
    if not token:
        raise ValueError(f"MC_METADATA_HTTP_TOKEN_FILE: {path} is empty")
    return token


class KVBootstrapServer:
    """GET, PUT and DELETE /metadata?key=KEY in a thread of this process; the values are in its memory only.

    With MC_METADATA_HTTP_TOKEN in the environment, or MC_METADATA_HTTP_TOKEN_FILE, requests need the header "Authorization:
    Bearer TOKEN" (else 401).  Without it, only loopback addresses are served, unless MC_ALLOW_INSECURE or
    MC_METADATA_HTTP_ALLOW_INSECURE is 1.  MC_METADATA_MAX_BODY_BYTES (1 MiB), MC_METADATA_MAX_KEYS (65536),
    MC_METADATA_MAX_TOTAL_BYTES (1 GiB) and MC_METADATA_MAX_CONCURRENT_PUTS (8) are limits.  A key that contains rpc_meta keeps its first value until it is deleted."""

    def __init__(self, port, host="0.0.0.0"):
        from aiohttp import web

        self.port = port
        self.host = host
        self.max_body_bytes = _limit("MC_METADATA_MAX_BODY_BYTES", 1 << 20)
        self.max_keys = _limit("MC_METADATA_MAX_KEYS", 65536)
        self.max_total_bytes = _limit("MC_METADATA_MAX_TOTAL_BYTES", 1 << 30)
        self.max_concurrent_puts = _limit("MC_METADATA_MAX_CONCURRENT_PUTS", 8)
        self.auth_token = _token()
        # key -> bytes; used by the server's thread only
        self.store = {}
        self.thread = None
        self._bytes = 0
        self._puts = asyncio.Semaphore(self.max_concurrent_puts)
        self._loop = None
        self._listening = threading.Event()
        self._web = web
        self.app = web.Application(client_max_size=self.max_body_bytes)
        self.app.router.add_route("*", "/metadata", self._handle_metadata)

    def run(self):
        """Start the server; returns its thread, when the server listens or failed (see poll())."""
        reason = _guard.refusal(
            "host", self.host, "read and change the metadata", "set MC_METADATA_HTTP_TOKEN here and for all engines",
            self.auth_token is not None, _guard.is_on("MC_ALLOW_INSECURE") or _guard.is_on("MC_METADATA_HTTP_ALLOW_INSECURE"))
        if reason:
            raise RuntimeError(f"the metadata server refuses to bind without an authentication token: {reason}")
        self.thread = threading.Thread(target=self._serve, name="mooncake-metadata", daemon=True)
        self.thread.start()
        self._listening.wait(START_SECONDS)
        return self.thread

    def close(self):
        """Stop the server."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self.thread is not None:
            self.thread.join(CLOSE_SECONDS)

    def poll(self):
        """KVPoll.Success while the server runs, else KVPoll.Failed."""
        return KVPoll.Success if self.thread is not None and self.thread.is_alive() else KVPoll.Failed

    def _serve(self):
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        runner = self._web.AppRunner(self.app, access_log=None)
        try:
            self._loop.run_until_complete(runner.setup())
            self._loop.run_until_complete(self._web.TCPSite(runner, self.host, self.port).start())
            log.info("HTTP Metadata Server started on %s:%d", self.host, self.port)
            self._listening.set()
            self._loop.run_forever()
        except OSError as e:
            log.error("the metadata server cannot listen on %s:%d: %s", self.host, self.port, e.strerror or e)
        finally:
            self._loop.run_until_complete(runner.cleanup())
            self._loop.close()
            self._listening.set()

    # ---- requests ----

    def _say(self, status, text):
        return self._web.Response(status=status, text=text, content_type="application/json")

    def _admits(self, request):
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return self.auth_token is None or (scheme.lower() == "bearer" and hmac.compare_digest(
            token.encode("utf-8", "surrogateescape"), self.auth_token.encode("utf-8", "surrogateescape")))

    async def _handle_metadata(self, request):
        if not self._admits(request):
            return self._say(401, "unauthorized")
        key = request.query.get("key", "").strip()
        if not key:
            return self._say(400, "metadata key is required")
        if request.method == "GET":
            return await self._handle_get(key)
        if request.method == "PUT":
            return await self._handle_put(key, request)
        if request.method == "DELETE":
            return await self._handle_delete(key)
        return self._say(405, "Method not allowed")

    async def _handle_get(self, key):
        value = self.store.get(key)
        return (self._say(404, "metadata not found") if value is None else
                self._web.Response(body=value, content_type="application/json"))

    async def _handle_put(self, key, request):
        try:
            async with self._puts:
                value = await asyncio.wait_for(request.read(), READ_SECONDS)
        except self._web.HTTPRequestEntityTooLarge:
            return self._say(413, "request body too large")
        except asyncio.TimeoutError:
            return self._say(408, f"the value did not come within {READ_SECONDS} s")
        old = self.store.get(key)
        if "rpc_meta" in key and old is not None:
            return (self._say(200, "metadata unchanged") if old == value else
                    self._say(400, "Duplicate rpc_meta key not allowed"))
        if old is None and len(self.store) >= self.max_keys:
            return self._say(507, "metadata key budget exhausted")
        total = self._bytes + self._size(key, value) - (0 if old is None else self._size(key, old))
        if total > self.max_total_bytes:
            return self._say(507, "metadata size budget exhausted")
        self.store[key] = value
        self._bytes = total
        return self._say(200, "metadata updated")

    async def _handle_delete(self, key):
        old = self.store.pop(key, None)
        if old is None:
            return self._say(404, "metadata not found")
        self._bytes -= self._size(key, old)
        return self._say(200, "metadata deleted")

    @staticmethod
    def _size(key, value):
        return len(key.encode("utf-8", "surrogatepass")) + len(value)


def main():
    parser = argparse.ArgumentParser(prog="mooncake_http_metadata_server",
                                     description="The key-value server at which transfer engines meet.")
    parser.add_argument("--host", help="address to listen on (0.0.0.0; without a token and --allow_insecure: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="port (%(default)s)")
    parser.add_argument("--log-level", default="INFO", type=str.upper,
                        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), help="least level that is logged")
    args, more = parser.parse_known_args()
    level = "ERROR" if args.log_level == "CRITICAL" else args.log_level
    become("mooncake_http_metadata_server",
           ([] if args.host is None else [f"--host={args.host}"]) +
           [f"--port={args.port}", f"--log_level={level}"] + more)


if __name__ == "__main__":
    main()
