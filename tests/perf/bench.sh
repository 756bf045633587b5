#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.sh 'NAME...' PROGRAM... - run the programs of tests/perf (only perf_NAME... unless the list is empty)
# one after the other, and print their rows as one table.  Next to every figure is a comparison from
# the same run: a ratio is meaningful on any machine, a number is not.
set -eu
want=$1
shift
status=0 ran=0
echo "# $(uname -srm), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
for program in "$@"; do
	name=$(basename "$program" .sh)
	case $program in
	*.sh) program=${top_srcdir:?}/$program ;;
	*) program=${top_builddir:?}/$program ;;
	esac
	case " ${want:-${name#perf_}} " in
	*" ${name#perf_} "*) ;;
	*) continue ;;
	esac
	ran=1
	echo
	echo "## $name"
	# Status 77: a requirement is missing, and the program has printed which.
	timeout -k 20 900 "$program" || {
		r=$?
		[ "$r" -eq 77 ] || { echo "$name: failed with status $r"; status=1; }
	}
done
[ "$ran" = 1 ] || { echo "bench: no program perf_$want" >&2; exit 2; }
exit "$status"
