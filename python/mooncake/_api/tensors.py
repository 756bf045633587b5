# SPDX-License-Identifier: Apache-2.0
"""Tensors: objects with a header of 304 bytes (type and shape), followed by the elements in C order.

Tensors to store are torch tensors or objects with a buffer (numpy arrays, memoryviews).  Reads return a torch tensor if
torch can be imported, else a numpy array if numpy can, else a memoryview of that type and shape."""

import copy
import ctypes
import math
import struct

from mooncake import _setup, _store

INVALID_PARAMS = -600
NO_OBJECT = -704

MAGIC = 0x4D4F4F4E
VERSION = 1
HEADER = 304
DIMS_MAX = 8
FULL, SHARD = 0, 1
# Magic, version, header length, type, dimensions, layout, axes, offset and bytes of the elements; the shape of the whole
# tensor and of this piece; the axes follow.
_FIXED = struct.Struct("<IHHiiiiQQ8q8q")
AXIS = struct.Struct("<8i")
AXES_MAX = 4

# Name (torch), bytes, name (safetensors), name (numpy), format of a buffer.  The index is the number in the header.
TYPES = (
    ("float32", 4, "F32", "float32", "f"), ("float64", 8, "F64", "float64", "d"), ("int8", 1, "I8", "int8", "b"),
    ("uint8", 1, "U8", "uint8", "B"), ("int16", 2, "I16", "int16", "h"), ("uint16", 2, "U16", "uint16", "H"),
    ("int32", 4, "I32", "int32", "i"), ("uint32", 4, "U32", "uint32", "I"), ("int64", 8, "I64", "int64", "q"),
    ("uint64", 8, "U64", "uint64", "Q"), ("bool", 1, "BOOL", "bool", "?"), ("float16", 2, "F16", "float16", "e"),
    ("bfloat16", 2, "BF16", None, "H"), ("float8_e4m3fn", 1, "F8_E4M3", None, "B"),
    ("float8_e5m2", 1, "F8_E5M2", None, "B"),
)
_BY_NAME = {t[0]: i for i, t in enumerate(TYPES)}
_BY_SAFE = {t[2]: i for i, t in enumerate(TYPES)}
# "l" and "L" are 64 bits on supported machines; a "c" is a byte
_BY_FORMAT = {**{t[4]: i for i, t in reversed(list(enumerate(TYPES)))}, "l": 8, "L": 9, "c": 3}


