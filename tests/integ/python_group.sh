#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mooncake.engine's SharedSegment and RpcInterface between processes, and with peers that send invalid data.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
timeout 200 "$PYTHON" "$top_srcdir/tests/python/group.py"
# mooncake.shared_segment, with the torch of the engines' environment
torch=${MC_ENGINES:-/opt/mc-engines}/venv/bin/python
if [ -z "${SANITIZER-}" ] && "$torch" -c 'import sys, torch; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
	timeout 200 "$torch" "$top_srcdir/tests/python/group.py" --torch
else
	echo "# no torch: mooncake.shared_segment is not tested here (tests/engines/setup.sh installs it)"
fi
