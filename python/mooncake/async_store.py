# SPDX-License-Identifier: Apache-2.0
"""MooncakeDistributedStoreAsync: every method of the store also as a coroutine, async_<method>."""

import asyncio
import functools

from mooncake.store import MooncakeDistributedStore


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """A store whose async_<method>(...) runs <method>(...) in the event loop's default executor."""

    def __getattr__(self, name):
        if not name.startswith("async_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        plain = name[len("async_"):]
        try:
            method = getattr(self, plain)
        except AttributeError:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}' (nor '{plain}')") from None

        @functools.wraps(method)
        async def call(*args, **kwargs):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, functools.partial(method, *args, **kwargs))

        return call
