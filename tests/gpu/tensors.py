# SPDX-License-Identifier: Apache-2.0
"""tensors.py MASTER - torch tensors on a GPU: registered storage, the order of the default stream, whole tensors."""

import sys

import mooncake.store as ms
import torch

s = ms.MooncakeDistributedStore()
assert s.setup("127.0.0.1", "P2PHANDSHAKE", 256 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
a = torch.zeros(4 << 20, dtype=torch.float32, device="cuda:0")
b = torch.zeros_like(a)
nbytes = a.numel() * a.element_size()
for t in (a, b):
    assert s.register_buffer(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) == 0
for i in range(20):
    # the kernels that fill it may still be running when the put begins
    a.normal_()
    a.mul_(i + 1)
    assert s.put_from(f"torch-{i}", a.data_ptr(), nbytes) == 0
    b.zero_()
    assert s.get_into(f"torch-{i}", b.data_ptr(), nbytes) == nbytes
    assert torch.equal(a, b), i
for kind in (torch.bfloat16, torch.int8, torch.float64):
    t = (torch.rand(33, 65, device="cuda:0") * 100).to(kind)
    assert s.put_tensor(f"tensor-{kind}", t) == 0
    to = torch.empty_like(t)
    assert s.get_tensor_into_cuda(f"tensor-{kind}", to) == 0
    assert torch.equal(t, to)
    size = s.get_size(f"tensor-{kind}")
    raw = torch.empty(size, dtype=torch.uint8, device="cuda:0")
    got = s.get_tensor_into(f"tensor-{kind}", raw.data_ptr(), size)
    assert got.is_cuda and torch.equal(got, t)
    assert s.put_tensor_from(f"again-{kind}", raw.data_ptr(), size) == 0
    assert torch.equal(s.get_tensor(f"again-{kind}"), t.cpu())
s.close()
print("ok tensors on a GPU")
