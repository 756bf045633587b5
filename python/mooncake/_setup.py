# SPDX-License-Identifier: Apache-2.0
"""Parsing of setup()'s arguments: sizes, truth values, addresses, and hints for mistyped names."""

import os


class Log:
    """A logger created at its first message: most processes log nothing, and importing logging takes time."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, level):
        import logging

        return getattr(logging.getLogger(self._name), level)


log = Log("mooncake.store")

INVALID_PARAMS = -600
INTERNAL_ERROR = -1
DEFAULT_MASTER = "127.0.0.1:50051"
DEFAULT_SIZE = 16 << 20
# Smaller segments have no room for the allocator's own structures.
SEGMENT_MIN = 1 << 20
UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20,
         "mib": 1 << 20, "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tb": 1 << 40,
         "tib": 1 << 40}
LONGEST_FIRST = sorted(UNITS, key=len, reverse=True)
TRUE = ("true", "1", "yes", "on", "enable", "enabled")
FALSE = ("false", "0", "no", "off", "disable", "disabled", "", "none")
# Protocols of upstream that this library replaces with shared memory and TCP; common/net/protocol.c has the same list.
FALLBACK = ("efa", "nvmeof", "nvlink", "musa", "nvlink_intra", "hip", "barex", "cxl", "cxi", "ascend", "ub",
            "ubshmem", "maca", "sunrise_link", "flagcx", "shm")
METADATA_SCHEMES = ("http", "https", "etcd", "redis", "rediss")

KEYS = {
    "local_hostname": None,
    "metadata_server": None,
    "global_segment_size": DEFAULT_SIZE,
    "local_buffer_size": DEFAULT_SIZE,
    "protocol": "tcp",
    "rdma_devices": "",
    "master_server_addr": DEFAULT_MASTER,
    "ipc_socket_path": "",
    "enable_ssd_offload": False,
    "ssd_offload_path": "",
    "tenant_id": "default",
    "enable_client_http_server": False,
    "client_http_port": 9300,
    "enable_ssd_prefetch": False,
    "ssd_prefetch_cooldown_sec": 5,
    "ssd_prefetch_dedup_ttl_sec": 30,
    "enable_egm_store_pool": False,
    "egm_numa_nodes": "auto",
    "enable_embedded_master": False,
    "credential": "",
}
ALIASES = {
    "device_name": "rdma_devices",
    "master_server_address": "master_server_addr",
    "master_addr": "master_server_addr",
    "hostname": "local_hostname",
}


class Bad(ValueError):
    """An argument that setup() answers with -600."""


def parse_size(value, what="size"):
    """Bytes: a number, "1073741824", "1e9", "1 GB", "1.5gb" (binary units); fractions of a byte are cut off."""
    number, unit = value, ""
    if not isinstance(value, (int, float)):
        digits = str(value).strip().lower()
        unit = next((u for u in LONGEST_FIRST if digits.endswith(u)), "")
        digits = digits[:len(digits) - len(unit)].strip()
        try:
            number = int(digits) if digits.lstrip("+-").isdigit() else float(digits)
        except ValueError:
            number = None
    if number is None or isinstance(value, bool):
        raise Bad(f"{what}: {value!r} is not a size (a number, or one with b, kb, mb, gb, tb)")
    # as floats also the infinite and "not a number"
    if not 0 <= number * UNITS[unit] < 1 << 63:
        raise Bad(f"Invalid {what}: {value!r} is out of range")
    return int(number * UNITS[unit])


def parse_bool(value, what):
    if isinstance(value, (bool, int)):
        return bool(value)
    text = str(value).strip().lower()
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise Bad(f"{what}: {value!r} is neither true nor false")


def parse_port(value, what):
    try:
        port = int(value)
    except (TypeError, ValueError):
        raise Bad(f"{what}: {value!r} is no port") from None
    if not 0 < port < 65536:
        raise Bad(f"{what}: {port} is out of range")
    return port


def nearest(name, names):
    """', did you mean "x"?', or ''."""
    import difflib

    found = difflib.get_close_matches(name, names, 1)
    return f', did you mean "{found[0]}"?' if found else ""


def take_dict(config):
    """The arguments of setup(config), by the names of the long form."""
    args = dict(KEYS)
    for key, value in config.items():
        name = ALIASES.get(key, key)
        if name not in KEYS:
            log.warning('setup: unknown key "%s" is ignored%s', key,
                        nearest(str(key), list(KEYS) + list(ALIASES)))
        elif value is not None:
            args[name] = value
    for name in ("local_hostname", "metadata_server"):
        if args[name] is None:
            raise Bad(f"{name} is missing")
    return args


def master_address(addr):
    """Address, list of addresses, with the default port where none is given, or the store of several masters."""
    addr = str(addr or "").strip()
    if addr.startswith(("unix:", "local:", "etcd://", "redis://")):
        return addr
    if not addr:
        raise Bad("the master's address is empty (host:port)")
    if "://" in addr:
        raise Bad(f'"{addr}" is no address of a master (host:port[,host:port...], etcd://..., redis://...)')
    out = []
    for one in addr.split(","):
        one = one.strip()
        host, colon, port = one.rpartition(":")
        if not colon or one.endswith("]"):
            host, port = one, "50051"
        elif ":" in host and not host.startswith("["):
            host, port = f"[{one}]", "50051"
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise Bad(f'"{one}" is no address of a master (host:port)')
        out.append(f"{host}:{port}")
    return ",".join(out)


def check_metadata(server):
    scheme, colon, _ = str(server or "").partition("://")
    if colon and scheme not in METADATA_SCHEMES:
        raise Bad(f'metadata_server "{server}": unknown scheme "{scheme}" (P2PHANDSHAKE, http://, https://, '
                  "etcd://, redis://)")


_warned = set()


def once(text, *args, logger=log):
    if (logger, text % args) not in _warned:
        _warned.add((logger, text % args))
        logger.warning(text, *args)


def engine_protocol(protocol, logger):
    """Warn about a protocol that is not available.  As in upstream, the engine chooses one that both ends support."""
    name = str(protocol if protocol is not None else "")
    if name in FALLBACK:
        once('protocol "%s" is not available, continuing with tcp (and shared memory on the same host)', name,
              logger=logger)
    elif name not in ("", "tcp", "rdma"):
        once('unknown protocol "%s" is ignored%s', name, nearest(name, ("tcp", "rdma") + FALLBACK), logger=logger)


def far_memory(protocol):
    """Upstream's protocol "cxl" with its variables: the client contributes far memory."""
    return protocol == "cxl" and any(os.environ.get(name) for name in ("MC_CXL_DEV_PATH", "MC_CXL_DEV_SIZE"))


