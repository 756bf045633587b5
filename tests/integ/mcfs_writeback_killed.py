#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parts of mcfs_writeback_killed.sh: large files in which every MiB identifies its version."""
import errno
import os
import random
import sys

from mcfs_told import told

MIB = 1 << 20


def content(who):
    rnd = random.Random(str(who))
    size = rnd.choice((9, 17, 26)) * MIB + rnd.randrange(70000)
    block = rnd.randbytes(MIB)
    data = bytearray((block * (size // MIB + 1))[:size])
    for k in range(0, size, MIB):
        data[k:k + 8] = (b"%08d" % k)[:size - k]
    return bytes(data)


def one(path, who):
    data = content(who)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    # more than writeback needs to begin
    for at in range(0, 8 * MIB, MIB):
        os.write(fd, data[at:at + MIB])
    if who == "first":
        os.write(fd, data[8 * MIB:])
        os.close(fd)
        return
    print("half", flush=True)
    sys.stdin.readline()
    print(told(lambda: os.write(fd, data[8 * MIB:])))
    print(told(lambda: os.close(fd)))


def check(path, who):
    if open(path, "rb").read() != content(who):
        sys.exit("%s is not what was written" % path)


def attempt(path, data, step):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    short = 0
    try:
        for at in range(0, len(data), step):
            piece = data[at:at + step]
            short = len(piece) - os.write(fd, piece)
            if short:	# the kernel split it into two requests: write the rest, as programs do that check the result
                break
    except OSError:
        told(lambda: os.close(fd))
        raise
    os.close(fd)
    if short:
        sys.exit("a short write, and a close without an error")


def write(where, seed, journal, stop):
    """Write until the file @stop exists; the journal records the result of each version."""
    i = stored = 0
    with open(journal, "w") as out:
        while not os.path.exists(stop) or i < 4:
            i += 1
            name = "f%s-%d" % (seed, i % 2)
            who = "%s/%d" % (seed, i)
            try:
                attempt(where + "/" + name, content(who), (MIB, 100000)[i % 2])
                print("stored", name, who, file=out)
                stored += 1
            except OSError as e:
                print("failed", name, who, errno.errorcode[e.errno], file=out)
    print("versions", i, "stored", stored)


def verify(where, seed, journal):
    """The last stored version, or a later attempt if it is complete."""
    may = {}
    for line in open(journal):
        what, name, who = line.split()[:3]
        if what == "stored":
            may[name] = [who]
        else:
            may.setdefault(name, [None]).append(who)
    for name, whos in may.items():
        try:
            got = open(where + "/" + name, "rb").read()
        except FileNotFoundError:
            if whos[0] is None:
                continue
            sys.exit("%s is not there: %s" % (name, whos))
        if not any(w and got == content(w) for w in whos):
            sys.exit("%s has %d bytes and is none of %s" % (name, len(got), whos))


{f.__name__: f for f in (one, check, write, verify)}[sys.argv[1]](*sys.argv[2:])
