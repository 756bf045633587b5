# SPDX-License-Identifier: Apache-2.0
"""Prefill to decode over the transfer engine: the sending side of a released engine writes blocks into
the memory of another process, which compares every byte.

p2p.py vllm|sglang: vLLM's MooncakeConnectorWorker, as it registers and sends; SGLang's
MooncakeTransferEngine and the MooncakeKVManager that sends through it; configured by the commands
in README.md.  Mocks replace the request queues above them, which need a model."""

import argparse
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import types

from case import payload, readme

BLOCK, BLOCKS = 64 << 10, 200


def command(marker, role):
    """Variables and arguments of the command for @role, one of the two in README.md after @marker."""
    words = shlex.split(readme(marker, "").splitlines()[("prefill", "decode").index(role)])
    program = next(i for i, word in enumerate(words) if "=" not in word)
    os.environ.update(word.split("=", 1) for word in words[:program])
    return words[program:]


def vllm_engine(role):
    words = command("vLLM, from prefill", role)
    from mooncake.engine import TransferEngine
    from vllm.config import KVTransferConfig
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.distributed.kv_transfer.kv_connector.v1.mooncake import mooncake_connector as m

    config = KVTransferConfig(**json.loads(words[words.index("--kv-transfer-config") + 1]))
    assert KVConnectorFactory.get_connector_class(config) is m.MooncakeConnector
    assert (config.is_kv_producer, config.is_kv_consumer) == (role == "prefill", role == "decode")
    assert m.TransferEngine is TransferEngine
    # the first part of MooncakeConnectorWorker.__init__, whose rest needs a GPU
    w = m.MooncakeConnectorWorker.__new__(m.MooncakeConnectorWorker)
    w.__class__ = type("Worker", (m.MooncakeConnectorWorker,), {"__del__": lambda self: None})
    w.engine = m.TransferEngine()
    more = config.kv_connector_extra_config
    assert w.engine.initialize("127.0.0.1", "P2PHANDSHAKE", more.get("mooncake_protocol", "rdma"), more.get("device_name", "")) == 0
    w.xfer_stats = m.MooncakeKVConnectorStats()
    return (f"127.0.0.1:{w.engine.get_rpc_port()}", lambda p, n: w.engine.batch_register_memory(p, n),
            lambda session, src, dst, n: w._send_blocks(session, src, dst, n))


def sglang_engine(role):
    words = command("SGLang, from prefill", role)
    from sglang.srt.disaggregation.utils import KVClassType, TransferBackend, get_kv_class
    from sglang.srt.distributed.device_communicators.mooncake_transfer_engine import MooncakeTransferEngine
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    args = parser.parse_args(words[2:])
    assert (words[:2], args.disaggregation_mode) == (["sglang", "serve"], role)
    kv_manager = get_kv_class(TransferBackend(args.disaggregation_transfer_backend), KVClassType.MANAGER)
    assert kv_manager.__name__ == "MooncakeKVManager"
    engine = MooncakeTransferEngine("127.0.0.1", ib_device=args.disaggregation_ib_device)
    manager = types.SimpleNamespace(engine=engine, enable_custom_mem_pool=False)
    return (engine.get_session_id(), engine.batch_register,
            lambda session, src, dst, n: kv_manager._transfer_data(manager, session, list(zip(src, dst, n))))


def memory():
    import memory as of

    return of.zeros(BLOCK * BLOCKS)


def decode(make):
    """Print the address of the memory, then check whether it has the blocks named on standard input."""
    out = os.dup(1)
    os.dup2(2, 1)
    session, register, _ = make("decode")
    tensor = memory()
    assert register([tensor.data_ptr()], [tensor.numel()]) == 0
    os.write(out, (json.dumps([session, tensor.data_ptr()]) + "\n").encode())
    for line in sys.stdin:
        names = json.loads(line)
        got = [bytes(tensor[i * BLOCK:(i + 1) * BLOCK].numpy()) == payload(n, BLOCK) if n else not tensor[
            i * BLOCK:(i + 1) * BLOCK].any().item() for i, n in enumerate(names)]
        os.write(out, (json.dumps(got) + "\n").encode())


def prefill(make, what):
    import torch

    _, register, send = make("prefill")
    tensor = memory()
    assert register([tensor.data_ptr()], [tensor.numel()]) == 0
    names = [f"block-{i}" for i in range(BLOCKS)]
    for i, name in enumerate(names):
        tensor[i * BLOCK:(i + 1) * BLOCK] = torch.frombuffer(bytearray(payload(name, BLOCK)), dtype=torch.uint8)
    with subprocess.Popen([sys.executable, __file__, what, "decode"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as child:
        try:
            session, base = json.loads(child.stdout.readline())
            # every other block, at its mirrored position
            src = [tensor.data_ptr() + i * BLOCK for i in range(0, BLOCKS, 2)]
            dst = [base + (BLOCKS - 1 - i) * BLOCK for i in range(0, BLOCKS, 2)]
            expect("send", send(session, src, dst, [BLOCK] * len(src)), 0)
            wanted = [names[BLOCKS - 1 - i] if i % 2 else "" for i in range(BLOCKS)]
            child.stdin.write(json.dumps(wanted) + "\n")
            child.stdin.flush()
            expect("payload", all(json.loads(child.stdout.readline())), True)
            print(f"ok {len(src)} blocks of {BLOCK} bytes, each where it belongs, nothing beside them", flush=True)
            bad = send(session, src[:1], [base + BLOCKS * BLOCK], [BLOCK])
            expect("a block beyond the peer's memory", bad < 0, True)
        finally:
            child.stdin.close()
        expect("how the peer ends", child.wait(60), 0)
    import memory as of

    of.report()
    expect("a peer that is gone", send(session, src[:1], dst[:1], [BLOCK]) < 0, True)
    print("ok wrong places and dead peers are errors", flush=True)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"FAILED: {what}: {got!r}, not {wanted!r}")


if __name__ == "__main__":
    kind = sys.argv[1]
    if importlib.util.find_spec(kind) is None:
        print(f"SKIP: {kind} is not installed")
        sys.exit(77)
    maker = {"vllm": vllm_engine, "sglang": sglang_engine}[kind]
    if sys.argv[2:] == ["decode"]:
        decode(maker)
    else:
        prefill(maker, kind)
