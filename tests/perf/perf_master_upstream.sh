#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# CPU time per key in our master and in upstream's: the same Python program uses each package in turn.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/python.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
requires jq
UPSTREAM_PYTHON=''
upstream_python 0.3.13.post1
python_package
start_master --enable_metric_reporting=false
theirs=$(dirname "$(env -u PYTHONPATH "$UPSTREAM_PYTHON" -c 'import mooncake.store as s; print(s.__file__)')")/mooncake_master
chmod +x "$theirs"
rpc='' http=''
free_port rpc
free_port http
spawn upstream "$theirs" --rpc_port="$rpc" --metrics_port="$http" --enable_metric_reporting=false
their_pid=$SPAWNED
started "$their_pid" upstream 20 connects "127.0.0.1:$rpc"
program=$top_srcdir/tests/perf/perf_master_upstream.py

for _ in 1 2 3; do
	ours=$(timeout 120 "$PYTHON" "$program" "$MASTER" "$MASTER_PID" 2>>"$tmp/ours.log") || fail "ours: see ours.log"
	other=$(timeout 120 env -u PYTHONPATH "$UPSTREAM_PYTHON" "$program" "127.0.0.1:$rpc" "$their_pid" 2>>"$tmp/other.log") ||
		fail "upstream's: see other.log"
	echo "$ours $other"
done >"$tmp/figures"

# median COLUMN
median() {
	cut -d ' ' -f "$1" "$tmp/figures" | sort -g | sed -n 2p
}

row() {
	printf '%-46s %-12s %12.2f  %s\n' "$1" "$2" "$3" "$4"
}

column=0
for what in put exist; do
	column=$((column + 1))
	mine=$(median $column)
	other=$(median $((column + 2)))
	row "$what of 500 keys, one, the master's CPU time" ours "$mine" us
	row "$what of 500 keys, one, the master's CPU time" upstream "$other" us
	row "$what of 500 keys, one, the master's CPU time" ratio "$(jq -n "$other / $mine")" "x as fast"
done
