# SPDX-License-Identifier: Apache-2.0
"""MooncakeConfig: the settings of a store from a JSON file or the environment."""

import dataclasses
import json
import logging
import os
from typing import Optional

from mooncake import _setup

DEFAULT_GLOBAL_SEGMENT_SIZE = 3355443200
DEFAULT_LOCAL_BUFFER_SIZE = 1073741824
PROTOCOLS = ("tcp", "rdma", "rpc_only") + _setup.FALLBACK

logger = logging.getLogger("mooncake.config")

# JSON key -> environment variable
ENVIRONMENT = {
    "local_hostname": "MOONCAKE_LOCAL_HOSTNAME",
    "metadata_server": "MOONCAKE_TE_META_DATA_SERVER",
    "global_segment_size": "MOONCAKE_GLOBAL_SEGMENT_SIZE",
    "local_buffer_size": "MOONCAKE_LOCAL_BUFFER_SIZE",
    "protocol": "MOONCAKE_PROTOCOL",
    "device_name": "MOONCAKE_DEVICE",
    "master_server_address": "MOONCAKE_MASTER",
    "enable_ssd_offload": "MOONCAKE_OFFLOAD_ENABLED",
    "ssd_offload_path": "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH",
    "tenant_id": "MOONCAKE_TENANT_ID",
    "enable_client_http_server": "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER",
    "client_http_port": "MOONCAKE_CLIENT_HTTP_PORT",
    "credential": "MC_CREDENTIAL",
}
ALIASES = {"rdma_devices": "device_name", "master_server_addr": "master_server_address",
           "master_addr": "master_server_address"}
DEFAULTS = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp",
            "global_segment_size": DEFAULT_GLOBAL_SEGMENT_SIZE,
            "local_buffer_size": DEFAULT_LOCAL_BUFFER_SIZE, "device_name": ""}
REQUIRED = ("local_hostname", "metadata_server", "master_server_address")


@dataclasses.dataclass
class MooncakeConfig:
    """Settings of a store.  Sizes are bytes, or texts such as "4gb" (binary units); truth values may be texts.
    Wrong values raise ValueError; an unknown protocol is a warning."""

    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    device_name: Optional[str]
    master_server_address: str
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = 9300
    credential: str = ""

    def __post_init__(self):
        if not isinstance(self.protocol, str) or not self.protocol.strip():
            raise ValueError(f"Invalid protocol: {self.protocol!r} is not a non-empty string, such as tcp or rdma")
        self.protocol = self.protocol.strip().lower()
        for name in REQUIRED:
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{name} must be a non-empty string, not {value!r}")
        try:
            for name in ("global_segment_size", "local_buffer_size"):
                setattr(self, name, _setup.parse_size(getattr(self, name), name))
            for name in ("enable_ssd_offload", "enable_client_http_server"):
                setattr(self, name, _setup.parse_bool(getattr(self, name), name))
        except _setup.Bad as e:
            raise ValueError(str(e)) from None
        try:
            self.client_http_port = int(self.client_http_port)
        except (TypeError, ValueError):
            raise ValueError(f"client_http_port: {self.client_http_port!r} is no port") from None
        if self.protocol not in PROTOCOLS:
            logger.warning('protocol "%s" is not known%s', self.protocol, _setup.nearest(self.protocol, PROTOCOLS))

    @staticmethod
    def from_file(file_path: str) -> "MooncakeConfig":
        """Settings of a JSON file.  rdma_devices is device_name, and master_server_addr is master_server_address."""
        with open(os.fspath(file_path), encoding="utf-8") as f:
            values = json.load(f)
        if not isinstance(values, dict):
            raise ValueError(f"{file_path}: a JSON object is expected")
        known = {}
        for key, value in values.items():
            name = ALIASES.get(key, key)
            if name in ENVIRONMENT:
                known[name] = value
            else:
                logger.warning('%s: unknown key "%s" is ignored%s', file_path, key,
                               _setup.nearest(key, list(ENVIRONMENT) + list(ALIASES)))
        for name in REQUIRED:
            if name not in known:
                raise ValueError(f"{file_path}: Missing required config field: {name}")
        for name in ("ssd_offload_path", "tenant_id", "credential"):
            if known.get(name) is None:
                known.pop(name, None)
            else:
                known[name] = str(known[name])
        return MooncakeConfig(**{**DEFAULTS, **known})

    @staticmethod
    def load_from_env() -> "MooncakeConfig":
        """Settings of the file that MOONCAKE_CONFIG_PATH names, else of the variables MOONCAKE_*, of which
        MOONCAKE_MASTER is required."""
        path = os.getenv("MOONCAKE_CONFIG_PATH")
        if path:
            return MooncakeConfig.from_file(path)
        if not os.getenv("MOONCAKE_MASTER"):
            raise ValueError("Neither the environment variable MOONCAKE_CONFIG_PATH (a file) nor MOONCAKE_MASTER "
                             "(the master's HOST:PORT) is set")
        found = {name: os.environ[variable] for name, variable in ENVIRONMENT.items() if variable in os.environ}
        return MooncakeConfig(**{**DEFAULTS, **found})


# upstream's names, which programs import
def _parse_segment_size(value):
    return _setup.parse_size(value, "segment size")


def _parse_bool(value):
    return _setup.parse_bool(value, "boolean")
