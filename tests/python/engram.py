# SPDX-License-Identifier: Apache-2.0
"""EngramStore: tables of embeddings in the store.  Every test except test_ours passes on upstream 0.3.13.post1 too.

engram.py MASTER"""

import sys
import threading

try:
    import numpy as np
except ImportError:
    sys.exit(77)
import mooncake.store as ms

store = ms.MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0


def config(sizes=(5, 7), dim=4):
    c = ms.EngramStoreConfig()
    c.table_vocab_sizes, c.embedding_dim = list(sizes), dim
    return c


def raises(kind, words, call, *args):
    try:
        call(*args)
    except kind as e:
        assert type(e) is kind and words in str(e), repr(e)
    else:
        raise AssertionError(f"{words}: no {kind.__name__}")


TABLES = [np.arange(20, dtype=np.float32).reshape(5, 4), 100 + np.arange(28, dtype=np.float32).reshape(7, 4)]
ROWS = np.array([[[0, 0], [4, 6], [2, 3]], [[4, 1], [4, 1], [0, 6]]])


def expected(rows, tables):
    return np.stack([table[rows[:, :, h]] for h, table in enumerate(tables)], axis=2)


def test_config():
    c = ms.EngramStoreConfig()
    assert (c.table_vocab_sizes, c.embedding_dim) == ([1024], 64)
    c.table_vocab_sizes = np.array([5, 7])
    c.table_vocab_sizes.append(3)
    assert c.table_vocab_sizes == [5, 7]
    for name, wrong in (("table_vocab_sizes", "ab"), ("table_vocab_sizes", [1.5]), ("embedding_dim", 1.5), ("embedding_dim", 1 << 40)):
        raises(TypeError, "", setattr, c, name, wrong)
    raises(AttributeError, "", setattr, c, "other", 1)
    for wrong, words in ((config(()), "table_vocab_sizes must not be empty"), (config((5, 0)), "must contain only positive values"),
                         (config((5, -1)), "must contain only positive values"), (config(dim=0), "embedding_dim must be positive")):
        raises(ValueError, words, ms.EngramStore, 1, wrong, store)
    raises(TypeError, "", ms.EngramStore, 1, None, store)
    raises(TypeError, "", ms.EngramStore, 1.0, c, store)
    raises(TypeError, "", ms.EngramStore, 1 << 40, c, store)
    raises(RuntimeError, "_get_pyclient_capsule()", ms.EngramStore, 1, c, object())
    engram = ms.EngramStore(layer_id=-3, config=c)
    c.table_vocab_sizes, c.embedding_dim = [9], 9
    assert (engram.get_store_keys(), engram.get_num_heads()) == (["engram:l-3:h0", "engram:l-3:h1"], 2)
    assert (engram.get_table_vocab_sizes(), engram.get_embedding_dim()) == ([5, 7], 64)
    raises(RuntimeError, "lookup failed", engram.lookup, ROWS)


def test_tables():
    engram = ms.EngramStore(1, config(), store)
    raises(RuntimeError, "EngramStore lookup failed", engram.lookup, ROWS)
    assert engram.remove_from_store() == 0
    engram.populate(TABLES)
    assert [store.get(key) for key in engram.get_store_keys()] == [table.tobytes() for table in TABLES]
    got = engram.lookup(ROWS)
    assert got.dtype == np.float32 and got.flags.c_contiguous and got.flags.writeable
    for rows in (ROWS, ROWS.tolist(), ROWS.astype(np.int32), ROWS.astype(np.uint64), ROWS.astype(float), np.asfortranarray(ROWS)):
        assert np.array_equal(engram.lookup(rows), expected(ROWS, TABLES))
    raises(RuntimeError, "populate failed", engram.populate, TABLES)
    assert engram.remove_from_store(True) == 2 and engram.remove_from_store(force=True) == 0
    # any order and type of elements
    engram.populate([np.asfortranarray(TABLES[0]), TABLES[1].astype(np.float64)])
    assert np.array_equal(engram.lookup(ROWS), expected(ROWS, TABLES))
    assert engram.remove_from_store(True) == 2
    # objects that another program has put
    for key, table in zip(engram.get_store_keys(), TABLES):
        assert store.put(key, table.tobytes()) == 0
    assert np.array_equal(engram.lookup(ROWS), expected(ROWS, TABLES))
    # a table with fewer rows than the config says
    more = ms.EngramStore(1, config((5, 8)), store)
    assert np.array_equal(more.lookup([[[0, 6]]]), expected(np.array([[[0, 6]]]), TABLES))
    raises(RuntimeError, "EngramStore lookup failed", more.lookup, [[[0, 7]]])
    # one table is missing
    assert store.remove("engram:l1:h1", True) == 0
    raises(RuntimeError, "EngramStore lookup failed", engram.lookup, ROWS)
    raises(RuntimeError, "populate failed", engram.populate, TABLES)
    assert store.is_exist("engram:l1:h1") == 0
    assert engram.remove_from_store(True) == 1


