# SPDX-License-Identifier: Apache-2.0
"""LMCache's remote connector mooncakestore://, without metadata (zero-copy) or, as
lmcache_remote_meta, with metadata."""

import asyncio
import json
import threading

import torch

from case import payload, readme

PINS = ("lmcache", "torch")
CHUNK, LAYERS, HEADS, HEAD = 256, 2, 4, 32
SIZE = LAYERS * 2 * CHUNK * HEADS * HEAD * 2
META = False


class Engine:
    def __init__(self, master, role):
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.storage_backend.connector.mooncakestore_connector import MooncakestoreConnector
        from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

        # extra_config of lmcache.yaml
        extra = {**json.loads(readme("LMCache:", master)), "transfer_timeout": 30, "save_chunk_meta": META}
        config = LMCacheEngineConfig.from_defaults(chunk_size=CHUNK, local_cpu=True, max_local_cpu_size=0.25,
                                                   extra_config=extra, remote_url="mooncakestore://127.0.0.1:1/")
        meta = LMCacheMetadata(model_name="org/model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
                               kv_dtype=torch.bfloat16, kv_shape=(LAYERS, 2, CHUNK, HEADS, HEAD), chunk_size=CHUNK)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.cpu = LocalCPUBackend(config, meta, dst_device="cpu")
        self.connector = MooncakestoreConnector(self.loop, self.cpu, config)

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(100)

    def keys(self, names):
        from lmcache.utils import CacheEngineKey

        return [CacheEngineKey("org/model", 1, 0, hash_of(name), torch.bfloat16) for name in names]

    def put(self, names):
        c, objects = self.connector, []
        for name in names:
            memory = self.cpu.allocate(c.meta_shapes, c.meta_dtypes, c.meta_fmt)
            memory.raw_tensor.view(torch.uint8).flatten()[:SIZE] = torch.frombuffer(bytearray(payload(name, SIZE)),
                                                                                     dtype=torch.uint8)
            objects.append(memory)
        try:
            self.run(c.batched_put(self.keys(names), objects))
        finally:
            for memory in objects:
                memory.ref_count_down()

    def exists(self, names):
        return [bool(self.run(self.connector.exists(key))) for key in self.keys(names)]

    def get(self, names):
        out = []
        for memory in self.run(self.connector.batched_get(self.keys(names))):
            if memory is None:
                out.append(None)
                continue
            out.append(bytes(memory.byte_array)[:SIZE])
            memory.ref_count_down()
        return out


def hash_of(name):
    import hashlib

    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 1