def _module(name):
    """A module, or None when it cannot be imported."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class Header:
    """The header of a tensor object."""

    __slots__ = ("code", "shape", "whole", "layout", "axes")

    def __init__(self, code, shape, whole=None, layout=FULL, axes=()):
        self.code = code
        self.shape = tuple(shape)
        self.whole = self.shape if whole is None else tuple(whole)
        self.layout = layout
        self.axes = tuple(axes)

    @property
    def nbytes(self):
        return math.prod(self.shape) * TYPES[self.code][1]

    def pack(self):
        def dims(shape):
            return tuple(shape) + (-1,) * (DIMS_MAX - len(shape))

        fixed = _FIXED.pack(MAGIC, VERSION, HEADER, self.code, len(self.shape), self.layout, len(self.axes), HEADER,
                            self.nbytes, *dims(self.whole), *dims(self.shape))
        return (fixed + b"".join(AXIS.pack(*a) for a in self.axes)).ljust(HEADER, b"\0")

    @classmethod
    def unpack(cls, data, size):
        """Parse the first bytes of an object of @size bytes; None if they are not a valid header."""
        if size < HEADER or len(data) < HEADER:
            return None
        magic, version, length, code, ndim, layout, n_axes, at, nbytes, *dims = _FIXED.unpack_from(data)
        if (magic, version, length, at) != (MAGIC, VERSION, HEADER, HEADER) or not 0 <= code < len(TYPES):
            return None
        if not 0 <= ndim <= DIMS_MAX or layout not in (FULL, SHARD) or not 0 <= n_axes <= AXES_MAX:
            return None
        whole, shape = dims[:ndim], dims[DIMS_MAX:DIMS_MAX + ndim]
        if any(d < 0 for d in whole + shape):
            return None
        axes = [AXIS.unpack_from(data, _FIXED.size + i * AXIS.size) for i in range(n_axes)]
        found = cls(code, shape, whole, layout, axes)
        return found if found.nbytes == nbytes and nbytes <= size - HEADER else None


class Elements:
    """The elements of a tensor, in C order at an address; keeps their memory alive."""

    __slots__ = ("header", "address", "nbytes", "_held")

    def __init__(self, header, address, held):
        self.header = header
        self.address = address
        self.nbytes = header.nbytes
        self._held = held


def _of_torch(tensor):
    import torch

    name = str(tensor.dtype).rpartition(".")[2]
    code = _BY_NAME.get(name)
    shape = tuple(tensor.shape)
    if code is None or len(shape) > DIMS_MAX:
        return None
    flat = tensor.detach()
    if flat.device.type != "cpu":
        flat = flat.cpu()
    # the memory of a lazily conjugated or negated tensor has other values
    flat = torch.resolve_neg(torch.resolve_conj(flat)).contiguous()
    return Elements(Header(code, shape), flat.data_ptr(), flat)


def _of_buffer(obj):
    view = memoryview(obj)
    code = _BY_FORMAT.get(view.format.lstrip("@=<"))
    if code is None or view.ndim > DIMS_MAX or TYPES[code][1] != view.itemsize:
        return None
    shape = tuple(view.shape)
    if not math.prod(shape):
        return Elements(Header(code, shape), 0, None)
    if not view.c_contiguous or view.readonly:
        copy = bytearray(view.tobytes())
        raw = (ctypes.c_char * len(copy)).from_buffer(copy)
    else:
        raw = (ctypes.c_char * view.nbytes).from_buffer(view)
    return Elements(Header(code, shape), ctypes.addressof(raw), (raw, view))


def elements(tensor):
    """The elements of @tensor; None if it is not a tensor."""
    kind = type(tensor)
    if kind is Elements:
        return tensor
    if kind.__module__.partition(".")[0] == "torch" or hasattr(tensor, "data_ptr"):
        try:
            return _of_torch(tensor)
        except (AttributeError, ImportError, RuntimeError, TypeError):
            return None
    try:
        return _of_buffer(tensor)
    except (TypeError, ValueError, BufferError, NotImplementedError):
        return None


def tensor_of(header, memory):
    """A tensor over the writable buffer @memory, which begins with the header."""
    name, _, _, array, fmt = TYPES[header.code]
    torch = _module("torch")
    if torch is not None:
        kind = getattr(torch, name)
        if not header.nbytes:
            return torch.empty(header.shape, dtype=kind)
        flat = torch.frombuffer(memory, dtype=torch.uint8, offset=HEADER, count=header.nbytes)
        return flat.view(kind).reshape(header.shape)
    numpy = _module("numpy")
    if numpy is not None and array is not None:
        return numpy.frombuffer(memory, dtype=array, offset=HEADER,
                                count=math.prod(header.shape)).reshape(header.shape)
    flat = memoryview(memory).cast("B")[HEADER:HEADER + header.nbytes]
    return flat.cast(fmt, header.shape) if header.nbytes and header.shape else flat.cast(fmt)


def memory_at(address, size):
    return (ctypes.c_char * size).from_address(address)


class _OnGpu:
    """Bytes in the memory of a GPU, for torch."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "strides": None,
                                         "version": 3}


def tensor_at(header, address, size):
    """A tensor over the memory of the caller, which begins with the header."""
    gpu = _store.gpu_of(address)
    if gpu < 0:
        return tensor_of(header, memory_at(address, size))
    import torch

    kind = getattr(torch, TYPES[header.code][0])
    if not header.nbytes:
        return torch.empty(header.shape, dtype=kind, device=f"cuda:{gpu}")
    flat = torch.as_tensor(_OnGpu(address + HEADER, header.nbytes), device=f"cuda:{gpu}")
    return flat.view(kind).reshape(header.shape)


def bytes_of(found):
    """The bytes of Elements: over their memory, or a copy of a GPU's."""
    if not found.nbytes:
        return memoryview(b"")
    if _store.gpu_of(found.address) >= 0:
        return memoryview(_store.peek(found.address, found.nbytes))
    return memoryview(memory_at(found.address, found.nbytes)).cast("B")


