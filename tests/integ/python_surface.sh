#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every name of upstream's package exists or is listed in docs/COMPATIBILITY.md with the reason;
# names that the page calls absent are absent; the type files agree with help().
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
# a second test of a run does not rebuild the package that the first one uses
find "$PYTHONPATH" \( -name '*.py' -o -name '*.so' \) -printf '%P %i %C@\n' | sort >"$tmp/built"
(python_package) || exit
find "$PYTHONPATH" \( -name '*.py' -o -name '*.so' \) -printf '%P %i %C@\n' | sort >"$tmp/again"
cmp "$tmp/built" "$tmp/again" || fail "the package was built again: $(diff "$tmp/built" "$tmp/again")"
"$PYTHON" -c 'import aiohttp' 2>/dev/null || skip "no aiohttp (apt-get install python3-aiohttp)"
"$PYTHON" "$top_srcdir/tests/python/surface.py" "$top_srcdir/docs/COMPATIBILITY.md" "$top_srcdir/tests/python/names.json"
