# SPDX-License-Identifier: Apache-2.0
"""The C tree around the package: the list of its files, the packages that a build needs, and the build."""

import collections
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig

import bundle

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOP = os.path.dirname(PACKAGE)
# Made by autoreconf; a tarball has them, a clone does not.
GENERATED = ["configure", "aclocal.m4", "Makefile.in", "config.h.in", "build-aux", "m4"]
SKIPPED_DIRECTORIES = {".git", ".deps", ".libs", "__pycache__", "autom4te.cache", ".go-cache"}
SKIPPED_SUFFIXES = (".o", ".lo", ".la", ".a", ".pyc", ".log", ".trs", ".dirstamp", ".egg-info")
SKIPPED_AT_TOP = {"Makefile", "config.status", "config.h", "libtool", "stamp-h1", "PKG-INFO"}


def say(text):
    """A progress line; pip shows it with -v."""
    print(f"mooncake: {text}", flush=True)


def complete():
    """Whether the C tree is here: pip before 21.3 copies python/ alone."""
    return os.path.basename(PACKAGE) == "python" and os.path.exists(os.path.join(TOP, "configure.ac"))


def version():
    with open(os.path.join(TOP, "configure.ac")) as f:
        return re.search(r"m4_define\(\[MC_VERSION\],\[(.*?)\]\)", f.read()).group(1)


def _walk(directory):
    for at, directories, names in os.walk(os.path.join(TOP, directory)):
        inside = os.path.relpath(at, TOP)
        top = inside == "."
        directories[:] = [d for d in directories if d not in SKIPPED_DIRECTORIES and not d.endswith(SKIPPED_SUFFIXES)
                          and not (top and d.startswith("build") and d != "build-aux")]
        for name in names:
            if not name.endswith(SKIPPED_SUFFIXES) and not (top and name in SKIPPED_AT_TOP):
                yield os.path.normpath(os.path.join(inside, name))


def files():
    """The sources, relative to TOP: those that git knows or does not ignore, or all that no build makes."""
    try:
        out = subprocess.check_output(["git", "-C", TOP, "ls-files", "-coz", "--exclude-standard"],
                                      stderr=subprocess.DEVNULL)
        found = set(os.fsdecode(out).split("\0")) - {""}
    except (OSError, subprocess.CalledProcessError):
        found = set()
    if "configure.ac" not in found:
        return sorted(_walk("."))
    if os.path.exists(os.path.join(TOP, "configure")):
        for name in GENERATED:
            path = os.path.join(TOP, name)
            found.update(_walk(name) if os.path.isdir(path) else [name] if os.path.exists(path) else [])
    return sorted(f for f in found if os.path.isfile(os.path.join(TOP, f)))


def copy(to):
    """Copy the sources to the directory; a second copy replaces only files that changed, so that make is quick."""
    made = set()
    for name in files():
        source, target = os.path.join(TOP, name), os.path.join(to, name)
        if target.startswith(os.path.join(TOP, "")) and source.startswith(os.path.join(to, "")):
            continue  # the build directory is inside the tree
        if os.path.dirname(target) not in made:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            made.add(os.path.dirname(target))
        new = os.stat(source)
        try:
            old = os.stat(target)
            if (old.st_size, int(old.st_mtime)) == (new.st_size, int(new.st_mtime)):
                continue
            os.unlink(target)
        except FileNotFoundError:
            pass
        shutil.copy2(source, target)


def _compiler():
    return shlex.split(os.environ.get("CC", "")) or ["gcc"]


def _finds(spec):
    pkg_config = os.environ.get("PKG_CONFIG", "pkg-config")
    return subprocess.call([pkg_config, "--exists", spec], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def _missing():
    """The Debian packages that a build needs and the machine lacks."""
    packages = []
    if not all(map(shutil.which, ("make", "ar", "strip", _compiler()[0]))):
        packages.append("build-essential")
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        packages.append("python3-dev")
    if not os.path.exists(os.path.join(TOP, "configure")):
        packages += [package for tool, package in (("autoreconf", "autoconf"), ("automake", "automake"),
                                                   ("libtoolize", "libtool")) if not shutil.which(tool)]
    with open(os.path.join(TOP, "configure.ac")) as f:
        libraries = re.findall(r"^MC_LIB\(\[\w+\],\[(.+?)\],\[(.+?)\]\)", f.read(), re.M)
    if not shutil.which(os.environ.get("PKG_CONFIG", "pkg-config")):
        return packages + ["pkg-config"] + [package for _, package in libraries]
    return packages + [package for spec, package in libraries if not _finds(spec)]


def require():
    """End with the names of missing packages, before the work of minutes."""
    if not complete():
        sys.exit("mooncake: the C libraries are not installed, and their sources are not beside python/: use pip 21.3 "
                 "or newer (older ones copy python/ alone), or pip install the top directory")
    packages = _missing()
    if packages:
        sys.exit("mooncake: the C libraries cannot be built, packages are missing or too old; on Debian:\n"
                 "    apt-get install " + " ".join(packages))


def _run(step, command, cwd, env, seen=lambda line: None):
    tail = collections.deque(maxlen=40)
    with subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in process.stdout:
            tail.append(line)
            seen(line)
    if process.returncode:
        sys.exit("".join(tail) + f"mooncake: {step} failed ({shlex.join(command)})")


class _Progress:
    """One line for each tenth of the objects."""

    def __init__(self, total):
        self.total, self.done, self.told = max(total, 1), 0, 0

    def __call__(self, line):
        if not re.match(r"\s+CC\s", line):
            return
        self.done += 1
        tenth = min(self.done * 10 // self.total, 10)
        if tenth > self.told:
            self.told = tenth
            say(f"compiled {min(self.done, self.total)} of {self.total} files")


def autoreconf(directory):
    if os.path.exists(os.path.join(directory, "configure")):
        return
    say("making configure")
    _run("autoreconf", ["autoreconf", "-fi"], directory, dict(os.environ))


def _count(make, targets, directory, env):
    """How many files make would compile.  It would compile all when the stamp of config.h is newer than config.h, as
    configure leaves them; make itself then finds config.h unchanged."""
    header, stamp, status = (os.path.join(directory, name) for name in ("config.h", "stamp-h1", "config.status"))
    made = os.stat(header).st_mtime_ns
    if made >= os.stat(status).st_mtime_ns:
        os.utime(stamp, ns=(made, made))
    todo = subprocess.run(make + ["-n"] + targets, cwd=directory, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return len(re.findall(r'^echo "  CC  ', todo, re.M))


def build(directory, jobs):
    """Build the libraries and programs of the tree in a copy of it in the directory.  They find each other in the
    directory where they are ($ORIGIN)."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        copy(directory)
        autoreconf(directory)
        # a jobserver of the make that called pip cannot be reached from here
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR")}
        if not os.path.exists(os.path.join(directory, "Makefile")):
            say("configuring the C libraries and programs")
            ccache = ["ccache"] if shutil.which("ccache") and "CC" not in os.environ else []
            _run("configure", ["./configure", "-q", "CC=" + shlex.join(ccache + _compiler()),
                               "CFLAGS=" + os.environ.get("CFLAGS", "-O2")], directory, env)
        targets = bundle.PROGRAMS + [library + ".la" for library in bundle.LIBRARIES]
        make = ["make", "V=0", "LDFLAGS=" + os.environ.get("LDFLAGS", "") + r" -Wl,-rpath,\$$ORIGIN"]
        total = _count(make, targets, directory, env)
        say(f"compiling the C libraries and programs: {total} files, {jobs} at a time")
        _run("make", make + [f"-j{jobs}"] + targets, directory, env, _Progress(total))
