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

# whole WHAT DEFINE... - all states, without an error
whole() {
	local what=$1
	shift
	explore "$what" "$@" || { cat pan.log; exit 1; }
	echo "ha.pml: $what: $states states, no error"
}

# without RULE DEFINE...
without() {
	local rule=$1
	shift
	! explore "$rule" -DMASTERS=2 "-DBROKEN=$rule" "$@" || { echo "without a rule ($rule) there is no error"; exit 1; }
	echo "ha.pml: $rule: $(sed -n 's/^pan:1: *//p' pan.log | head -n 1)"
}

# Each run has the parts that concern each other; with all of them at the same time there are too many states.
whole "${1:-2} masters, kills" "-DMASTERS=${1:-2}" -DNOTICES=0
whole "2 masters, notice, two values" -DMASTERS=2 -DNOTICES=1 -DKILLS=0 -DTERMS=2
whole "2 masters, notice, kills" -DMASTERS=2 -DNOTICES=1 -DVALUES=1
for rule in NO_FENCE NO_LEASE_IN_READS NO_REMOVAL_IN_STORE NO_WAIT; do without "$rule" -DNOTICES=0; done
for rule in NO_PROMISE_IN_READS NO_PROMISE_WAIT NO_REFUSAL NO_MEMBER_CHECK; do without "$rule" -DVALUES=1 -DKILLS=0; done
