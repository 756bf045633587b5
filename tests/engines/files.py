# SPDX-License-Identifier: Apache-2.0
"""The engines' own file back ends, unmodified, on two mounts of one pool: KINDS has them by the
names of run.sh. Each class names the parts that a mock replaces; all calls on files are the
engine's."""

import asyncio
import ctypes
import hashlib
import mmap
import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import torch

import lmcache_l2
import lmcache_remote
from case import mount_of, payload

SECONDS = 60


def tensor_of(name, size):
    return torch.frombuffer(bytearray(payload(name, size)), dtype=torch.uint8)


def until(what, condition):
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.001)


# ---- vLLM ----


class VllmFs:
    """The tier "fs" of TieringOffloadingSpec, with its C extension; a mock replaces the scheduler."""

    PINS = ("vllm", "vllm.fs_io_C", "torch")
    SIZE = 256 << 10
    BLOCKS = 16

    def __init__(self, master, role):
        from vllm.v1.kv_offload import base, config
        from vllm.v1.kv_offload.tiering.base import TransferJob
        from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

        self.base, self.transfer_job = base, TransferJob
        self.blocks = np.frombuffer(mmap.mmap(-1, self.BLOCKS * self.SIZE), dtype=np.uint8).reshape(self.BLOCKS, self.SIZE)
        groups = (config.OffloadingGroupConfig(tokens_per_block=16, layer_names=("layer.0",), group_id=0),)
        parallel = SimpleNamespace(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, rank=0, is_parallelism_agnostic=True)
        offloading = SimpleNamespace(
            groups=groups, model=config.OffloadingModelConfig("org/model", "bfloat16"), parallel=parallel,
            cache=config.OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
            canonical_layout=False, replicated_layout=False)
        spec = SimpleNamespace(config=offloading, blocks_per_chunk=1,
                               kv_events_config=SimpleNamespace(enable_kv_cache_events=False))
        self.tier = FileSystemTierManager(spec, memoryview(self.blocks), "fs", mount_of(role))
        # all later files are written in the mode of this probe, see tests/integ/file_backends.py
        assert self.tier._use_o_direct, "O_DIRECT was refused"
        self.jobs = 0

    def key(self, name):
        return self.base.make_offload_key(hashlib.sha256(name.encode()).digest(), 0)

    def run(self, submit, names, places, promotion):
        """Whether the job with these blocks succeeded."""
        self.jobs += 1
        submit(self.transfer_job(self.jobs, [self.key(n) for n in names], np.array(places), promotion,
                                 self.base.ReqContext(str(self.jobs))))
        self.tier.drain_jobs()
        (result,) = self.tier.get_finished_jobs()
        return result.success

    def put(self, names):
        for i, name in enumerate(names):
            self.blocks[i] = np.frombuffer(payload(name, self.SIZE), dtype=np.uint8)
        return self.run(self.tier.submit_store, names, range(len(names)), False)

    def exists(self, names):
        self.jobs += 1
        request = self.base.ReqContext(f"lookup-{self.jobs}")
        retry = self.base.LookupResult.RETRY
        found = {}

        def all_known():
            for name in names:
                if found.get(name, retry) == retry:
                    found[name] = self.tier.lookup(self.key(name), request)
            self.tier.on_schedule_end(None)
            return retry not in found.values()

        until("lookup", all_known)
        self.tier.on_request_finished(request)
        return [found[n] == self.base.LookupResult.HIT for n in names]

    def get(self, names):
        self.blocks[:] = 0
        return [bytes(self.blocks[i]) if self.run(self.tier.submit_load, [name], [i], True) else None
                for i, name in enumerate(names)]


