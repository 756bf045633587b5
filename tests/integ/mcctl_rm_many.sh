#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcctl rm --prefix and --match remove the objects that they show, and none without confirmation.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/integ/mcctl_functions.sh"
start_pool 64MiB

for i in 1 2 3 4 5 6; do
	echo "$i" | ctl put "run1/a$i"
	echo "$i" | ctl put "run2/a$i"
done
count() {
	ctl ls -R | wc -l
}
equal "objects" "$(count)" 12

# --dry_run shows and does not remove
equal "dry run of a prefix" "$(ctl rm --prefix=run1/ --dry_run | sort | tr '\n' ' ')" \
	'run1/a1 run1/a2 run1/a3 run1/a4 run1/a5 run1/a6 '
equal "dry run of a pattern" "$(ctl rm --match='[12]$' --dry_run | sort | tr '\n' ' ')" \
	'run1/a1 run1/a2 run2/a1 run2/a2 '
equal "dry run of both" "$(ctl rm --prefix=run2 --match='a[34]' --dry_run -0 | sort -z | tr '\0' ' ')" 'run2/a3 run2/a4 '
equal "dry run of keys" "$(ctl rm --dry_run run1/a1 run2/a6 | tr '\n' ' ')" 'run1/a1 run2/a6 '
equal "objects after dry runs" "$(count)" 12
# the word after a boolean option is a key, even if it looks like a boolean value
for key in 0 true; do
	echo "$key" | ctl put "$key"
	equal "dry run of $key" "$(ctl rm --dry_run "$key" run1/a1 | tr '\n' ' ')" "$key run1/a1 "
	ctl rm "$key"
done
equal "objects after those" "$(count)" 12

# without a terminal --yes is required; the message says what would be removed
status 2 ctl rm --prefix=run1/ </dev/null
grep -q 'would remove 6 objects (12 B)' "$tmp/stderr" || fail "no count: $(cat "$tmp/stderr")"
equal "objects after a refusal" "$(count)" 12

# on a terminal it asks for confirmation
requires_terminal
asked() {
	local answer=$1
	shift
	# script(1) creates the terminal; -e returns the command's exit status
	{ printf '%s\n' "$answer"; } | script -qec "$(printf '%q ' "$top_builddir/tools/mcctl" --master="$MASTER" "$@")" /dev/null >"$tmp/asked"
}
status 1 asked no rm --prefix=run1/
grep -q 'Remove 6 objects (12 B)?' "$tmp/asked" || fail "no question: $(cat "$tmp/asked")"
equal "objects after a no" "$(count)" 12
asked yes rm --match='1/a1$'
equal "objects after a yes" "$(ctl ls run1 | tr '\n' ' ')" 'a2 a3 a4 a5 a6 '

equal "rm --yes" "$(ctl rm --prefix=run1/ --yes)" 'removed 5 of 5 objects'
equal "rm --json" "$(ctl --json rm --match=/a -y | jq -c '[.matched, .removed]')" '[6,6]'
equal "objects at the end" "$(count)" 0
equal "nothing to remove" "$(ctl rm --prefix=run1/ --yes)" 'removed 0 of 0 objects'

# mistakes
echo x | ctl put keep
status 2 ctl rm --match='a(' --yes
grep -q 'at character' "$tmp/stderr" || fail "the error in the pattern is not shown"
status 2 ctl rm --match=keep keep
status 2 ctl rm -0 keep
equal "objects after mistakes" "$(count)" 1
