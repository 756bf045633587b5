#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# systemd finds no problem in the installed units.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires systemd-analyze
mkdir "$tmp/units"

# verify UNIT... - verify units of $tmp/units; prints systemd's complaints
verify() {
	(cd "$tmp/units" && SYSTEMD_UNIT_PATH=$tmp/units: timeout 60 systemd-analyze --man=no verify "$@" 2>&1) |
		grep -F -e "$tmp/units" -e "${1%%[@.]*}" || :
}
for unit in mooncake-master.service mcfs@.service; do
	[ -s "$top_builddir/init/$unit" ] || fail "$unit was not generated"
	# the programs are not installed here: replace them in the units
	sed -E 's,^(Exec[A-Za-z]+=[-+!]*)[^ ]*/(mcfs|mooncake_master) ,\1/bin/true ,' \
		"$top_builddir/init/$unit" >"$tmp/units/$unit"
	grep -q '=/bin/true ' "$tmp/units/$unit" || fail "$unit starts no program of this tree"
	! grep -q '@[a-z]*@' "$tmp/units/$unit" || fail "$unit: $(grep '@[a-z]*@' "$tmp/units/$unit")"
done
# systemd-analyze would report a problem
sed -e 's/^Type=/Tpye=/' -e 's/^ExecStart=/ExecStart=bin/' "$tmp/units/mooncake-master.service" >"$tmp/units/wrong.service"
said=$(verify wrong.service)
rm "$tmp/units/wrong.service"
case $said in
*Tpye*) ;;
*) skip "systemd-analyze does not verify units here: $said" ;;
esac
for unit in mooncake-master.service mcfs@.service; do
	said=$(verify "$unit")
	[ -z "$said" ] || fail "$unit: $said"
done
