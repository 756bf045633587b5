#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every method of mooncake.store returns the same as upstream's package for the same call, except
# for the differences in tests/python/differences.py and in the scripts of tests/python/observe/.
#
# "python_observed.sh SUBJECT" runs observe/SUBJECT.py alone.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
python=$top_srcdir/tests/python
if [ $# -eq 0 ]; then
	start_master --default_kv_lease_ttl=2000
	timeout 120 "$PYTHON" "$python/observe.py" "$MASTER" >"$tmp/ours.json" 2>"$tmp/observe.log" ||
		fail "observe.py failed"
	"$PYTHON" "$python/compare.py" "$python/upstream.json" "$tmp/ours.json"
	stop_pid "$MASTER_PID"
fi
start_master --default_kv_lease_ttl=500
wrong=
shopt -s nullglob
for results in "$python/observe/${1:-}"*.json; do
	subject=$(basename "$results" .json)
	rc=0
	timeout 120 "$PYTHON" "$python/observe/$subject.py" "$MASTER" "$MASTER_HTTP" >"$tmp/$subject.json" \
		2>"$tmp/$subject.log" || rc=$?
	if [ "$rc" -eq 77 ]; then
		echo "# $subject is not compared: $(cat "$tmp/$subject.log")"
		continue
	fi
	[ "$rc" -eq 0 ] || fail "observe/$subject.py failed"
	echo "$subject:"
	"$PYTHON" "$python/compare.py" "$results" "$tmp/$subject.json" || wrong="$wrong $subject"
done
[ -z "$wrong" ] || fail "other results than upstream's:$wrong"
