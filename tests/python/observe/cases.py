# SPDX-License-Identifier: Apache-2.0
"""Output of the scripts in this folder: the result of each call, as JSON.

A script runs on upstream's package and on ours: NAME.py MASTER ADMIN (HOST:PORT of the master's RPC and HTTP).
NAME.json beside it holds the results of upstream's release "version"; python_upstream.sh records them again and
compares, python_observed.sh compares ours.  Leave out pointers, ports and times."""

import importlib
import json
import sys

results = {}


def plain(value):
    """A value as JSON can hold it, the same for both packages."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = bytes(value)
        return value.decode("latin-1") if len(value) < 100 else f"{len(value)} bytes"
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return type(value).__name__


def case(name, call):
    """Record the result of call(), or the name of its exception, under a name that is unique in the script."""
    assert name not in results, name
    try:
        results[name] = plain(call())
    except Exception as e:
        results[name] = type(e).__name__


def says(name, call, *words):
    """Record which of the words are in the text of the exception that call() raises."""
    assert name not in results, name
    try:
        results[name] = plain(call())
    except Exception as e:
        results[name] = [type(e).__name__] + [w for w in words if w in str(e)]


def needs(module):
    """Import a module, or skip the script."""
    try:
        return importlib.import_module(module)
    except ImportError:
        print(f"no {module}", file=sys.stderr)
        sys.exit(77)


def finish(differences):
    """Print all results.  differences: name of a case -> (our result, the reason why it is not upstream's)."""
    print(json.dumps({"results": results, "differences": {k: list(v) for k, v in differences.items()}}, indent=1))
