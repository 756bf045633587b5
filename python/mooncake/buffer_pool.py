# SPDX-License-Identifier: Apache-2.0
"""BufferPool under the name of its module."""

from mooncake.store import BufferPool, RegisteredBufferPool

__all__ = ["BufferPool", "RegisteredBufferPool"]
