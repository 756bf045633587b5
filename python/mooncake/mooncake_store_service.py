# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.mooncake_store_service: a store with a REST interface, for programs without Python.

PUT /api/put {"key", "value"}   GET /api/get/KEY   GET /api/exist/KEY   DELETE /api/remove/KEY
DELETE /api/remove_all   POST /api/mount {"size"}   POST /api/unmount {"segment_ids"}
POST /api/mount_shm {"name", "size"}   POST /api/unmount_shm {"segment_ids"}
POST /api/reconfigure {"mode": "decode", "path", "size"} or {"mode": "prefill"}
POST /api/unmount_local_disk {"grace_period_seconds"}   GET /health

Bodies need the Content-Type application/json.  The service listens on 127.0.0.1.  With a credential (MC_CREDENTIAL) each
request but /health needs the header "Authorization: Bearer TOKEN", and another --host needs --http_tls_cert and
--http_tls_key.  Without one, each client that reaches its address can use it; another --host needs --allow_insecure."""

import argparse
import asyncio
import dataclasses
import functools
import logging
import os
import resource
import signal
import sys
import time

from aiohttp import ClientError, web
from aiohttp.http_exceptions import HttpProcessingError

from mooncake import _guard, _rest, _setup
from mooncake._api.segments import GRACE_MAX, SEGMENT_STEP
from mooncake._rest import Refused
from mooncake.mooncake_config import MooncakeConfig
from mooncake.store import MooncakeDistributedStore

log = logging.getLogger("mooncake.service")

BODY_MAX = 100 << 20
# Deadline for receiving a request's body.
READ_SECONDS = 60


def failure(status, text, **more):
    return web.json_response({"error": text, **more}, status=status)


def success(**more):
    return web.json_response({"status": "success", **more})


# ---- requests ----

def answered(handle):
    """A handler that answers refused requests and unexpected exceptions with JSON."""
    @functools.wraps(handle)
    async def handler(self, request):
        try:
            return await handle(self, request)
        except Refused as e:
            return failure(e.status, str(e), **e.more)
        except web.HTTPException:
            raise
        except Exception as e:
            log.exception("%s", handle.__name__)
            return failure(500, f"{type(e).__name__}: {e}")

    return handler


async def read_body(request):
    """Read the whole body, which json() then returns at once."""
    try:
        await asyncio.wait_for(request.read(), READ_SECONDS)
    except (web.RequestPayloadError, HttpProcessingError, ClientError) as e:
        raise Refused(400, f"the body does not keep to HTTP: {type(e).__name__}") from None
    except asyncio.TimeoutError:
        raise Refused(408, f"the body did not come within {READ_SECONDS} s") from None
    request.protocol.guard.body(request)


@web.middleware
async def answer(request, handler):
    """Every failure is JSON; every request is logged with its time."""
    began = time.monotonic()
    try:
        response = await handler(request)
    except Refused as e:
        response = failure(e.status, str(e))
        if e.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
    except web.HTTPRequestEntityTooLarge:
        response = failure(413, f"the body is larger than {BODY_MAX} bytes")
    except web.HTTPException as e:
        response = failure(e.status, e.reason)
    except ConnectionResetError:
        response = failure(400, "the client is gone")
    log.info("%s %s %d %.3f ms", request.method, request.rel_url.path, response.status,
             (time.monotonic() - began) * 1e3)
    return response


async def body_of(request):
    """The JSON object that the request carries."""
    try:
        body = await request.json()
    except (ValueError, LookupError, RecursionError):
        raise Refused(400, "Malformed JSON body") from None
    if not isinstance(body, dict):
        raise Refused(400, "Request body must be a JSON object")
    return body


def grace_of(body):
    grace = body.get("grace_period_seconds", 0)
    if type(grace) is not int or not 0 <= grace <= GRACE_MAX:
        raise Refused(400, "Invalid grace_period_seconds, must be a non-negative integer no greater than "
                           f"{GRACE_MAX}")
    return grace


def ids_of(body):
    ids = body.get("segment_ids")
    if isinstance(ids, str) and ids:
        ids = [ids]
    if not isinstance(ids, list) or not ids or not all(isinstance(i, str) for i in ids):
        raise Refused(400, "Missing segment_ids, a list of segment ids")
    return ids


def _shm_name_to_path(name):
    """The file of the shared memory with that name, or None."""
    name = name[name.startswith("/"):] if isinstance(name, str) else ""
    return None if not name or "/" in name or "\0" in name or name in (".", "..") else "/dev/shm/" + name


def half_of_memory():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


# ---- the service ----

class MooncakeStoreService:
    """The routes, and the store behind them: start_store_service(), then start_http_service(), finally stop().

    config_path: a JSON file; None: MooncakeConfig.load_from_env().  cli_config: settings that replace those.  host: the
    address to listen on; segment_dirs: directories whose files requests may mount; max_mounted: bytes that requests may
    mount together, by default half of the machine's memory; tls: an SSLContext, for https.

    A handle_ method takes a request of aiohttp and returns the response; all run in the event loop's thread."""

    def __init__(self, config_path=None, cli_config=None, host="127.0.0.1", segment_dirs=(), max_mounted=None, tls=None):
        self.config = MooncakeConfig.from_file(config_path) if config_path else MooncakeConfig.load_from_env()
        known = {}
        for key, value in (cli_config or {}).items():
            if hasattr(self.config, key):
                known[key] = value
            else:
                log.warning('the setting "%s" is ignored%s', key, _setup.nearest(key, list(vars(self.config))))
        self.config = dataclasses.replace(self.config, **known)
        self.store = None
        self.host = host
        self.tls = tls
        self.tokens = _rest.credential_path() is not None
        self.identify = self.ask_master	# for _rest.check_token()
        self.segment_dirs = [os.path.realpath(d) for d in segment_dirs]
        self.room = _rest.Room(half_of_memory() if max_mounted is None else max_mounted)
        self.listener = self.runner = None
        # the mode that /api/reconfigure set, and the segments of it
        self.current_mode = "prefill"
        self.mounted_segment_ids = []
        self.last_mount_info = {}
        self._state_lock = asyncio.Lock()

    def ask_master(self, token):
        """The role and the tenant ("": all) of the token's holder, or None; blocks."""
        return self.store._credential_check(token) if self.store else None

    async def call(self, method, *args):
        """Run a blocking call of the store in an executor thread."""
        return await asyncio.get_running_loop().run_in_executor(None, method, *args)

    async def start_store_service(self, max_wait_time=60, shutdown_event=None):
        """Set the store up, again every second until that succeeds or max_wait_time seconds have passed.  False: it did
        not succeed, the log says why, or shutdown_event was set meanwhile."""
        opening = asyncio.ensure_future(self._open_store(max_wait_time))
        if shutdown_event is None:
            return await opening
        stopping = asyncio.ensure_future(shutdown_event.wait())
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not shutdown_event.is_set():
            return await opening
        opening.cancel()
        log.info("the start ends because of a signal")
        return False

    async def _open_store(self, max_wait_time):
        c = self.config
        settings = {"local_hostname": c.local_hostname, "metadata_server": c.metadata_server,
                    "global_segment_size": c.global_segment_size, "local_buffer_size": c.local_buffer_size,
                    "protocol": c.protocol, "rdma_devices": c.device_name,
                    "master_server_addr": c.master_server_address, "tenant_id": c.tenant_id, "credential": c.credential,
                    "enable_ssd_offload": c.enable_ssd_offload, "ssd_offload_path": c.ssd_offload_path,
                    "enable_client_http_server": c.enable_client_http_server, "client_http_port": c.client_http_port}
        end = time.monotonic() + max_wait_time
        self.store = self.store or MooncakeDistributedStore()
        while True:
            code = await self.call(self.store.setup, settings)
            if code == 0:
                return True
            if code == _setup.INVALID_PARAMS or time.monotonic() >= end:
                log.error("Failed to start store service: setup returned %d", code)
                return False
            await asyncio.sleep(min(1, max(0, end - time.monotonic())))

    def application(self):
        rows = (
            (web.get, "/health", self.handle_health, _rest.OPEN),
            (web.put, "/api/put", self.handle_put, _rest.WRITE),
            (web.get, "/api/get/{key:.+}", self.handle_get, _rest.READ),
            (web.get, "/api/exist/{key:.+}", self.handle_exist, _rest.READ),
            (web.delete, "/api/remove/{key:.+}", self.handle_remove, _rest.WRITE),
            (web.delete, "/api/remove_all", self.handle_remove_all, _rest.ADMINISTER),
            (web.post, "/api/mount", self.handle_mount, _rest.OWN),
            (web.post, "/api/unmount", self.handle_unmount, _rest.OWN),
            (web.post, "/api/mount_shm", self.handle_mount_shm, _rest.OWN),
            (web.post, "/api/unmount_shm", self.handle_unmount_shm, _rest.OWN),
            (web.post, "/api/reconfigure", self.handle_reconfigure, _rest.OWN),
            (web.post, "/api/unmount_local_disk", self.handle_unmount_local_disk, _rest.OWN),
        )
        roles = {handler: allowed for _, _, handler, allowed in rows}

        @web.middleware
        async def admit(request, handler):
            request.protocol.guard.header(request)
            _rest.check_request(request, self.host)
            asked = request.match_info.handler
            if self.tokens and roles.get(asked, _rest.ADMINISTER) is not _rest.OPEN:
                await _rest.check_token(request, roles.get(asked), self.identify, self.config.tenant_id)
            if request.can_read_body and request.match_info.http_exception is None:
                await read_body(request)
            return await handler(request)

        app = web.Application(client_max_size=BODY_MAX, middlewares=[answer, admit])
        app.add_routes([make(path, handler) for make, path, handler, _ in rows])
        return app

    async def start_http_service(self, port=8080):
        """Serve the routes until stop().  True; OSError if the address cannot be had."""
        self.runner = web.AppRunner(self.application(), access_log=None)
        await self.runner.setup()
        self.listener = await _rest.Guard(self.runner.server).listen(self.host, port, self.tls)
        log.info("REST API started on port %d of %s", port, self.host)
        return True

    async def stop(self):
        if self.listener:
            self.listener.close()
        if self.runner:
            await self.runner.cleanup()
        store, self.store = self.store, None
        if store:
            await self.call(store.close)

    @answered
    async def handle_health(self, request):
        code = await self.call(self.store.health_check) if self.store else 1
        names = ("healthy", "not_initialized", "master_unreachable")
        return web.json_response({"status": names[code] if 0 <= code <= 2 else names[2], "code": code},
                                 status=503 if code else 200)

    # ---- objects ----

    @answered
    async def handle_put(self, request):
        body = await body_of(request)
        key, value = body.get("key"), body.get("value")
        if not isinstance(key, str) or not isinstance(value, str) or not key or not value:
            raise Refused(400, "Missing key or value, both non-empty texts")
        try:
            data = value.encode("utf-8")
            key.encode("utf-8")
        except UnicodeEncodeError:
            raise Refused(400, "key and value must be Unicode text") from None
        code = await self.call(self.store.put, key, data)
        return success() if code == 0 else failure(500, f"PUT operation failed, ret={code}")

    @answered
    async def handle_get(self, request):
        key = request.match_info["key"]
        handle = await self.call(self.store.get_buffer, key)
        if handle is None:
            there = await self.exists(key)
            return (failure(404, "Key not found") if there == 0 else failure(
                500, f"Exist check failed, ret={there}" if there < 0 else "GET operation failed: the object cannot be read"))
        return web.Response(body=bytes(handle), content_type="application/octet-stream")

    async def exists(self, key):
        # is_exist() returns 0 also if the master is not reachable
        return (await self.call(self.store.batch_is_exist, [key]))[0]

    @answered
    async def handle_exist(self, request):
        code = await self.exists(request.match_info["key"])
        return failure(500, f"Exist check failed, ret={code}") if code < 0 else web.json_response({"exists": code == 1})

    @answered
    async def handle_remove(self, request):
        code = await self.call(self.store.remove, request.match_info["key"])
        return success() if code == 0 else failure(500, f"Remove operation failed, ret={code}")

    @answered
    async def handle_remove_all(self, request):
        code = await self.call(self.store.remove_all)
        return (failure(500, f"RemoveAll operation failed, ret={code}") if code < 0 else
                web.json_response({"status": f"success removed {code} keys"}))

    # ---- segments ----

    @answered
    async def handle_mount(self, request):
        body = await body_of(request)
        size = body.get("size")
        if type(size) is not int or size <= 0:
            raise Refused(400, "Invalid size, must be a positive integer")
        got = await self.mounted(-(-size // SEGMENT_STEP) * SEGMENT_STEP, self.store.allocate_and_mount_segment, size,
                                 str(body.get("protocol", self.config.protocol)), str(body.get("location", "")))
        if got["ret"] != 0:
            return failure(500, f"Allocate and mount failed, ret={got['ret']}")
        return success(segment_ids=got["segment_ids"], allocated_size=got["allocated_size"])

    async def mounted(self, size, method, *args):
        """The answer of a method that mounts that many bytes."""
        got = {"segment_ids": []}
        self.room.take(size)
        try:
            got = await self.call(method, *args)
        finally:
            self.room.mounted(size, got["segment_ids"])
        return got

    async def mount_file(self, body, opener, *args):
        """The ids of a segment over the file that opener(*args) opens."""
        numbers = []
        for name in ("size", "offset"):
            value = body.get(name, 0)
            if type(value) is not int or value < (name == "size"):
                raise Refused(400, f"Invalid {name}, must be a whole number of bytes")
            numbers.append(value)
        fd = await self.call(opener, *args)
        try:
            # by descriptor: the name may belong to another file meanwhile
            got = await self.mounted(numbers[0], self.store.mount_segment, f"/proc/self/fd/{fd}", *numbers,
                                     str(body.get("protocol", self.config.protocol)), str(body.get("location", "")))
        finally:
            os.close(fd)
        if got["ret"] != 0:
            raise Refused(500, f"Mount failed, ret={got['ret']}")
        return list(got["segment_ids"])

    @answered
    async def handle_mount_shm(self, request):
        body = await body_of(request)
        path = _shm_name_to_path(body.get("name"))
        if path is None or body.get("size") is None:
            raise Refused(400, "Missing or invalid name or size")
        return success(segment_ids=await self.mount_file(body, _rest.open_shm, path))

    @answered
    async def handle_reconfigure(self, request):
        """Mount the new mode's segment, then unmount those of the previous mode.  If the new one cannot be mounted,
        everything is as before."""
        try:
            body = await body_of(request)
            mode = body.get("mode")
            mode = mode.lower() if isinstance(mode, str) else mode
            if mode not in ("decode", "prefill"):
                raise Refused(400, "Invalid mode. Use 'decode' or 'prefill'")
            async with self._state_lock:
                return await (self.to_decode(body) if mode == "decode" else self.to_prefill())
        except Refused as e:
            e.more["mode"] = self.current_mode
            raise

    async def to_decode(self, body):
        path = body.get("path")
        if not isinstance(path, str) or not path or "\0" in path or body.get("size") is None:
            raise Refused(400, "Missing path or size for decode mode")
        try:
            ids = await self.mount_file(body, _rest.open_segment, path, self.segment_dirs)
        except Refused as e:
            kept = "keeping previous decode segments" if self.mounted_segment_ids else "rolled back to prefill"
            raise Refused(e.status, f"{e}; {kept}") from None
        failed = await self.unmount_all(list(self.mounted_segment_ids), 0)
        if failed:
            log.warning("reconfigure: segments of the previous mode cannot be unmounted, unmount_shm may try again: %s",
                        ", ".join(failed))
        # those that failed are still in the list, unless another request has unmounted them meanwhile
        self.mounted_segment_ids[:0] = ids
        self.current_mode = "decode"
        self.last_mount_info = {"path": path, "offset": body.get("offset", 0), "size": body["size"],
                                "protocol": body.get("protocol", self.config.protocol), "location": body.get("location", "")}
        return success(mode="decode", segment_ids=self.mounted_segment_ids)

    async def to_prefill(self):
        failed = await self.unmount_all(list(self.mounted_segment_ids), 0)
        if failed:
            raise Refused(500, f"Unmount failed, ret={_setup.INTERNAL_ERROR}", failed_segment_ids=failed)
        return success(mode=self.current_mode)

    async def unmount_all(self, ids, grace):
        """Unmount segments; returns the ids that failed."""
        failed = []
        for one in ids:
            if await self.call(self.store.unmount_segment, [one], grace) != 0:
                failed.append(one)
                continue
            self.room.unmounted(one)
            if one in self.mounted_segment_ids:
                self.mounted_segment_ids.remove(one)
        if not self.mounted_segment_ids:
            self.current_mode = "prefill"
            self.last_mount_info = {}
        return failed

    async def unmount(self, request, text):
        body = await body_of(request)
        failed = await self.unmount_all(ids_of(body), grace_of(body))
        return failure(500, text, failed_segment_ids=failed) if failed else success()

    @answered
    async def handle_unmount(self, request):
        return await self.unmount(request, f"Unmount and free failed, ret={_setup.INTERNAL_ERROR}")

    @answered
    async def handle_unmount_shm(self, request):
        return await self.unmount(request, "Unmount failed for one or more segments")

    @answered
    async def handle_unmount_local_disk(self, request):
        grace = grace_of(await body_of(request))
        code = await self.call(self.store.unmount_local_disk_segment, grace)
        return failure(500, f"Unmount local disk failed, ret={code}") if code else success()


# ---- the program ----

def settings_of(args):
    """The settings of the command line."""
    settings = {}
    for pair in args.define:
        key, equals, value = pair.partition("=")
        if equals:
            settings[key] = value
        else:
            log.warning("-D %s is ignored: KEY=VALUE is expected", pair)
    for name in ("local_hostname", "metadata_server", "master_server_address"):
        if getattr(args, name):
            settings[name] = getattr(args, name)
    return settings


def parse_arguments():
    parser = argparse.ArgumentParser(prog="mc_store_rest_server", description="A store with a REST interface.")
    parser.add_argument("--config", help="JSON file; else MOONCAKE_CONFIG_PATH, else the variables MOONCAKE_*")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="KEY=VALUE", help="one setting")
    for name, meaning in (("local_hostname", "name of this host for its peers"), ("metadata_server", "see setup()"),
                          ("master_server", "the master's HOST:PORT")):
        parser.add_argument("--" + name, "--" + name.replace("_", "-"), help=f"setting: {meaning}",
                            dest={"master_server": "master_server_address"}.get(name, name))
    parser.add_argument("--host", default="127.0.0.1",
                        help="address to listen on (%(default)s); other addresses than 127.0.0.1 need --http_tls_cert and a "
                             "credential (MC_CREDENTIAL), or --allow_insecure")
    parser.add_argument("--http_tls_cert", "--http-tls-cert", default="", metavar="FILE",
                        help="PEM file with the service's certificate, and those of its authorities: it serves https")
    parser.add_argument("--http_tls_key", "--http-tls-key", default="", metavar="FILE",
                        help="PEM file with its key, which only its owner may read")
    parser.add_argument("--allow_insecure", "--allow-insecure", action="store_true",
                        default=_guard.is_on("MC_ALLOW_INSECURE"),
                        help="listen also where other hosts reach the service, and can use it (MC_ALLOW_INSECURE)")
    parser.add_argument("--port", type=int, default=8080, help="HTTP port (%(default)s)")
    parser.add_argument("--segment_dir", "--segment-dir", action="append", default=[], metavar="DIRECTORY",
                        help="requests may mount files below this directory, which overwrites them; may be repeated "
                             "(none: such requests are refused)")
    parser.add_argument("--max_mounted_size", "--max-mounted-size", type=_setup.parse_size,
                        metavar="BYTES", help="bytes that requests may mount together (half of the memory)")
    parser.add_argument("--max-wait-time", type=float, default=60, help="seconds to wait for the master (%(default)s)")
    return parser.parse_args()