class VllmExample:
    """ExampleConnector, a file of safetensors for each layer; a mock replaces the forward pass."""

    PINS = ("vllm", "safetensors", "torch")
    SIZE = 256 << 10
    LAYERS, TOKENS = 4, 16
    HEAD = SIZE // LAYERS // TOKENS

    def __init__(self, master, role):
        from vllm.config import KVTransferConfig
        from vllm.distributed.kv_transfer.kv_connector.v1 import example_connector as example
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        transfer = KVTransferConfig(kv_connector="ExampleConnector", kv_role="kv_both",
                                    kv_connector_extra_config={"shared_storage_path": mount_of(role)})
        config = SimpleNamespace(kv_transfer_config=transfer, cache_config=SimpleNamespace(block_size=self.TOKENS))
        self.example = example
        self.connector = example.ExampleConnector(config, KVConnectorRole.WORKER, None)
        # [blocks, heads, tokens, head]
        self.layers = {f"layer.{i}": torch.zeros((2, 1, self.TOKENS, self.HEAD), dtype=torch.uint8)
                       for i in range(self.LAYERS)}

    def tokens(self, name):
        """Prompt of one block and the tokens that the connector ignores."""
        return [int(b) for b in hashlib.sha256(name.encode()).digest()[:self.TOKENS + 2]]

    def bind(self, name, store):
        meta = self.example.ExampleConnectorMetadata()
        meta.add_request(self.tokens(name), [1, 0], self.TOKENS, store, [])
        self.connector.bind_connector_metadata(meta)

    def put(self, names):
        for name in names:
            data = tensor_of(name, self.SIZE).reshape(self.LAYERS, 1, self.TOKENS, self.HEAD)
            self.bind(name, True)
            for i, (layer, cache) in enumerate(self.layers.items()):
                cache[1] = data[i]
                self.connector.save_kv_layer(layer, cache, None)
            self.connector.wait_for_save()

    def exists(self, names):
        # the connector checks only the prompt's directory, which stays when its files are evicted
        return [self.connector.get_num_new_matched_tokens(
            SimpleNamespace(prompt_token_ids=self.tokens(n), mm_features=[]), 0)[0] == self.TOKENS and
            all(os.path.exists(p) for p in self.paths(n)) for n in names]

    def paths(self, name):
        tokens = torch.tensor(self.tokens(name))[:self.TOKENS]
        directory = self.connector._generate_foldername_debug(tokens, [])
        return [f"{directory}/{layer}.safetensors" for layer in self.layers]

    def get(self, names):
        out = []
        for name in names:
            for cache in self.layers.values():
                cache.zero_()
            self.bind(name, False)
            pass_ = SimpleNamespace(attn_metadata=dict.fromkeys(self.layers), no_compile_layers={
                layer: SimpleNamespace(kv_cache=cache) for layer, cache in self.layers.items()})
            try:
                self.connector.start_load_kv(pass_)
            except FileNotFoundError:
                out.append(None)
                continue
            out.append(b"".join(bytes(cache[1].flatten().numpy()) for cache in self.layers.values()))
        return out


# ---- SGLang ----


class Sglang:
    """HiCacheFile."""

    PINS = ("sglang", "torch")
    SIZE = 256 << 10
    EXTRA = {}

    def __init__(self, master, role):
        from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig

        self.file = HiCacheFile(HiCacheStorageConfig(
            tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
            enable_storage_metrics=False, is_page_first_layout=True, model_name="org/model", extra_config=self.EXTRA),
            file_path=mount_of(role))

    def put(self, names):
        if not self.file.batch_set(names, [tensor_of(n, self.SIZE) for n in names]):
            raise OSError("a page was not stored")

    def exists(self, names):
        return [self.file.exists(n) for n in names]

    def get(self, names):
        pages = self.file.batch_get(names, [torch.zeros(self.SIZE, dtype=torch.uint8) for _ in names])
        return [None if p is None else bytes(p.numpy()) for p in pages]


class SglangCapped(Sglang):
    """With the limits that it enforces by statvfs and file times."""

    EXTRA = {"max_size": "24MB", "min_free_space": "1MB"}


# ---- LMCache ----


