#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pip install of an sdist where no library is installed: it builds libraries and programs into the package, which then
# works alone.  A second Python takes the objects of the first.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
unless_sanitized "python itself is not sanitized"
find_python || skip "no python3 >= 3.10 with headers and setuptools (apt-get install python3-dev python3-setuptools)"
"$PYTHON" -c 'import wheel' 2>/dev/null || skip "no wheel for $PYTHON (apt-get install python3-wheel)"
"$PYTHON" -m venv --system-site-packages "$tmp/venv" >"$tmp/venv.log" 2>&1 ||
	skip "no virtual environment can be made (apt-get install python3-venv)"
unset MOONCAKE_BUILD_DIR MOONCAKE_BUNDLE PKG_CONFIG_PATH PYTHONPATH CFLAGS LDFLAGS

mkdir "$tmp/dist"
name=$(cd "$top_srcdir/python" && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=backend "$PYTHON" -W ignore -c '
import sys, mooncake_build
print(mooncake_build.build_sdist(sys.argv[1]))' "$tmp/dist" 2>"$tmp/sdist.log" | tail -n 1)
[ -s "$tmp/dist/$name" ] || fail "no sdist"
tar -xzf "$tmp/dist/$name" -C "$tmp"
tree=$tmp/${name%.tar.gz}
for file in PKG-INFO pyproject.toml configure python/setup.py common/errno.def man/mcfs.5.in tests/lib/functions.sh; do
	[ -s "$tree/$file" ] || fail "the sdist has no $file"
done
[ -z "$(find "$tree" -name '*.o' -o -name .git -o -name .libs)" ] || fail "the sdist has objects"

install() {
	"$1/bin/pip" install -v --no-build-isolation --no-deps --no-index --config-settings libraries=bundled \
		--config-settings build-dir="$tmp/objects" "${@:2}" >"$tmp/pip.log" 2>&1 || fail "pip install fails"
}
install "$tmp/venv" "$tmp/dist/$name"
grep -qE 'mooncake: compiled ([0-9]+) of \1 files' "$tmp/pip.log" || fail "pip install shows no progress"

# works VENV - the master and the libraries of the package, without other files of this tree
works() {
	local rpc='' http=''
	free_port rpc
	free_port http
	spawn "master-$rpc" "$1/bin/mooncake_master" --rpc_port="$rpc" --metrics_port="$http"
	started "$SPAWNED" "master-$rpc" 30 connects "127.0.0.1:$rpc"
	(cd "$tmp" && PATH=/usr/bin:/bin "$1/bin/python" - "127.0.0.1:$rpc") <<-'P'
		import sys, mooncake.store, mooncake.engine
		assert mooncake.store.__file__.startswith(sys.prefix), mooncake.store.__file__
		maps = open("/proc/self/maps").read().split()
		ours = {m for m in maps if "libmooncake_store" in m or "libtransfer_engine" in m}
		assert len(ours) == 2 and all(m.startswith(sys.prefix) for m in ours), ours
		s = mooncake.store.MooncakeDistributedStore()
		assert s.setup("127.0.0.1", "P2PHANDSHAKE", 1 << 24, 0, "tcp", "", sys.argv[1]) == 0
		assert s.put("k", b"v") == 0 and s.get("k") == b"v"
	P
	for program in mooncake_client mcfs mcctl mooncake_http_metadata_server transfer_engine_bench; do
		"$1/bin/$program" --help >"$tmp/help" || fail "$program --help fails"
	done
}
works "$tmp/venv"

# Again over it, from a tree that pip reads but does not change: nothing is compiled but the extensions.
find "$tree" -printf '%p %T@\n' | sort >"$tmp/before"
install "$tmp/venv" --force-reinstall "$tree/python"
grep -q 'mooncake: compiling the C libraries and programs: 0 files' "$tmp/pip.log" || fail "the second install compiles again"
find "$tree" -name __pycache__ -prune -o -printf '%p %T@\n' | sort >"$tmp/after"
diff "$tmp/before" "$tmp/after" | grep '^>' | grep -v backend && fail "pip install writes into the source tree"
works "$tmp/venv"

for minor in 10 12 13; do
	for python in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python3; do
		command -v "$python" >/dev/null && "$python" -m venv "$tmp/other" >"$tmp/venv.log" 2>&1 || continue
		timeout 120 "$tmp/other/bin/pip" -q install --timeout 10 --retries 0 setuptools wheel >"$tmp/tools.log" 2>&1 || break
		install "$tmp/other" "$tree"
		grep -q 'mooncake: compiling the C libraries and programs: 0 files' "$tmp/pip.log" ||
			fail "the second Python compiles again"
		works "$tmp/other"
		break 2
	done
done

"$tmp/venv/bin/pip" -q uninstall -y mooncake-transfer-engine >"$tmp/pip.log" 2>&1
[ -z "$(find "$tmp"/venv/lib/python3*/site-packages/mooncake "$tmp"/venv/bin/mooncake_* "$tmp/venv/bin/mcfs" 2>/dev/null)" ] ||
	fail "pip uninstall leaves files"
