# SPDX-License-Identifier: Apache-2.0
"""Exports of the modules, compared with docs/COMPATIBILITY.md and with upstream's wheel.

surface.py DOC NAMES: every name of upstream (NAMES, JSON: module or class -> names) either exists
or is listed in DOC; names that DOC calls absent are absent; the .pyi files have the same methods,
with the parameters that help() shows."""

import ast
import enum
import inspect
import json
import re
import sys

import mooncake.engine as me
import mooncake.store as ms
from mooncake import async_store, buffer_pool, mooncake_config, mooncake_store_service

MODULES = {"mooncake.store": ms, "mooncake.engine": me}
wrong = []


def say(text):
    wrong.append(text)
    print(text)


def rows(text):
    """name -> state, of every `name` in front of the colon of a list item below the headings of
    modules; a name that ends in * is a prefix."""
    found = {}
    for section in re.split(r"^## ", text, flags=re.M):
        if not section.startswith(("mooncake.", "Modules ")):
            continue
        for item in re.split(r"^- ", section, flags=re.M)[1:]:
            head, state = re.match(r"((?:`[^`]*`|[^`:])*):\s+(.*)", item, re.S).groups()
            for name in re.findall(r"`([^`]+)`", head):
                found[name.partition("(")[0].rpartition(".")[2]] = state.strip()
    return found


def documented(name, said):
    if name in said:
        return said[name]
    for known, state in said.items():
        if known.endswith("*") and name.startswith(known[:-1]) or known.startswith("_") and known in name:
            return state
        # batch forms are listed with the single form
        if name.startswith("batch_") and known == name[len("batch_"):]:
            return state
    return None


def there(owner, name):
    module, _, kind = owner.partition(":")
    obj = MODULES[module]
    if kind:
        obj = getattr(obj, kind, None)
        if obj is not None and name in attributes(MODULES[module], kind):
            return True
    return obj is not None and hasattr(obj, name)


def attributes(module, kind):
    """Attributes of instances, from the .pyi; members of an Enum have two more."""
    if issubclass(getattr(module, kind), enum.Enum):
        return {"name", "value"}
    with open(module.__file__ + "i", encoding="utf-8") as f:
        tree = ast.parse(f.read())
    return {a.target.id for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind
            for a in n.body if isinstance(a, ast.AnnAssign)}


def upstream_names(names, said):
    for owner, wanted in names.items():
        # members of an absent class need no row
        if ":" in owner and (documented(owner.partition(":")[2], said) or "").startswith("absent"):
            continue
        for name in wanted:
            state = documented(name, said)
            if there(owner, name):
                if state is not None and state.startswith("absent"):
                    say(f"{owner} {name} exists, and the page calls it absent")
            elif state is None:
                say(f"{owner} {name} neither exists nor is on the page")
            elif not state.startswith("absent"):
                say(f'{owner} {name} does not exist, and the page says "{state[:40]}"')


def routes(text):
    application = mooncake_store_service.MooncakeStoreService.__new__(mooncake_store_service.MooncakeStoreService).application()
    for route in application.router.routes():
        path = route.resource.canonical.partition("/{")[0]
        if route.method != "HEAD" and path not in text:
            say(f"the route {route.method} {path} is not on the page")


def type_files():
    """The parameters of each def in a .pyi are those at the begin of the method's help."""
    for module in MODULES.values():
        with open(module.__file__ + "i", encoding="utf-8") as f:
            tree = ast.parse(f.read())
        for kind in (n for n in tree.body if isinstance(n, ast.ClassDef)):
            for node in (n for n in kind.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")):
                compare(module, kind, node)


def compare(module, kind, node):
    doc = inspect.getdoc(getattr(getattr(module, kind.name), node.name)) or ""
    said = [a.arg for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs if a.arg != "self"]
    found = re.findall(rf"{node.name}\((.*?)\)(?: ->|:|$)", doc, re.S | re.M)
    if not found:
        return
    parts = [re.findall(r"(?:^|,)\s*\*{0,2}(\w+)\s*(?=[:=,]|$)", re.sub(r"\[[^][]*\]", "", re.sub(
        r"\[[^][]*\]", "", re.sub(r"\[[^][]*\]", "", f)))) for f in found]
    star = [node.args.vararg.arg] if node.args.vararg else []
    if not any(set(p) - set(star) == set(said) for p in parts):
        say(f"{kind.name}.{node.name}: the .pyi has {said}, its help {parts}")


def main(doc, names):
    with open(doc, encoding="utf-8") as f:
        text = f.read()
    with open(names, encoding="utf-8") as f:
        upstream_names(json.load(f), rows(text))
    routes(text)
    type_files()
    for module in (async_store, buffer_pool, mooncake_config):
        assert module.__doc__
    for gone in ("ep", "pg", "mooncake_ep_buffer", "mooncake_elastic_buffer", "allocator"):
        try:
            __import__(f"mooncake.{gone}")
            say(f"mooncake.{gone} can be imported")
        except ImportError as e:
            if "GPU" not in str(e):
                say(f"mooncake.{gone}: {e}")
    print(f"{len(wrong)} wrong")
    return bool(wrong)


sys.exit(main(*sys.argv[1:]))
