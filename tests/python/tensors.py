# SPDX-License-Identifier: Apache-2.0
"""Tensors: every type and shape survives, through each method, with torch, numpy, or neither.

tensors.py MASTER [--bare]; --bare: as if neither torch nor numpy were installed"""

import array
import ctypes
import json
import logging
import os
import sys
import tempfile
import unittest

MASTER, BARE = sys.argv[1], "--bare" in sys.argv[2:]
if BARE:
    sys.modules["torch"] = sys.modules["numpy"] = None
try:
    import torch
except ImportError:
    torch = None
try:
    import numpy
except ImportError:
    numpy = None

import mooncake.store as ms
from mooncake._api import tensors as _tensors

MIB = 1 << 20
HEADER = ms._tensor_metadata_size()


def samples():
    """Yield (object to store, its type in the header, its shape, its bytes)."""
    yield memoryview(bytearray(range(24))).cast("B", (2, 3, 4)), "uint8", (2, 3, 4), bytes(range(24))
    yield array.array("d", [1.5, -2.5]), "float64", (2,), array.array("d", [1.5, -2.5]).tobytes()
    yield array.array("f", []), "float32", (0,), b""
    if numpy is not None:
        for name in ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool", "float16"):
            a = numpy.arange(30).reshape(2, 3, 5).astype(name)
            yield a, name, (2, 3, 5), a.tobytes()
        a = numpy.arange(60, dtype="int32").reshape(6, 10)
        for b in (a[::2, 1::3], a.T, a[0, 0], numpy.frombuffer(a.tobytes(), "int32"), a[:, :0]):
            yield b, "int32", b.shape, b.tobytes()
    if torch is not None:
        for name, *_ in _tensors.TYPES:
            t = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, name))
            yield t, name, (2, 3, 4), bytes(t.view(torch.uint8).flatten().tolist())
        t = torch.arange(60, dtype=torch.float32, requires_grad=True).reshape(6, 10)
        for u in (t[::2, 1::3], t.T, t[0, 0], t.neg().T):
            yield u, "float32", tuple(u.shape), u.detach().contiguous().numpy().tobytes() if numpy is not None else None


def raw(tensor):
    """Type, shape and bytes of a getter's result."""
    if torch is not None:
        assert isinstance(tensor, torch.Tensor), type(tensor)
        flat = tensor.contiguous().reshape(-1)
        data = bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""
        return str(tensor.dtype).rpartition(".")[2], tuple(tensor.shape), data
    if numpy is not None:
        assert isinstance(tensor, numpy.ndarray), type(tensor)
        return tensor.dtype.name, tensor.shape, tensor.tobytes()
    assert isinstance(tensor, memoryview), type(tensor)
    return _tensors.TYPES[_tensors._BY_FORMAT[tensor.format]][0], tensor.shape, tensor.tobytes()


