# SPDX-License-Identifier: Apache-2.0
"""Mooncake: the store for KV caches (mooncake.store) and the transfer engine (mooncake.engine)."""

import sys

# Other distributions may add modules below this name: as pkgutil.extend_path() does, whose import takes longer.
__path__ += [p for p in (f"{d}/mooncake" for d in sys.path if isinstance(d, str) and d)
             if p not in __path__ and __import__("os").path.isfile(f"{p}/__init__.py")]

__all__ = ["BufferPool", "RegisteredBufferPool", "MooncakeDistributedStore", "ReplicateConfig"]


def __getattr__(name):
    # On first use, so that importing one module does not load the others.
    if name in __all__:
        from mooncake import store

        return getattr(store, name)
    raise AttributeError(f"module 'mooncake' has no attribute '{name}'")
