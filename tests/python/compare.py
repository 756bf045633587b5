# SPDX-License-Identifier: Apache-2.0
"""compare.py [--same] UPSTREAM OURS: do two outputs of observe.py, or of a script in observe/, agree?

Known differences are allowed: those of differences.py, or those that the script of observe/ printed.
--same: none are, because both outputs are upstream's."""

import json
import sys

from differences import DIFFERENCES


def read(path):
    with open(path) as f:
        output = json.load(f)
    if "results" in output:
        return output["results"], output.get("differences", {})
    return output, DIFFERENCES


def main(args):
    upstream, _ = read(args[-2])
    ours, known = read(args[-1])
    if args[0] == "--same":
        known = {}
    wrong = 0
    for name in sorted(set(upstream) | set(ours)):
        expected = known[name][0] if name in known else upstream.get(name, "not asked")
        got = ours.get(name, "not asked")
        if got != expected:
            print(f"{name}: got {got!r}, expected {expected!r}")
            wrong += 1
        elif name in known and got == upstream.get(name):
            print(f"{name}: listed as a difference, but equal")
            wrong += 1
    for name in sorted(set(known) - set(ours)):
        print(f"{name}: listed as a difference, but not tested")
        wrong += 1
    print(f"{len(ours)} results, {len(known)} known differences, {wrong} wrong")
    return wrong != 0


sys.exit(main(sys.argv[1:]))
