# SPDX-License-Identifier: Apache-2.0
"""mooncake.dataproto_catalog: the tables, and the transfer that keeps store and tables consistent;
also compared with upstream's package if its name is given.

catalog.py MASTER [UPSTREAM_PACKAGE]"""

import copy
import importlib.util
import inspect
import json
import os
import random
import sys

from structured_data import check, np, opened
from mooncake import dataproto_catalog as ours
from mooncake import structured_object_store as so

MASTER, UPSTREAM = sys.argv[1], (sys.argv[2:] or [None])[0]
one = opened(MASTER)
modules = [ours]
if UPSTREAM:
    spec = importlib.util.spec_from_file_location("upstream_catalog", os.path.join(UPSTREAM, "dataproto_catalog.py"))
    upstream = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(upstream)
    modules.append(upstream)


def handle(name, rows, fields, partition="p", stage="s", meta=None, group="g"):
    return {"type": so.DATAPROTO_REF_HANDLE_TYPE, "version": 1, "kind": "bundle_stages", "batch_size": rows,
            "namespace": "default", "partition": partition, "global_indexes": None,
            "stage_refs": {stage: {"manifest_key": name}}, "meta_info": meta or {}, "encoded_non_tensor": {},
            "field_index": {f: {"stage": stage, "member": f"batch.{f}", "section": "batch"} for f in fields},
            "storage_group_id": group}


