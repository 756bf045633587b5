#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Global symbols that a room's object files define begin with the room's prefix.
set -eu
top_srcdir=$(cd "${top_srcdir:?}" && pwd)
cd "${top_builddir:?}"
found=$(mktemp)
trap 'rm -f "$found"' EXIT

# check ROOM PREFIX-PATTERN
check() {
	objects=$(find "$1" -name '*.o' 2>/dev/null) || :
	[ -n "$objects" ] || return 0
	seen=1
	# Names that begin with two underscores belong to the compiler (sanitizers).
	# shellcheck disable=SC2086
	nm -A -g --defined-only $objects | sed 's/: *[0-9a-f]* [A-Za-z] /: /' |
		grep -vE ": (__|main\$|$2)" >>"$found" || :
}

seen=
check common 'mc_'
check proto 'mcp_'
check meta 'mcd_'
# Upstream's C functions keep upstream's names, which the header declares.
abi=$(grep -oE '\b[a-z][A-Za-z]+\(' "$top_srcdir/include/mooncake/transfer_engine_c.h" | sort -u | tr '\n' '|' |
	sed 's/(//g; s/|$//')
check engine "(mce_|($abi)\$)"
check tiers 'mct_'
check client '(mcs_|mooncake_store_)'
check master 'mcm_'
check node 'mcn_'
check mcfs 'mcfs_'
check tools '(mcctl_|mcbench_)'
check python '(mcpy_|PyInit_)'
[ -n "$seen" ] || { echo "SKIP: nothing is built in $top_builddir"; exit 77; }
cat "$found"
[ ! -s "$found" ]
