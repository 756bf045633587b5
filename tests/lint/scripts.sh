#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The scripts pass shellcheck without errors and warnings.  It does not follow "source": analysing the libraries again
# for each script took four fifths of the time.  So a variable without an assignment is found when the script runs
# (set -u), a failed cd ends it (set -e), and an unused one is reported only if no other script has its name.
set -eu
cd "${top_srcdir:?}"
command -v shellcheck >/dev/null || { echo "SKIP: shellcheck is not installed"; exit 77; }
scripts=$(find tests init -name '*.sh' -type f)
for f in quickstart .ci/run init/*; do
	[ -f "$f" ] && head -n 1 "$f" | grep -q '^#!.*sh' && scripts="$scripts $f"
done
status=0
for f in $scripts; do
	# One file at a time: shellcheck follows a file that is among its arguments.
	shellcheck -S warning -f gcc -e SC1091,SC2154,SC2164 "$f" || :
done >"${TMPDIR:-/tmp}/shellcheck.$$"
while read -r line; do
	name=${line##*warning: }
	name=${name%% appears unused*}
	case $line in
	*SC2034*)
		file=${line%%:*}
		# shellcheck disable=SC2086
		! grep -lw -- "$name" $scripts | grep -qvx "$file" || continue
		;;
	esac
	echo "$line"
	status=1
done <"${TMPDIR:-/tmp}/shellcheck.$$"
rm "${TMPDIR:-/tmp}/shellcheck.$$"
exit $status
