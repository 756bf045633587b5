#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check.sh [MASTERS] - check ha.pml with Spin, all states; then with one rule left out at a time, which the checker must
# notice.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# explore NAME DEFINE... - sets $states; fails if an assertion does
explore() {
	local name=$1
	shift
	spin "$@" -a "$here/ha.pml" >spin.log || { cat spin.log; exit 1; }
	"${CC:-cc}" -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
	timeout "${LIMIT:-600}" ./pan -E -m1000000 >pan.log
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
	grep -q 'max search depth too small' pan.log && { echo "$name: the search is not complete"; exit 1; }
	grep -q 'errors: 0' pan.log
}

explore all "-DMASTERS=${1:-2}" || { cat pan.log; exit 1; }
echo "ha.pml: ${1:-2} masters: $states states, no error"
for rule in NO_FENCE NO_LEASE_IN_READS NO_REMOVAL_IN_STORE NO_WAIT NO_PROMISE_IN_READS NO_PROMISE_WAIT NO_REFUSAL \
	NO_MEMBER_CHECK; do
	! explore "$rule" "-DMASTERS=2" "-DBROKEN=$rule" || { echo "without a rule ($rule) there is no error"; exit 1; }
	echo "ha.pml: $rule: $(sed -n 's/^pan:1: *//p' pan.log | head -n 1)"
done
