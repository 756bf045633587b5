#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every method of the Python package with arbitrary arguments: a Python exception or a number, never
# a crash or a hang.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
start_master --default_kv_lease_ttl=100
# some arguments are file names
cd "$tmp"
for seed in 1 ${MC_SEED:-$RANDOM}; do
	timeout 250 "$PYTHON" "$top_srcdir/tests/python/abuse.py" "$MASTER" "$seed" "${MC_CALLS:-4000}" 2>"$tmp/abuse.log" ||
		fail "seed $seed"
done
[ -z "${SANITIZER-}" ] || exit 0
timeout 250 "$PYTHON" "$top_srcdir/tests/python/abuse.py" "$MASTER" 2 100 --million 2>"$tmp/abuse.log" || fail "a million keys"