class Case(unittest.TestCase):
    def setUp(self):
        self.s = ms.MooncakeDistributedStore()
        self.assertEqual(self.s.setup("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 0, "tcp", "", MASTER), 0)

    def tearDown(self):
        self.s.remove_all(True)
        self.s.close()

    def test_all_types_and_shapes(self):
        s, n = self.s, 0
        for n, (value, name, shape, data) in enumerate(samples()):
            self.assertEqual(s.put_tensor(f"t{n}", value), 0, (name, shape))
            got = raw(s.get_tensor(f"t{n}"))
            self.assertEqual(got[:2], (name, tuple(shape)))
            if data is not None:
                self.assertEqual(got[2], data, (name, shape))
            # the same by a batch, by upsert, and into memory
            self.assertEqual(s.batch_upsert_tensor(["u", "v"], [value, value]), [0, 0])
            self.assertEqual([raw(t) for t in s.batch_get_tensor(["u", "v"])], [got, got])
            size = s.get_size("u")
            self.assertEqual(size, HEADER + len(got[2]))
            room = ctypes.create_string_buffer(size + 64)
            at = ctypes.addressof(room)
            self.assertEqual(raw(s.get_tensor_into("u", at, size + 64)), got)
            self.assertEqual(s.upsert_tensor_from("w", at, size), 0)
            self.assertEqual((raw(s.get_tensor("w")), s.get("w")), (got, s.get("u")))
        self.assertGreater(n, 1)

    def test_first_stays_and_upsert_replaces(self):
        s = self.s
        a, b = array.array("i", [1, 2, 3]), array.array("i", [4, 5])
        config = ms.ReplicateConfig(with_hard_pin=True)
        self.assertEqual([s.put_tensor("k", a), s.put_tensor("k", b), s.pub_tensor("k", b, config)], [0, 0, 0])
        self.assertEqual(raw(s.get_tensor("k"))[2], a.tobytes())
        self.assertEqual(s.upsert_tensor("k", b), 0)
        self.assertEqual(raw(s.get_tensor("k"))[2], b.tobytes())
        self.assertEqual(s.upsert_pub_tensor("k", a, config), 0)
        self.assertEqual(raw(s.get_tensor("k"))[2], a.tobytes())
        self.assertEqual(s.batch_pub_tensor(["p", "q"], [a, b], config), [0, 0])
        self.assertEqual(s.batch_upsert_pub_tensor(["p", "q"], [b, a], config), [0, 0])
        self.assertEqual([raw(t)[2] for t in s.batch_get_tensor(["p", "q"])], [b.tobytes(), a.tobytes()])
        self.assertEqual(s.batch_put_tensor(["p", "n"], [a, b]), [0, 0])
        self.assertEqual([raw(t)[2] for t in s.batch_get_tensor(["p", "n"])], [b.tobytes(), b.tobytes()])

    def test_each_key_has_its_group(self):
        """Each group id belongs to one key of the call; a tensor that is stored in several objects
        has one group."""
        s, a = self.s, array.array("i", range(8))

        def group_of(key):
            found = [g for g in ("g1", "g2", "g3") if s.upsert(key, s.get(key), ms.ReplicateConfig(group_ids=[g])) == 0]
            return found[0] if len(found) == 1 else found

        two, three = (ms.ReplicateConfig(group_ids=[f"g{i + 1}" for i in range(n)]) for n in (2, 3))
        self.assertEqual(s.batch_upsert_pub_tensor(["ug1", "ug2"], [a, a], two), [0, 0])
        self.assertEqual(s.batch_pub_tensor(["pg1", "pg2", "pg3"], [a, None, a], three), [0, -600, 0])
        self.assertEqual(s.batch_pub_tensor_with_tp(["tg1", "tg2"], [a, a], two, 0, 2), [0, 0])
        p = ms.TensorParallelism()
        axis = ms.ParallelAxis()
        axis.kind, axis.rank, axis.size, axis.split_dim = "tp", 1, 2, 0
        p.axes = [axis]
        self.assertEqual(s.batch_put_tensor_with_parallelism(["ag1", "ag2"], [a, a], [p, p], two), [0, 0])
        writer = ms.ParallelAxis()
        writer.rank, writer.size, writer.split_dim = 0, 2, 0
        self.assertEqual(s.batch_upsert_tensor_with_parallelism(["wg1", "wg2"], [a, a], None, two, [writer] * 2), [0, 0])
        keys = ["ug1", "ug2", "pg1", "pg3", "tg1_tp_0", "tg1_tp_1", "tg2_tp_0", "tg2_tp_1", "ag1_tp_1", "ag2_tp_1",
                "ag1__parallelism_manifest", "ag2__parallelism_manifest", "wg1__writer_0of2_sd0", "wg2__writer_manifest"]
        self.assertEqual([group_of(key) for key in keys], [f"g{key[2]}" for key in keys])
        for wrong in (two, ms.ReplicateConfig(group_ids=["g1"])):
            for call in (s.batch_pub_tensor, s.batch_upsert_pub_tensor):
                self.assertEqual(call(["n1", "n2", "n3"], [a] * 3, wrong), [-600] * 3)
            self.assertEqual(s.batch_pub_tensor_with_tp(["n1", "n2", "n3"], [a] * 3, wrong, 0, 2), [-600] * 3)
            self.assertEqual(s.batch_put_tensor_with_parallelism(["n1", "n2", "n3"], [a] * 3, None, wrong), [-600] * 3)
        self.assertEqual(s.batch_is_exist(["n1", "n2", "n3", "n1_tp_0"]), [0] * 4)

    def test_what_is_read_is_the_readers(self):
        s = self.s
        s.put_tensor("k", array.array("i", [1, 2, 3]))
        one, two = s.get_tensor("k"), s.get_tensor("k")
        one[0] = 9
        self.assertEqual((one[0], two[0]), (9, 1))
        s.close()
        self.assertEqual(two[2], 3)

    def test_wrong(self):
        s = self.s
        good = array.array("i", [1, 2, 3])
        for bad in (None, 5, "text", [1, 2], object(), array.array("u", "a"), 1.5):
            self.assertEqual(s.put_tensor("b", bad), -600, bad)
            self.assertEqual(s.batch_put_tensor(["g", "b"], [good, bad]), [0, -600])
        self.assertEqual((s.is_exist("b"), s.is_exist("g")), (0, 1))
        self.assertEqual(s.batch_put_tensor(["a"], [good, good]), [-600])
        self.assertEqual(s.batch_put_tensor([], []), [])
        self.assertEqual((s.get_tensor("none"), s.batch_get_tensor(["none", "g"])[0]), (None, None))
        # objects that are no tensors, and wrong headers
        whole = s.get("g")
        lies = [whole[:HEADER - 1], whole[:-1], b"x" * 1000, b"x"]
        for at, new in ((0, b"\0"), (4, b"\2"), (8, b"\x0f"), (8, b"\xff\xff\xff\xff"), (12, b"\x09"), (12, b"\xff\xff\xff\xff"),
                        (16, b"\7"), (20, b"\5"), (32, b"\xff" * 8), (104, b"\xff" * 7), (104, b"\xff" * 8), (24, b"\1")):
            lies.append(whole[:at] + new + whole[at + len(new):])
        room = ctypes.create_string_buffer(2000)
        at = ctypes.addressof(room)
        for n, lie in enumerate(lies):
            self.assertEqual(s.upsert("lie", lie), 0)
            self.assertIsNone(s.get_tensor("lie"), n)
            self.assertIsNone(s.get_tensor_into("lie", at, 2000), n)
            self.assertIsNone(ms._deserialize_tensor(lie), n)
            ctypes.memmove(at, lie, len(lie))
            self.assertEqual(s.put_tensor_from("lie2", at, len(lie)), -600, n)
        self.assertEqual(s.is_exist("lie2"), 0)
        self.assertIsNone(s.get_tensor_into("g", at, 10))
        self.assertEqual(s.batch_get_tensor_into(["g"], [at], [2000, 1]), [-600])
        self.assertEqual(s.put_tensor_from("x", 0, 1000), -600)
        for call in (lambda: s.put_tensor(), lambda: s.put_tensor(5, good), lambda: s.put_tensor_from("k", "p", 1),
                     lambda: s.get_tensor_into("g", "p", 1), lambda: s.batch_get_tensor(None), lambda: s.get_tensor(None)):
            with self.assertRaises(TypeError):
                call()
        self.assertEqual((s.get_tensor_into_cuda("none", good), s.get_tensor_into_cuda("g", good)), (-704, -600))
        s.close()
        self.assertEqual((s.put_tensor("k", good), s.get_tensor("g"), s.batch_get_tensor(["g"])), (-600, None, [None]))

    def test_shards(self):
        """Shards along each dimension, joined again, are the tensor."""
        s, data = self.s, bytes(range(60))
        value = memoryview(bytearray(data)).cast("B", (3, 4, 5))
        config = ms.ReplicateConfig()
        for dim, n, sizes in ((0, 3, (1, 1, 1)), (1, 2, (2, 2)), (2, 5, (1,) * 5)):
            key = f"s{dim}{n}"
            self.assertEqual(s.put_tensor_with_tp(key, value, 0, n, dim), 0)
            self.assertEqual(s.batch_pub_tensor_with_tp([key + "b"], [value], config, 0, n, dim), [0])
            whole, at = {}, 0
            for rank, size in enumerate(sizes):
                shape = tuple(size if d == dim else v for d, v in enumerate((3, 4, 5)))
                got = raw(s.get_tensor_with_tp(key, rank, n, dim))
                self.assertEqual(got[:2], ("uint8", shape))
                self.assertEqual(raw(s.batch_get_tensor_with_tp([key + "b"], rank, n)[0]), got)
                self.assertEqual(raw(s.get_tensor(f"{key}_tp_{rank}")), got)
                room = ctypes.create_string_buffer(1000)
                self.assertEqual(raw(s.get_tensor_with_tp_into(key, ctypes.addressof(room), 1000, rank, n)), got)
                for i, byte in enumerate(got[2]):
                    place = [i // (shape[1] * shape[2]), i // shape[2] % shape[1], i % shape[2]]
                    place[dim] += at
                    whole[tuple(place)] = byte
                at += size
            self.assertEqual(bytes(whole[a, b, c] for a in range(3) for b in range(4) for c in range(5)), data)
        # unequal shards, as upstream
        self.assertEqual([s.put_tensor_with_tp("uneven", value, 0, 2, dim) for dim in (0, 2)], [-600, -600])
        self.assertEqual([s.get_tensor_with_tp("uneven", r, 2) for r in range(2)], [None, None])
        # from memory; one rank; invalid arguments
        room = ctypes.create_string_buffer(_tensors.Header(3, (3, 4, 5)).pack() + data)
        self.assertEqual(s.put_tensor_with_tp_from("f", ctypes.addressof(room), len(room), 0, 3, 0), 0)
        self.assertEqual(raw(s.get_tensor_with_tp("f", 1, 3)), ("uint8", (1, 4, 5), data[20:40]))
        self.assertEqual((s.put_tensor_with_tp("one", value), s.is_exist("one"), s.is_exist("one_tp_0")), (0, 1, 0))
        for args in ((0, 4, 0), (0, 0, 0), (0, -1, 0), (0, 2, 3), (0, 2, -1), (0, "2", 0), (0, 2, None), (0, 10 ** 9, 2)):
            self.assertEqual(s.put_tensor_with_tp("bad", value, *args), -600, args)
        self.assertEqual(s.put_tensor_with_tp("bad", None, 0, 2, 0), -600)
        self.assertEqual(s.batch_put_tensor_with_tp(["a", "b"], [value]), [-600, -600])
        self.assertEqual([s.get_tensor_with_tp("f", r, n) for r, n in ((3, 3), (-1, 3), (0, 0), (0, 4), ("x", 3))][:3], [None] * 3)
        self.assertEqual(s.put_tensor_with_tp_from("bad", ctypes.addressof(room), 10, 0, 3, 0), -600)

    def test_functions(self):
        value = array.array("i", [1, 2, 3])
        header, address, size, owner = ms._serialize_tensor(value)
        self.assertEqual((len(header), size, ctypes.string_at(address, size)), (304, 12, value.tobytes()))
        self.assertEqual(raw(ms._deserialize_tensor(header + value.tobytes()))[1:], ((3,), value.tobytes()))
        del owner
        # upstream's header for the same tensor
        self.assertEqual(header[:48].hex(), "4e4f4f4d01003001060000000100000000000000000000003001000000000000" "0c00000000000000"
                         "0300000000000000")
        with self.assertRaises(TypeError):
            ms._serialize_tensor("text")

    def test_files(self):
        s = self.s
        value = array.array("h", [1, -2, 3])
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "t.safetensors")
            s.put_tensor("k", value)
            self.assertEqual(s.save_tensor_to_safetensor("k", path), 0)
            with open(path, "rb") as f:
                data = f.read()
            # a path that is no regular file is written to, and stays
            pipe = os.path.join(d, "pipe")
            os.mkfifo(pipe)
            reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            self.assertEqual(s.save_tensor_to_safetensor("k", pipe), 0)
            self.assertEqual(os.read(reader, 4096), data)
            os.close(reader)
            n = int.from_bytes(data[:8], "little")
            self.assertEqual(json.loads(data[8:8 + n]), {"k": {"dtype": "I16", "shape": [3], "data_offsets": [0, 6]}})
            self.assertEqual(data[8 + n:], value.tobytes())
            if torch is not None:
                try:
                    import safetensors.torch

                    self.assertEqual(safetensors.torch.load_file(path)["k"].tolist(), [1, -2, 3])
                except ImportError:
                    pass
            s.remove("k", True)
            self.assertEqual(raw(s.load_tensor_from_safetensor("k", path)), ("int16", (3,), value.tobytes()))
            self.assertEqual(raw(s.get_tensor("k")), ("int16", (3,), value.tobytes()))
            with self.assertLogs("mooncake.store", logging.WARNING):
                self.assertEqual(raw(s.load_tensor_from_safetensor("other", path))[1], (3,))
            self.assertEqual(raw(s.load_tensor_from_safetensor(file_name=path))[1], (3,))
            self.assertEqual(s.is_exist(path), 1)
            self.assertEqual(s.save_tensor_to_safetensor("none", path), -704)
            s.put("plain", b"x" * 400)
            self.assertEqual(s.save_tensor_to_safetensor("plain", path), -600)
            with self.assertLogs("mooncake.store", logging.ERROR):
                self.assertEqual(s.save_tensor_to_safetensor("k", os.path.join(d, "no", "t")), -1)
                self.assertIsNone(s.load_tensor_from_safetensor("k", os.path.join(d, "none")))
                for bad in (b"", b"\xff" * 8, data[:-1], data[:8] + b"x" * n, (2).to_bytes(8, "little") + b"{}",
                            (2).to_bytes(8, "little") + b"[]"):
                    with open(path, "wb") as f:
                        f.write(bad)
                    self.assertIsNone(s.load_tensor_from_safetensor("k", path), bad)
            with self.assertRaises(TypeError):
                s.load_tensor_from_safetensor("k")


def axis(kind, rank, size, split_dim=None, **more):
    a = ms.ParallelAxis()
    a.kind, a.rank, a.size, a.split_dim = kind, rank, size, split_dim
    for name, value in more.items():
        setattr(a, name, value)
    return a


def axes(*of):
    p = ms.TensorParallelism()
    p.axes = list(of)
    return p


def shard(*of):
    return target("shard", axes(*of))


def target(mode, parallelism=None):
    t = ms.ReadTarget()
    t.mode, t.parallelism = mode, parallelism
    return t


class WithParallelism(unittest.TestCase):
    """The names and headers are those of upstream's wheel."""

    WHOLE = memoryview(bytearray(range(24))).cast("B", (4, 6))
    ROWS = [bytes(range(6 * r, 6 * r + 6)) for r in range(4)]

    def setUp(self):
        self.s = ms.MooncakeDistributedStore()
        self.assertEqual(self.s.setup("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 0, "tcp", "", MASTER), 0)

    def tearDown(self):
        self.s.remove_all(True)
        self.s.close()

    def read(self, key, t):
        got = self.s.get_tensor_with_parallelism(key, t)
        return None if got is None else raw(got)[1:]

    def header(self, key):
        h = _tensors.Header.unpack(self.s.get(key)[:HEADER], self.s.get_size(key))
        return h.layout, h.axes, h.whole, h.shape

    def test_one_axis(self):
        s, half = self.s, [self.WHOLE[:2], self.WHOLE[2:]]
        self.assertEqual(s.put_tensor_with_parallelism("k", half[0], axes(axis("tp", 0, 2, 0))), 0)
        self.assertEqual(s.get("k__parallelism_manifest"), bytes.fromhex("4e414d57010060000300000002000000000000000200000000"
                         "00000000000000" "04" + "00" * 7 + "06" + "00" * 7 + "ff" * 48))
        self.assertEqual(self.header("k_tp_0"), (1, (), (4, 6), (2, 6)))
        self.assertEqual(self.read("k", shard(axis("tp", 0, 1, 0))), None)
        self.assertEqual(s.put_tensor_with_parallelism("k", half[1], axes(axis("tp", 1, 2, 0))), 0)
        self.assertEqual(self.read("k", shard(axis("tp", 1, 2, 0))), ((2, 6), b"".join(self.ROWS[2:])))
        self.assertEqual(self.read("k", shard(axis("tp", 3, 4, 0))), ((1, 6), self.ROWS[3]))
        self.assertEqual(self.read("k", target("full", axes(axis("tp", 0, 2, 0)))), ((4, 6), b"".join(self.ROWS)))
        # a piece of another split is not returned
        self.assertEqual(self.read("k", shard(axis("tp", 1, 3, 1))), ((4, 2), b"".join(r[2:4] for r in self.ROWS)))
        for t in (None, target("as_stored"), target("full"), target("shard"), shard(axis("tp", 1, 2)), "x",
                  target("as_stored", axes(axis("tp", 1, 2, 0)))):
            self.assertEqual(self.read("k", t), None)

    def test_other_axes(self):
        s = self.s
        for of, name in ((axis("dp", 1, 2), "k__dp_1of2"), (axis("pp", 1, 2, stage_id=3), "k__pp_1of2_sid3"),
                         (axis("ep", 1, 2, expert_id=7), "k__ep_1of2_eid7")):
            self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, axes(of)), 0)
            self.assertEqual(self.header(name), (1, (), (4, 6), (4, 6)))
            self.assertEqual(self.read("k", shard(of)), ((4, 6), bytes(range(24))))
        self.assertEqual(s.get("k__parallelism_manifest"), b"")

    def test_needed_numbers(self):
        """As upstream: "ep" needs expert_id, "pp" needs stage_id; a tensor that does not split into equal pieces has none."""
        s = self.s
        for of in (axis("ep", 0, 2), axis("ep", 0, 2, stage_id=1), axis("pp", 0, 2), axis("pp", 0, 2, expert_id=1)):
            self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, axes(of)), -600)
            self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, axes(axis("tp", 0, 2, 0), of)), -600)
            self.assertIsNone(self.read("k", shard(of)))
        self.assertEqual(s.remove_all(True), 0)
        for r in range(2):
            self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE[2 * r:2 * r + 2], axes(axis("tp", r, 2, 0))), 0)
        self.assertEqual([self.read("k", shard(axis("tp", r, 3, 0))) for r in range(3)], [None] * 3)
        self.assertEqual([self.read("k", shard(axis("tp", r, 5, 0))) for r in range(5)], [None] * 5)

    def test_several_axes(self):
        s, pp = self.s, axis("pp", 0, 2, stage_id=1)
        for r in range(2):
            self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, axes(pp, axis("tp", r, 2, 1))), 0)
            self.assertEqual(self.header(f"k__tp_{r}of2_sd1__pp_0of2_sid1"), (1, (), (4, 6), (4, 3)))
            self.assertEqual(self.read("k", shard(axis("tp", r, 2, 1), pp)),
                             ((4, 3), b"".join(row[3 * r:3 * r + 3] for row in self.ROWS)))
        self.assertEqual(self.read("k", target("full", axes(pp, axis("tp", 0, 2, 1)))), ((4, 6), bytes(range(24))))
        self.assertEqual(self.read("k", shard(pp, axis("tp", 2, 3, 1))), ((4, 2), b"".join(row[4:] for row in self.ROWS)))
        self.assertEqual(self.read("k", shard(axis("pp", 1, 2, stage_id=1), axis("tp", 0, 2, 1))), None)

    def test_writers(self):
        s = self.s
        self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, writer_partition=axis("tp", 0, 2, 0)), 0)
        self.assertEqual(self.header("k__writer_0of2_sd0"), (1, (), (4, 6), (2, 6)))
        self.assertEqual((self.read("k", target("full")), len(s.get("k__writer_manifest"))), (None, 96))
        self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, writer_partition=axis("tp", 1, 2, 0)), 0)
        self.assertEqual(self.read("k", target("full")), ((4, 6), bytes(range(24))))
        self.assertEqual(self.read("k", shard(axis("tp", 1, 2, 0))), ((2, 6), b"".join(self.ROWS[2:])))

    def test_what_is_wrong(self):
        s, tp = self.s, axis("tp", 0, 2, 0)
        for p in (axes(), axes(axis("tp", 0, 2)), axes(axis("tp", 2, 2, 0)), axes(axis("tp", 0, 2, 5)), axes(axis("tp", 0, 2, -1)),
                  axes(axis("xx", 0, 2, 0)), axes(tp, axis("tp", 1, 2, 0)), axes(*[axis("dp", 0, 2)] * 5), axes(axis("dp", 0, 2, 0)),
                  axes(axis("dp", 0, 2), axis("tp", 0, 3, 0)), axes(axis("dp", 0, 0)), axes(axis("dp", "0", 2)), axes(None), "x"):
            self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, p), -600)
        self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, axes(tp), writer_partition=tp), -600)
        self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, writer_partition=(0, 2, 0)), -600)
        self.assertEqual(s.put_tensor_with_parallelism("k", self.WHOLE, writer_partition=axis("tp", 0, 3, 0)), -600)
        self.assertEqual(s.put_tensor_with_parallelism("k", "x", axes(tp)), -600)
        with self.assertRaises(RuntimeError):
            target("x")
        self.assertEqual(s.remove_all(True), 0)

    def test_batches_and_addresses(self):
        s = self.s
        both = axes(axis("dp", 1, 2), axis("tp", 1, 2, 0))
        self.assertEqual(s.batch_put_tensor_with_parallelism(["a", "b"], [self.WHOLE] * 2, [None, both]), [0, 0])
        self.assertEqual(s.batch_put_tensor_with_parallelism(["a", "b"], [self.WHOLE] * 2, [None]), [-600, -600])
        self.assertEqual([None if t is None else raw(t)[1] for t in s.batch_get_tensor_with_parallelism(
            ["a", "b", "c"], [None, target("shard", both), None])], [(4, 6), (2, 6), None])
        self.assertEqual(s.batch_get_tensor_with_parallelism(["a", "b"], [None]), [None, None])
        room = ctypes.create_string_buffer(4096)
        at = ctypes.addressof(room)
        self.assertEqual(raw(s.get_tensor_with_parallelism_into("a", at, 4096))[1:], ((4, 6), bytes(range(24))))
        self.assertIsNone(s.get_tensor_with_parallelism_into("a", at, HEADER + 23))
        self.assertIsNone(s.get_tensor_with_parallelism_into("a", 4096, 4096))
        # a put from an address writes all "tp" ranks
        self.assertEqual(s.put_tensor_with_parallelism_from("f", at, HEADER + 24, both), 0)
        self.assertEqual([self.header(f"f__dp_1of2__tp_{r}of2_sd0")[3] for r in range(2)], [(2, 6)] * 2)
        self.assertEqual(raw(s.batch_get_tensor_with_parallelism_into(["f"], [at + 1024], [2048], [target("full", both)])[0])[1:],
                         ((4, 6), bytes(range(24))))
        self.assertEqual(s.batch_put_tensor_with_parallelism_from(["g", "h"], [at, 4096], [400, 400], [None, None]), [0, -600])
        self.assertEqual(s.batch_put_tensor_with_parallelism_from(["g", "h"], [at], [400, 400]), [-600, -600])
        other = memoryview(bytearray(24)).cast("B", (4, 6))
        self.assertEqual(s.upsert_tensor_with_parallelism("a", other), 0)
        self.assertEqual(s.batch_upsert_tensor_with_parallelism(["b"], [other], [both]), [0])
        self.assertEqual(s.upsert_tensor_with_parallelism_from("f", at, 4096, both), 0)
        self.assertEqual(s.batch_upsert_tensor_with_parallelism_from(["g"], [at], [4096]), [0])
        self.assertEqual((self.read("a", None)[1], self.read("b", target("shard", both))[1]), (bytes(24), bytes(12)))
        self.assertEqual(s.put_tensor_with_parallelism(b"\xff", self.WHOLE, both), 0)
        self.assertEqual(self.read(b"\xff", target("shard", both))[0], (2, 6))


if __name__ == "__main__":
    print(f"torch: {getattr(torch, '__version__', 'not there')}, numpy: {getattr(numpy, '__version__', 'not there')}", flush=True)
    unittest.main(argv=sys.argv[:1], verbosity=1)
