# SPDX-License-Identifier: Apache-2.0
"""Structured objects while calls fail, objects are damaged, and other clients remove them.

structured_faults.py MASTER"""

import ctypes
import io
import json
import pickle
import sys
import threading
import time

from structured_data import ROWS, check, check_dict, columns, members, np, opened, torch
from mooncake import structured_object_store as so

MASTER = sys.argv[1]
one = opened(MASTER)
TOLD = (ValueError, RuntimeError, KeyError)
WRITES = ("put", "put_parts", "put_batch", "put_tensor", "pub_tensor", "put_from", "put_tensor_from")
READS = ("get", "batch_get_into", "get_into_ranges", "register_buffer")
REMOVES = ("remove", "batch_remove")


class Failing:
    """A store whose n-th call (from 0) of a kind fails.  @how: "refused" does nothing and returns
    an error, "lost" does it and returns an error, "raises" does nothing and raises, "half" does
    the first key of a batch."""

    def __init__(self, store, names, n=None, how="refused"):
        self.store, self.names, self.n, self.how = store, names, n, how
        self.count, self.keys, self.failed = 0, set(), False
        self.lock = threading.Lock()

    def __getattr__(self, name):
        found = getattr(self.store, name)
        if name in WRITES:
            def noted(first, *args, **kwargs):
                self.keys.update([first] if isinstance(first, str) else first)
                return self._call(name, found, first, *args, **kwargs)

            return noted
        return lambda *args, **kwargs: self._call(name, found, *args, **kwargs)

    def _call(self, name, call, *args, **kwargs):
        if name not in self.names:
            return call(*args, **kwargs)
        with self.lock:
            fails, self.count = self.count == self.n, self.count + 1
        if not fails:
            return call(*args, **kwargs)
        self.failed = True
        if self.how == "raises":
            raise OSError("the line is cut")
        many = name in ("put_batch", "batch_remove", "batch_get_into", "get_into_ranges")
        if self.how == "lost":
            call(*args, **kwargs)
        elif self.how == "half" and many and name in WRITES:
            call(args[0][:1], args[1][:1])
        elif self.how == "half" and name == "batch_remove":
            call(args[0][:1], *args[1:])
        if name == "get":
            return b""
        if name == "get_into_ranges":
            return [[[-800] * len(sizes) for sizes in args[4][0]]]
        if many and name not in WRITES:
            return [-800] * len(args[0])
        return -800


def failing_cases(names, hows=("refused", "lost", "raises", "half")):
    """For each kind of failure, yield stores that fail at call 0, 1, ..., until the failing call
    is not reached."""
    for how in hows:
        for n in range(200):
            store = Failing(one, names, n, how)
            yield store
            if not store.failed:
                assert n > 1, f"{names} {how}: only {n} calls"
                break


def gone(store):
    keys = sorted(store.keys)
    assert keys and one.batch_is_exist(keys) == [0] * len(keys), [k for k in keys if one.is_exist(k)]


def some():
    return {"x": bytes(3000), "y": np.arange(40), "z": b"1", **({} if torch is None else {"t": torch.ones(5)})}


def flat():
    return {"dense": np.arange(ROWS * 9).reshape(ROWS, 9), **{k: v for k, (v, _) in columns().items()}}


def test_put_fails():
    for policy in (None, so.BundleTransferPolicy(3, "parallel")):
        for store in failing_cases(WRITES):
            t = so.MooncakeBundleTransfer(store, default_chunk_bytes=1000)
            try:
                ref = t.put_object(some(), policy=policy)
            except (RuntimeError, OSError):
                assert store.failed
                gone(store)
                continue
            # the caller may fail to notice a lost status only, and that does not happen here
            assert not store.failed, f"{store.how} {store.n} is not reported"
            check_dict(some(), so.MooncakeBundleTransfer(one).get_object(ref), "put")
            t.remove_bundle(ref)
            gone(store)
    assert one.remove_all(True) == 0


def test_never_readable():
    """The manifest is written last, after all other objects; it is removed last."""
    class Watching(Failing):
        def _call(self, name, call, *args, **kwargs):
            out = call(*args, **kwargs)
            if name in WRITES + REMOVES:
                self.states.append((any(one.is_exist(k) == 1 for k in self.keys if k.endswith("/manifest")),
                                    sum(one.batch_is_exist(sorted(self.keys)))))
            return out

    store = Watching(one, ())
    store.states = []
    t = so.MooncakeBundleTransfer(store, default_chunk_bytes=1000)
    ref = t.put_object(some(), policy=so.BundleTransferPolicy(2, "parallel"))
    assert [there for there, _ in store.states[:-1]] == [False] * (len(store.states) - 1) and store.states[-1][0]
    whole, store.states = store.states[-1][1], []
    assert whole == len(store.keys)
    t.remove_bundle(ref)
    assert store.states == [(True, 1), (False, 0)], store.states


