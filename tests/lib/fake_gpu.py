# SPDX-License-Identifier: Apache-2.0
"""Memory of the fake GPU (fake_cuda.h) for Python tests; LD_LIBRARY_PATH leads to the fake driver."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
_ctx = ctypes.c_void_p()
_device = ctypes.c_int()
for _r in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(_device), 0),
           cuda.cuDevicePrimaryCtxRetain(ctypes.byref(_ctx), _device), cuda.cuCtxPushCurrent_v2(_ctx)):
    assert _r == 0, _r
cuda.fake_cuda_alias.restype = ctypes.c_void_p
cuda.fake_cuda_alias.argtypes = [ctypes.c_uint64]
cuda.fake_cuda_device_of.restype = ctypes.c_uint64
cuda.fake_cuda_device_of.argtypes = [ctypes.c_void_p]
cuda.fake_cuda_count.restype = ctypes.c_uint64
cuda.fake_cuda_count.argtypes = [ctypes.c_char_p]


def alloc(size):
    """Address of device memory."""
    p = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)) == 0
    return p.value


def shadow(address, size):
    """The bytes at a device address, writable, for the test only."""
    return (ctypes.c_char * size).from_address(cuda.fake_cuda_alias(address))


def fill(address, data):
    ctypes.memmove(cuda.fake_cuda_alias(address), data, len(data))


def bytes_at(address, size):
    return ctypes.string_at(cuda.fake_cuda_alias(address), size)


def count(name):
    return cuda.fake_cuda_count(name.encode())


def settings(name, value):
    assert cuda.fake_cuda_set(name.encode(), str(value).encode()) == 0


def stream():
    """A stream of the program's."""
    p = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(p), 0) == 0
    return p.value


def synchronize(at):
    assert cuda.cuStreamSynchronize(ctypes.c_void_p(at)) == 0
