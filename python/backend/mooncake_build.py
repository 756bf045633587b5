# SPDX-License-Identifier: Apache-2.0
"""The PEP 517 backend: setuptools on a copy of python/, with the C libraries

- of the build tree MOONCAKE_BUILD_DIR, if that is set;
- else those that pkg-config finds, if their version and headers are this tree's;
- else a package that carries the libraries and programs, which are built first.

Settings (pip install --config-settings NAME=VALUE): libraries=installed or =bundled takes no other choice; build-dir=DIR,
absolute, keeps the objects for the next time; jobs=N compiles that many files at a time."""

import contextlib
import filecmp
import glob
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

from setuptools import build_meta

import bundle
import tree

PACKAGES = "mooncake-store", "transfer-engine"


def _setting(settings, name, default=None):
    value = (settings or {}).get(name, default)
    return value[-1] if isinstance(value, list) else value


def _pkg_config(*args):
    try:
        return subprocess.check_output([os.environ.get("PKG_CONFIG", "pkg-config"), *args], text=True,
                                       stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _unsuitable():
    """Why the installed libraries cannot be used; None when they can."""
    for package in PACKAGES:
        found = _pkg_config("--modversion", package)
        if found is None:
            return f"{package} is not installed"
        if tree.complete() and found != tree.version():
            return f"{package} {found} is installed, this is {tree.version()}"
        include = os.path.join(_pkg_config("--variable=includedir", package), "mooncake")
        for header in glob.glob(os.path.join(tree.TOP, "include", "mooncake", "*.h")):
            other = os.path.join(include, os.path.basename(header))
            if not os.path.exists(other) or not filecmp.cmp(header, other, shallow=False):
                return f"{other} is not this tree's: another build of {package} is installed"
    return None


def _bundles(settings):
    """Whether the package is to carry the libraries and programs; ends when no choice works."""
    wanted = _setting(settings, "libraries", "auto")
    if wanted not in ("auto", "installed", "bundled"):
        sys.exit(f"mooncake: --config-settings libraries={wanted}: installed, bundled or auto")
    if os.environ.get("MOONCAKE_BUILD_DIR") and wanted == "auto":
        return False
    why = "libraries=bundled" if wanted == "bundled" else _unsuitable()
    if why is None:
        os.environ.pop("MOONCAKE_BUILD_DIR", None)
        tree.say("using the installed libraries")
        return False
    if wanted == "installed":
        sys.exit(f"mooncake: {why} (PKG_CONFIG_PATH names the directory of a prefix that is not a standard one)")
    tree.say(f"{why}: the package gets libraries and programs of its own")
    tree.require()
    return True


@contextlib.contextmanager
def _stage():
    """A copy of the package, as the working directory: setuptools writes beside its sources, which may be read-only, or
    belong to another build."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="mooncake-") as tmp:
        copies = [(tree.PACKAGE, "python")]
        if os.path.exists(os.path.join(tree.TOP, "include", "mooncake", "mcs.h")):
            copies.append((os.path.join(tree.TOP, "include"), "include"))
        for source, name in copies:
            shutil.copytree(source, os.path.join(tmp, name), copy_function=shutil.copy,
                            ignore=shutil.ignore_patterns("build", "lib", "objects", "*.egg-info", "__pycache__"))
        subprocess.check_call(["chmod", "-R", "u+w", tmp])
        os.chdir(os.path.join(tmp, "python"))
        try:
            yield tmp
        finally:
            os.chdir(here)


def _carry(build):
    """Have setup.py link with the build tree, and find its libraries beside the extensions."""
    os.environ.update(MOONCAKE_BUNDLE="1", MOONCAKE_BUILD_DIR=build, MOONCAKE_RPATH="$ORIGIN")


def _build_dir(settings, tmp):
    directory = _setting(settings, "build-dir")
    if directory and not os.path.isabs(directory):
        sys.exit(f"mooncake: --config-settings build-dir={directory}: the path has to be absolute")
    return directory or os.path.join(tmp, "tree")


def get_requires_for_build_wheel(config_settings=None):
    try:
        import setuptools.command.bdist_wheel  # noqa: F401
        return []
    except ImportError:
        return ["wheel"]


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    to = os.path.abspath(metadata_directory)
    bundles = _bundles(config_settings)
    with _stage() as tmp:
        if bundles:
            _carry(_build_dir(config_settings, tmp))
        return build_meta.prepare_metadata_for_build_wheel(to)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    to = os.path.abspath(wheel_directory)
    bundles = _bundles(config_settings)
    with _stage() as tmp:
        if bundles:
            build = _build_dir(config_settings, tmp)
            tree.build(build, int(_setting(config_settings, "jobs", len(os.sched_getaffinity(0)))))
            bundle.programs(build, "mooncake")
            bundle.libraries(build, "mooncake")
            _carry(build)
        tree.say("compiling the extensions")
        return build_meta.build_wheel(to)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    if _bundles(config_settings):
        sys.exit("mooncake: an editable package carries no libraries: make install them first, or set "
                 "MOONCAKE_BUILD_DIR to a directory where they were built, or install without -e")
    return build_meta.build_editable(wheel_directory)


def get_requires_for_build_editable(config_settings=None):
    return get_requires_for_build_wheel()


def get_requires_for_build_sdist(config_settings=None):
    return get_requires_for_build_wheel()


def build_sdist(sdist_directory, config_settings=None):
    """The whole tree, with configure, so that the other machine needs no autoconf."""
    to = os.path.abspath(sdist_directory)
    if not tree.complete():
        sys.exit("mooncake: an sdist has the C sources, which are not beside python/ here")
    with _stage() as tmp:
        os.environ.setdefault("MOONCAKE_BUILD_DIR", tmp)
        info = os.path.join(tmp, build_meta.prepare_metadata_for_build_wheel(tmp), "METADATA")
        name = os.path.basename(os.path.dirname(info))[:-len(".dist-info")]
        copy = os.path.join(tmp, name)
        tree.copy(copy)
        shutil.copy(info, os.path.join(copy, "PKG-INFO"))
        tree.autoreconf(copy)
        shutil.rmtree(os.path.join(copy, "autom4te.cache"), ignore_errors=True)

        def anonymous(member):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            return member
        path = os.path.join(to, name + ".tar.gz")
        with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
            tar.add(copy, name, filter=anonymous)
        return os.path.basename(path)