def test_append_fails():
    before = so.MooncakeBundleTransfer(one, default_chunk_bytes=1000).put(flat(), type="dict", stage="s")
    stays = sorted({c["key"] for r in before.stage_refs.values() for p in [r.manifest["meta"], *r.manifest["buffers"].values()]
                    for c in p["chunks"]} | {r.manifest_key for r in before.stage_refs.values()})
    added = {"batch": {"more": np.ones((ROWS, 300))}, "non_tensor_batch": {"m": ["x" * 900] * ROWS}}
    for names in (WRITES, READS):
        for store in failing_cases(names, ("refused", "lost", "raises") if names is WRITES else ("refused", "raises")):
            t = so.MooncakeBundleTransfer(store, default_chunk_bytes=1000)
            handle = so.export_ref(before)
            try:
                after = t.append_dataproto_fields(handle, added, stage="s")
            except (RuntimeError, ValueError, OSError):
                assert store.failed
                if store.keys:
                    gone(store)
                assert one.batch_is_exist(stays) == [1] * len(stays)
                continue
            assert not store.failed
            t.cleanup_dataproto_append(handle, after)
            gone(store)
    check_dict(flat(), so.MooncakeBundleTransfer(one).get(so.export_ref(before), type="dict"), "after failed appends")
    so.MooncakeBundleTransfer(one).cleanup_dataproto(before)
    assert one.remove_all(True) == 0


def test_get_fails():
    few = {k: v for k, v in flat().items() if k in ("dense", "text", "tree", "media")}
    ref = so.MooncakeBundleTransfer(one, default_chunk_bytes=1000).put(few, type="dict")
    handle = so.export_ref(ref)
    for rows in (None, [0, 3]):
        for store in failing_cases(READS, ("refused", "raises")):
            t = so.MooncakeBundleTransfer(store)
            try:
                got = t.get(handle, type="dict", rows=rows)
            except (RuntimeError, ValueError, OSError):
                assert store.failed
                continue
            assert not store.failed, f"{store.n} {rows} is not reported"
            if rows is None:
                check_dict(few, got, "get")
    so.MooncakeBundleTransfer(one).cleanup_dataproto(ref)


def test_remove_fails():
    for store in failing_cases(REMOVES, ("refused", "half", "raises")):
        t = so.MooncakeBundleTransfer(store, default_chunk_bytes=1000)
        ref = t.put_object(some())
        known = {"manifest_key": ref.manifest_key}
        try:
            t.remove_bundle(known)
        except (RuntimeError, OSError):
            # the removal can be repeated, also with the key alone
            assert one.is_exist(ref.manifest_key) == 1
            so.MooncakeBundleTransfer(one).remove_bundle(known)
        gone(store)
        so.MooncakeBundleTransfer(one).remove_bundle(known)
        so.MooncakeBundleTransfer(one).remove_bundle(ref)
    stuck = Failing(one, ())
    stuck._call = lambda name, call, *args, **kwargs: [-706] * len(args[0]) if name == "batch_remove" else -706
    ref = so.MooncakeBundleTransfer(one).put_object(some())
    try:
        so.MooncakeBundleTransfer(stuck).remove_bundle(ref)
        raise AssertionError("a removal that fails is not reported")
    except RuntimeError:
        pass
    so.MooncakeBundleTransfer(one).remove_bundle(ref)
    assert one.remove_all(True) == 0


def replaced(key, data):
    assert one.remove(key, True) == 0
    # an object has at least one byte
    assert not data or one.put(key, data) == 0


