# SPDX-License-Identifier: Apache-2.0
"""Builds the extensions against libmooncake_store: the one of a build tree (MOONCAKE_BUILD_DIR, which
is its top directory), or the installed one that pkg-config finds.  backend/mooncake_build.py chooses for pip."""

import glob
import os
import shlex
import subprocess

from setuptools import Extension, setup

HERE = os.path.dirname(os.path.abspath(__file__))
# The upstream release whose behaviour this package has; callers compare it with the wheel's release.
VERSION = "0.3.13.post1"


def from_pkg_config(option, package):
    try:
        out = subprocess.check_output(["pkg-config", option, package], text=True)
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit(
            f"{package} is not installed: make install it first (and set PKG_CONFIG_PATH when the prefix is "
            "not a standard one), or set MOONCAKE_BUILD_DIR to a directory where it was built"
        )
    return shlex.split(out)


def flags(package, build_subdir, library):
    """Where the headers and the library are: keyword arguments of Extension."""
    build = os.environ.get("MOONCAKE_BUILD_DIR")
    if build:
        libs = os.path.join(os.path.abspath(build), build_subdir, ".libs")
        include = [os.path.join(HERE, "..", "include")]
        rpath = os.environ.get("MOONCAKE_RPATH", libs)
        return dict(include_dirs=include, library_dirs=[libs], libraries=[library],
                    extra_link_args=[f"-Wl,-rpath,{rpath}"])
    libdir = subprocess.check_output(
        ["pkg-config", "--variable=libdir", package], text=True).strip() if from_pkg_config(
            "--modversion", package) else ""
    return dict(extra_compile_args=from_pkg_config("--cflags", package),
                extra_link_args=from_pkg_config("--libs", package) + [f"-Wl,-rpath,{libdir}"])


def extension(name, sources, **where):
    where["include_dirs"] = where.get("include_dirs", []) + [os.path.dirname(HERE)]
    where["extra_compile_args"] = where.get("extra_compile_args", []) + [
        "-std=gnu11", "-D_GNU_SOURCE", "-fvisibility=hidden"]
    headers = glob.glob(os.path.join(HERE, "..", "include", "mooncake", "*.h"))
    return Extension(name, sources=sources, depends=["mcpy.h", "engine.h"] + headers, **where)


# The functions that become the programs of a package that carries them (MOONCAKE_BUNDLE is set).  Another package has no
# scripts of these names: in the same prefix they would replace the programs of "make install".
PROGRAMS = {
    "mooncake_master": "mooncake.cli:main",
    "mooncake_client": "mooncake.cli:main",
    "transfer_engine_bench": "mooncake.cli:main",
    "mcfs": "mooncake.cli:main",
    "mcctl": "mooncake.cli:main",
    "mooncake_http_metadata_server": "mooncake.http_metadata_server:main",
}
SCRIPTS = {
    "transfer_engine_topology_dump": "mooncake.transfer_engine_topology_dump:main",
    "mc_store_rest_server": "mooncake.mooncake_store_service:sync_main",
}
if os.environ.get("MOONCAKE_BUNDLE"):
    SCRIPTS.update(PROGRAMS)

setup(
    version=VERSION,
    entry_points={"console_scripts": [f"{name} = {main}" for name, main in SCRIPTS.items()]},
    ext_modules=[
        extension("mooncake._store",
                  ["args.c", "store.c", "put.c", "get.c", "ranges.c", "probe.c", "registered.c", "names.c", "config.c", "handle.c", "mapped.c", "memory.c", "object.c", "pool.c",
                   "module.c"],
                  **flags("mooncake-store", "client", "mooncake_store")),
        extension("mooncake._engine", ["args.c", "engine.c", "mapped.c", "pages.c", "scatter.c", "transfer.c"],
                  **flags("transfer-engine", "engine", "transfer_engine")),
    ],
)