def check_protocol(protocol, segment_size):
    name = str(protocol if protocol is not None else "tcp")
    if name in ("tcp", "rdma") or far_memory(name):
        return
    if name == "rpc_only":
        if segment_size:
            raise Bad("protocol rpc_only contributes no memory: global_segment_size must be 0")
        return
    if name in FALLBACK:
        once('protocol "%s" is not available, continuing with tcp (and shared memory on the same host)', name)
        return
    raise Bad(f'unknown protocol "{name}"{nearest(name, ("tcp", "rdma", "rpc_only") + FALLBACK)}')


def host_of(name):
    """The host of "host" or "host:port"."""
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0] if name.count(":") == 1 else name


def hostname_of(name, engine):
    host = str(name if name is not None else "").strip()
    if not host:
        raise Bad("local_hostname is empty")
    # With an engine, "ip:port" is the engine's name, and the engine already uses that port.
    return host if engine is None else host_of(host)


def forced_tcp():
    """As in upstream's engine, MC_FORCE_TCP is on if set to anything but a false value."""
    value = os.environ.get("MC_FORCE_TCP")
    return value is not None and (value == "" or value.strip().lower() not in FALSE)


def check_newer(a):
    """The keys that upstream's 0.3.14 added.  ExistOptions works with or without enable_ssd_prefetch."""
    if parse_bool(a.get("enable_egm_store_pool", False), "enable_egm_store_pool"):
        raise Bad("enable_egm_store_pool: this package has no memory behind NVLink (EGM)")
    if parse_bool(a.get("enable_embedded_master", False), "enable_embedded_master"):
        raise Bad("enable_embedded_master: this package starts no master in the process, start the program mooncake_master")
    parse_bool(a.get("enable_ssd_prefetch", False), "enable_ssd_prefetch")
    for name in ("ssd_prefetch_cooldown_sec", "ssd_prefetch_dedup_ttl_sec"):
        if name in a and parse_size(a[name], name) != KEYS[name]:
            once("%s has no effect: the master drops repeated requests for a copy, and limits their number", name)
    if a.get("egm_numa_nodes", "auto") != "auto":
        once("egm_numa_nodes has no effect without enable_egm_store_pool")


def prepare(a):
    """Convert the arguments of setup() to those of Store._open(); raises Bad for invalid ones."""
    segment = parse_size(a["global_segment_size"], "global_segment_size")
    parse_size(a["local_buffer_size"], "local_buffer_size")
    if 0 < segment < SEGMENT_MIN:
        raise Bad(f"global_segment_size: {segment} bytes are less than 1 MiB")
    check_metadata(a["metadata_server"])
    check_protocol(a["protocol"], segment)
    check_newer(a)
    # As in upstream, the path alone switches nothing on.
    offload = parse_bool(a["enable_ssd_offload"], "enable_ssd_offload")
    protocol = str(a["protocol"] if a["protocol"] is not None else "tcp")
    names = dict(hostname=hostname_of(a["local_hostname"], a.get("engine")), master=master_address(a["master_server_addr"]),
                 tenant=str(a["tenant_id"] or "default"), protocol=protocol if protocol == "rdma" or far_memory(protocol) else "tcp",
                 rdma_devices=str(a["rdma_devices"] or ""), credential=str(a.get("credential") or ""))
    if offload:
        names["ssd_path"] = str(a["ssd_offload_path"] or "")
    if parse_bool(a["enable_client_http_server"], "enable_client_http_server"):
        names["http_addr"] = f"0.0.0.0:{parse_port(a['client_http_port'], 'client_http_port')}"
    for what, name in names.items():
        # C code would use only the part before the NUL, which may be another valid name
        if "\0" in name:
            raise Bad(f"{what} {name!r} contains NUL")
    return dict(names, segment_size=segment, force_tcp=forced_tcp())
