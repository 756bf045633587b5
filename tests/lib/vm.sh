# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# vm.sh - for tests in a virtual machine that vm-run makes, emulated if KVM is not available.
# shellcheck disable=SC2154  # variables of functions.sh

# requires_vm - set $VM to vm-run, or to another one given as VM_RUN; skip without its kernel
requires_vm() {
	VM=${VM_RUN:-$top_srcdir/tests/lib/vm-run}
	# vm-run downloads its kernel only with --prepare, never in a test.
	compgen -G "${VMRUN_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/vm-run}/1-*/initrd" >/dev/null ||
		skip "there is no kernel yet: tests/lib/vm-run --prepare (170 MB of Debian packages)"
}

# has_siw - is there soft-iWARP for that kernel?  Without it says so.
has_siw() {
	compgen -G "${VMRUN_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/vm-run}/1-*/tree/usr/lib/modules/*/updates/siw.ko" \
		>/dev/null || { echo "not on soft-iWARP: tests/lib/vm-run --prepare -d siw builds it"; return 1; }
}

# in_vm SECONDS ARG... - run vm-run, its output in $tmp/vm.log; fail with that
in_vm() {
	local seconds=$1 status=0
	shift
	timeout $((seconds + 20)) "$VM" -t "$seconds" "$@" >"$tmp/vm.log" 2>&1 || status=$?
	[ "$status" -ne 125 ] || skip "no virtual machine can be started: $(tail -n 3 "$tmp/vm.log")"
	[ "$status" -eq 0 ] || fail "in the machine: status $status: $(tail -n 30 "$tmp/vm.log")"
}