def raises(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as e:
        return str(e)
    raise AssertionError(f"{call} {args} {kwargs} does not raise {kind}")


def retired(result):
    return [next(iter(h["stage_refs"].values()))["manifest_key"] for h in result["retired_handles"]]


def test_books():
    c = ours.DataProtoCatalog()
    first = c.update("p", ["a", "b"], tags=[{"n": 1}, {}], handle=handle("h1", 2, ["x", "y"]))
    assert first == {"keys": ["a", "b"], "tags": [{"n": 1}, {}], "fields": ["x", "y"], "retired_handles": []}
    assert c.update("p", ["a"], tags=[{"m": 2}])["tags"] == [{"n": 1, "m": 2}]
    assert c.list() == {"p": {"a": {"n": 1, "m": 2}, "b": {}}} and c.list("q") == {}
    got = c.resolve("p", ["b", "a"], ["y"])
    assert got["field_groups"] == [{"fields": ["y"], "locations": [("h1", 1), ("h1", 0)]}] and set(got["handles"]) == {"h1"}
    # a managed fragment replaces a field; the first fragment stays because it has y, but its x is
    # never returned
    assert c.publish("o1", "p", ["a", "b"], handle=handle("h2", 2, ["x"], meta={"k": 1}))["retired_handles"] == []
    got = c.resolve("p", ["a", "b"])
    assert [g["fields"] for g in got["field_groups"]] == [["x"], ["y"]] and got["meta_info"] == {"k": 1}
    # published again: the same answer, and no other effect
    assert c.publish("o1", "p", ["zzz"], handle=handle("h9", 1, ["x"])) == {
        "keys": ["a", "b"], "tags": [{"n": 1, "m": 2}, {}], "fields": ["x", "y"], "retired_handles": []}
    assert "zzz" not in c.list("p")
    c.ack_publication("o1")
    # a reader's pin keeps a fragment that no row uses any more
    pin = c.resolve("p", ["a"], ["x"], pin=True)["read_token"]
    assert retired(c.publish("o2", "p", ["a", "b"], handle=handle("h3", 2, ["x", "y"]))) == []
    raises(RuntimeError, c.drain)
    assert retired(c.release_read(pin)) == ["h2"] == retired(c.release_read(pin))
    raises(ValueError, c.publish, "o3", "p", ["a", "b"], handle=handle("h2", 2, ["x"], meta={"k": 1}))
    raises(ValueError, c.ack_retired, [handle("h2", 2, ["x"])])
    assert retired(c.ack_retired([handle("h2", 2, ["x"], meta={"k": 1})])) == []
    assert retired(c.remove("p", ["a"])) == [] and retired(c.remove("p", ["a", "b", "none"])) == ["h3"]
    assert c.list() == {}
    assert retired(c.drain()) == ["h3"]
    raises(RuntimeError, c.update, "p", ["a"], tags=[{}])
    assert "drained" in c.publish_append("o4", "h3", "p", ["a"], previous_handle=handle("h3", 1, ["x"]),
                                         handle=handle("h3", 1, ["x", "z"]))["append_rejected"]


def test_append():
    c = ours.DataProtoCatalog()
    old, new = handle("h", 2, ["x"]), handle("h+", 2, ["x", "z"])
    c.publish("o", "p", ["a", "b"], handle=old)
    c.update("p", ["b"], handle=handle("mine", 1, ["y"]))

    def append(operation, fragment="h", keys=("a", "b"), before=old, after=new):
        return c.publish_append(operation, fragment, "p", keys, previous_handle=before, handle=after)

    for n, (what, kwargs) in enumerate((
            ("stale DataProto append handle", {"fragment": "none"}), ("stale DataProto append handle", {"before": handle("h", 2, ["y"])}),
            ("stale DataProto append handle", {"fragment": "mine", "before": handle("mine", 1, ["y"]), "keys": ["b"]}),
            ("changed fragment identity", {"after": handle("h+", 3, ["x", "z"])}), ("changed fragment identity", {"keys": ["a"]}),
            ("changed fragment identity", {"after": handle("h+", 2, ["x", "z"], partition="q")}),
            ("changed fragment identity", {"after": handle("h+", 2, ["x", "z"], group="other")}),
            ("changed existing fields", {"after": handle("h+", 2, ["z"])}), ("keys not found in partition", {"keys": ["a", "c"]}))):
        assert what in append(f"r{n}", **kwargs)["append_rejected"], (what, kwargs)
    assert append("ok")["fields"] == ["x", "z", "y"] == append("ok", "nonsense")["fields"]
    assert "stale DataProto append handle" in append("again")["append_rejected"]
    assert c.resolve("p", ["b"], ["z", "x"])["handles"] == {"h": new}
    # both rows use the first one's name, until its last field is replaced
    c.publish("x", "p", ["a", "b"], handle=handle("h2", 2, ["x"]))
    assert c.publish("z", "p", ["a", "b"], handle=handle("h3", 2, ["z"]))["retired_handles"] == [new]


def test_arguments():
    c = ours.DataProtoCatalog()
    for keys in ("ab", [], [""], [1], ["a", "a"]):
        raises(ValueError, c.update, "p", keys, tags=[{}] * len(keys))
        raises(ValueError, c.resolve, "p", keys)
    for kwargs in ({}, {"tags": [{}, {}]}, {"handle": handle("h", 2, ["x"])}, {"handle": handle("h", 1, [])},
                   {"handle": {"type": "x"}}, {"handle": {**handle("h", 1, ["x"]), "stage_refs": {
                       "s": {"manifest_key": "h"}, "t": {"manifest_key": "i"}}}}):
        raises(ValueError, c.update, "p", ["a"], **kwargs)
    raises(TypeError, c.update, "p", ["a"], tags=[1])
    raises(ValueError, c.update, "", ["a"], tags=[{}])
    raises(ValueError, c.publish, "", "p", ["a"], tags=[{}])
    assert c.list() == {}
    c.update("p", ["a"], handle=handle("h", 1, ["x"], meta={"m": 1}))
    for other in (handle("h", 1, ["y"]), handle("h", 1, ["x"])):
        raises(ValueError, c.update, "p", ["a"], handle=other)
    raises(ValueError, c.publish, "o", "p", ["a"], handle=handle("h", 1, ["x"], meta={"m": 1}))
    raises(ValueError, c.resolve, "p", ["b"])
    raises(ValueError, c.resolve, "p", ["a"], ["y"])
    c.update("p", ["a"], handle=handle("i", 1, ["y"], meta={"m": 2}))
    raises(ValueError, c.resolve, "p", ["a"])
    c.update("p", ["t"], tags=[{}])
    raises(ValueError, c.resolve, "p", ["t"])


class Lossy:
    """A remote catalog.  Calls with a given name fail that many times, before or after they are executed."""

    def __init__(self, module=ours):
        self.catalog = module.DataProtoCatalog()
        self.fail = {}

    def __call__(self, name, *args, **kwargs):
        left, after = self.fail.get(name, (0, False))
        if left:
            self.fail[name] = (left - 1, after)
            if not after:
                raise OSError("not reached")
        # copied as by a wire
        args, kwargs = copy.deepcopy((args, kwargs))
        out = getattr(self.catalog, name)(*args, **kwargs)
        if left:
            raise OSError("no answer")
        return copy.deepcopy(out)


class Batch(dict):
    """Columns with a length in rows."""

    def __len__(self):
        return len(next(iter(self.values())))


def stored():
    """Keys in the store."""
    return len(one.batch_get_replica_desc(sorted(seen))) if seen else 0


seen = set()


class Watched:
    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        found = getattr(self.store, name)

        def call(first, *args, **kwargs):
            if name.startswith("put"):
                seen.update([first] if isinstance(first, str) else first)
            return found(first, *args, **kwargs)

        return call


def test_transfer():
    """Rows are put, appended to, read, put again and removed: at the end the store is empty,
    whatever call failed."""
    for fails in ({}, {"publish": (1, False)}, {"publish": (1, True)}, {"publish_append": (1, True)},
                  {"ack_publication": (2, False)}, {"ack_retired": (1, True)}, {"drain": (1, False)}, {"drain": (1, True)}):
        seen.clear()
        call = Lossy()
        t = ours.DataProtoCatalogTransfer(so.MooncakeBundleTransfer(Watched(one)), call)
        call.fail = dict(fails)
        t.put(Batch(x=np.arange(3), y=np.ones(3)), partition="p", keys=["a", "b", "c"], tags=[{"n": i} for i in range(3)])
        plan = t.resolve("p", ["c", "a"])
        (fragment_id, known), = plan["handles"].items()
        got = t.transfer.get(known, rows=[row for _, row in plan["field_groups"][0]["locations"]])
        check(np.array([2, 0]), got["batch"]["x"], "rows of keys")
        assert t.append(fragment_id, known, Batch(z=np.zeros(3)), partition="p", keys=["a", "b", "c"],
                        stage=next(iter(known["stage_refs"])))["fields"] == ["x", "y", "z"]
        raises(ValueError, t.append, fragment_id, known, Batch(w=np.zeros(3)), partition="p", keys=["a", "b", "c"], stage="s")
        before = stored()
        t.put(Batch(x=np.arange(3) + 10, y=np.ones(3), z=np.ones(3)), partition="p", keys=["a", "b", "c"])
        t.release_read(plan["read_token"])
        t.release_read(plan["read_token"])
        assert stored() < before + 5, "a replaced object stays"
        again = t.resolve("p", ["b"], ["x"])
        (_, known), = again["handles"].items()
        check(np.array([11]), t.transfer.get(known, fields=["x"], rows=[1])["batch"]["x"], "replaced")
        t.release_read(again["read_token"])
        assert t.list("p") == {"p": {"a": {"n": 0}, "b": {"n": 1}, "c": {"n": 2}}}
        t.remove("p", ["a"])
        t.drain()
        t.close()
        assert stored() == 0 and seen, f"{fails}: objects stay"
    assert one.remove_all(True) == 0


def test_transfer_fails():
    call = Lossy()
    t = ours.DataProtoCatalogTransfer(so.MooncakeBundleTransfer(Watched(one)), call)
    data = Batch(x=np.arange(2))
    for after in (False, True):
        # two attempts to publish failed: the next call publishes it, and then it is there
        call.fail["publish"] = (2, after)
        raises(OSError, t.put, data, partition="p", keys=["a", "b"])
        t.put(None, partition="p", keys=["a"], tags=[{"k": 1}])
        assert len(call.catalog.resolve("p", ["a", "b"])["handles"]) == 1
        t.remove("p", ["a", "b"])
        assert stored() == 0
    call.fail["publish"] = (9, False)
    raises(OSError, t.put, data, partition="p", keys=["a", "b"])
    raises(RuntimeError, t.put, data, partition="p", keys=["a", "b"])
    raises(RuntimeError, t.close)
    call.fail.clear()
    t.close()
    t.close()
    # an append that the catalog refuses is removed from the store
    (fragment_id, known), = call.catalog.resolve("p", ["a", "b"])["handles"].items()
    real, call.catalog.publish_append = call.catalog.publish_append, lambda *args, **kwargs: {"append_rejected": "no", "retired_handles": []}
    before = stored()
    assert raises(ValueError, t.append, fragment_id, known, Batch(z=np.ones(2)), partition="p", keys=["a", "b"], stage="default") == "no"
    assert stored() == before
    call.catalog.publish_append = real
    # objects that cannot be published are removed at once
    class Odd(Batch):
        meta_info, batch, non_tensor_batch = {"m": object()}, {"x": np.ones(2)}, {}

    odd = Odd(x=np.ones(2))
    holder = type("Holder", (), {"__len__": lambda self: 2, "batch": {"x": np.ones(2)}, "non_tensor_batch": {},
                                 "meta_info": {"m": object()}})()
    raises(TypeError, t.put, holder, partition="p", keys=["a", "b"])
    assert stored() == before and odd is not None
    for kwargs in ({"keys": ["a"]}, {"keys": []}, {"keys": ["a", "b"], "tags": [{}]}):
        raises(ValueError, t.put, data, partition="p", **kwargs)
    raises(ValueError, t.put, None, partition="p", keys=["a"])
    raises(ValueError, t.append, fragment_id, known, data, partition="p", keys=["a", "b"], stage="s", overwrite=True)
    raises(ValueError, t.append, fragment_id, known, data, partition="q", keys=["a", "b"], stage="s")
    # a removal that fails is repeated by the next call
    real, t.transfer.cleanup_dataproto = t.transfer.cleanup_dataproto, lambda ref: raises(KeyError, dict.fromkeys) or 1 / 0
    t.remove("p", ["a", "b"])
    assert stored() == before
    t.transfer.cleanup_dataproto = real
    t.drain()
    assert stored() == 0
    # results
    released = []
    t.transfer.release_result = lambda result: released.append(result) or (1 / 0 if len(released) < 3 else None)
    output = type("Output", (), {})()
    t.attach_results(output, ["r"])
    t.release_result(output)
    t.release_result(output)
    assert released == ["r"] * 3, released
    t.transfer.release_result = lambda result: 1 / 0
    raises(RuntimeError, t.discard_results, ["s"], strict=True)
    raises(RuntimeError, t.close)
    t.transfer.release_result = released.append
    t.close()
    assert released[3:] == ["s"]
    assert one.remove_all(True) == 0


def test_upstream():
    """The same calls on both packages: the same answers, and exceptions of the same type."""
    if len(modules) < 2:
        print("# no upstream package named")
        return
    for name in ("DataProtoCatalog", "DataProtoCatalogTransfer"):
        for method, theirs in vars(getattr(upstream, name)).items():
            if callable(theirs) and (not method.startswith("_") or method == "__init__"):
                mine = getattr(getattr(ours, name), method)
                shape = [[(p.name, p.kind, p.default) for p in inspect.signature(m).parameters.values()] for m in (theirs, mine)]
                assert shape[0] == shape[1], (name, method, shape)
    some = random.Random(7)
    both = [m.DataProtoCatalog() for m in modules]
    handles, told, refused, retirements = [], 0, 0, 0
    for step in range(4000):
        keys = some.sample(["a", "b", "c", "d"], some.randint(1, 3))
        what = some.choice(["update", "publish", "publish", "publish_append", "resolve", "resolve", "release_read", "remove",
                            "list", "ack_retired", "ack_publication"])
        old = some.choice(handles) if handles and some.random() < 0.5 else handle(
            f"h{step}", len(keys), some.sample(["x", "y", "z"], some.randint(1, 3)), meta={"m": some.choice([1, 1, 1, 2])})
        kwargs = {}
        if what in ("update", "publish"):
            kwargs = {"handle": old} if some.random() < 0.8 else {"tags": [{"t": step}] * len(keys)}
            args = ("p", keys) if what == "update" else (f"o{some.randint(0, 500)}", "p", keys)
            handles = (handles + [old])[-8:]
        elif what == "publish_append":
            new = json.loads(json.dumps(old))
            new["field_index"][f"n{step % 5}"] = {"stage": "s", "member": "m", "section": "batch"}
            args = (f"o{some.randint(0, 500)}", next(iter(old["stage_refs"].values()))["manifest_key"], "p", keys)
            kwargs = {"previous_handle": old, "handle": new}
            handles = (handles + [new])[-8:]
        elif what == "resolve":
            args, kwargs = ("p", keys, some.choice([None, ["x"], ["x", "y"]])), {"pin": some.random() < 0.5}
        elif what == "release_read":
            args = (some.randint(1, 60),)
        else:
            args = {"remove": ("p", keys), "list": (), "ack_retired": ([old],), "ack_publication": (f"o{some.randint(0, 500)}",)}[what]
        answers = []
        for c in both:
            try:
                answers.append(getattr(c, what)(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
            except (ValueError, TypeError, RuntimeError) as e:
                answers.append(type(e))
        answers = [{"append_rejected": True} if isinstance(a, dict) and "append_rejected" in a else a for a in answers]
        assert answers[0] == answers[1], f"{what}{args}{kwargs}: {answers[0]} and {answers[1]}"
        if isinstance(answers[0], type) or answers[0] == {"append_rejected": True}:
            refused += 1
        else:
            told += 1
            retirements += bool(isinstance(answers[0], dict) and answers[0].get("retired_handles"))
    assert told > 1500 and refused > 100 and retirements > 100, (told, refused, retirements)


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok", name, flush=True)
one.close()
