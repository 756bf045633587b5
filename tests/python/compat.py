# SPDX-License-Identifier: Apache-2.0
"""docs/COMPATIBILITY_NAMES.tsv agrees with this tree, and has every name of upstream's wheel.

compat.py ours TABLE SOURCE MASTER HTTP: names that the table calls same, better or no effect exist, and absent ones
do not.  SOURCE: the top of the tree; MASTER: the program; HOST:PORT of a running one's admin service.  The package
mooncake is importable.
compat.py wheel TABLE WHEEL MASTER_HELP: the names of the wheel are those of the table.  WHEEL: its directory mooncake,
for an interpreter that can import it; MASTER_HELP: the output of mooncake_master --help.
compat.py fix TABLE SOURCE MASTER HTTP: print the table; rows that are wrong get the state that was found.
compat.py make TABLE WHEEL MASTER_HELP: print the table with rows for new names ("?").

A row is KIND<tab>NAME<tab>STATE<tab>REMARK."""

import ast
import glob
import importlib.util
import os
import re
import subprocess
import sys
import types
import urllib.error
import urllib.request

KINDS = ("flag", "env", "route", "python", "c")
STATES = ("same", "better", "no effect", "absent")
# Strings of the wheel that look like names and are none.
NO_NAMES = {
    "env": {"MC_TE_MEAUATUSH", "MC_LIBFABRIRIC_PATH", "MOONCAKE_EP", "MOONCAKE_EP_USE_MACA", "MOONCAKE_EP_USE_MUSA"},
    "route": {"/manifest", "/tmp", "/opl", "/o1", "/t7", "/th", "/tl", "/dfs_shard_", "/tenant_quota_policy",
              "/proc/self/status",
              "/metadata"},  # of the metadata server in the master, on its own port
}
# Modules that are programs or need a GPU's kernels; their names are not listed one by one.
WHOLE = ("allocator", "ep", "pg", "fabric_allocator_utils", "mooncake_connector_v1", "mooncake_elastic_buffer",
         "mooncake_ep_buffer", "mooncake_ssd_register", "mooncake_ssd_unregister", "spdk_tgt_create",
         "transfer_engine_topology_dump", "vllm_v1_proxy_server", "cli", "cli_bench", "cli_client")
BINARY = ("store", "engine")
wrong = []


def say(text):
    wrong.append(text)
    print(text, file=sys.stderr)


def rows(path):
    """(kind, name) -> (state, remark)"""
    table = {}
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if line.startswith("#") or not line.strip():
                continue
            parts = line.rstrip("\n").split("\t")
            if len(parts) != 4 or parts[0] not in KINDS or parts[2] not in (*STATES, "?"):
                say(f"{path}:{number}: not a row of KIND, NAME, STATE, REMARK")
            elif (parts[0], parts[1]) in table:
                say(f"{path}:{number}: {parts[1]} again")
            else:
                table[parts[0], parts[1]] = parts[2], parts[3]
                if parts[2] != "same" and parts[3] in ("", "?"):
                    say(f"{path}:{number}: {parts[1]} is {parts[2]} without a reason")
    return table


# ---- this tree