def test_wrong_arguments():
    engram = ms.EngramStore(1, config(), store)
    raises(TypeError, "", engram.populate, tuple(TABLES))
    for wrong, words in ((TABLES[:1], "embedding_buffers size must match num_heads"), ([], "embedding_buffers size must match"),
                         ([t.tolist() for t in TABLES], "embedding_buffers must be NumPy arrays"),
                         ([t.reshape(-1) for t in TABLES], "each embedding buffer must be 2D [N_h, D]"),
                         ([TABLES[0], TABLES[0]], "embedding buffer shape does not match")):
        raises(RuntimeError, words, engram.populate, wrong)
    assert [store.is_exist(key) for key in engram.get_store_keys()] == [0, 0]
    engram.populate(TABLES)
    raises(TypeError, "", engram.lookup, None)
    for wrong, words in ((ROWS[0], "must have shape [B, L, H]"), (ROWS[None], "must have shape [B, L, H]"),
                         (ROWS[:, :, :1], "last dimension must match num_heads"), ([], "row_ids must not be empty"),
                         ([[]], "row_ids must not be empty"), ([[[0, 0], [0]]], "lookup failed"), (ROWS[:, :0], "lookup failed"),
                         (ROWS + 7, "lookup failed"), (np.array([[[0, 7]]]), "lookup failed"), (np.array([[[0, -1]]]), "lookup failed"),
                         ("abc", "")):
        raises(RuntimeError, words, engram.lookup, wrong)
    assert engram.remove_from_store(True) == 2


def test_no_space():
    """All tables, or none."""
    big = ms.EngramStore(4, config((10, 1 << 20), 32), store)
    raises(RuntimeError, "populate failed", big.populate, [np.zeros((10, 32), np.float32), np.zeros((1 << 20, 32), np.float32)])
    assert [store.is_exist(key) for key in big.get_store_keys()] == [0, 0]


def test_threads():
    engram = ms.EngramStore(2, config(), store)
    engram.populate(TABLES)
    wrong = []

    def read(seed):
        some = np.random.default_rng(seed)
        for _ in range(20):
            rows = np.stack([some.integers(0, n, (2, 9)) for n in (5, 7)], axis=2)
            if not np.array_equal(engram.lookup(rows), expected(rows, TABLES)):
                wrong.append(rows)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert engram.remove_from_store(True) == 2


def test_wrapped_store():
    class Wrapper:
        def _get_pyclient_capsule(self):
            return store._get_pyclient_capsule()

    engram = ms.EngramStore(3, config(), Wrapper())
    engram.populate(TABLES)
    assert np.array_equal(engram.lookup(ROWS), expected(ROWS, TABLES)) and engram.remove_from_store(True) == 2


def test_ours():
    """Differences from upstream, and the store under the names of its first releases."""
    from distributed_object_store import DistributedObjectStore, distributed_object_store

    old = distributed_object_store()
    assert type(old) is DistributedObjectStore and callable(old.initAll)
    assert old.setup(local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE", global_segment_size=0, local_buffer_size=1 << 20,
                     protocol="tcp", device_name="", master_server_address=sys.argv[1]) == 0
    engram = ms.EngramStore(1, config(), old)
    engram.populate(TABLES)
    raises(RuntimeError, "convertible to int64", engram.lookup, ROWS + 0.5)
    raises(RuntimeError, "row 7 of head 1 is out of range (7 rows)", engram.lookup, [[[0, 7]]])
    raises(RuntimeError, "engram:l1:h0 exists already", engram.populate, TABLES)
    assert engram.remove_from_store(True) == 2
    engram.populate([t.astype(np.int16) for t in TABLES])
    assert np.array_equal(engram.lookup(ROWS), expected(ROWS, TABLES)) and engram.remove_from_store(True) == 2
    old.close()


for name, test in sorted(globals().items()):
    # upstream's module is one extension
    if name.startswith("test_") and not (name == "test_ours" and ms.__file__.endswith(".so")):
        test()
        print("ok", name, flush=True)
store.close()