class Lmcache:
    """Common part of its back ends."""

    PINS = ("lmcache", "torch")
    SIZE = lmcache_remote.SIZE
    EXTRA = {}
    keys = lmcache_remote.Engine.keys

    def __init__(self, master, role):
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

        r = lmcache_remote
        self.dir = mount_of(role)
        self.config = LMCacheEngineConfig.from_defaults(
            chunk_size=r.CHUNK, local_cpu=True, max_local_cpu_size=0.1, extra_config=dict(self.EXTRA), **self.of_config())
        self.meta = LMCacheMetadata(model_name="org/model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
                                    kv_dtype=torch.bfloat16, kv_shape=(r.LAYERS, 2, r.CHUNK, r.HEADS, r.HEAD),
                                    chunk_size=r.CHUNK)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.cpu = LocalCPUBackend(self.config, self.meta, dst_device="cpu")
        self.start()

    def of_config(self):
        return {}

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(SECONDS)

    def allocate(self, name):
        from lmcache.v1.memory_management import MemoryFormat

        memory = self.allocator().allocate(self.meta.get_shapes()[0], self.meta.get_dtypes()[0], MemoryFormat.KV_2LTD)
        memory.raw_tensor.view(torch.uint8).flatten()[:self.SIZE] = tensor_of(name, self.SIZE)
        return memory

    def allocator(self):
        return self.cpu

    def taken(self, memory):
        if memory is None:
            return None
        data = bytes(memory.raw_tensor.view(torch.uint8).flatten()[:self.SIZE].numpy())
        memory.ref_count_down()
        return data


class LmcacheFs(Lmcache):
    """FSConnector (fs://)."""

    EXTRA = {"save_chunk_meta": True}

    def start(self):
        from lmcache.v1.storage_backend.connector.fs_connector import FSConnector

        self.connector = FSConnector(self.loop, self.cpu, self.config, base_paths_str=self.dir)

    def put(self, names):
        for name, key in zip(names, self.keys(names)):
            memory = self.allocate(name)
            try:
                self.run(self.connector.put(key, memory))
            finally:
                memory.ref_count_down()

    def exists(self, names):
        return [self.run(self.connector.exists(k)) for k in self.keys(names)]

    def get(self, names):
        return [self.taken(self.run(self.connector.get(k))) for k in self.keys(names)]


class LmcacheFsDirect(LmcacheFs):
    EXTRA = {"save_chunk_meta": False, "fs_connector_use_odirect": True}


class LmcacheDisk(Lmcache):
    """LocalDiskBackend.  Its index in memory has only its own files: enter those of the other node."""

    def of_config(self):
        return {"local_disk": self.dir, "max_local_disk_size": 8}

    def start(self):
        from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend

        self.disk = LocalDiskBackend(self.config, self.loop, self.cpu, dst_device="cpu", metadata=self.meta)

    def put(self, names):
        keys = self.keys(names)
        for name, key in zip(names, keys):
            memory = self.allocate(name)
            self.disk.submit_put_task(key, memory)
            memory.ref_count_down()
        until("puts", lambda: not any(self.disk.exists_in_put_tasks(k) for k in keys))

    def exists(self, names):
        return [os.path.exists(self.disk._key_to_path(k)) for k in self.keys(names)]

    def get(self, names):
        out = []
        for name, key, there in zip(names, self.keys(names), self.exists(names)):
            # for a missing file it returns its buffer unchanged
            if not there:
                out.append(None)
                continue
            if not self.disk.contains(key):
                memory = self.allocate(name)
                meta = memory.metadata
                self.disk.insert_key(key, memory.get_physical_size(), meta.shape, meta.dtype, meta.fmt)
                memory.raw_tensor.zero_()
                memory.ref_count_down()
            out.append(self.taken(self.disk.get_blocking(key)))
        return out


class LmcacheDiskDirect(LmcacheDisk):
    EXTRA = {"use_odirect": True}


