# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.mooncake_store_service: a store with a REST interface, for programs without Python.

PUT /api/put {"key", "value"}   GET /api/get/KEY   GET /api/exist/KEY   DELETE /api/remove/KEY
DELETE /api/remove_all   POST /api/mount {"size"}   POST /api/unmount {"segment_ids"}

Bodies need the Content-Type application/json.  The service has no passwords: each client that reaches its address can use
it.  It therefore listens on 127.0.0.1, unless --host is given."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time

from aiohttp import ClientError, web
from aiohttp.http_exceptions import HttpProcessingError

from mooncake import _rest, _setup
from mooncake._api.segments import SEGMENT_STEP
from mooncake.mooncake_config import MooncakeConfig
from mooncake.store import MooncakeDistributedStore

log = logging.getLogger("mooncake.service")

BODY_MAX = 100 << 20
# Deadline for receiving a request's body.
READ_SECONDS = 60
GRACE_MAX = 3600


class Bad(Exception):
    """An invalid request, answered with 400."""


def failure(status, text):
    return web.json_response({"error": text}, status=status)


@web.middleware
async def answer(request, handler):
    """Every failure is JSON; every request is logged with its time."""
    began = time.monotonic()
    try:
        response = await handler(request)
    except _rest.Refused as e:
        response = failure(e.status, str(e))
    except Bad as e:
        response = failure(400, str(e))
    except web.HTTPRequestEntityTooLarge:
        response = failure(413, f"the body is larger than {BODY_MAX} bytes")
    except web.HTTPException as e:
        response = failure(e.status, e.reason)
    except ConnectionResetError:
        response = failure(400, "the client is gone")
    except asyncio.TimeoutError:
        response = failure(408, f"the body did not come within {READ_SECONDS} s")
    except Exception as e:
        log.exception("%s %s", request.method, request.rel_url.path)
        response = failure(500, f"{type(e).__name__}: {e}")
    log.info("%s %s %d %.3f ms", request.method, request.rel_url.path, response.status,
             (time.monotonic() - began) * 1e3)
    return response


async def body_of(request):
    """The JSON object that the request carries."""
    try:
        data = await asyncio.wait_for(request.read(), READ_SECONDS)
    except (web.RequestPayloadError, HttpProcessingError, ClientError) as e:
        raise Bad(f"the body does not keep to HTTP: {type(e).__name__}") from None
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise Bad("the body is not JSON") from None
    if not isinstance(body, dict):
        raise Bad("the body must be a JSON object")
    request.protocol.guard.body(request)
    return body


def grace_of(body):
    grace = body.get("grace_period_seconds", 0)
    if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not 0 <= grace <= GRACE_MAX:
        raise Bad(f"grace_period_seconds must be a number from 0 to {GRACE_MAX}")
    return grace


def ids_of(body):
    ids = body.get("segment_ids")
    if isinstance(ids, str) and ids:
        ids = [ids]
    if not isinstance(ids, list) or not ids or not all(isinstance(i, str) for i in ids):
        raise Bad("segment_ids must be a list of segment ids")
    return ids


