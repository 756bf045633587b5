#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every program of tests/perf still runs, with PERF_QUICK=1 in about a second: a benchmark that is only run before a release
# rots.  The programs are those of EXTRA_PROGRAMS; a new one without arguments needs no line here.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
. "$top_srcdir/tests/lib/python.sh"
unless_sanitized "the programs are for measuring"
export PERF_QUICK=1

# quick NAME COMMAND... - the command prints figures, or the reason why it cannot run here
quick() {
	local name=$1 status=0 began=${EPOCHREALTIME/./}
	shift
	timeout -k 5 60 "$@" >"$tmp/quick.out" 2>&1 || status=$?
	if [ "$status" = 77 ]; then
		echo "$name: not run: $(tail -n 1 "$tmp/quick.out")"
		return
	fi
	[ "$status" = 0 ] || { cat "$tmp/quick.out"; fail "$name: status $status"; }
	grep -q '[0-9]' "$tmp/quick.out" || fail "$name printed no figure"
	echo "$name: $(((${EPOCHREALTIME/./} - began) / 1000)) ms, $(wc -l <"$tmp/quick.out") lines"
}

# ssd NAME ARG... - perf_ssd on a new master
ssd() {
	local name=$1
	shift
	start_master --enable_offload --default_kv_lease_ttl=0 >/dev/null
	rm -f "$ssd"/*
	quick "$name" "$top_builddir/tests/perf/perf_ssd" "$MASTER" "$@"
	stop_pid "$MASTER_PID"
}

programs=$(sed -e ':again' -e '/\\$/N; s/\\\n/ /; t again' "$top_srcdir"/tests/*.am |
	sed -nE 's/^EXTRA_PROGRAMS \+= //p' | tr -s ' \t' '\n' | sed 's,%D%,tests,')
[ "$(wc -w <<<"$programs")" -ge 19 ] || fail "programs are missing: $programs"
for program in $programs; do
	name=${program##*/}
	[ -x "$top_builddir/$program" ] || fail "$program is not built"
	case $name in
	perf_ssd)
		ssd "perf_ssd, rates" "$ssd" 65536 16 4
		ssd "perf_ssd, latency" "" 4096 20 0
		;;
	bare_fuse | mcfs_names | mcfs_remote | perf_secure) ;; # by their scripts below
	*) quick "$name" "$top_builddir/$program" ;;
	esac
done

quick bench.sh "$top_srcdir/tests/perf/bench.sh" alloc tests/perf/perf_alloc
# The scripts that need neither other packages nor much time.
for name in perf_mcfs_names perf_mcfs_remote; do
	KEYS=1000 CYCLES=1000 quick "$name.sh" bash "$top_srcdir/tests/perf/$name.sh" 1
done
quick perf_secure.sh bash "$top_srcdir/tests/perf/perf_secure.sh"
# Without upstream's package.
if reason=$(python_package); then
	python_package
	start_master >/dev/null
	PERF_ROUNDS=1 PERF_ROWS=exist quick perf_python.py "$PYTHON" "$top_srcdir/tests/perf/perf_python.py" "$PYTHON" "$MASTER"
	for kind in uniform zipf scan loop chat agent; do
		quick "make_trace.py $kind" "$PYTHON" "$top_srcdir/tests/perf/make_trace.py" $kind --requests 50
	done
else
	echo "perf_python.py, make_trace.py: not run: $reason"
fi
