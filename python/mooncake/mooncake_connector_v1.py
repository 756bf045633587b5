# SPDX-License-Identifier: Apache-2.0
"""vLLM's own connector, for configurations that name this module:

    --kv-transfer-config '{"kv_connector": "MooncakeConnector", "kv_role": "kv_producer",
                           "kv_connector_module_path": "mooncake.mooncake_connector_v1"}'

vLLM has the connector itself; it runs on mooncake.engine."""

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.mooncake import mooncake_connector as _connector
except ImportError as _e:
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1 import mooncake_connector as _connector
    except ImportError:
        raise ImportError(f"mooncake.mooncake_connector_v1 is the connector that vLLM has, which cannot be "
                          f"imported: {_e}") from _e

__all__ = [name for name in dir(_connector)
           if getattr(getattr(_connector, name), "__module__", None) == _connector.__name__ and not name.startswith("_")]
globals().update({name: getattr(_connector, name) for name in __all__})
