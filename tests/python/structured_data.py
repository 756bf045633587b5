# SPDX-License-Identifier: Apache-2.0
"""Data for the tests of structured objects, and their comparison."""

import sys

import mooncake.store as ms

try:
    import msgpack  # noqa: F401
    import numpy as np
except ImportError as e:
    print(f"SKIP: {e}")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

ROWS = 6


def opened(master, segment=256 << 20):
    store = ms.MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 64 << 20, "tcp", "", master) == 0
    return store


def members():
    """Members of every kind."""
    some = np.random.default_rng(1)
    out = {
        "bytes": bytes(range(256)) * 40,
        "bytearray": bytearray(b"abc" * 100),
        "view": memoryview(b"0123456789" * 50)[::3],
        "empty": b"",
        "one": b"1",
        "c": some.random((50, 20)).astype("float32"),
        "fortran": np.asfortranarray(some.random((30, 7))),
        "strided": np.arange(4000, dtype="int16").reshape(40, 100)[::2, ::3],
        "bool": some.random(1000) < 0.5,
        "complex": some.random(20) + 1j,
        "big-endian": np.arange(30, dtype=">i4"),
        "time": np.array(["2026-11-22", "NaT"], dtype="datetime64[s]"),
        "text": np.array(["a", "longer", ""]),
        "none": np.empty((0, 5), "int64"),
        "scalar": np.array(3.5),
        "readonly": np.frombuffer(b"12345678", "int32"),
    }
    if torch is not None:
        out.update({
            "tensor": torch.arange(3000, dtype=torch.float32).reshape(30, 100),
            "bf16": torch.ones(7, 3).to(torch.bfloat16),
            "transposed": torch.arange(600).reshape(20, 30).t(),
            "torch-bool": torch.tensor([True, False, True]),
            "torch-none": torch.empty((0, 3)),
        })
    return out


def columns():
    """Columns of ROWS rows, one for each codec and for its edges: {name: (values, codec)}."""
    arrays = [np.arange(i * 3, dtype="float32").reshape(i, 3) for i in range(1, ROWS)]
    out = {
        "text": (["a", None, "c\u00e9\u4e2d", "", "x" * 3000, "f"], "utf8_ragged"),
        "bytes": ([b"a", None, b"", b"\0\xff", bytes(2500), bytearray(b"ba")], "bytes_ragged"),
        "int": ([1, None, -3, 2 ** 62, 0, 5], "ndarray"),
        "float": ([1.5, 2.0, None, float("inf"), 0.0, -0.25], "ndarray"),
        "bool": ([True, False, None, True, True, False], "ndarray"),
        "numbers": ([[1, 2], [], None, [3], [4, 5, 6], [7]], "typed_ragged"),
        "matrix": ([[[1, 2], [3, 4]], None, [[5, 6]], [[7, 8]], [[9, 9]], [[0, 0]]], "typed_ragged"),
        "arrays": ([arrays[0], None, *arrays[1:]], "typed_ragged"),
        "same": ([np.full((2, 2), i, "int8") for i in range(ROWS)], "typed_ragged"),
        "dims": ([np.array(1.0), np.ones(2), np.ones((2, 2)), None, np.ones((1, 1, 3)), np.empty((0, 2))],
                 "typed_ragged"),
        "lists": ([["a", 1, None], [], None, [{"k": [1.5, b"b"]}], [[1], ["x"]], ["z"] * 20], "msgpack_ragged"),
        "dicts": ([{"a": 1, "b": None}, {"a": 2}, None, {}, {"c": "x"}, {"a": 3, "b": [1]}], "msgpack_ragged"),
        "tree": ([{"image": b"png", "at": [np.ones(2), None], "n": i} if i % 3 else None if i else {"n": -1, "x.y[0]\\": b"q"}
                  for i in range(ROWS)], "structured_recursive"),
        "media": ([[b"a", b"bb"], [], None, [b""], [bytes(1500)], [b"z"]], "media_list_ragged"),
        "nothing": ([None] * ROWS, "json_ragged"),
    }
    if torch is not None:
        out["tensors"] = ([torch.arange(i + 1) for i in range(ROWS - 1)] + [None], "ragged_tensor")
    try:
        from PIL import Image

        out["pictures"] = ([Image.new("RGB", (4 + i, 3), (i, 1, 2)) for i in range(ROWS - 1)] + [None], "media_bytes")
    except ImportError:
        pass
    return out


def same(a, b):
    """The same values of the same types; bytes may come as an array of uint8, tuples as lists."""
    if torch is not None and isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or a.dtype != b.dtype or a.is_nested != b.is_nested:
            return False
        if a.is_nested:
            return a.layout == b.layout and same(list(a.unbind()), list(b.unbind()))
        return a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        if not isinstance(b, np.ndarray) or a.dtype != b.dtype or a.shape != b.shape:
            return False
        return all(map(same, a.flat, b.flat)) if a.dtype == object else a.tobytes() == b.tobytes()
    if isinstance(a, (bytes, bytearray, memoryview)):
        if isinstance(b, np.ndarray):
            return b.dtype == np.uint8 and bytes(a) == b.tobytes()
        return isinstance(b, bytes) and bytes(a) == b
    if hasattr(a, "tobytes") and hasattr(a, "mode"):
        return (a.mode, a.size, a.tobytes()) == (b.mode, b.size, b.tobytes())
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, (list, tuple)):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def check(expected, got, what):
    assert same(expected, got), f"{what}: {expected!r} became {got!r}"


def check_dict(expected, got, what):
    assert set(expected) == set(got), (what, sorted(expected), sorted(got))
    for name, value in expected.items():
        check(value, got[name], f"{what} {name}")
