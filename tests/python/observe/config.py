# SPDX-License-Identifier: Apache-2.0
"""MooncakeConfig: values of a file, of the environment and of the constructor."""

import json
import os
import tempfile

from cases import case, finish, says
from mooncake.mooncake_config import MooncakeConfig

FIELDS = ("local_hostname", "metadata_server", "global_segment_size", "local_buffer_size", "protocol", "device_name",
          "master_server_address", "enable_ssd_offload", "ssd_offload_path", "tenant_id", "enable_client_http_server",
          "client_http_port")
GIVEN = {"local_hostname": "h", "metadata_server": "m", "master_server_address": "a:1"}
for name in [n for n in os.environ if n.startswith("MOONCAKE_")]:
    del os.environ[name]
files = tempfile.TemporaryDirectory()


def seen(config):
    return [getattr(config, field) for field in FIELDS]


def of_file(**more):
    path = os.path.join(files.name, "conf.json")
    with open(path, "w") as f:
        json.dump({k: v for k, v in {**GIVEN, **more}.items() if v != "leave out"}, f)
    return MooncakeConfig.from_file(path)


def of_variables(**variables):
    os.environ.update(variables)
    try:
        return MooncakeConfig.load_from_env()
    finally:
        for variable in variables:
            del os.environ[variable]


def made(**more):
    return MooncakeConfig(**{**GIVEN, "global_segment_size": 1, "local_buffer_size": 2, "protocol": "tcp", "device_name": "",
                             **more})


case("file: defaults", lambda: seen(of_file()))
for field in FIELDS[:1] + FIELDS[4:5] + FIELDS[6:]:
    case(f"file: {field} null", lambda: getattr(of_file(**{field: None}), field))
for field in GIVEN:
    says(f"file: no {field}", lambda: of_file(**{field: "leave out"}), "Missing required config field: " + field)
    says(f"file: empty {field}", lambda: of_file(**{field: ""}), field, "non-empty string")
    says(f"made: blank {field}", lambda: made(**{field: "  "}), field, "non-empty string")
    says(f"made: {field} None", lambda: made(**{field: None}), field, "non-empty string")
for protocol in ("", "  ", None, 5):
    says(f"made: protocol {protocol!r}", lambda: made(protocol=protocol).protocol, "Invalid protocol")
for protocol in ("RDMA", " Tcp ", "xyz"):
    case(f"made: protocol {protocol!r}", lambda: made(protocol=protocol).protocol)
for size in (7, "1e9", "1.5", "4 GB", " 3 gb ", "1.5kb", "7b", "2t", "1e3mb", 1.5, "5kib"):
    case(f"file: size {size!r}", lambda: of_file(global_segment_size=size).global_segment_size)
for size in ("", "gb", "x"):
    says(f"file: size {size!r}", lambda: of_file(global_segment_size=size).global_segment_size)
says("made: size -1", lambda: made(local_buffer_size=-1), "local_buffer_size", "-1")
for value in ("true", "enable", "0", "Off", "", 1, None):
    case(f"file: bool {value!r}", lambda: of_file(enable_ssd_offload=value).enable_ssd_offload)
says("file: bool 'maybe'", lambda: of_file(enable_ssd_offload="maybe"), "maybe")
case("file: port '81'", lambda: of_file(client_http_port="81").client_http_port)
says("variables: none", lambda: of_variables(), "MOONCAKE_CONFIG_PATH", "MOONCAKE_MASTER", "either the environment variable")
case("variables: master", lambda: seen(of_variables(MOONCAKE_MASTER="a:1")))
case("variables: all", lambda: seen(of_variables(
    MOONCAKE_MASTER="a:1", MOONCAKE_PROTOCOL="rdma", MOONCAKE_DEVICE="d", MOONCAKE_LOCAL_HOSTNAME="h",
    MOONCAKE_TE_META_DATA_SERVER="m", MOONCAKE_GLOBAL_SEGMENT_SIZE="1gb", MOONCAKE_LOCAL_BUFFER_SIZE="2e3", MOONCAKE_TENANT_ID="t",
    MOONCAKE_OFFLOAD_ENABLED="yes", MOONCAKE_OFFLOAD_FILE_STORAGE_PATH="/p", MOONCAKE_ENABLE_CLIENT_HTTP_SERVER="on",
    MOONCAKE_CLIENT_HTTP_PORT="81")))
says("variables: empty protocol", lambda: of_variables(MOONCAKE_MASTER="a:1", MOONCAKE_PROTOCOL=""), "Invalid protocol")
says("variables: empty host", lambda: of_variables(MOONCAKE_MASTER="a:1", MOONCAKE_LOCAL_HOSTNAME=""), "local_hostname")
finish({
    "file: size '5kib'": (5120, "the units kib, mib, gib and tib are understood, too"),
    "file: client_http_port null": ("ValueError", "every wrong value is a ValueError that names the field"),
})
