# SPDX-License-Identifier: Apache-2.0
"""The REST service, started by the class MooncakeStoreService, and the modes of /api/reconfigure."""

import asyncio
import json
import os
import socket
import sys
import tempfile
import threading
import urllib.error
import urllib.request

from cases import case, finish
from mooncake.mooncake_store_service import MooncakeStoreService, _shm_name_to_path

MIB = 1 << 20
os.environ.update(MOONCAKE_MASTER=sys.argv[1], MOONCAKE_LOCAL_HOSTNAME="127.0.0.1", MOONCAKE_LOCAL_BUFFER_SIZE="16mb")
os.environ.pop("MOONCAKE_CONFIG_PATH", None)
files = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="mc-observe-")
PATH, NAME = os.path.join(files.name, "segment"), os.path.basename(files.name) + "-shared"
for path in (PATH, "/dev/shm/" + NAME):
    with open(path, "wb") as f:
        f.truncate(64 * MIB)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
service = MooncakeStoreService(None, {"global_segment_size": "64mb"})
# upstream's has no such limit
service.segment_dirs = [os.path.realpath(files.name)]


def do(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(method, path, body=None):
    """Status, and the body as JSON or bytes."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/api/{path}", data, {"Content-Type": "application/json"},
                                     method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as e:
        answer = e
    got = answer.read()
    return answer.status, json.loads(got) if answer.headers.get_content_type() == "application/json" else got


def seen(answer, *words):
    """The answer without ids: of an error the members and those of the words that its text contains."""
    status, body = answer
    if status != 200:
        return [status, [w for w in words if w in str(body)], body.get("mode", "none")]
    if "segment_ids" in body:
        body["segment_ids"] = len(body["segment_ids"])
    return [status, body]


def post(name, path, body, *words):
    case(name, lambda: seen(ask("POST", path, body), *words))


def decode(size=16 * MIB, offset=0, path=PATH, mode="decode"):
    return ask("POST", "reconfigure", {"mode": mode, "path": path, "size": size, "offset": offset})


def objects():
    case("put", lambda: ask("PUT", "put", {"key": "rest", "value": "grüße"}))
    case("get", lambda: ask("GET", "get/rest"))
    case("exist", lambda: ask("GET", "exist/rest"))
    case("exist no", lambda: ask("GET", "exist/rest-none"))
    case("get no", lambda: seen(ask("GET", "get/rest-none"), "Key not found"))
    case("remove no", lambda: seen(ask("DELETE", "remove/rest-none"), "Remove operation failed"))
    for body in ({"key": "a"}, {"key": "", "value": "x"}, {"value": "x"}):
        case(f"put {body}", lambda: seen(ask("PUT", "put", body), "Missing key or value"))
    case("put no JSON", lambda: seen(ask("PUT", "put", b"{")))


def segments():
    for size in (0, -1, "x", None, True, 1.5):
        post(f"mount {size!r}", "mount", {"size": size}, "Invalid size, must be a positive integer")
    mounted = ask("POST", "mount", {"size": 1000})
    ids = list(mounted[1]["segment_ids"])
    case("mount", lambda: seen(mounted))
    for ids_of in (None, []):
        post(f"unmount {ids_of}", "unmount", {"segment_ids": ids_of}, "Missing segment_ids")
        post(f"unmount_shm {ids_of}", "unmount_shm", {"segment_ids": ids_of}, "Missing segment_ids")
    post("unmount one id as text", "unmount", {"segment_ids": ids[0]})
    post("unmount again", "unmount", {"segment_ids": ids}, "Unmount and free failed")
    for body in ({}, {"name": NAME}, {"name": "a/b", "size": 1}, {"name": "..", "size": 1}, {"name": 5, "size": 1}):
        case(f"mount_shm {list(body.values())[:1] if body.get('name') != NAME else 'no size'}",
             lambda: seen(ask("POST", "mount_shm", body), "name or size"))
    post("mount_shm too large", "mount_shm", {"name": NAME, "size": 128 * MIB}, "Mount failed, ret=")
    shared = ask("POST", "mount_shm", {"name": "/" + NAME, "size": 16 * MIB})
    ids = list(shared[1]["segment_ids"])
    case("mount_shm", lambda: seen(shared))
    post("unmount_shm", "unmount_shm", {"segment_ids": ids})
    post("unmount_shm again", "unmount_shm", {"segment_ids": ids}, "Unmount failed")
    for grace in (-1, "x", True, 3601, 1.5, None):
        post(f"unmount_local_disk {grace!r}", "unmount_local_disk", {"grace_period_seconds": grace},
             "Invalid grace_period_seconds", "3600")
    post("unmount_local_disk no body", "unmount_local_disk", None, "Malformed JSON body")
    post("unmount_local_disk no object", "unmount_local_disk", b"[]", "Request body must be a JSON object")
    post("unmount_local_disk", "unmount_local_disk", {})


def modes():
    for body in ({}, {"mode": "both"}):
        post(f"reconfigure {body}", "reconfigure", body, "Invalid mode. Use 'decode' or 'prefill'")
    for body in ({"mode": "decode", "size": 1}, {"mode": "decode", "path": PATH}):
        case(f"decode without {'path' if 'size' in body else 'size'}",
             lambda: seen(ask("POST", "reconfigure", body), "Missing path or size for decode mode"))
    case("decode no file", lambda: seen(decode(path=PATH + ".none"), "Mount failed", "rolled back to prefill"))
    first = decode(mode="Decode")
    first_ids = list(first[1]["segment_ids"])
    case("decode", lambda: seen(first))
    case("decode no other file", lambda: seen(decode(path=PATH + ".none"), "Mount failed", "keeping previous decode segments"))
    second = decode(offset=32 * MIB)
    second_ids = list(second[1]["segment_ids"])
    case("decode another part", lambda: seen(second))
    post("unmount_shm the first", "unmount_shm", {"segment_ids": first_ids}, "Unmount failed")
    case("mode", lambda: [service.current_mode, service.mounted_segment_ids == second_ids, sorted(service.last_mount_info)])
    post("unmount_shm the second", "unmount_shm", {"segment_ids": second_ids})
    case("mode after unmount_shm", lambda: [service.current_mode, service.mounted_segment_ids])
    post("prefill after unmount_shm", "reconfigure", {"mode": "PREFILL"})
    third_ids = list(decode()[1]["segment_ids"])
    post("prefill", "reconfigure", {"mode": "prefill"})
    # a segment of which the store does not know any more
    service.mounted_segment_ids = list(third_ids)
    case("decode beside a lost segment", lambda: seen(decode()))
    case("lost last", lambda: service.mounted_segment_ids[1:] == third_ids)
    post("prefill with a lost segment", "reconfigure", {"mode": "prefill"}, "Unmount failed")
    case("mode with a lost segment", lambda: service.current_mode)


case("names of shared memory", lambda: [_shm_name_to_path(n) for n in ("a", "/a", "//a", "a/b", "", ".", "..", "/", None, 5)])
try:
    case("start_store_service", lambda: do(service.start_store_service(max_wait_time=30)))
    PORT = free_port()
    case("start_http_service", lambda: do(service.start_http_service(PORT)))
    objects()
    segments()
    modes()
    case("stop", lambda: [do(service.stop()), service.store])
finally:
    os.unlink("/dev/shm/" + NAME)
MODE = "every failure of /api/reconfigure carries the mode"
finish({
    "put no JSON": ([400, [], "none"], "a wrong request is 400, not 500"),
    "reconfigure {}": ([400, ["Invalid mode. Use 'decode' or 'prefill'"], "prefill"], MODE),
    "reconfigure {'mode': 'both'}": ([400, ["Invalid mode. Use 'decode' or 'prefill'"], "prefill"], MODE),
    "decode without path": ([400, ["Missing path or size for decode mode"], "prefill"], MODE),
    "decode without size": ([400, ["Missing path or size for decode mode"], "prefill"], MODE),
    "prefill with a lost segment": ([500, ["Unmount failed"], "decode"], MODE),
})
