#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Addresses given by callers: memory that is protected, unmapped or truncated with its file is an
# error of the call, and not a signal.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=100
timeout 120 "$PYTHON" "$top_srcdir/tests/python/pointers.py" "$MASTER" --old
"$PYTHON" - <<'END' || skip "the kernel cannot report a mapping's properties (Linux 6.11)"
import fcntl, os, struct
q = struct.pack("=11Q", 104, 0, 0, *[0] * 8) + bytes(16)
try:
    fcntl.ioctl(os.open("/proc/self/maps", os.O_RDONLY), 0xC0686611, bytearray(q))
except OSError as e:
    raise SystemExit(e.errno != 2)
END
timeout 120 "$PYTHON" "$top_srcdir/tests/python/pointers.py" "$MASTER"