def refusal(args):
    """Why the service must not listen at its address, or None."""
    if _rest.credential_path() is None:
        return _guard.refusal("host", args.host, "read, change and remove all objects",
                              "use a credential (MC_CREDENTIAL) and --http_tls_cert", False, args.allow_insecure)
    if args.http_tls_cert or _guard.is_loopback(args.host):
        return None
    return (f"host={args.host}: every host that reaches this address could read and use the tokens of its clients: use "
            "--http_tls_cert and --http_tls_key, or a loopback address such as 127.0.0.1")


async def main():
    args = parse_arguments()
    tls = _rest.tls_of(args.http_tls_cert, args.http_tls_key)
    reason = refusal(args)
    if reason:
        raise ValueError(reason)
    if _rest.credential_path():
        # A core dump would have keys of OpenSSL's memory (docs/SECURITY.md).
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if args.allow_insecure:
        # This program has warned; the library is not to repeat it.
        os.environ["MC_ALLOW_INSECURE"] = "1"
    settings = settings_of(args)
    # load_from_env() requires the variable
    if not args.config and settings.get("master_server_address"):
        os.environ.setdefault("MOONCAKE_MASTER", settings["master_server_address"])
    service = MooncakeStoreService(args.config, settings, host=args.host, segment_dirs=args.segment_dir,
                                   max_mounted=args.max_mounted_size, tls=tls)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        if await service.start_store_service(args.max_wait_time, stop):
            await service.start_http_service(args.port)
            await stop.wait()
        elif not stop.is_set():
            raise RuntimeError("Failed to start store service")
    finally:
        await service.stop()


def sync_main():
    """The program mc_store_rest_server."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(main())
    except (ValueError, OSError, RuntimeError) as e:
        sys.exit(f"mc_store_rest_server: {e}")


if __name__ == "__main__":
    sync_main()