def _read_file(path):
    """Header and elements of a safetensors file: {name: (code, shape, begin, end)}, bytes."""
    import json
    import os

    # fspath() rejects an int, which open() would treat as a descriptor and close
    with open(os.fspath(path), "rb") as f:
        data = f.read()
    if len(data) < 8:
        raise ValueError(f"{path}: not a safetensors file")
    n = int.from_bytes(data[:8], "little")
    if n > len(data) - 8:
        raise ValueError(f"{path}: not a safetensors file")
    names, out = json.loads(data[8:8 + n]), {}
    body = memoryview(data)[8 + n:]
    for name, about in names.items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        code = _BY_SAFE.get(about["dtype"])
        shape = tuple(about["shape"])
        if code is None or len(shape) > DIMS_MAX or any(not isinstance(d, int) or d < 0 for d in shape) or not (
                0 <= begin <= end <= len(body)) or math.prod(shape) * TYPES[code][1] != end - begin:
            raise ValueError(f"{path}: tensor {name!r} is damaged or of a type that is not supported")
        out[name] = (code, shape, begin, end)
    return out, body


def _write_file(path, name, header, data):
    import json
    import os

    about = json.dumps({name: {"dtype": TYPES[header.code][2], "shape": list(header.shape),
                               "data_offsets": [0, header.nbytes]}}).encode()
    about += b" " * (-len(about) % 8)
    path = os.fsdecode(path)
    # Write directly to a device or pipe instead of replacing it with a file.
    inplace = os.path.exists(path) and not os.path.isfile(path)
    part = path if inplace else f"{path}.part.{os.getpid()}"
    try:
        with open(part, "wb") as f:
            f.write(len(about).to_bytes(8, "little") + about)
            f.write(data)
        if not inplace:
            os.replace(part, path)
    except OSError:
        if not inplace and os.path.exists(part):
            os.unlink(part)
        raise


def with_groups(config, groups):
    """A copy of @config with these groups."""
    own = copy.copy(config)
    own.group_ids = groups
    return own


def one_each(config, n):
    """@config for each of n keys, with the key's group; None if the number of groups differs."""
    groups = getattr(config, "group_ids", None)
    if groups is None:
        return [config] * n
    return [with_groups(config, [g]) for g in groups] if len(groups) == n else None


def for_pieces(config, n):
    """@config of one key, for the n objects that store it."""
    groups = getattr(config, "group_ids", None)
    return config if groups is None else with_groups(config, groups * n)


