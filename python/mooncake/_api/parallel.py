# SPDX-License-Identifier: Apache-2.0
"""Tensors that several ranks write and read in pieces: the methods _with_parallelism.

A piece is an object whose name says which one it is: key_tp_0; key__dp_1of2__tp_0of2_sd0 (kinds in the order of KINDS);
key__writer_0of2_sd0.  A small object beside them, the manifest, says how the whole was split, so that the whole and other
splits of it can be put together from the pieces."""

import ctypes
import math
import struct

from mooncake._api.tensors import (AXES_MAX, DIMS_MAX, HEADER, INVALID_PARAMS, SHARD, TYPES, Elements, Header, bytes_of,
                               elements, for_pieces, one_each, tensor_at, tensor_of)

KINDS = ("dp", "tp", "ep", "pp")
MODES = ("as_stored", "shard", "full")
# Magic, version, length, type, dimensions, dimension that is split, pieces, 0, the shape of the whole.
_MANIFEST = struct.Struct("<IHHiiiiQ8q")
MANIFEST_MAGIC = 0x574D414E
SIZE_MAX = 1 << 20


class ParallelAxis:
    """One axis of parallelism: kind ("dp", "tp", "ep", "pp"), rank, size.  Needed are split_dim, the dimension that "tp"
    splits, for "tp", expert_id for "ep", stage_id for "pp"."""

    __slots__ = ("kind", "rank", "size", "split_dim", "expert_id", "stage_id")

    def __init__(self):
        self.kind = ""
        self.rank = 0
        self.size = 1
        self.split_dim = self.expert_id = self.stage_id = None


class TensorParallelism:
    """Selects a piece of a tensor: axes is a list of ParallelAxis, at most one of each kind."""

    __slots__ = ("axes",)

    def __init__(self):
        self.axes = []


class ReadTarget:
    """Selects what to read: mode "as_stored" (the object of the key), "shard" (the piece that parallelism selects), or
    "full" (the whole tensor, joined from the pieces of the axes in parallelism)."""

    __slots__ = ("_mode", "parallelism")

    def __init__(self):
        self._mode = "as_stored"
        self.parallelism = None

    @property
    def mode(self):
        return self._mode

    @mode.setter
    def mode(self, mode):
        if mode not in MODES:
            raise RuntimeError(f"mode must be one of {', '.join(MODES)}")
        self._mode = mode


class _Bad(ValueError):
    """A request that gets -600, or None."""


def _whole(value, least, most, what):
    if not isinstance(value, int) or not least <= value <= most:
        raise _Bad(what)
    return value


def _axis(axis):
    kind = getattr(axis, "kind", None)
    if kind not in KINDS:
        raise _Bad("kind")
    size = _whole(getattr(axis, "size", None), 1, SIZE_MAX, "size")
    rank = _whole(getattr(axis, "rank", None), 0, size - 1, "rank")
    split, expert, stage = (getattr(axis, n, None) for n in ("split_dim", "expert_id", "stage_id"))
    if (kind == "tp") != (split is not None):
        raise _Bad("split_dim")
    if split is not None:
        _whole(split, 0, DIMS_MAX - 1, "split_dim")
    if (kind == "ep" and expert is None) or (kind == "pp" and stage is None):
        raise _Bad("expert_id of ep, stage_id of pp")
    for number in (expert, stage):
        if number is not None:
            _whole(number, 0, 1 << 31, "expert_id, stage_id")
    return kind, rank, size, split, expert, stage


def _axes(parallelism):
    """[(kind, rank, size, split_dim, expert_id, stage_id)] in the order of names."""
    axes = getattr(parallelism, "axes", None)
    if not isinstance(axes, (list, tuple)) or not 0 < len(axes) <= AXES_MAX:
        raise _Bad("axes")
    found = sorted((_axis(a) for a in axes), key=lambda a: KINDS.index(a[0]))
    if len({a[0] for a in found}) != len(found):
        raise _Bad("two axes of one kind")
    return found


def _tp(axes):
    return next((a for a in axes if a[0] == "tp"), None)


def _named(key, suffix):
    return key + (suffix.encode() if isinstance(key, bytes) else suffix)


