# SPDX-License-Identifier: Apache-2.0
"""bundle.py BUILD PACKAGE - copies the programs of the build tree BUILD into the directory of the package mooncake.
wheel.sh calls it; the backend copies the libraries too."""

import glob
import os
import re
import shutil
import subprocess
import sys

PROGRAMS = ["master/mooncake_master", "node/mooncake_client", "mcfs/mcfs", "tools/mcctl",
            "tools/mooncake_http_metadata_server", "tools/transfer_engine_bench"]
LIBRARIES = ["client/libmooncake_store", "engine/libtransfer_engine"]


def _is_elf(path):
    try:
        with open(path, "rb") as f:
            return f.read(4) == b"\x7fELF"
    except OSError:
        return False


def _copy(path, package, name):
    to = os.path.join(package, name)
    shutil.copy(path, to)
    subprocess.check_call(["strip", "--strip-unneeded", to])


def programs(build, package):
    for program in PROGRAMS:
        directory, name = os.path.split(os.path.join(build, program))
        # libtool puts programs that link with a library of the tree into .libs
        for path in os.path.join(directory, ".libs", name), os.path.join(directory, name):
            if _is_elf(path):
                _copy(path, package, name)
                break
        else:
            sys.exit(f"mooncake: {program} is not built in {build}")


def libraries(build, package):
    for library in LIBRARIES:
        directory, name = os.path.split(os.path.join(build, library))
        # the name that programs ask for has one number
        sonames = [p for p in glob.glob(os.path.join(directory, ".libs", name + ".so.*"))
                   if re.search(r"\.so\.\d+$", p)]
        if len(sonames) != 1:
            sys.exit(f"mooncake: {library} is not built in {build}")
        _copy(sonames[0], package, os.path.basename(sonames[0]))


if __name__ == "__main__":
    programs(sys.argv[1], sys.argv[2])
