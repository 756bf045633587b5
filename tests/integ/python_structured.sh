#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Structured objects and their catalog: round trips of every kind, failures, damage.  If upstream's
# wheel and torch can be installed, also objects put by upstream's module, and our objects read by
# it.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
. "$top_srcdir/tests/lib/upstream.sh"
unless_sanitized "numpy is not sanitized, and the module is Python"
python_package
"$PYTHON" -m venv "$tmp/venv" >"$tmp/venv.log" 2>&1 || skip "no virtual environment can be made"
timeout 300 "$tmp/venv/bin/pip" -q install --timeout 20 --retries 1 numpy msgpack >"$tmp/pip.log" 2>&1 ||
	skip "numpy and msgpack cannot be installed: $(tail -n 1 "$tmp/pip.log")"
start_master --default_kv_lease_ttl=500
packages=$(echo "$tmp"/venv/lib/python3*/site-packages)

# in_each NAME ARGUMENT... - run that test with numpy, and with the torch of the engines'
# environment if it exists
torch=${MC_ENGINES:-/opt/mc-engines}/venv/bin/python
same_python='import sys; print(sys.version_info[:2])'
[ "$("$torch" -c "import torch; $same_python" 2>/dev/null)" = "$("$PYTHON" -c "$same_python")" ] || torch=
[ -n "$torch" ] || echo "# no torch: tensors are not tested here (tests/engines/setup.sh installs it)"
mkdir "$tmp/msgpack"
cp -r "$packages/msgpack" "$tmp/msgpack/"
in_each() {
	local script=$top_srcdir/tests/python/$1
	shift
	timeout 250 "$tmp/venv/bin/python" "$script" "$@"
	[ -z "$torch" ] || PYTHONPATH=$PYTHONPATH:$tmp/msgpack timeout 250 "$torch" -W ignore "$script" "$@"
}

in_each structured.py "$MASTER"
in_each structured_faults.py "$MASTER"
timeout 60 "$tmp/venv/bin/python" "$top_srcdir/tests/python/engram.py" "$MASTER"
# warnings in the log are intended by the test
timeout 250 "$tmp/venv/bin/python" "$top_srcdir/tests/python/catalog.py" "$MASTER" 2>"$tmp/catalog.log"

# subjects of python_observed.sh that need numpy
for script in "$top_srcdir"/tests/python/observe/*.py; do
	grep -q 'needs("numpy")' "$script" || continue
	timeout 120 "$tmp/venv/bin/python" "$script" "$MASTER" "$MASTER_HTTP" >"$tmp/observed.json"
	"$PYTHON" "$top_srcdir/tests/python/compare.py" "${script%.py}.json" "$tmp/observed.json"
done

# without numpy the error names the missing package
! "$PYTHON" -c 'import sys; sys.modules["numpy"] = None; import mooncake.structured_object_store' 2>"$tmp/bare" ||
	fail "the import succeeds without numpy"
grep -q "numpy" "$tmp/bare" || fail "$(tail -n 1 "$tmp/bare")"

(upstream_python 0.3.13.post1) || { echo "# no upstream wheel: comparison with it left out"; exit 0; }
upstream=$(echo "$top_builddir"/tests/wheels/0.3.13.post1/lib/python3*/site-packages/mooncake)
in_each structured_upstream.py "$upstream" "$MASTER"
timeout 250 "$tmp/venv/bin/python" "$top_srcdir/tests/python/catalog.py" "$MASTER" "$upstream" 2>"$tmp/catalog.log"
