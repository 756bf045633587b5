#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# results.sh BUILD-DIR... - sum up the test runs in these build directories: print each test that
# failed or was skipped with the reason, and a last line "N passed, N failed, N skipped".  Status 1
# when a test failed or no test ran.
set -eu
passed=0 failed=0 skipped=0
for build in "$@"; do
	# without the separate builds below this directory
	list=$(find "$build" -path "$build/build-*" -prune -o -name '*.trs' -print | sort)
	for trs in $list; do
		result=$(sed -n 's/^:test-result: //p' "$trs")
		name=$build/${trs#"$build"/}
		name=${name%.trs}
		case $result in
		PASS | XFAIL) passed=$((passed + 1)) ;;
		SKIP)
			skipped=$((skipped + 1))
			# the reason given to skip(), or the test's last line of output
			why=$(grep -h '^SKIP: ' "${trs%.trs}.log" | tail -n 1) || why=
			[ -n "$why" ] || why=$(grep -v '^SKIP ' "${trs%.trs}.log" | tail -n 1)
			echo "skipped: $name: ${why#SKIP: }"
			;;
		*)
			failed=$((failed + 1))
			echo "failed: $name (see $name.log)"
			;;
		esac
	done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
