# SPDX-License-Identifier: Apache-2.0
"""LMCache's remote connector with metadata next to each chunk: put_parts() and batch_get_buffer()."""

import lmcache_remote
from lmcache_remote import PINS, SIZE, Engine

lmcache_remote.META = True
__all__ = ["PINS", "SIZE", "Engine"]
