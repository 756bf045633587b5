#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tensors of every type and shape, with the packages of this Python: torch, numpy, or only buffers.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=500
timeout 120 "$PYTHON" "$top_srcdir/tests/python/tensors.py" "$MASTER"
timeout 120 "$PYTHON" "$top_srcdir/tests/python/tensors.py" "$MASTER" --bare
# same with the torch of the engines' environment, if it exists
torch=${MC_ENGINES:-/opt/mc-engines}/venv/bin/python
if [ -z "${SANITIZER-}" ] && "$torch" -c 'import sys, torch; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
	timeout 200 "$torch" "$top_srcdir/tests/python/tensors.py" "$MASTER"
else
	echo "# no torch: its tensors are not tested here (tests/engines/setup.sh installs it)"
fi