class LmcacheGds(Lmcache):
    """GdsBackend without GDS: files through mappings.  Host memory replaces the GPU's, and C's
    memcpy the GPU's."""

    PINS = ("lmcache", "aiofile", "torch")

    def of_config(self):
        return {"gds_path": self.dir, "gds_buffer_size": 64, "use_gds": False}

    def start(self):
        from lmcache.v1.memory_allocators.gpu_memory_allocator import GPUMemoryAllocator
        from lmcache.v1.storage_backend import gds_backend

        def memcpy(to, source, size, kind):
            ctypes.memmove(to, source, size.value)
            return 0

        class Backend(gds_backend.GdsBackend):
            def initialize_allocator(self, config, metadata):
                allocator = GPUMemoryAllocator(config.gds_buffer_size << 20, "cpu", align_bytes=4096)
                allocator.base_pointer = allocator.tensor.data_ptr()
                return allocator

        gds_backend._load_gpu_memcpy = lambda: memcpy
        self.gds = Backend(self.config, self.meta, self.loop, "cuda")
        self.gds._scan_metadata_future.result(SECONDS)

    def allocator(self):
        return self.gds

    def put(self, names):
        # when the future is done the data is stored; the index is updated a moment later
        for name, key in zip(names, self.keys(names)):
            memory = self.allocate(name)
            self.gds.submit_put_task(key, memory).result(SECONDS)
            memory.ref_count_down()
        until("metadata", lambda: not self.gds.save_metadata_tasks)
        missing = [n for n, k in zip(names, self.keys(names)) if not self.gds.contains(k)]
        if missing:
            raise OSError(f"not stored: {missing}")

    def exists(self, names):
        # start with an empty index like a new process: files in the old one may have been evicted
        self.gds.hot_cache.clear()
        return [self.gds.contains(k) and os.path.exists(self.gds._key_to_path(k)[0]) for k in self.keys(names)]

    def get(self, names):
        return [self.taken(self.gds.get_blocking(k)) if self.gds.contains(k) else None for k in self.keys(names)]


class LmcacheL2(lmcache_l2.Engine):
    """L2 adapter "fs" of the multi-process mode."""

    PINS = ("lmcache", "aiofiles", "torch")
    SIZE = lmcache_l2.SIZE
    CONFIG = {"type": "fs"}

    def __init__(self, master, role):
        from lmcache.v1.distributed.l2_adapters import fs_l2_adapter, fs_native_l2_adapter
        from lmcache.v1.distributed.l2_adapters.factory import create_l2_adapter_from_registry

        kind = {"fs": fs_l2_adapter.FSL2AdapterConfig, "fs_native": fs_native_l2_adapter.FSNativeL2AdapterConfig}
        self.adapter = create_l2_adapter_from_registry(
            kind[self.CONFIG["type"]].from_dict({**self.CONFIG, "base_path": mount_of(role)}), None)


    @classmethod
    def objects(cls, names, fill):
        """In page-aligned memory, as O_DIRECT requires."""
        out = super().objects(names, fill)
        for o in out:
            memory = torch.frombuffer(mmap.mmap(-1, cls.SIZE), dtype=torch.uint8)
            memory[:] = o.raw_data
            o.raw_data = memory
        return out


class LmcacheL2Direct(LmcacheL2):
    CONFIG = {"type": "fs", "use_odirect": True}


class LmcacheL2Native(LmcacheL2):
    """Same in C++."""

    PINS = ("lmcache.lmcache_fs", "torch")
    CONFIG = {"type": "fs_native"}


class LmcacheL2NativeDirect(LmcacheL2Native):
    CONFIG = {"type": "fs_native", "use_odirect": True}


KINDS = {
    "vllm_fs": VllmFs, "vllm_example": VllmExample, "sglang": Sglang, "sglang_capped": SglangCapped,
    "lmcache_fs": LmcacheFs, "lmcache_fs_direct": LmcacheFsDirect, "lmcache_disk": LmcacheDisk,
    "lmcache_disk_direct": LmcacheDiskDirect, "lmcache_gds": LmcacheGds, "lmcache_l2_fs": LmcacheL2,
    "lmcache_l2_fs_direct": LmcacheL2Direct, "lmcache_l2_native": LmcacheL2Native,
    "lmcache_l2_native_direct": LmcacheL2NativeDirect,
}
