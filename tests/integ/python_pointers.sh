#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Addresses that callers give: memory that is protected, unmapped or gone from its file in the middle is an error of the
# call, and not a signal.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=100
timeout 120 "$PYTHON" "$top_srcdir/tests/python/pointers.py" "$MASTER" --old
"$PYTHON" - <<'END' || skip "the kernel does not say what a mapping is (Linux 6.11)"
import fcntl, os, struct
q = struct.pack("=11Q", 104, 0, 0, *[0] * 8) + bytes(16)
try:
    fcntl.ioctl(os.open("/proc/self/maps", os.O_RDONLY), 0xC0686611, bytearray(q))
except OSError as e:
    raise SystemExit(e.errno != 2)
END
timeout 120 "$PYTHON" "$top_srcdir/tests/python/pointers.py" "$MASTER"
