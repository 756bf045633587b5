# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# guest.sh - for the parts of tests that run in a virtual machine, in a directory of their own.
# addresses of the machine's networks
export MC_ALLOW_INSECURE=1
trap 'echo "FAIL: line $LINENO: $BASH_COMMAND"' ERR

fail() {
	echo "FAIL: $*"
	tail -n 20 ./*.log
	exit 1
}

# wait_until WORDS COMMAND... - at most 40 s, longer where the machine is emulated
wait_until() {
	local words=$1 n=0
	shift
	until "$@" >/dev/null 2>&1; do
		n=$((n + 1))
		[ "$n" -lt 400 ] || fail "$words"
		sleep 0.1
	done
}

# cases NAME... - run these functions, and print "case NAME MS" after each
cases() {
	local name begin
	for name; do
		begin=${EPOCHREALTIME/./}
		"$name"
		echo "case $name $(((${EPOCHREALTIME/./} - begin) / 1000)) ms"
	done
}