class Ours:
    def __init__(self, source, master, http):
        self.master, self.http = master, http
        self.headers = "".join(open(f, encoding="utf-8").read() for f in glob.glob(f"{source}/include/mooncake/*.h"))
        with open(f"{source}/common/env.c", encoding="utf-8") as f:
            inert = re.search(r"^static const char \*const inert.*?^};", f.read(), re.M | re.S).group()
        self.inert = re.findall(r'"([A-Z0-9_]+)"', inert)
        self.read = set()
        for folder in "common proto meta engine tiers client master node mcfs tools python include".split():
            for at, _, files in os.walk(f"{source}/{folder}"):
                for name in files:
                    if name.endswith((".c", ".h", ".def", ".py")):
                        with open(os.path.join(at, name), encoding="utf-8") as f:
                            self.read |= set(re.findall(r'"((?:MC|MOONCAKE)_[A-Z0-9_]+)[="]', f.read().replace(inert, "")))
        self.members = {}

    def flag(self, name):
        # one of the two is not the default of a flag that is refused
        for value in "01":
            run = subprocess.run([self.master, f"--{name}={value}", "--print_config"], capture_output=True, text=True,
                                 timeout=20, check=False)
            if re.search(rf"--{name} is (not built into|unknown)", run.stdout + run.stderr):
                return "absent"
        return "here"

    def env(self, name):
        if name in self.read:
            return "here"
        if any(name == i or (i.endswith("_") and name.startswith(i)) for i in self.inert):
            return "no effect"
        return "absent"

    def route(self, name):
        for method in ("GET", "POST"):
            request = urllib.request.Request(f"http://{self.http}{name}", method=method, data=b"{}" if method == "POST" else None,
                                             headers={"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=10):
                    return "here"
            except urllib.error.HTTPError as e:
                # an unknown key of a known route is 404 too, with other words
                if e.code != 404 or b"no such" not in e.read().lower().replace(b"not found", b"no such"):
                    return "here"
        return "absent"

    def attributes(self, module):
        """Names of instances, from the .pyi."""
        if module not in self.members:
            found, path = {}, sys.modules[module].__file__ + "i"
            if os.path.exists(path):
                with open(path, encoding="utf-8") as f:
                    for c in ast.parse(f.read()).body:
                        if isinstance(c, ast.ClassDef):
                            found[c.name] = {a.target.id for a in c.body if isinstance(a, ast.AnnAssign)}
            self.members[module] = found
        return self.members[module]

    def python(self, name):
        parts = name.split(".")
        try:
            at = importlib.import_module(".".join(parts[:2]))
        except ImportError as e:
            if not isinstance(e, ModuleNotFoundError) or (e.name or "").startswith("mooncake"):
                return "absent"
            # this Python lacks a package that the module needs
            source = importlib.util.find_spec(".".join(parts[:2])).origin
            return "here" if len(parts) == 2 or ".".join(parts[2:]) in set(module_names(source)) else "absent"
        for i, part in enumerate(parts[2:]):
            known = self.attributes(".".join(parts[:2]))
            if i == 1 and (part in known.get(parts[2], ()) or part in known.get(getattr(at, "__name__", ""), ())):
                return "here"
            if not hasattr(at, part):
                return "absent"
            at = getattr(at, part)
        return "here"

    def c(self, name):
        return "here" if re.search(rf"\b{name}\(", self.headers) else "absent"


def check_ours(table, source, master, http):
    """The states that were found, of the rows that are wrong."""
    ours, fixed = Ours(source, master, http), {}
    for (kind, name), (state, remark) in table.items():
        found = getattr(ours, kind)(name)
        expected = "here" if state in ("same", "better") else state
        # a flag without effect is accepted, and some variables are read
        if state == "no effect" and (kind != "env" or remark.startswith("read")):
            expected = "here"
        if found != expected:
            old = "0.3.13" if "0.3.13" in remark else ""
            fixed[kind, name] = ("same", old) if found == "here" else (found, "; ".join(filter(None, (old, "?"))))
            say(f"{kind} {name}: the table says {state}, but it is {found}")
    return fixed


# ---- the wheel


def wheel_env(wheel):
    found = set()
    for at, _, files in os.walk(wheel):
        for name in files:
            path = os.path.join(at, name)
            part = os.path.relpath(path, wheel)
            # sources and libraries of kernels for GPUs
            if "_jit" in part or "/rs" in part or re.match(r"(libmooncake_|_ep|mooncake_e|ep\.|pg\.)", part) or \
                    not (name.endswith((".so", ".py")) or os.access(path, os.X_OK)):
                continue
            with open(path, "rb") as f:
                found |= {m.decode() for m in re.findall(rb"(?<![A-Za-z0-9_])(?:MC|MOONCAKE)_[A-Z0-9_]*[A-Z0-9](?![A-Za-z0-9_])", f.read())}
    return {n for n in found if not n.startswith("MC_STORE_RS_")} - NO_NAMES["env"]


def wheel_routes(wheel):
    with open(os.path.join(wheel, "mooncake_master"), "rb") as f:
        found = re.findall(rb"(?<=\0)/[a-z][a-z0-9_]*(?:/[a-z0-9_]+)*(?=\0)", f.read())
    return {n.decode() for n in found if len(n) > 2} - NO_NAMES["route"]


def module_names(path):
    """Public names of a Python file: constants, functions, classes and their methods."""
    with open(path, encoding="utf-8") as f:
        body = ast.parse(f.read()).body
    function = ast.FunctionDef, ast.AsyncFunctionDef
    for node in body:
        if isinstance(node, (ast.ClassDef, *function)):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{n.name}" for n in node.body if isinstance(n, function))
        if isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name) and t.id.isupper())


