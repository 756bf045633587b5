# SPDX-License-Identifier: Apache-2.0
"""Mooncake: the store for KV caches (mooncake.store) and the transfer engine (mooncake.engine)."""

from pkgutil import extend_path

# Other distributions may add modules below this name.
__path__ = extend_path(__path__, __name__)

__all__ = ["BufferPool", "RegisteredBufferPool", "MooncakeDistributedStore", "ReplicateConfig"]


def __getattr__(name):
    # On first use, so that importing one module does not load the others.
    if name in __all__:
        from mooncake import store

        return getattr(store, name)
    raise AttributeError(f"module 'mooncake' has no attribute '{name}'")