def _name(key, axes, rank=None):
    """The name of a piece; rank replaces that of the "tp" axis."""
    if len(axes) == 1 and axes[0][0] == "tp":
        return _named(key, f"_tp_{axes[0][1] if rank is None else rank}")
    text = ""
    for kind, own, size, split, expert, stage in axes:
        text += f"__{kind}_{own if rank is None or kind != 'tp' else rank}of{size}"
        text += "".join(f"_{t}{n}" for t, n in (("sd", split), ("eid", expert), ("sid", stage)) if n is not None)
    return _named(key, text)


def _slice(data, shape, item, dim, first, count):
    """Rows first to first + count of a dimension, out of the elements of a tensor."""
    inner = math.prod(shape[dim + 1:]) * item
    row = shape[dim] * inner
    return b"".join(data[o * row + first * inner:o * row + (first + count) * inner] for o in range(math.prod(shape[:dim])))


def _piece(found, dim, rank, size):
    """Piece rank of size equal ones of the Elements."""
    shape = found.header.shape
    if dim >= len(shape) or shape[dim] % size or not shape[dim]:
        raise _Bad("it does not split into equal pieces")
    step = shape[dim] // size
    whole = bytes_of(found)
    data = bytearray(_slice(whole, shape, TYPES[found.header.code][1], dim, rank * step, step))
    raw = (ctypes.c_char * len(data)).from_buffer(data) if data else None
    header = Header(found.header.code, shape[:dim] + (step,) + shape[dim + 1:], shape, SHARD)
    return Elements(header, ctypes.addressof(raw) if data else 0, (data, raw))


def _relabel(found, shape):
    """The same elements as a piece of a tensor of that shape."""
    return Elements(Header(found.header.code, found.header.shape, shape, SHARD), found.address, found)


