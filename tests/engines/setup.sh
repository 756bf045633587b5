#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh [DIRECTORY] - install the released engines of requirements.txt in a virtual environment
# (7 GB), and the C++ extension of LMCache's L2 adapter, compiled with our headers; for "make
# check-engines".  Default: /opt/mc-engines
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-${MC_ENGINES:-/opt/mc-engines}}
python=${MC_PYTHON:-python3.11}
mkdir -p "$dir"
[ -x "$dir/venv/bin/python" ] || "$python" -m venv "$dir/venv"
pip() {
	"$dir/venv/bin/python" -m pip --disable-pip-version-check "$@"
}
part() {
	awk -v n="$1" '/^# --/ { part++ } !/^#/ && NF && part + 0 == n' "$here/requirements.txt"
}
pip install -q --no-deps -r <(part 0 | grep -v '^torch==')
pip install -q "$(part 0 | grep '^torch==')"
pip install -q --no-deps -r <(part 1)
pip install -q --no-deps -r <(part 2)
# not in the wheels: LMCache's sources
lmcache=$(part 2 | grep '^lmcache==')
if [ ! -d "$dir/lmcache-src/csrc/storage_backends/mooncake" ]; then
	pip install -q --no-deps setuptools_scm==8.3.1
	rm -rf "$dir/lmcache-src" "$dir/sdist"
	SETUPTOOLS_SCM_PRETEND_VERSION=${lmcache#*==} NO_CUDA_EXT=1 NO_NATIVE_EXT=1 \
		"$dir/venv/bin/python" -m pip download -q --no-deps --no-binary :all: --no-build-isolation -d "$dir/sdist" "$lmcache"
	mkdir "$dir/lmcache-src"
	tar -xzf "$dir"/sdist/lmcache-*.tar.gz -C "$dir/lmcache-src" --strip-components=1
fi
echo "$dir: ready"
