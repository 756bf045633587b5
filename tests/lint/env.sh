#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every environment variable that the engine reads stands in transfer_engine(7) with what it does, and none of those
# that are said to have no effect is read.
set -eu
cd "${top_srcdir:?}"
page=man/transfer_engine.7.in
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# MC_FAULTS and the like of common/ are for tests.
find engine -name '*.[ch]' -exec grep -hoE '"MC_[A-Z0-9_]+"' {} + | tr -d '"' | sort -u >"$tmp/read"
sed -n '/^\.SH ENVIRONMENT/,/^\.SS Without effect/p' "$page" | grep -oE '\bMC_[A-Z0-9_]+' | sort -u >"$tmp/told"
sed -n '/^\.SS Without effect/,/^\.SH SEE/p' "$page" | grep -oE '\bMC_[A-Z0-9_]+' | sort -u >"$tmp/inert"
[ "$(wc -l <"$tmp/read")" -gt 20 ] && [ "$(wc -l <"$tmp/inert")" -gt 50 ] || { echo "nothing was found"; exit 1; }
status=0
# complain TEXT FILE
complain() {
	[ ! -s "$2" ] || { echo "$1:"; cat "$2"; status=1; }
}
comm -23 "$tmp/read" "$tmp/told" >"$tmp/missing"
complain "$page says nothing of" "$tmp/missing"
comm -13 "$tmp/read" "$tmp/told" >"$tmp/unread"
complain "$page promises something of, but nobody reads" "$tmp/unread"
comm -12 "$tmp/read" "$tmp/inert" >"$tmp/both"
complain "$page says that it has no effect" "$tmp/both"
exit "$status"
