#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# systemd itself has nothing to say against the units that are installed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires systemd-analyze
mkdir "$tmp/units"

# verify UNIT... - of $tmp/units; prints what systemd says about them
verify() {
	(cd "$tmp/units" && SYSTEMD_UNIT_PATH=$tmp/units: timeout 60 systemd-analyze --man=no verify "$@" 2>&1) |
		grep -F -e "$tmp/units" -e "${1%%[@.]*}" || :
}
for unit in mooncake-master.service mcfs@.service; do
	[ -s "$top_builddir/init/$unit" ] || fail "$unit is not made"
	# the programs are not installed here
	sed -E 's,^(Exec[A-Za-z]+=[-+!]*)[^ ]*/(mcfs|mooncake_master) ,\1/bin/true ,' \
		"$top_builddir/init/$unit" >"$tmp/units/$unit"
	grep -q '=/bin/true ' "$tmp/units/$unit" || fail "$unit starts nothing of ours"
	! grep -q '@[a-z]*@' "$tmp/units/$unit" || fail "$unit: $(grep '@[a-z]*@' "$tmp/units/$unit")"
done
# it would say something
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
