# SPDX-License-Identifier: Apache-2.0
"""The console scripts that become the programs of the same name."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def _is_program(path):
    """A program of its own, not a script such as the one that asks."""
    try:
        with open(path, "rb") as f:
            return os.access(path, os.X_OK) and f.read(4) == b"\x7fELF"
    except OSError:
        return False


def find_program(name):
    """Where the program is: beside this file (in a wheel), in a directory of MOONCAKE_BIN_DIR, or on the PATH.  None
    when it is nowhere."""
    own = os.path.join(HERE, name)
    if _is_program(own):
        return own
    for variable, suits in ("MOONCAKE_BIN_DIR", lambda p: os.access(p, os.X_OK)), ("PATH", _is_program):
        for directory in os.environ.get(variable, "").split(os.pathsep):
            path = os.path.join(directory, name)
            if directory and suits(path):
                return path
    return None


def become(name, args):
    """Run the program in this process's place, so that its pid is this one's."""
    path = find_program(name)
    if path is None:
        sys.exit(f"{name}: the program is not installed (make install, or set MOONCAKE_BIN_DIR)")
    os.execv(path, [path] + list(args))


def main():
    """The program that the console script is named after; python -m mooncake.cli is mooncake_master."""
    name = os.path.basename(sys.argv[0])
    become("mooncake_master" if name == "cli.py" else name, sys.argv[1:])


if __name__ == "__main__":
    main()
