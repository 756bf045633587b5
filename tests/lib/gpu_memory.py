# SPDX-License-Identifier: Apache-2.0
"""Device memory for Python tests: of the fake GPU (fake_cuda.h) when LD_LIBRARY_PATH leads to the fake driver, else of the
machine's."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
FAKE = hasattr(cuda, "fake_cuda_alias")
_ctx = ctypes.c_void_p()
_device = ctypes.c_int()


def _good(r):
    assert r == 0, f"the driver returns {r}"


_good(cuda.cuInit(0))
_good(cuda.cuDeviceGet(ctypes.byref(_device), 0))
_good(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(_ctx), _device))
_good(cuda.cuCtxPushCurrent_v2(_ctx))
if FAKE:
    cuda.fake_cuda_alias.restype = ctypes.c_void_p
    cuda.fake_cuda_alias.argtypes = [ctypes.c_uint64]
    cuda.fake_cuda_device_of.restype = ctypes.c_uint64
    cuda.fake_cuda_device_of.argtypes = [ctypes.c_void_p]
    cuda.fake_cuda_count.restype = ctypes.c_uint64
    cuda.fake_cuda_count.argtypes = [ctypes.c_char_p]


def alloc(size):
    """Address of device memory."""
    p = ctypes.c_uint64()
    _good(cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)))
    return p.value


def shadow(address, size):
    """The bytes at a device address of the fake GPU, writable, for the test only."""
    return (ctypes.c_char * size).from_address(cuda.fake_cuda_alias(address))


def fill(address, data):
    _good(cuda.cuMemcpy(ctypes.c_uint64(address), ctypes.c_char_p(bytes(data)), ctypes.c_size_t(len(data))))


def bytes_at(address, size):
    to = ctypes.create_string_buffer(size)
    _good(cuda.cuMemcpy(to, ctypes.c_uint64(address), ctypes.c_size_t(size)))
    return to.raw


def count(name):
    return cuda.fake_cuda_count(name.encode())


def settings(name, value):
    assert cuda.fake_cuda_set(name.encode(), str(value).encode()) == 0


def stream():
    """A stream of the program's."""
    p = ctypes.c_void_p()
    _good(cuda.cuStreamCreate(ctypes.byref(p), 0))
    return p.value


def copy(to, at, size, on):
    """Copy between device memory on a stream."""
    _good(cuda.cuMemcpyAsync(ctypes.c_uint64(to), ctypes.c_uint64(at), ctypes.c_size_t(size), ctypes.c_void_p(on)))


def synchronize(at):
    _good(cuda.cuStreamSynchronize(ctypes.c_void_p(at)))