class Tensors:
    """The methods of MooncakeDistributedStore for whole tensors."""

    # ---- writing ----

    def _tensor_put(self, keys, found, config, upsert):
        """Store Elements under keys; None among them is -600."""
        config = self._config_type() if config is None else config
        results = [INVALID_PARAMS] * len(keys)
        each = one_each(config, len(keys))
        if each is None:
            return results
        there = [i for i, e in enumerate(found) if e is not None]
        heads = {i: ctypes.create_string_buffer(found[i].header.pack(), HEADER) for i in there}
        if upsert:
            for i in there:
                results[i] = self.upsert_parts(keys[i], heads[i],
                                               memory_at(found[i].address, found[i].nbytes) if found[i].nbytes else b"",
                                               config=each[i])
            return results
        ptrs, sizes = [], []
        for i in there:
            more = bool(found[i].nbytes)
            ptrs.append([ctypes.addressof(heads[i])] + [found[i].address] * more)
            sizes.append([HEADER] + [found[i].nbytes] * more)
        if there:
            groups = getattr(config, "group_ids", None)
            if groups is not None:
                config = with_groups(config, [groups[i] for i in there])
            for i, r in zip(there, self.batch_put_from_multi_buffers([keys[i] for i in there], ptrs, sizes, config)):
                results[i] = r
        return results

    def _tensor_batch(self, keys, tensors, config, upsert):
        keys, tensors = list(keys), list(tensors)
        if len(keys) != len(tensors):
            return [INVALID_PARAMS] * len(keys)
        return self._tensor_put(keys, [elements(t) for t in tensors], config, upsert)

    def put_tensor(self, key, tensor):
        """put_tensor(key: str, tensor) -> int

        Store a tensor.  0, also if the key exists and keeps its value; -600 if the value is not a tensor."""
        return self._tensor_batch([key], [tensor], None, False)[0]

    def pub_tensor(self, key, tensor, config=None):
        """pub_tensor(key: str, tensor, config: ReplicateConfig = None) -> int

        put_tensor() with a configuration."""
        return self._tensor_batch([key], [tensor], config, False)[0]

    def upsert_tensor(self, key, tensor):
        """upsert_tensor(key: str, tensor) -> int

        Store a tensor, replacing the key's value.  0, or a negative code."""
        return self._tensor_batch([key], [tensor], None, True)[0]

    def upsert_pub_tensor(self, key, tensor, config=None):
        """upsert_pub_tensor(key: str, tensor, config: ReplicateConfig = None) -> int

        upsert_tensor() with a configuration."""
        return self._tensor_batch([key], [tensor], config, True)[0]

    def batch_put_tensor(self, keys, tensors_list):
        """batch_put_tensor(keys: list[str], tensors_list: list) -> list[int]

        put_tensor() of each; all -600 if the lists differ in length."""
        return self._tensor_batch(keys, tensors_list, None, False)

    def batch_pub_tensor(self, keys, tensors_list, config=None):
        """batch_pub_tensor(keys: list[str], tensors_list: list, config: ReplicateConfig = None) -> list[int]

        pub_tensor() of each."""
        return self._tensor_batch(keys, tensors_list, config, False)

    def batch_upsert_tensor(self, keys, tensors_list):
        """batch_upsert_tensor(keys: list[str], tensors_list: list) -> list[int]

        upsert_tensor() of each."""
        return self._tensor_batch(keys, tensors_list, None, True)

    def batch_upsert_pub_tensor(self, keys, tensors_list, config=None):
        """batch_upsert_pub_tensor(keys: list[str], tensors_list: list, config: ReplicateConfig = None) -> list[int]

        upsert_pub_tensor() of each."""
        return self._tensor_batch(keys, tensors_list, config, True)

    # ---- from and into memory that begins with the header ----

    @staticmethod
    def _elements_at(address, size):
        """Elements of the tensor object in memory at an address; None if it is not a valid one."""
        if not isinstance(address, int) or not isinstance(size, int):
            raise TypeError("addresses and sizes must be int")
        if size < HEADER or not 0 < address < 1 << 64 or size >= 1 << 64 or not _store.mapped(address, size):
            return None
        header = Header.unpack(_store.peek(address, HEADER), size)
        return None if header is None else Elements(header, address + HEADER, None)

    def _from_batch(self, keys, buffer_ptrs, sizes, upsert):
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID_PARAMS] * len(keys)
        found = [self._elements_at(p, n) for p, n in zip(buffer_ptrs, sizes)]
        return self._tensor_put(list(keys), found, None, upsert)

    def put_tensor_from(self, key, buffer_ptr, size):
        """put_tensor_from(key: str, buffer_ptr: int, size: int) -> int

        Store the tensor at an address, in the format of get_tensor_into(): header, elements.  0; -600 without a valid
        header."""
        return self._from_batch([key], [buffer_ptr], [size], False)[0]

    def upsert_tensor_from(self, key, buffer_ptr, size):
        """upsert_tensor_from(key: str, buffer_ptr: int, size: int) -> int

        As put_tensor_from(), but replaces the key's value."""
        return self._from_batch([key], [buffer_ptr], [size], True)[0]

    def batch_put_tensor_from(self, keys, buffer_ptrs, sizes):
        """batch_put_tensor_from(keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]

        put_tensor_from() of each."""
        return self._from_batch(keys, buffer_ptrs, sizes, False)

    def batch_upsert_tensor_from(self, keys, buffer_ptrs, sizes):
        """batch_upsert_tensor_from(keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]

        upsert_tensor_from() of each."""
        return self._from_batch(keys, buffer_ptrs, sizes, True)

    # ---- reading ----

    def get_tensor(self, key):
        """get_tensor(key: str) -> tensor, or None

        A tensor over a private copy; None for a miss, or an object that is not a tensor."""
        return self.batch_get_tensor([key])[0]

    def batch_get_tensor(self, keys):
        """batch_get_tensor(keys: list[str]) -> list

        get_tensor() of each, in one request."""
        out = []
        for handle in self.batch_get_buffer(list(keys)):
            header = None
            if handle is not None:
                header = Header.unpack(bytes(memoryview(handle).cast("B")[:HEADER]), handle.size())
            out.append(None if header is None else tensor_of(header, handle))
        return out

    def get_tensor_into(self, key, buffer_ptr, size):
        """get_tensor_into(key: str, buffer_ptr: int, size: int) -> tensor, or None

        Read header and elements into the caller's memory; returns a tensor over that memory."""
        return self.batch_get_tensor_into([key], [buffer_ptr], [size])[0]

    def batch_get_tensor_into(self, keys, buffer_ptrs, sizes):
        """batch_get_tensor_into(keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list

        get_tensor_into() of each, in one request; -600 for each if the lists differ in length."""
        keys = list(keys)
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID_PARAMS] * len(keys)
        out = []
        for got, at in zip(self.batch_get_into(keys, buffer_ptrs, sizes), buffer_ptrs):
            header = Header.unpack(_store.peek(at, HEADER), got) if got >= HEADER else None
            out.append(None if header is None else tensor_at(header, at, got))
        return out

    def get_tensor_into_cuda(self, key, tensor):
        """get_tensor_into_cuda(key: str, tensor) -> int

        Read the elements through host memory into a torch tensor of the same type and shape on a GPU.
        0; -704 for a miss; -600 if the tensor does not match or is not contiguous."""
        return self.batch_get_tensor_into_cuda([key], [tensor])[0]

    def batch_get_tensor_into_cuda(self, keys, tensors_list):
        """batch_get_tensor_into_cuda(keys: list[str], tensors_list: list) -> list[int]

        get_tensor_into_cuda() of each."""
        keys, tensors = list(keys), list(tensors_list)
        if len(keys) != len(tensors):
            return [INVALID_PARAMS] * len(keys)
        out = []
        for tensor, got in zip(tensors, self.batch_get_tensor(keys)):
            if got is None:
                out.append(NO_OBJECT)
            elif (getattr(tensor, "is_cuda", False) and tensor.dtype == got.dtype and tensor.shape == got.shape
                    and tensor.is_contiguous()):
                tensor.copy_(got)
                out.append(0)
            else:
                out.append(INVALID_PARAMS)
        return out

    # ---- tensor parallelism: shard r of a key is the object key_tp_r ----

    def _shards(self, tensor, tp_size, split_dim):
        """tp_size equal pieces of a tensor along a dimension; None if it cannot be split."""
        found = elements(tensor)
        if found is None or not isinstance(tp_size, int) or tp_size < 1:
            return None
        shape = found.header.shape
        if not isinstance(split_dim, int) or not 0 <= split_dim < len(shape) or shape[split_dim] < tp_size:
            return None
        if shape[split_dim] % tp_size:
            self._log.error("only uniform sharding is supported: %d rows of dimension %d for %d ranks", shape[split_dim],
                            split_dim, tp_size)
            return None
        step = shape[split_dim] // tp_size
        outer, inner = math.prod(shape[:split_dim]), math.prod(shape[split_dim + 1:]) * TYPES[found.header.code][1]
        whole = bytes_of(found)
        row, out = shape[split_dim] * inner, []
        for at in range(0, shape[split_dim], step):
            piece = bytearray().join(whole[o * row + at * inner:o * row + (at + step) * inner] for o in range(outer))
            header = Header(found.header.code, shape[:split_dim] + (step,) + shape[split_dim + 1:])
            raw = memory_at(ctypes.addressof(ctypes.c_char.from_buffer(piece)), len(piece)) if piece else None
            out.append(Elements(header, ctypes.addressof(raw) if raw is not None else 0, (piece, raw)))
        return out

    def _put_shards(self, key, tensor, config, tp_size, split_dim):
        if tp_size == 1:
            return self._tensor_batch([key], [tensor], config, False)[0]
        shards = self._shards(tensor, tp_size, split_dim)
        if shards is None:
            return INVALID_PARAMS
        codes = self._tensor_put([f"{key}_tp_{r}" for r in range(tp_size)], shards, for_pieces(config, tp_size), False)
        return next((c for c in codes if c), 0)

    @staticmethod
    def _shard_keys(keys, tp_rank, tp_size):
        """The keys of one rank's shards; None for an invalid rank."""
        if not isinstance(tp_rank, int) or not isinstance(tp_size, int) or not 0 <= tp_rank < tp_size:
            return None
        return list(keys) if tp_size == 1 else [f"{key}_tp_{tp_rank}" for key in keys]

    def put_tensor_with_tp(self, key, tensor, tp_rank=0, tp_size=1, split_dim=0):
        """put_tensor_with_tp(key: str, tensor, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> int

        Split a whole tensor along a dimension and store the shards of all ranks, for any tp_rank.  0; -600 if it does not
        split into equal shards; or the first error of a shard."""
        return self._put_shards(key, tensor, None, tp_size, split_dim)

    def pub_tensor_with_tp(self, key, tensor, config=None, tp_rank=0, tp_size=1, split_dim=0):
        """pub_tensor_with_tp(key: str, tensor, config: ReplicateConfig = None, tp_rank: int = 0, tp_size: int = 1,
        split_dim: int = 0) -> int

        put_tensor_with_tp() with a configuration."""
        return self._put_shards(key, tensor, config, tp_size, split_dim)

    def batch_put_tensor_with_tp(self, base_keys, tensors_list, tp_rank=0, tp_size=1, split_dim=0):
        """batch_put_tensor_with_tp(base_keys: list[str], tensors_list: list, tp_rank: int = 0, tp_size: int = 1,
        split_dim: int = 0) -> list[int]

        put_tensor_with_tp() of each."""
        return self.batch_pub_tensor_with_tp(base_keys, tensors_list, None, tp_rank, tp_size, split_dim)

    def batch_pub_tensor_with_tp(self, base_keys, tensors_list, config=None, tp_rank=0, tp_size=1, split_dim=0):
        """batch_pub_tensor_with_tp(base_keys: list[str], tensors_list: list, config: ReplicateConfig = None,
        tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> list[int]

        pub_tensor_with_tp() of each."""
        if len(base_keys) != len(tensors_list):
            return [INVALID_PARAMS] * len(base_keys)
        each = one_each(config, len(base_keys))
        if each is None:
            return [INVALID_PARAMS] * len(base_keys)
        return [self._put_shards(k, t, c, tp_size, split_dim) for k, t, c in zip(base_keys, tensors_list, each)]

    def put_tensor_with_tp_from(self, key, buffer_ptr, size, tp_rank=0, tp_size=1, split_dim=0):
        """put_tensor_with_tp_from(key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1,
        split_dim: int = 0) -> int

        put_tensor_with_tp() of the whole tensor at an address, header first."""
        return self.batch_put_tensor_with_tp_from([key], [buffer_ptr], [size], tp_rank, tp_size, split_dim)[0]

    def batch_put_tensor_with_tp_from(self, base_keys, buffer_ptrs, sizes, tp_rank=0, tp_size=1, split_dim=0):
        """batch_put_tensor_with_tp_from(base_keys: list[str], buffer_ptrs: list[int], sizes: list[int],
        tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> list[int]

        put_tensor_with_tp_from() of each."""
        if not len(base_keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID_PARAMS] * len(base_keys)
        return [self._put_shards(k, self._elements_at(p, n), None, tp_size, split_dim)
                for k, p, n in zip(base_keys, buffer_ptrs, sizes)]

    def get_tensor_with_tp(self, key, tp_rank=0, tp_size=1, split_dim=0):
        """get_tensor_with_tp(key: str, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> tensor, or None

        Read the shard that was stored for a rank."""
        return self.batch_get_tensor_with_tp([key], tp_rank, tp_size)[0]

    def batch_get_tensor_with_tp(self, base_keys, tp_rank=0, tp_size=1):
        """batch_get_tensor_with_tp(base_keys: list[str], tp_rank: int = 0, tp_size: int = 1) -> list

        get_tensor_with_tp() of each, in one request."""
        keys = self._shard_keys(base_keys, tp_rank, tp_size)
        return [None] * len(base_keys) if keys is None else self.batch_get_tensor(keys)

    def get_tensor_with_tp_into(self, key, buffer_ptr, size, tp_rank=0, tp_size=1, split_dim=0):
        """get_tensor_with_tp_into(key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1,
        split_dim: int = 0) -> tensor, or None

        get_tensor_into() of the shard of a rank."""
        return self.batch_get_tensor_with_tp_into([key], [buffer_ptr], [size], tp_rank, tp_size)[0]

    def batch_get_tensor_with_tp_into(self, base_keys, buffer_ptrs, sizes, tp_rank=0, tp_size=1):
        """batch_get_tensor_with_tp_into(base_keys: list[str], buffer_ptrs: list[int], sizes: list[int],
        tp_rank: int = 0, tp_size: int = 1) -> list

        get_tensor_with_tp_into() of each, in one request; -600 for each if the lists differ in length."""
        if not len(base_keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID_PARAMS] * len(base_keys)
        keys = self._shard_keys(base_keys, tp_rank, tp_size)
        return [None] * len(base_keys) if keys is None else self.batch_get_tensor_into(keys, buffer_ptrs, sizes)

    # ---- files ----

    def save_tensor_to_safetensor(self, key, file_name=None):
        """save_tensor_to_safetensor(key: str, file_name: str = None) -> int

        Write the tensor, under the name key, to a safetensors file (without file_name: to the file named key).
        0, -704 for a miss, -1 if the file cannot be written."""
        handle = self.get_buffer(key)
        if handle is None:
            return NO_OBJECT
        view = memoryview(handle).cast("B")
        header = Header.unpack(bytes(view[:HEADER]), len(view))
        if header is None:
            return INVALID_PARAMS
        try:
            _write_file(key if file_name is None else file_name, key, header, view[HEADER:HEADER + header.nbytes])
        except (OSError, ValueError) as e:
            _setup.log.error("save_tensor_to_safetensor: %s", e)
            return _setup.INTERNAL_ERROR
        return 0

    def load_tensor_from_safetensor(self, key=None, file_name=None):
        """load_tensor_from_safetensor(key: str = None, file_name: str) -> tensor, or None

        Store the tensor named key from a safetensors file under key (default: file_name), and return it.  If the file has no
        such name, uses its first tensor and logs a warning; None if the file cannot be read."""
        if file_name is None:
            raise TypeError("load_tensor_from_safetensor() missing required argument: file_name")
        key = file_name if key is None else key
        try:
            names, body = _read_file(file_name)
            if not names:
                raise ValueError(f"{file_name}: no tensor in it")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            _setup.log.error("load_tensor_from_safetensor: %s", e)
            return None
        if key not in names:
            if key != file_name:
                _setup.log.warning('load_tensor_from_safetensor: %s has no "%s", taking "%s"', file_name, key,
                                   next(iter(names)))
            code, shape, begin, end = next(iter(names.values()))
        else:
            code, shape, begin, end = names[key]
        header = Header(code, shape)
        whole = bytearray(header.pack() + bytes(body[begin:end]))
        raw = memory_at(ctypes.addressof(ctypes.c_char.from_buffer(whole)), len(whole))
        found = Elements(header, ctypes.addressof(raw) + HEADER, whole)
        if self._tensor_put([key], [found], None, False)[0]:
            return None
        return tensor_of(header, whole)


# ---- functions of the module ----


def serialize(tensor):
    """_serialize_tensor(tensor) -> (header: bytes, address: int, size: int, owner)"""
    found = elements(tensor)
    if found is None:
        raise TypeError("not a tensor of a type that can be stored")
    return found.header.pack(), found.address, found.nbytes, found._held if found._held is not None else tensor


def metadata_size():
    """_tensor_metadata_size() -> int: bytes of the header."""
    return HEADER


def deserialize(data):
    """_deserialize_tensor(data: bytes) -> tensor over a copy of the data, or None"""
    header = Header.unpack(bytes(data[:HEADER]), len(data))
    return None if header is None else tensor_of(header, bytearray(data))
