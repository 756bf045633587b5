#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Python package against upstream's wheel, from PyPI if that can be reached, or from the virtual
# environment MC_UPSTREAM_VENV.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
requires_memory 4000
# compiled, as after an installation
cp -r "$PYTHONPATH" "$tmp/installed"
"$PYTHON" -m compileall -q "$tmp/installed" >"$tmp/compile.log"
export PYTHONPATH=$tmp/installed
start_master
upstream=()
venv=${MC_UPSTREAM_VENV:-$tmp/venv}
if [ ! -x "$venv/bin/python" ]; then
	"$PYTHON" -m venv "$venv" >"$tmp/venv.log" 2>&1 &&
		timeout 300 "$venv/bin/pip" -q install --timeout 10 --retries 0 \
			mooncake-transfer-engine-non-cuda==0.3.13.post1 >"$tmp/pip.log" 2>&1 || :
fi
if PYTHONPATH='' "$venv/bin/python" -c "import mooncake.store" 2>/dev/null; then
	wheel=$(echo "$venv"/lib/python3*/site-packages/mooncake)
	rpc='' http=''
	free_port rpc
	free_port http
	spawn upstream "$wheel/mooncake_master" --rpc_port="$rpc" --metrics_port="$http"
	started "$SPAWNED" upstream 20 connects "127.0.0.1:$rpc"
	printf '#!/bin/sh\nunset PYTHONPATH\nexec "%s/bin/python" "$@"\n' "$venv" >"$tmp/upstream-python"
	chmod +x "$tmp/upstream-python"
	upstream=("$tmp/upstream-python" "127.0.0.1:$rpc")
else
	echo "# upstream's wheel cannot be installed here"
fi
timeout 800 "$PYTHON" "$top_srcdir/tests/perf/perf_python.py" "$PYTHON" "$MASTER" "${upstream[@]}"