def damages(key, old):
    yield "removed", None
    yield "shorter", old[:-1]
    yield "longer", old + b"\0"
    yield "half", old[: len(old) // 2]
    if key.endswith(("/manifest", "/meta")):
        yield "no JSON", b"\xff" * len(old)
        yield "no dict", b"[1]".ljust(len(old))
        yield "other JSON", b"{}".ljust(len(old))
        yield "deep", b"[" * len(old)
    else:
        for fill in (b"\xff", b"\x7f", b"\x01"):
            yield f"{fill}s", fill * len(old)


def test_damage():
    """Damage each object of a DataProto in turn.  Data of the same size are other values, which
    the format cannot notice; any other damage raises an exception."""
    t = so.MooncakeBundleTransfer(one, default_chunk_bytes=2000)
    ref = t.put(flat(), type="dict")
    handle = so.export_ref(ref)
    manifest = ref.stage_refs["default"].manifest
    manifest_key = ref.stage_refs["default"].manifest_key
    owners = {c["key"]: name for name, p in [("meta", manifest["meta"]), *manifest["buffers"].items()] for c in p["chunks"]}
    unnoticed = 0
    for key in [manifest_key, *owners]:
        old = one.get(key)
        for what, data in damages(key, old):
            replaced(key, data)
            name = owners.get(key, "manifest")
            fits = data is not None and len(data) == len(old) and name not in ("manifest", "meta")
            field = None if name in ("manifest", "meta") else [name.split(".")[1]]
            for rows in (None, slice(1, 4), [0, ROWS - 1, 2]):
                try:
                    t.get(handle, type="dict", rows=rows, fields=field)
                    # these rows do not need the object, or are intact in it
                    assert fits or rows is not None, f"{key} {what}: not noticed"
                    unnoticed += fits
                except TOLD as e:
                    assert str(e), (key, what)
            if one.is_exist(key):
                one.remove(key, True)
            assert one.put(key, old) == 0
    check_dict(flat(), t.get(handle, type="dict"), "all as it was")
    # offsets, shapes and numbers of dimensions are checked: filled with ones they are damaged
    for name, payload in manifest["buffers"].items():
        if name.endswith(("offsets", "shapes", "ndims")) and payload["bytes"] and not name.startswith(
                "non_tensor_batch.nothing"):
            for chunk in payload["chunks"]:
                old = one.get(chunk["key"])
                replaced(chunk["key"], b"\xff" * len(old))
                raises_told(lambda: t.get(handle, fields=[name.split(".")[1]]), f"{name} of -1")
                replaced(chunk["key"], b"\x7f" * len(old))
                raises_told(lambda: t.get(handle, fields=[name.split(".")[1]]), f"{name} of much")
                replaced(chunk["key"], old)
    assert unnoticed
    t.cleanup_dataproto(handle)


def raises_told(call, what):
    try:
        call()
    except TOLD as e:
        assert str(e), what
        return
    raise AssertionError(f"{what}: not noticed")


def test_manifests():
    """Manifests with wrong values."""
    victim = "bundle/default/victim/buffer/x"
    assert one.put(victim, b"mine") == 0
    t = so.MooncakeBundleTransfer(one, default_chunk_bytes=1000)
    ref = t.put_object(some())
    good = json.loads(one.get(ref.manifest_key))
    own = f"bundle/{good['object_id']}"

    def lies():
        def changed(*path, to):
            out = json.loads(json.dumps(good))
            at = out
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = to
            return out

        yield changed("version", to=2)
        yield changed("layout", to="x")
        yield changed("object_id", to=7)
        yield changed("object_id", to="default/victim")
        yield changed("buffers", to=[])
        yield changed("buffers", "a/b", to=good["buffers"]["z"])
        yield changed("cleanup_keys", to=[victim])
        yield changed("cleanup_keys", to=victim)
        yield changed("buffer_object_ids", to="default/victim")
        yield changed("meta", to=None)
        for name in ("key", "bytes", "chunks"):
            for to in (None, [], -1, 1.5, "8", True, {}, [1], victim):
                yield changed("buffers", "z", name, to=to)
        for to in (-1, 1.0, "1", None, True, 2):
            yield changed("buffers", "z", "chunks", 0, "bytes", to=to)
        for to in (victim, None, own, f"{own}/buffer/zz"):
            yield changed("buffers", "z", "chunks", 0, "key", to=to)
        yield changed("buffers", "x", "chunks", to=[good["buffers"]["x"]["chunks"][0]] * 3)

    for n, lie in enumerate(lies()):
        for known in ({"manifest_key": ref.manifest_key}, {"manifest": lie, "manifest_key": ref.manifest_key}):
            if "manifest" not in known:
                replaced(ref.manifest_key, json.dumps(lie).encode())
            for call in (t.get_object, t.remove_bundle):
                try:
                    call(known)
                except ValueError as e:
                    assert str(e)
                else:
                    raise AssertionError(f"wrong value {n} is accepted: {lie}")
    assert one.get(victim) == b"mine"
    replaced(ref.manifest_key, json.dumps(good).encode())
    check_dict(some(), t.get_object({"manifest_key": ref.manifest_key}), "the truth")
    t.remove_bundle(ref)
    one.remove(victim, True)
    assert one.remove_all(True) == 0


class Guard:
    """A store that refuses to read into more memory than a limit."""

    def __init__(self, store, most):
        self.store, self.most, self.read = store, most, 0

    def __getattr__(self, name):
        return getattr(self.store, name)

    def register_buffer(self, address, size):
        assert size <= self.most, f"memory of {size} bytes was taken"
        self.read += 1
        return self.store.register_buffer(address, size)


def test_sizes():
    """Sizes in a manifest or metadata are checked before memory is allocated."""
    t = so.MooncakeBundleTransfer(one)
    guard = Guard(one, 1 << 20)
    reader = so.MooncakeBundleTransfer(guard)
    ref = t.put_object({"x": np.arange(1000), "b": b"1" * 100, **({} if torch is None else {"t": torch.ones(4)})})
    assert len(reader.get_object(ref)) >= 2 and guard.read
    good, meta = json.loads(one.get(ref.manifest_key)), json.loads(one.get(ref.manifest["meta"]["key"]))
    real = np.empty
    taken = []
    np.empty = lambda shape, *args, **kwargs: (taken.append(shape), real(shape, *args, **kwargs))[1]
    try:
        for name in good["buffers"]:
            for size in (1 << 62, 1 << 36, 2 << 20):
                lie = json.loads(json.dumps(good))
                lie["buffers"][name]["bytes"] = lie["buffers"][name]["chunks"][0]["bytes"] = size
                told = json.loads(json.dumps(meta))
                spec = told[so.STRUCTURED_FIELD_SPECS_KEY][name]
                if spec["encoding"] == "ndarray":
                    spec["shape"] = [size // 8]
                replaced(ref.manifest["meta"]["key"], json.dumps(told).encode())
                lie["meta"]["bytes"] = lie["meta"]["chunks"][0]["bytes"] = len(json.dumps(told))
                for known in ({"manifest": lie}, {"manifest": {**lie, "buffers": {name: lie["buffers"][name]}}}):
                    raises_told(lambda: reader.get_object(known), f"{name} of {size} bytes")
            assert all(n <= 1 << 20 for n in taken if isinstance(n, int)), taken
        for shape in ([1 << 62, 1 << 62], [-1000], [999], [1001], [2000], [10 ** 7], [500], [1000, 0], "x", None, [1000.0], [[1000]]):
            lie_of(t, ref, meta, good, "x", "shape", shape)
        for dtype in ("O", "|O", "no", "<i4", "", None, 7, "i8,O", "(2,)i8"):
            lie_of(t, ref, meta, good, "x", "dtype", dtype)
        for encoding in ("torch_tensor", "no", None, 7):
            lie_of(t, ref, meta, good, "x", "encoding", encoding)
    finally:
        np.empty = real
    t.remove_bundle({"manifest_key": ref.manifest_key})


def lie_of(t, ref, meta, good, name, what, value):
    told = json.loads(json.dumps(meta))
    told[so.STRUCTURED_FIELD_SPECS_KEY][name][what] = value
    blob = json.dumps(told).encode()
    replaced(ref.manifest["meta"]["key"], blob)
    lie = json.loads(json.dumps(good))
    lie["meta"]["bytes"] = lie["meta"]["chunks"][0]["bytes"] = len(blob)
    raises_told(lambda: t.get_object({"manifest": lie}), f"{what} {value!r}")


def test_handles():
    """Handles with metadata that do not fit the stored data."""
    t = so.MooncakeBundleTransfer(one)
    ref = t.put(flat(), type="dict")
    handle = json.loads(json.dumps(so.export_ref(ref)))
    for name, coded in handle["encoded_non_tensor"].items():
        for codec in ("typed_ragged", "ndarray", "utf8_ragged", "media_list_ragged", "ragged_tensor_dict",
                      "structured_recursive", "no", None):
            if codec in ("typed_ragged", "ndarray", "structured_recursive") and codec == coded["codec"]:
                continue
            lie = json.loads(json.dumps(handle))
            lie["encoded_non_tensor"][name]["codec"] = codec
            try:
                t.get(lie, fields=[name])
            except TOLD:
                continue
            # byte codecs are compatible with each other, and arrays contain the numbers
            assert codec in ("utf8_ragged", "ndarray", "media_list_ragged") or name == "nothing", (name, codec)
        for members in (None, {}, {"data": "nobody"}, {k: "batch.dense" for k in coded["payload_members"]}):
            lie = json.loads(json.dumps(handle))
            lie["encoded_non_tensor"][name]["payload_members"] = members
            raises_told(lambda: t.get(lie, fields=[name]), f"{name} {members}")
    for path, value in (("nodes", None), ("leaves", []), ("leaves", [{}]), ("root_path", "x"), ("nodes", [{"path": 1}])):
        lie = json.loads(json.dumps(handle))
        lie["encoded_non_tensor"]["tree"]["metadata"][path] = value
        raises_told(lambda: t.get(lie, fields=["tree"]), f"tree {path} {value}")
    lie = json.loads(json.dumps(handle))
    lie["batch_size"] = 1 << 40
    raises_told(lambda: t.get(lie, fields=["text"]), "rows that are not there")
    for size in (ROWS - 1, ROWS + 1):
        lie["batch_size"] = size
        raises_told(lambda: t.get(lie, fields=["dense"]), f"{size} rows of {ROWS}")
    t.cleanup_dataproto(handle)


class Bomb:
    def __reduce__(self):
        return (globals()["set_off"], ())


went_off = []


def set_off():
    went_off.append(1)


def test_no_pickles():
    t = so.MooncakeBundleTransfer(one)
    for blob in (pickle.dumps(Bomb()), torch_saved(Bomb())):
        if blob is None:
            continue
        ref = t.put_bundle(json.dumps({so.STRUCTURED_FIELD_SPECS_KEY: {
            "a": {"encoding": "torch_tensor"}, "b": {"encoding": "torch_tensor", "nested": True},
            "c": {"encoding": "ndarray", "dtype": "O", "shape": [len(blob) // 8]}}}).encode(), {n: blob for n in "abc"})
        ref.manifest["buffers"]["a"]["format"] = "torch_save"
        for name in "abc":
            raises_told(lambda: t.materialize(t.read_spec(ref).select_members([name])), f"a pickle as {name}")
        t.remove_bundle(ref)
    pickle.loads(pickle.dumps(Bomb()))
    assert went_off == [1]


def torch_saved(value):
    if torch is None:
        return None
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def test_concurrent_removal():
    """Readers see the whole object or get an exception; removers get no error."""
    reader, errors, whole, none = so.MooncakeBundleTransfer(one), [], [], []
    data = some()
    for _ in range(20):
        ref = so.MooncakeBundleTransfer(one, default_chunk_bytes=300).put_object(data)
        known = {"manifest_key": ref.manifest_key}
        begun = threading.Barrier(4)

        def read():
            begun.wait(30)
            end = time.monotonic() + 50
            while time.monotonic() < end:
                try:
                    check_dict(data, reader.get_object(known), "while it is removed")
                    whole.append(1)
                except TOLD:
                    none.append(1)
                    return
                except BaseException as e:
                    errors.append(e)
                    return
            errors.append("it cannot be removed")

        def remove(what):
            begun.wait(30)
            try:
                so.MooncakeBundleTransfer(one).remove_bundle(what)
            except BaseException as e:
                errors.append(e)

        threads = [threading.Thread(target=read), threading.Thread(target=remove, args=(known,)),
                   threading.Thread(target=remove, args=(ref,))]
        for thread in threads:
            thread.start()
        begun.wait(30)
        for thread in threads:
            thread.join(60)
        assert not errors, errors
    assert len(none) == 20 and one.remove_all(True) == 0


def test_a_master_that_cannot_be_asked():
    """If the state of a bundle is unknown, it is not reported as removed."""
    class Silent(Failing):
        def _call(self, name, call, *args, **kwargs):
            answers = {"get": b"", "is_exist": 0, "batch_is_exist": [-900]}
            return answers[name] if name in answers else call(*args, **kwargs)

    ref = so.MooncakeBundleTransfer(one).put_object(some())
    known = {"manifest_key": ref.manifest_key}
    try:
        so.MooncakeBundleTransfer(Silent(one, ())).remove_bundle(known)
        raise AssertionError("it is reported as removed")
    except RuntimeError:
        assert one.is_exist(ref.manifest_key) == 1
    so.MooncakeBundleTransfer(one).remove_bundle(known)
    assert one.remove_all(True) == 0


def test_interrupted():
    """Ctrl-C during a put leaves no object either."""
    class Interrupting(Failing):
        def _call(self, name, call, *args, **kwargs):
            if name in WRITES and len(self.keys) > 3:
                raise KeyboardInterrupt
            return call(*args, **kwargs)

    store = Interrupting(one, ())
    try:
        so.MooncakeBundleTransfer(store, default_chunk_bytes=1000).put_object(some())
        raise AssertionError("not interrupted")
    except KeyboardInterrupt:
        gone(store)


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        begun = time.monotonic()
        test()
        print(f"ok {name} {time.monotonic() - begun:.1f} s", flush=True)
one.close()
