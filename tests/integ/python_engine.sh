#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mooncake.engine moves bytes between engines of one process and of two, refuses what is wrong, and ends.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
timeout 120 "$PYTHON" "$top_srcdir/tests/python/engine.py"
