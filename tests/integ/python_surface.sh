#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every name of upstream's package is there or on docs/COMPATIBILITY.md with its reason; what that page calls absent is absent;
# the type files say what help() says.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
# a second test of a run leaves alone what the first one uses
find "$PYTHONPATH" \( -name '*.py' -o -name '*.so' \) -printf '%P %i %C@\n' | sort >"$tmp/built"
(python_package) || exit
find "$PYTHONPATH" \( -name '*.py' -o -name '*.so' \) -printf '%P %i %C@\n' | sort >"$tmp/again"
cmp "$tmp/built" "$tmp/again" || fail "it is built again: $(diff "$tmp/built" "$tmp/again")"
"$PYTHON" -c 'import aiohttp' 2>/dev/null || skip "no aiohttp (apt-get install python3-aiohttp)"
"$PYTHON" "$top_srcdir/tests/python/surface.py" "$top_srcdir/docs/COMPATIBILITY.md" "$top_srcdir/tests/python/names.json"