class Parallel:
    """The methods of MooncakeDistributedStore for tensors in pieces."""

    # ---- writing ----

    def _manifest_put(self, key, code, dim, size, shape, config, upsert):
        data = _MANIFEST.pack(MANIFEST_MAGIC, 1, _MANIFEST.size, code, len(shape), dim, size, 0,
                              *shape, *(-1,) * (DIMS_MAX - len(shape)))
        more = {} if config is None else {"config": config}
        return (self.upsert if upsert else self.put)(key, data, **more)

    def _parallel_put(self, key, found, parallelism, config, writer, upsert, all_ranks=False):
        """found: Elements, or None if the value is not a tensor."""
        if parallelism is not None and writer is not None or found is None:
            return INVALID_PARAMS
        try:
            if writer is not None:
                return self._writer_put(key, found, writer, config, upsert)
            if parallelism is None:
                return self._tensor_put([key], [found], config, upsert)[0]
            axes = _axes(parallelism)
            tp, shape = _tp(axes), found.header.shape
            if tp is None:
                return self._tensor_put([_name(key, axes)], [_relabel(found, shape)], config, upsert)[0]
            _, rank, size, dim, _, _ = tp
            if len(axes) == 1:
                # with the "tp" axis alone, the caller passes the piece
                if dim >= len(shape):
                    return INVALID_PARAMS
                shape = shape[:dim] + (shape[dim] * size,) + shape[dim + 1:]
                names, pieces = [_name(key, axes)], [_relabel(found, shape)]
            else:
                ranks = range(size) if all_ranks else (rank,)
                names, pieces = [_name(key, axes, r) for r in ranks], [_piece(found, dim, r, size) for r in ranks]
        except _Bad:
            return INVALID_PARAMS
        code = next((c for c in self._tensor_put(names, pieces, for_pieces(config, len(names)), upsert) if c), 0)
        return code or self._manifest_put(_named(key, "__parallelism_manifest"), found.header.code, dim, size, shape, config, upsert)

    def _writer_put(self, key, found, writer, config, upsert):
        size = _whole(getattr(writer, "size", None), 1, SIZE_MAX, "size")
        rank = _whole(getattr(writer, "rank", None), 0, size - 1, "rank")
        dim = _whole(getattr(writer, "split_dim", None), 0, DIMS_MAX - 1, "split_dim")
        piece = _piece(found, dim, rank, size)
        code = self._tensor_put([_named(key, f"__writer_{rank}of{size}_sd{dim}")], [piece], config, upsert)[0]
        return code or self._manifest_put(_named(key, "__writer_manifest"), found.header.code, dim, size, found.header.shape, config,
                                          upsert)

    def _parallel_batch(self, keys, found, parallelisms, config, writers, upsert, all_ranks=False):
        keys = list(keys)
        n = len(keys)
        parallelisms = [None] * n if parallelisms is None else list(parallelisms)
        writers = [None] * n if writers is None else list(writers)
        each = one_each(config, n)
        if not n == len(found) == len(parallelisms) == len(writers) or each is None:
            return [INVALID_PARAMS] * n
        return [self._parallel_put(*item, upsert, all_ranks)
                for item in zip(keys, found, parallelisms, each, writers)]

    def _at_all(self, buffer_ptrs, sizes):
        return [self._elements_at(p, n) for p, n in zip(buffer_ptrs, sizes)] if len(buffer_ptrs) == len(sizes) else []

    def put_tensor_with_parallelism(self, key, tensor, parallelism=None, config=None, writer_partition=None):
        """put_tensor_with_parallelism(key: str, tensor, parallelism: TensorParallelism = None,
        config: ReplicateConfig = None, writer_partition: ParallelAxis = None) -> int

        Store the piece that parallelism selects.  With a "tp" axis alone, or without one, tensor is the piece; with "tp"
        among several axes, tensor is the whole, split into equal pieces, as with writer_partition (rank, size, split_dim).
        Without both, store the whole.  0; -600 for wrong axes, an impossible split, or a value that is not a tensor."""
        return self._parallel_put(key, elements(tensor), parallelism, config, writer_partition, False)

    def upsert_tensor_with_parallelism(self, key, tensor, parallelism=None, config=None, writer_partition=None):
        """upsert_tensor_with_parallelism(key: str, tensor, parallelism: TensorParallelism = None,
        config: ReplicateConfig = None, writer_partition: ParallelAxis = None) -> int

        As put_tensor_with_parallelism(), but replaces existing values."""
        return self._parallel_put(key, elements(tensor), parallelism, config, writer_partition, True)

    def put_tensor_with_parallelism_from(self, key, buffer_ptr, size, parallelism=None, config=None, writer_partition=None):
        """put_tensor_with_parallelism_from(key: str, buffer_ptr: int, size: int, parallelism: TensorParallelism = None,
        config: ReplicateConfig = None, writer_partition: ParallelAxis = None) -> int

        put_tensor_with_parallelism() of a tensor at an address, header first; with several axes, stores all "tp" ranks."""
        return self._parallel_put(key, self._elements_at(buffer_ptr, size), parallelism, config, writer_partition, False, True)

    def upsert_tensor_with_parallelism_from(self, key, buffer_ptr, size, parallelism=None, config=None, writer_partition=None):
        """upsert_tensor_with_parallelism_from(key: str, buffer_ptr: int, size: int, parallelism: TensorParallelism = None,
        config: ReplicateConfig = None, writer_partition: ParallelAxis = None) -> int

        As put_tensor_with_parallelism_from(), but replaces existing values."""
        return self._parallel_put(key, self._elements_at(buffer_ptr, size), parallelism, config, writer_partition, True, True)

    def batch_put_tensor_with_parallelism(self, keys, tensors_list, parallelisms=None, config=None, writer_partitions=None):
        """batch_put_tensor_with_parallelism(keys: list[str], tensors_list: list, parallelisms: list = None,
        config: ReplicateConfig = None, writer_partitions: list = None) -> list[int]

        put_tensor_with_parallelism() of each."""
        return self._parallel_batch(keys, [elements(t) for t in tensors_list], parallelisms, config, writer_partitions, False)

    def batch_upsert_tensor_with_parallelism(self, keys, tensors_list, parallelisms=None, config=None, writer_partitions=None):
        """batch_upsert_tensor_with_parallelism(keys: list[str], tensors_list: list, parallelisms: list = None,
        config: ReplicateConfig = None, writer_partitions: list = None) -> list[int]

        upsert_tensor_with_parallelism() of each."""
        return self._parallel_batch(keys, [elements(t) for t in tensors_list], parallelisms, config, writer_partitions, True)

    def batch_put_tensor_with_parallelism_from(self, keys, buffer_ptrs, sizes, parallelisms=None, config=None,
                                               writer_partitions=None):
        """batch_put_tensor_with_parallelism_from(keys: list[str], buffer_ptrs: list[int], sizes: list[int],
        parallelisms: list = None, config: ReplicateConfig = None, writer_partitions: list = None) -> list[int]

        put_tensor_with_parallelism_from() of each."""
        return self._parallel_batch(keys, self._at_all(buffer_ptrs, sizes), parallelisms, config, writer_partitions, False, True)

    def batch_upsert_tensor_with_parallelism_from(self, keys, buffer_ptrs, sizes, parallelisms=None, config=None,
                                                  writer_partitions=None):
        """batch_upsert_tensor_with_parallelism_from(keys: list[str], buffer_ptrs: list[int], sizes: list[int],
        parallelisms: list = None, config: ReplicateConfig = None, writer_partitions: list = None) -> list[int]

        upsert_tensor_with_parallelism_from() of each."""
        return self._parallel_batch(keys, self._at_all(buffer_ptrs, sizes), parallelisms, config, writer_partitions, True, True)

    # ---- reading ----

    def _objects(self, names):
        """(Header, elements as bytes) of each; None for a miss or an object that is not a tensor."""
        out = []
        for handle in self.batch_get_buffer(names):
            view = None if handle is None else memoryview(handle).cast("B")
            header = None if view is None else Header.unpack(bytes(view[:HEADER]), len(view))
            out.append(None if header is None else (header, view[HEADER:HEADER + header.nbytes]))
        return out

    def _manifest_get(self, key):
        """(type, dimension, pieces, shape), or None."""
        data = self.get(key)
        if len(data) != _MANIFEST.size:
            return None
        magic, version, length, code, ndim, dim, size, _, *shape = _MANIFEST.unpack(data)
        if (magic, version, length) != (MANIFEST_MAGIC, 1, _MANIFEST.size) or not 0 <= code < len(TYPES):
            return None
        if not 0 <= dim < ndim <= DIMS_MAX or not 0 < size <= SIZE_MAX or min(shape[:ndim]) < 0 or shape[dim] % size:
            return None
        return code, dim, size, tuple(shape[:ndim])

    def _join(self, names, manifest):
        """(Header, bytes) of the whole tensor, or None if a piece is missing or does not match the manifest."""
        code, dim, size, shape = manifest
        step = shape[dim] // size
        wanted = shape[:dim] + (step,) + shape[dim + 1:]
        found = self._objects(names)
        if any(f is None or f[0].code != code or f[0].shape != wanted for f in found):
            return None
        inner = math.prod(wanted[dim:]) * TYPES[code][1]
        data = b"".join(f[1][o * inner:(o + 1) * inner] for o in range(math.prod(shape[:dim])) for f in found)
        return Header(code, shape), data

    def _whole_of(self, key, axes):
        """The whole tensor, from the pieces of these axes, or else from the writers' pieces."""
        tp = None if axes is None else _tp(axes)
        if tp is not None:
            manifest = self._manifest_get(_named(key, "__parallelism_manifest"))
            if manifest is not None:
                names = [_name(key, [a if a[0] != "tp" else ("tp", r, manifest[2], manifest[1], a[4], a[5]) for a in axes])
                         for r in range(manifest[2])]
                whole = self._join(names, manifest)
                if whole is not None:
                    return whole
        if axes is not None and (tp is None or len(axes) > 1):
            return None
        manifest = self._manifest_get(_named(key, "__writer_manifest"))
        if manifest is None:
            return None
        return self._join([_named(key, f"__writer_{r}of{manifest[2]}_sd{manifest[1]}") for r in range(manifest[2])], manifest)

    def _shard_of(self, key, axes):
        tp = _tp(axes)
        direct = self._objects([_name(key, axes)])[0]
        if tp is None:
            return direct
        _, rank, size, dim, _, _ = tp
        if direct is not None:
            header = direct[0]
            # an object "key_tp_1" may belong to another split
            if header.layout != SHARD or (dim < len(header.shape) and header.shape[dim] * size == header.whole[dim]):
                return direct
        if len(axes) == 1:
            written = self._objects([_named(key, f"__writer_{rank}of{size}_sd{dim}")])[0]
            if written is not None:
                return written
        whole = self._whole_of(key, axes)
        if whole is None and len(axes) == 1 and size == 1:
            whole = self._objects([key])[0]
        if whole is None or dim >= len(whole[0].shape):
            return None
        header, data = whole
        step = header.shape[dim] // size
        if not step or header.shape[dim] % size:
            return None
        shape = header.shape[:dim] + (step,) + header.shape[dim + 1:]
        return (Header(header.code, shape, header.shape, SHARD),
                _slice(data, header.shape, TYPES[header.code][1], dim, rank * step, step))

    def _parallel_get(self, key, target):
        """(Header, bytes), or None."""
        if target is None:
            return self._objects([key])[0]
        mode, parallelism = getattr(target, "mode", None), getattr(target, "parallelism", None)
        try:
            axes = None if parallelism is None else _axes(parallelism)
        except _Bad:
            return None
        if mode == "as_stored":
            return self._objects([key])[0] if axes is None else None
        if mode == "shard":
            return None if axes is None else self._shard_of(key, axes)
        if mode != "full":
            return None
        return (self._objects([key])[0] if axes is None else None) or self._whole_of(key, axes)

    def _parallel_gets(self, keys, targets):
        keys = list(keys)
        targets = [None] * len(keys) if targets is None else list(targets)
        if len(targets) != len(keys):
            return [None] * len(keys)
        return [self._parallel_get(k, t) for k, t in zip(keys, targets)]

    def get_tensor_with_parallelism(self, key, target=None):
        """get_tensor_with_parallelism(key: str, target: ReadTarget = None) -> tensor, or None

        Read the object of the key, a piece, or the whole joined from pieces; returns a tensor over a private copy.  None
        for a miss, a missing piece, wrong axes, or a tensor that does not split into equal pieces."""
        return self.batch_get_tensor_with_parallelism([key], [target])[0]

    def batch_get_tensor_with_parallelism(self, keys, targets=None):
        """batch_get_tensor_with_parallelism(keys: list[str], targets: list = None) -> list

        get_tensor_with_parallelism() of each."""
        return [None if f is None else tensor_of(f[0], bytearray(f[0].pack() + bytes(f[1])))
                for f in self._parallel_gets(keys, targets)]

    def get_tensor_with_parallelism_into(self, key, buffer_ptr, size, target=None):
        """get_tensor_with_parallelism_into(key: str, buffer_ptr: int, size: int, target: ReadTarget = None)
        -> tensor, or None

        As get_tensor_with_parallelism(), but into the caller's memory, header first; returns a tensor over that memory.
        None also if it does not fit."""
        return self.batch_get_tensor_with_parallelism_into([key], [buffer_ptr], [size], [target])[0]

    def batch_get_tensor_with_parallelism_into(self, keys, buffer_ptrs, sizes, targets=None):
        """batch_get_tensor_with_parallelism_into(keys: list[str], buffer_ptrs: list[int], sizes: list[int],
        targets: list = None) -> list

        get_tensor_with_parallelism_into() of each."""
        from mooncake import _store

        keys = list(keys)
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [None] * len(keys)
        for p, n in zip(buffer_ptrs, sizes):
            if not isinstance(p, int) or not isinstance(n, int):
                raise TypeError("addresses and sizes must be int")
        out = []
        for at, size, found in zip(buffer_ptrs, sizes, self._parallel_gets(keys, targets)):
            total = 0 if found is None else HEADER + found[0].nbytes
            if not total or total > size or not 0 < at < 1 << 63 or not _store.writable(at, total):
                out.append(None)
                continue
            if _store.poke(at, found[0].pack() + bytes(found[1])):
                out.append(tensor_at(found[0], at, total))
            else:
                out.append(None)
        return out