class MooncakeStoreService:
    """The routes, and the store behind them.  host: the address to listen on; segment_dirs: directories whose files
    requests may mount; max_mounted: bytes that requests may mount together, by default half of the machine's memory."""

    def __init__(self, config, store=None, host="127.0.0.1", segment_dirs=(), max_mounted=None):
        self.config = config
        self.store = store or MooncakeDistributedStore()
        self.host = host
        self.segment_dirs = [os.path.realpath(d) for d in segment_dirs]
        self.room = _rest.Room(half_of_memory() if max_mounted is None else max_mounted)
        self.listener = self.runner = None
        # ids of the segments of the mode set by /api/reconfigure
        self.segments = []
        self.changing = asyncio.Lock()

    async def call(self, method, *args):
        """Run a blocking call of the store in an executor thread."""
        return await asyncio.get_running_loop().run_in_executor(None, method, *args)

    async def start_store(self, max_wait_time):
        """setup(), retried every second until it succeeds or max_wait_time has passed."""
        c = self.config
        settings = {"local_hostname": c.local_hostname, "metadata_server": c.metadata_server,
                    "global_segment_size": c.global_segment_size, "local_buffer_size": c.local_buffer_size,
                    "protocol": c.protocol, "rdma_devices": c.device_name,
                    "master_server_addr": c.master_server_address, "tenant_id": c.tenant_id,
                    "enable_ssd_offload": c.enable_ssd_offload, "ssd_offload_path": c.ssd_offload_path}
        end = time.monotonic() + max_wait_time
        while True:
            code = await self.call(self.store.setup, settings)
            if code == 0:
                return
            if code == _setup.INVALID_PARAMS or time.monotonic() >= end:
                raise ConnectionError(f"the store cannot be set up: error {code}")
            await asyncio.sleep(min(1, max(0, end - time.monotonic())))

    def application(self):
        @web.middleware
        async def admit(request, handler):
            request.protocol.guard.header(request)
            _rest.check_request(request, self.host)
            return await handler(request)

        app = web.Application(client_max_size=BODY_MAX, middlewares=[answer, admit])
        app.add_routes([
            web.put("/api/put", self.put),
            web.get("/api/get/{key:.+}", self.get),
            web.get("/api/exist/{key:.+}", self.exist),
            web.delete("/api/remove/{key:.+}", self.remove),
            web.delete("/api/remove_all", self.remove_all),
            web.post("/api/mount", self.mount),
            web.post("/api/unmount", self.unmount),
            web.post("/api/mount_shm", self.mount_shm),
            web.post("/api/unmount_shm", self.unmount),
            web.post("/api/reconfigure", self.reconfigure),
            web.post("/api/unmount_local_disk", self.unmount_local_disk),
        ])
        return app

    async def start_http(self, port):
        self.runner = web.AppRunner(self.application(), access_log=None)
        await self.runner.setup()
        self.listener = await _rest.Guard(self.runner.server).listen(self.host, port)
        log.info("REST on %s port %d", self.host, port)

    async def stop(self):
        if self.listener:
            self.listener.close()
        if self.runner:
            await self.runner.cleanup()
        await self.call(self.store.close)

    # ---- the routes ----

    async def put(self, request):
        body = await body_of(request)
        key, value = body.get("key"), body.get("value")
        if not isinstance(key, str) or not isinstance(value, str) or not key or not value:
            raise Bad("key and value are required, both texts")
        try:
            data = value.encode("utf-8")
            key.encode("utf-8")
        except UnicodeEncodeError:
            raise Bad("key and value must be Unicode text") from None
        code = await self.call(self.store.put, key, data)
        return web.json_response({"status": "success"}) if code == 0 else failure(500, f"put: error {code}")

    async def get(self, request):
        handle = await self.call(self.store.get_buffer, request.match_info["key"])
        if handle is None:
            there = await self.exists(request.match_info["key"])
            return (failure(404, "there is no such object") if there == 0 else
                    failure(500, f"get: error {there}" if there < 0 else "get: the object cannot be read"))
        return web.Response(body=bytes(handle), content_type="application/octet-stream")

    async def exists(self, key):
        # is_exist() returns 0 also if the master is not reachable
        return (await self.call(self.store.batch_is_exist, [key]))[0]

    async def exist(self, request):
        code = await self.exists(request.match_info["key"])
        return failure(500, f"exist: error {code}") if code < 0 else web.json_response({"exists": code == 1})

    async def remove(self, request):
        code = await self.call(self.store.remove, request.match_info["key"])
        return web.json_response({"status": "success"}) if code == 0 else failure(500, f"remove: error {code}")

    async def remove_all(self, request):
        code = await self.call(self.store.remove_all)
        if code < 0:
            return failure(500, f"remove_all: error {code}")
        return web.json_response({"status": f"success removed {code} keys"})

    async def mount(self, request):
        body = await body_of(request)
        size = body.get("size")
        if isinstance(size, bool) or not isinstance(size, int) or size <= 0:
            raise Bad("size must be a whole number of bytes above 0")
        size = -(-size // SEGMENT_STEP) * SEGMENT_STEP
        got = await self.mounted(size, self.store.allocate_and_mount_segment, size,
                                 str(body.get("protocol", self.config.protocol)), str(body.get("location", "")))
        if got["ret"] != 0:
            return failure(500, f"mount: error {got['ret']}")
        return web.json_response({"status": "success", "segment_ids": got["segment_ids"],
                                  "allocated_size": got["allocated_size"]})

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
        """The ids of a segment over the file that opener(*args) opens, or None."""
        numbers = []
        for name in ("size", "offset"):
            value = body.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, int) or value < (name == "size"):
                raise Bad(f"{name} must be a whole number of bytes")
            numbers.append(value)
        fd = await self.call(opener, *args)
        try:
            # by descriptor: the name may belong to another file meanwhile
            got = await self.mounted(numbers[0], self.store.mount_segment, f"/proc/self/fd/{fd}", *numbers,
                                     str(body.get("protocol", self.config.protocol)), str(body.get("location", "")))
        finally:
            os.close(fd)
        return got["segment_ids"] if got["ret"] == 0 else None

    async def mount_shm(self, request):
        body = await body_of(request)
        name = body.get("name")
        if not isinstance(name, str) or not name.lstrip("/") or "/" in name.lstrip("/") or "\0" in name or (
                name.lstrip("/") in (".", "..")):
            raise Bad("name must be that of shared memory, without a / inside")
        ids = await self.mount_file(body, _rest.open_shm, name.lstrip("/"))
        return (failure(500, "mount_shm: it cannot be mounted") if ids is None
                else web.json_response({"status": "success", "segment_ids": ids}))

    async def reconfigure(self, request):
        """Mount the new mode's segment, then unmount those of the previous mode."""
        body = await body_of(request)
        mode, ids = body.get("mode"), []
        if mode not in ("decode", "prefill"):
            raise Bad("mode must be decode or prefill")
        if mode == "decode":
            path = body.get("path")
            if not isinstance(path, str) or not path or "\0" in path or "size" not in body:
                raise Bad("path and size are required")
            ids = await self.mount_file(body, _rest.open_segment, path, self.segment_dirs)
            if ids is None:
                return failure(500, "reconfigure: the segment cannot be mounted, all is as before")
        async with self.changing:
            self.segments, failed = ids, await self.unmount_all(self.segments, 0)
            self.segments = self.segments + failed
        if failed:
            return web.json_response({"error": "not unmounted", "failed_segment_ids": failed}, status=500)
        answer = {"status": "success", "mode": mode}
        return web.json_response({**answer, "segment_ids": ids} if mode == "decode" else answer)

    async def unmount_all(self, ids, grace):
        """Unmount segments; returns the ids that failed."""
        failed = []
        for one in ids:
            if await self.call(self.store.unmount_and_free_segment, [one], grace) != 0:
                failed.append(one)
            self.room.unmounted(one)
        return failed

    async def unmount(self, request):
        body = await body_of(request)
        failed = await self.unmount_all(ids_of(body), grace_of(body))
        if failed:
            return web.json_response({"error": "not unmounted", "failed_segment_ids": failed}, status=500)
        return web.json_response({"status": "success"})

    async def unmount_local_disk(self, request):
        grace = grace_of(await body_of(request)) if request.can_read_body else 0
        if await self.call(self.store.unmount_local_disk_segment, grace):
            return web.json_response({"error": "not unmounted"}, status=500)
        return web.json_response({"status": "success"})


