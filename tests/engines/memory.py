# SPDX-License-Identifier: Apache-2.0
"""Memory for a KV cache: tensors of the host, or with MC_ENGINES_GPU=1 of the fake GPU (tests/lib/fake_cuda.h).

The elements of a fake GPU's tensor are at an address that only the test may use, so torch can read and write them as those
of a host tensor.  data_ptr() gives the engine the device address, which nothing but a copy by the driver can access."""

import os
import sys

import torch

FAKE = os.environ.get("MC_ENGINES_GPU") == "1"
LOCATION = "cuda:0" if FAKE else "cpu:0"

if FAKE:
    sys.path.insert(0, os.path.join(os.environ["top_srcdir"], "tests", "lib"))
    import gpu_memory as gpu

    def _as_device(kind):
        plain = kind.data_ptr

        def data_ptr(self):
            at = plain(self)
            return gpu.cuda.fake_cuda_device_of(at) or at

        kind.data_ptr = data_ptr

    _as_device(torch.Tensor)
    _as_device(torch.UntypedStorage)


def zeros(*shape):
    """A tensor of bytes."""
    size = 1
    for n in shape:
        size *= n
    if not FAKE:
        return torch.zeros(shape, dtype=torch.uint8)
    tensor = torch.frombuffer(gpu.shadow(gpu.alloc(size), size), dtype=torch.uint8).reshape(shape)
    assert tensor.data_ptr() != gpu.cuda.fake_cuda_alias(tensor.data_ptr())
    return tensor


def report():
    """Say how much was copied between host and fake GPU."""
    if FAKE:
        moved = gpu.count("bytes_to_host") + gpu.count("bytes_to_device")
        assert moved, "nothing was copied from or to the GPU"
        print(f"ok the GPU's driver copied {moved} bytes, pageable: {gpu.count('pageable')}", flush=True)
