# SPDX-License-Identifier: Apache-2.0
"""LMCache's L2 adapter mooncake_store: its C++ extension, compiled against include/mooncake/cxx by l2_extension.sh."""

import argparse
import importlib.util
import os
import select
import shlex
import sys

import torch

from case import payload, readme

PINS = ("lmcache", "torch")
SIZE = 256 << 10
if not os.path.exists(os.environ.get("MC_L2_EXTENSION", "")):
    PINS += ("lmcache.lmcache_mooncake",)


def load_extension():
    """Load lmcache.lmcache_mooncake, which is missing in the released wheel."""
    name = "lmcache.lmcache_mooncake"
    spec = importlib.util.spec_from_file_location(name, os.environ["MC_L2_EXTENSION"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module


class Engine:
    def __init__(self, master, role):
        load_extension()
        from lmcache.v1.distributed.l2_adapters.factory import create_l2_adapter_from_registry
        from lmcache.v1.distributed.config import add_storage_manager_args, parse_args_to_config

        program, command, *options = shlex.split(readme("LMCache's server", master))
        assert [program, command] == ["lmcache", "server"]
        parser = argparse.ArgumentParser()
        add_storage_manager_args(parser)
        config, = parse_args_to_config(parser.parse_args(options)).l2_adapter_config.adapters
        self.adapter = create_l2_adapter_from_registry(config, None)

    @staticmethod
    def keys(names):
        from hashlib import sha256

        from lmcache.v1.distributed.api import ObjectKey

        return [ObjectKey(chunk_hash=sha256(n.encode()).digest(), model_name="org/model", kv_rank=0) for n in names]

    @staticmethod
    def objects(names, fill):
        from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

        out = []
        for name in names:
            data = torch.frombuffer(bytearray(payload(name, SIZE) if fill else SIZE), dtype=torch.uint8)
            meta = MemoryObjMetadata(shape=torch.Size([SIZE]), dtype=torch.uint8, address=0, phy_size=SIZE,
                                     fmt=MemoryFormat.KV_2LTD, ref_count=1)
            out.append(TensorMemoryObj(data, meta, parent_allocator=None))
        return out

    @staticmethod
    def wait(fd):
        if not select.select([fd], [], [], 60)[0]:
            raise TimeoutError("no completion from the adapter")
        os.read(fd, 8)

    def finished(self, fd, ask):
        while True:
            self.wait(fd)
            got = ask()
            if got is not None:
                return got

    def put(self, names):
        # the caller must keep the objects until the task is done
        a, objects = self.adapter, self.objects(names, True)
        task = a.submit_store_task(self.keys(names), objects)
        return str(self.finished(a.get_store_event_fd(), lambda: a.pop_completed_store_tasks().get(task)))

    def exists(self, names):
        a, keys = self.adapter, self.keys(names)
        task = a.submit_lookup_and_lock_task(keys, {})
        bits = self.finished(a.get_lookup_and_lock_event_fd(), lambda: a.query_lookup_and_lock_result(task))
        a.submit_unlock([k for i, k in enumerate(keys) if bits.test(i)])
        return [bits.test(i) for i in range(len(names))]

    def get(self, names):
        a, objects = self.adapter, self.objects(names, False)
        task = a.submit_load_task(self.keys(names), objects)
        bits = self.finished(a.get_load_event_fd(), lambda: a.query_load_result(task))
        return [bytes(o.byte_array) if bits.test(i) else None for i, o in enumerate(objects)]