def half_of_memory():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def config_of(args):
    config = MooncakeConfig.from_file(args.config) if args.config else MooncakeConfig.load_from_env()
    for pair in args.define:
        key, equals, value = pair.partition("=")
        if not equals or not hasattr(config, key):
            log.warning('-D %s is ignored: no such setting%s', pair, _setup.nearest(key, list(vars(config))))
        else:
            setattr(config, key, value)
    return config


async def serve(args):
    service = MooncakeStoreService(config_of(args), host=args.host, segment_dirs=args.segment_dir,
                                   max_mounted=args.max_mounted_size)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    opening = asyncio.ensure_future(service.start_store(args.max_wait_time))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        opening.cancel()
    else:
        await opening
        await service.start_http(args.port)
        await stopping
    await service.stop()


def main():
    parser = argparse.ArgumentParser(prog="mc_store_rest_server", description="A store with a REST interface.")
    parser.add_argument("--config", help="JSON file; else MOONCAKE_CONFIG_PATH, else the variables MOONCAKE_*")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="KEY=VALUE", help="one setting")
    parser.add_argument("--host", default="127.0.0.1",
                        help="address to listen on (%(default)s); the service has no passwords, so each client that reaches "
                             "the address can use it")
    parser.add_argument("--port", type=int, default=8080, help="HTTP port (%(default)s)")
    parser.add_argument("--segment_dir", "--segment-dir", action="append", default=[], metavar="DIRECTORY",
                        help="requests may mount files below this directory, which overwrites them; may be repeated "
                             "(none: such requests are refused)")
    parser.add_argument("--max_mounted_size", "--max-mounted-size", type=_setup.parse_size,
                        metavar="BYTES", help="bytes that requests may mount together (half of the memory)")
    parser.add_argument("--max-wait-time", type=float, default=60, help="seconds to wait for the master (%(default)s)")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(serve(args))
    except (ValueError, OSError) as e:
        sys.exit(f"mc_store_rest_server: {e}")


if __name__ == "__main__":
    main()
