# SPDX-License-Identifier: Apache-2.0
"""Tables of embeddings in the store, of which single rows are read.

Table h of layer l is the object engram:l<l>:h<h>: rows of embedding_dim float32, one after another, without a header.
Needs numpy."""

import operator

MISSING = -704
INVALID_PARAMS = -600


def _integer(value, bits, what):
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}") from None
    if not -1 << bits - 1 <= number < 1 << bits - 1:
        raise TypeError(f"{what} must be an int of {bits} bits, not {number}")
    return number


class EngramStoreConfig:
    """table_vocab_sizes: the number of rows of each table ([1024]); embedding_dim: the elements of a row (64)."""

    __slots__ = ("_sizes", "_dim")

    def __init__(self):
        self._sizes, self._dim = [1024], 64

    @property
    def table_vocab_sizes(self):
        # a copy, as upstream's: append() to it changes nothing
        return list(self._sizes)

    @table_vocab_sizes.setter
    def table_vocab_sizes(self, sizes):
        if isinstance(sizes, (str, bytes)) or not hasattr(sizes, "__iter__"):
            raise TypeError(f"table_vocab_sizes must be a list of int, not {type(sizes).__name__}")
        self._sizes = [_integer(size, 64, "table_vocab_sizes") for size in sizes]

    @property
    def embedding_dim(self):
        return self._dim

    @embedding_dim.setter
    def embedding_dim(self, dim):
        self._dim = _integer(dim, 32, "embedding_dim")


