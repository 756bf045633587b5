#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The results of upstream's package that are committed are right: the package is installed from PyPI
# and gives the same results again.  0.3.13.post1: tests/python/upstream.json; 0.3.14: tests/python/observe/*.json.
#
# docs/COMPATIBILITY_NAMES.tsv has all names of 0.3.14.
#
# "python_upstream.sh SUBJECT" runs observe/SUBJECT.py alone; with RECORD=1 it writes the results to observe/SUBJECT.json.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
. "$top_srcdir/tests/lib/upstream.sh"
find_python || skip "no python3 >= 3.10"
python=$top_srcdir/tests/python

wheel_directory() {
	echo "$(dirname "$UPSTREAM_PYTHON")"/../lib/python3*/site-packages/mooncake
}

# master_of_wheel NAME FLAG... - sets MASTER and MASTER_HTTP
master_of_wheel() {
	local wheel rpc='' http='' name=$1
	shift
	wheel=$(wheel_directory)
	free_port rpc
	free_port http
	spawn "$name" env LD_LIBRARY_PATH="${UPSTREAM_LIBRARIES-}" "$wheel/mooncake_master" --rpc_port="$rpc" \
		--metrics_port="$http" "$@"
	started "$SPAWNED" "$name" 20 connects "127.0.0.1:$rpc"
	MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
}

# observe SCRIPT NAME - the results of upstream's package in $tmp/NAME.json
observe() {
	LD_LIBRARY_PATH=${UPSTREAM_LIBRARIES-} timeout 300 "$UPSTREAM_PYTHON" "$1" "$MASTER" "$MASTER_HTTP" >"$tmp/$2.json" \
		2>"$tmp/$2.log" || fail "$1 failed"
	# the library may print before the results
	sed -i -n '/^{/,$p' "$tmp/$2.json"
}

# same SCRIPT RESULTS - a second try, because some results depend on the speed of upstream's threads (eviction, leases)
same() {
	local name
	name=$(basename "$2" .json)
	observe "$1" "$name"
	if [ -n "${RECORD-}" ]; then
		"$PYTHON" -c 'import json, sys; json.dump({"version": sys.argv[1], "results": json.load(sys.stdin)["results"]}, sys.stdout, indent=1); print()' \
			"$UPSTREAM_VERSION" <"$tmp/$name.json" >"$2"
	fi
	echo "$name:"
	"$PYTHON" "$python/compare.py" --same "$2" "$tmp/$name.json" && return
	observe "$1" "$name"
	"$PYTHON" "$python/compare.py" --same "$2" "$tmp/$name.json" >"$tmp/$name.differences" ||
		fail "$name, twice: $(cat "$tmp/$name.differences")"
}

if [ $# -eq 0 ]; then
	upstream_python 0.3.13.post1
	master_of_wheel master13 --default_kv_lease_ttl=2000
	same "$python/observe.py" "$python/upstream.json"
	# 77: without numpy
	timeout 60 "$UPSTREAM_PYTHON" "$python/engram.py" "$MASTER" || [ $? -eq 77 ] || fail "engram.py failed"
fi
upstream_python 0.3.14
if [ $# -eq 0 ]; then
	wheel=$(wheel_directory)
	# gflags ends with status 1
	LD_LIBRARY_PATH=${UPSTREAM_LIBRARIES-} timeout 60 "$wheel/mooncake_master" --help >"$tmp/flags" 2>&1 || :
	echo "names:"
	LD_LIBRARY_PATH=${UPSTREAM_LIBRARIES-} timeout 60 "$UPSTREAM_PYTHON" "$python/compat.py" wheel \
		"$top_srcdir/docs/COMPATIBILITY_NAMES.tsv" "$wheel" "$tmp/flags" || fail "names of the wheel differ"
fi
master_of_wheel master14 --default_kv_lease_ttl=500
for script in "$python/observe/${1:-}"*.py; do
	[ "$(basename "$script")" = cases.py ] || same "$script" "${script%.py}.json"
done
