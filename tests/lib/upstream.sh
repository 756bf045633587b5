# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Read after functions.sh.
# shellcheck disable=SC2154,SC2034
# upstream.sh - install upstream's wheels from PyPI with pip, each in a virtual environment that is
# created once and kept in the build tree.

# upstream_python VERSION - set $UPSTREAM_PYTHON to a Python that can import that release; skip the
# test if it cannot be installed.  Since 0.3.14 the only wheels are those for CUDA: their programs need
# LD_LIBRARY_PATH=$UPSTREAM_LIBRARIES, which has a driver without GPUs.
upstream_python() {
	local dir=$top_builddir/tests/wheels/$1 packages="mooncake-transfer-engine-non-cuda==$1 numpy" sites
	UPSTREAM_VERSION=$1 UPSTREAM_LIBRARIES=''
	unless_sanitized "upstream's programs are not sanitized"
	requires python3 flock
	[ "$1" != 0.3.14 ] || packages="mooncake-transfer-engine-cuda13==$1 nvidia-cuda-runtime==13.5.37 numpy"
	mkdir -p "$top_builddir/tests/wheels"
	# several tests may install it at the same time
	exec 9>"$dir.lock"
	flock 9
	if ! [ -e "$dir/complete" ]; then
		rm -rf "$dir"
		python3 -m venv "$dir" >"$tmp/venv.log" 2>&1 ||
			skip "no virtual environment can be created: $(tail -n 1 "$tmp/venv.log")"
		# shellcheck disable=SC2086
		# (a list of packages)
		timeout 300 "$dir/bin/pip" --disable-pip-version-check install --timeout 20 --retries 1 \
			$packages >"$tmp/pip.log" 2>&1 ||
			skip "$packages cannot be installed: $(grep -i error "$tmp/pip.log" | tail -n 1)"
		touch "$dir/complete"
	fi
	sites=$(echo "$dir"/lib/python3*/site-packages)
	[ "$1" != 0.3.14 ] || driver_without_gpus "$dir" "$sites"
	exec 9>&-
	UPSTREAM_PYTHON=$dir/bin/python
	LD_LIBRARY_PATH=$UPSTREAM_LIBRARIES "$UPSTREAM_PYTHON" -c 'import mooncake.engine' >"$tmp/import.log" 2>&1 ||
		skip "$packages does not run here: $(tail -n 1 "$tmp/import.log")"
}

# driver_without_gpus DIR SITES - a libcuda.so.1 in which every function fails, so that the wheel can be loaded
driver_without_gpus() {
	local cc=${CC:-cc}
	if ! [ -e "$1/cuda/libcuda.so.1" ]; then
		requires nm
		mkdir -p "$1/cuda"
		nm -D "$2"/mooncake/*.so | sed -n 's/^ *U \(cu[A-Z][A-Za-z0-9_]*\).*/int \1(void) { return 100; }/p' |
			sort -u >"$1/cuda/driver.c"
		# shellcheck disable=SC2086
		# (CC may have arguments)
		$cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$1/cuda/libcuda.so.1" "$1/cuda/driver.c"
	fi
	UPSTREAM_LIBRARIES=$1/cuda:$(echo "$2"/nvidia/*/lib)
}