class EngramStore:
    """EngramStore(layer_id: int, config: EngramStoreConfig, store=None)

    The tables of one layer in a MooncakeDistributedStore.  ValueError for an impossible config; later changes of the
    config have no effect.  As thread-safe as the store."""

    def __init__(self, layer_id, config, store=None):
        layer = _integer(layer_id, 32, "layer_id")
        if not isinstance(config, EngramStoreConfig):
            raise TypeError(f"config must be an EngramStoreConfig, not {type(config).__name__}")
        self._sizes, self._dim = config.table_vocab_sizes, config.embedding_dim
        if not self._sizes:
            raise ValueError("EngramStoreConfig.table_vocab_sizes must not be empty")
        if min(self._sizes) <= 0:
            raise ValueError("EngramStoreConfig.table_vocab_sizes must contain only positive values")
        if self._dim <= 0:
            raise ValueError("EngramStoreConfig.embedding_dim must be positive")
        self._store = None
        if store is not None:
            # an object that wraps a store passes this method on
            capsule = getattr(store, "_get_pyclient_capsule", None)
            self._store = capsule() if callable(capsule) else None
            if self._store is None:
                raise RuntimeError("EngramStore store parameter must be a MooncakeDistributedStore, or a wrapper of one that "
                                   "implements _get_pyclient_capsule()")
        self._keys = [f"engram:l{layer}:h{head}" for head in range(len(self._sizes))]

    def get_table_vocab_sizes(self):
        """get_table_vocab_sizes() -> list[int]: the number of rows of each table."""
        return list(self._sizes)

    def get_embedding_dim(self):
        """get_embedding_dim() -> int: the elements of a row."""
        return self._dim

    def get_num_heads(self):
        """get_num_heads() -> int: the number of tables."""
        return len(self._sizes)

    def get_store_keys(self):
        """get_store_keys() -> list[str]: the keys of the tables."""
        return list(self._keys)

    def _tables(self, buffers):
        import numpy as np

        if not isinstance(buffers, list):
            raise TypeError(f"populate(): embedding_buffers must be a list, not {type(buffers).__name__}")
        if len(buffers) != len(self._sizes):
            raise RuntimeError(f"embedding_buffers size must match num_heads: {len(buffers)}, not {len(self._sizes)}")
        tables = []
        for buffer, size in zip(buffers, self._sizes):
            if not isinstance(buffer, np.ndarray):
                raise RuntimeError(f"embedding_buffers must be NumPy arrays, not {type(buffer).__name__}")
            if buffer.dtype.kind not in "fiub":
                raise RuntimeError(f"embedding_buffers must be float32 arrays, not {buffer.dtype}")
            if buffer.ndim != 2:
                raise RuntimeError(f"each embedding buffer must be 2D [N_h, D], not of {buffer.ndim} dimensions")
            if buffer.shape != (size, self._dim):
                raise RuntimeError("embedding buffer shape does not match get_table_vocab_sizes()/get_embedding_dim(): "
                                   f"{buffer.shape}, not {(size, self._dim)}")
            tables.append(np.ascontiguousarray(buffer, np.float32))
        return tables

    def populate(self, embedding_buffers):
        """populate(embedding_buffers: list[numpy.ndarray])

        Store all tables, arrays of shape [rows, embedding_dim] that are converted to float32.  RuntimeError for wrong
        arrays, if a table is there already, or if the store fails; then none of them is stored."""
        tables = self._tables(embedding_buffers)
        if self._store is None:
            raise RuntimeError("populate failed: there is no store")
        for key, found in zip(self._keys, self._store.batch_is_exist(self._keys)):
            if found:
                raise RuntimeError(f"populate failed: {key} " + ("exists already" if found == 1 else f"cannot be asked for: {found}"))
        written = []
        try:
            for key, table in zip(self._keys, tables):
                written.append(key)
                code = self._store.put(key, table)
                if code:
                    raise RuntimeError(f"populate failed: {key} cannot be stored: {code}")
        except BaseException:
            # with the key that failed: the store may have it, although the reply was lost
            for key in written:
                self._store.remove(key, True)
            raise

    def _rows(self, row_ids):
        import numpy as np

        if row_ids is None:
            raise TypeError("lookup(): row_ids must be an array or a list, not None")
        if not isinstance(row_ids, np.ndarray):
            try:
                given = np.asarray(row_ids)
            except ValueError as e:
                raise RuntimeError(f"EngramStore lookup failed: row_ids: {e}") from None
            if not given.size:
                raise RuntimeError("row_ids must not be empty")
            row_ids = given
        if row_ids.dtype.kind not in "fiub" or (row_ids.dtype.kind == "f" and (row_ids != np.floor(row_ids)).any()):
            raise RuntimeError(f"row_ids array must be convertible to int64, not {row_ids.dtype}")
        if row_ids.ndim != 3:
            raise RuntimeError(f"row_ids array must have shape [B, L, H], not {row_ids.shape}")
        if row_ids.shape[2] != len(self._sizes):
            raise RuntimeError(f"row_ids last dimension must match num_heads: {row_ids.shape[2]}, not {len(self._sizes)}")
        if not row_ids.size:
            raise RuntimeError("EngramStore lookup failed: row_ids must not be empty")
        wrong = (row_ids < 0) | (row_ids >= np.array(self._sizes))
        if wrong.any():
            head = int(np.argwhere(wrong)[0][2])
            raise RuntimeError(f"EngramStore lookup failed: row {row_ids[wrong][0]} of head {head} is out of range "
                               f"({self._sizes[head]} rows)")
        return row_ids.astype(np.int64)

    def lookup(self, row_ids):
        """lookup(row_ids) -> numpy.ndarray

        Read rows: row_ids[b, l, h] is a row of table h; the result has the shape [B, L, H, embedding_dim] and the type
        float32.  row_ids may also be nested lists.  RuntimeError for wrong row_ids, rows out of range, or missing tables."""
        import numpy as np

        rows = self._rows(row_ids)
        if self._store is None:
            raise RuntimeError("EngramStore lookup failed: there is no store")
        heads, width = rows.shape[2], 4 * self._dim
        out = np.empty((*rows.shape, self._dim), np.float32)
        flat = rows.reshape(-1, heads)
        sizes = [width] * len(flat)
        to = [(np.arange(len(flat)) * heads + head) * width for head in range(heads)]
        address = out.ctypes.data
        code = self._store.register_buffer(address, out.nbytes)
        if code:
            raise RuntimeError(f"EngramStore lookup failed: the result cannot be registered: {code}")
        try:
            got = self._store.get_into_ranges([address], [self._keys], [[at.tolist() for at in to]],
                                              [(flat.T * width).tolist()], [[sizes] * heads])[0]
        finally:
            self._store.unregister_buffer(address)
        for key, counts in zip(self._keys, got):
            bad = next((n for n in counts if n != width), None)
            if bad is not None:
                raise RuntimeError(f"EngramStore lookup failed: {key}: {bad}, not {width} bytes")
        return out

    def remove_from_store(self, force=False):
        """remove_from_store(force: bool = False) -> int

        Remove the tables, leased ones only with force, and return their number; missing ones are ignored.  RuntimeError
        with the code (-706: leased) if some stay."""
        codes = [self._store.remove(key, force) for key in self._keys] if self._store is not None else [INVALID_PARAMS]
        failed = next((code for code in codes if code not in (0, MISSING)), None)
        if failed is not None:
            raise RuntimeError(f"remove_from_store failed, rc={failed}")
        return codes.count(0)


__all__ = ["EngramStore", "EngramStoreConfig"]
