# SPDX-License-Identifier: Apache-2.0
"""vLLM's MooncakeStoreConnector: its configuration, key layout, and the sending and receiving
threads of its worker. A mock replaces the coordinator, which knows the model's layers."""

import hashlib
import os
import tempfile
import threading

import torch

import memory
from case import payload, readme

PINS = ("vllm", "torch")
LAYERS, BLOCKS, TOKENS = 4, 32, 16
SIZE = 256 << 10
PIECE = SIZE // LAYERS		# of a block in one layer


class Coordinator:
    """One group with full attention: every block counts."""

    lcm_block_size = TOKENS

    @staticmethod
    def store_mask(token_len, save_start, num_prompt_tokens=None):
        return [[True] * ((token_len - save_start) // TOKENS)]

    @staticmethod
    def load_mask(block_hashes, token_len):
        return [[True] * (token_len // TOKENS)]


class Engine:
    def __init__(self, master, role):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as f:
            f.write(readme("vLLM (", master))
        os.environ["MOONCAKE_CONFIG_PATH"] = f.name
        from mooncake.store import MooncakeDistributedStore, ReplicateConfig
        from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store import data, worker
        from vllm.distributed.mooncake_store import MooncakeStoreConfig, setup_mooncake_store

        self.data = data
        self.store = MooncakeDistributedStore()
        setup_mooncake_store(self.store, MooncakeStoreConfig.load_from_config(), "127.0.0.1")
        os.unlink(f.name)
        self.caches = [memory.zeros(BLOCKS, PIECE) for _ in range(LAYERS)]
        for cache in self.caches:
            assert self.store.register_buffer(cache.data_ptr(), cache.numel()) == 0
        self.db = data.ChunkedTokenDatabase(data.KeyMetadata("model", 0, 0, 0, 0), TOKENS)
        self.db.store_layout.register_kv_caches(self.caches, BLOCKS)
        coordinator = Coordinator()
        ready = [threading.Event(), threading.Event()]
        self.sender = worker.KVCacheStoreSendingThread(
            self.store, coordinator, [self.db], TOKENS, 0, [1], "kv_both", ready[0], replicate_config=ReplicateConfig(),
            enable_group_semantics=True, supports_group_ids=True)
        self.receiver = worker.KVCacheStoreRecvingThread(self.store, coordinator, [self.db], TOKENS, 0, ready[1])
        self.sender.start()
        self.receiver.start()
        self.jobs = 0

    def request(self, names, **more):
        self.jobs += 1
        return self.data.ReqMeta(f"request-{self.jobs}", len(names) * TOKENS, (list(range(1, len(names) + 1)),),
                                 [hashlib.sha256(n.encode()).digest() for n in names], **more)

    def put(self, names):
        for i, name in enumerate(names):
            block = torch.frombuffer(bytearray(payload(name, SIZE)), dtype=torch.uint8)
            for layer, cache in enumerate(self.caches):
                cache[i + 1] = block[layer * PIECE:(layer + 1) * PIECE]
        request = self.request(names, can_save=True, store_job_id=self.jobs + 1)
        self.sender.add_request(request)
        self.sender.request_queue.join()
        self.sender.delete_finished_stored_request(request.req_id)

    def exists(self, names):
        # same query as in MooncakeStoreWorker.lookup()
        keys = [self.db.key_for(hashlib.sha256(n.encode()).digest()) for n in names]
        return [r == 1 for r in self.store.batch_is_exist(keys)]

    def get(self, names):
        for cache in self.caches:
            cache.zero_()
        self.receiver.add_request(self.request(
            names, load_spec=self.data.LoadSpec(0, len(names) * TOKENS, True, len(names) * TOKENS)))
        self.receiver.request_queue.join()
        failed = self.receiver.get_and_clear_block_ids_with_load_errors()
        return [None if i + 1 in failed else b"".join(bytes(cache[i + 1].numpy()) for cache in self.caches)
                for i in range(len(names))]
