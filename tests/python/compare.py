# SPDX-License-Identifier: Apache-2.0
"""compare.py [--same] UPSTREAM OURS: do two outputs of observe.py agree, except for the known differences?"""

import json
import sys

from differences import DIFFERENCES


def main(args):
    known = {} if args[0] == "--same" else DIFFERENCES
    with open(args[-2]) as f:
        upstream = json.load(f)
    with open(args[-1]) as f:
        ours = json.load(f)
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
