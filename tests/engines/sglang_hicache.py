# SPDX-License-Identifier: Apache-2.0
"""SGLang's HiCache storage back end MooncakeStore, with a host pool like that of its tests."""

import os

import torch

from case import payload, readme

PINS = ("sglang", "torch")
SIZE = 256 << 10		# of a page: K and V
PAGES = 32


class HostPool:
    """Interface of a pool that MooncakeStore needs in page_first layout: K and V of a page, each
    with one token."""

    def __init__(self):
        self.kv_buffer = torch.zeros(PAGES * SIZE, dtype=torch.uint8)
        self.layout = "page_first"
        self.page_size = 1

    def get_page_buffer_meta(self, indices):
        at = [self.kv_buffer.data_ptr() + int(i) * SIZE for i in indices]
        return [p + half for p in at for half in (0, SIZE // 2)], [SIZE // 2] * (2 * len(at))

    def get_ksize_per_token(self):
        return SIZE


class Engine:
    def __init__(self, master, role):
        # before the import, as at a server's start
        os.environ.update(pair.split("=", 1) for pair in readme("SGLang (", master).split())
        from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
        from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeStore

        self.store = MooncakeStore(HiCacheStorageConfig(
            tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
            enable_storage_metrics=False, is_page_first_layout=True, model_name="org/model", extra_config={"enable_group_semantics": True}))
        self.pool = HostPool()
        self.store.register_mem_pool_host(self.pool)

    def put(self, names):
        for i, name in enumerate(names):
            self.pool.kv_buffer[i * SIZE:(i + 1) * SIZE] = torch.frombuffer(bytearray(payload(name, SIZE)), dtype=torch.uint8)
        return self.store.batch_set_v1(names, torch.arange(len(names)))

    def exists(self, names):
        return [self.store.batch_exists([name]) == 1 for name in names]

    def get(self, names):
        self.pool.kv_buffer.zero_()
        found = self.store.batch_get_v1(names, torch.arange(len(names)))
        return [bytes(self.pool.kv_buffer[i * SIZE:(i + 1) * SIZE].numpy()) if ok else None for i, ok in enumerate(found)]
