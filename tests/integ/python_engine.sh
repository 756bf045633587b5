#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mooncake.engine moves bytes between engines of one process and of two, refuses wrong arguments, and ends.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
PORT=''
free_port PORT
spawn http "$top_builddir/tools/mooncake_http_metadata_server" --host=127.0.0.1 --port="$PORT"
started "$SPAWNED" "the metadata server" 30 connects "127.0.0.1:$PORT"
export METADATA=http://127.0.0.1:$PORT/metadata
timeout 120 "$PYTHON" "$top_srcdir/tests/python/engine.py"