def wheel_binary(name):
    module = importlib.import_module(f"mooncake.{name}")
    for n in dir(module):
        try:
            kind = getattr(module, n)
        except ImportError:  # the wheel's EngramStore
            yield n
            continue
        if isinstance(kind, types.ModuleType) or kind is types.ModuleType or n == "annotations":
            continue
        yield n
        if isinstance(kind, type) and kind.__module__.startswith("mooncake"):
            # name and value are those of an enumeration
            yield from (f"{n}.{m}" for m in vars(kind) if not (hasattr(kind, "__members__") and m in ("name", "value")))


def wheel_python(wheel):
    found = set()
    for path in sorted(glob.glob(os.path.join(wheel, "*.py"))):
        name = os.path.basename(path)[:-3]
        if name.startswith("_"):
            continue
        found.add(f"mooncake.{name}")
        if name not in WHOLE and name not in BINARY:
            found |= {f"mooncake.{name}.{n}" for n in module_names(path)}
    for name in BINARY:
        found |= {f"mooncake.{name}", *(f"mooncake.{name}.{n}" for n in wheel_binary(name))}
    return {n for n in found if not re.search(r"\._", n)}


def wheel_names(wheel, master_help):
    with open(master_help, encoding="utf-8") as f:
        ours = re.search(r"Flags from \S*mooncake-store/src/master\.cpp:\n(.*?)(?:\n\s*Flags from|\Z)", f.read(), re.S).group(1)
    flags = re.findall(r"^ +-(\w+) \(", ours, re.M)
    return {("flag", n) for n in flags} | {("env", n) for n in wheel_env(wheel)} | {("route", n) for n in wheel_routes(wheel)} | {
        ("python", n) for n in wheel_python(wheel)}


def check_wheel(table, wheel, master_help):
    found = wheel_names(wheel, master_help)
    for kind, name in sorted(found - set(table)):
        say(f"{kind} {name} of the wheel is not in the table")
    for kind, name in sorted(set(table) - found):
        if kind != "c" and "0.3.13" not in table[kind, name][1]:
            say(f"{kind} {name} is not in the wheel; rows for older names say 0.3.13")
    for kind, least in (("flag", 90), ("env", 200), ("route", 15), ("python", 300)):
        if len([1 for k, _ in found if k == kind]) < least:
            say(f"too few names were found: {kind}")


def show(table):
    for kind in KINDS:
        for (k, name), row in sorted(table.items()):
            if k == kind:
                print(kind, name, *row, sep="\t")


def fix(table, *args):
    show({**table, **check_ours(table, *args)})


def make(table, *args):
    show({**dict.fromkeys(wheel_names(*args), ("?", "")), **table})


def main(mode, path, *args):
    {"ours": check_ours, "wheel": check_wheel, "make": make, "fix": fix}[mode](rows(path), *args)
    print(f"{len(wrong)} wrong", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
