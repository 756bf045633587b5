#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# transfer_engine(7) describes exactly the environment variables that the engine reads; the engine reads
# none of those that the page lists as without effect; a test sets each variable that is read; and the page
# mentions each variable of upstream's list (env.names).  The table of variables that the log names as without effect
# (common/env.c) agrees with the sources and the documents, and the two lists of protocols with each other.
set -eu
cd "${top_srcdir:?}"
page=man/transfer_engine.7.in
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# MC_FAULTS and other variables of common/ are for tests.
# MC_STORE_CLUSTER_ID, of clients that look for a leader, is in mcs(3) and mooncake_master(1).
find engine meta common/net/web.c -name '*.[ch]' ! -name leader.c -exec grep -hoE '"MC_[A-Z0-9_]+"' {} + | tr -d '"' | sort -u >"$tmp/read"
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
complain "$page promises something of, but no code reads" "$tmp/unread"
comm -12 "$tmp/read" "$tmp/inert" >"$tmp/both"
complain "$page says that it has no effect" "$tmp/both"
# MC_METADATA_SERVER and MC_TRANSFER_TIMEOUT belong to programs or the Python package, with other pages.
grep -rhoE '\b(MC|USE|WITH|BAREX|NCCL|MOONCAKE)_[A-Z0-9_]+' "$page" >"$tmp/page" || :
grep -rhoE '\bMC_(METADATA_SERVER|TRANSFER_TIMEOUT)\b' tools/*.def python/mooncake/engine.py >>"$tmp/page" || :
# Prefixes: the page covers all variables that begin with one of them.
sed -n '/^\.SS Without effect/,/^\.SH SEE/p' "$page" | grep -oE '\b[A-Z0-9_]+_\b' | sort -u >"$tmp/prefixes"
grep -v '^#' tests/lint/env.names | sort -u >"$tmp/names"
[ "$(wc -l <"$tmp/names")" -gt 100 ] || { echo "no list of upstream's variables"; exit 1; }
sort -u "$tmp/page" | comm -23 "$tmp/names" - | while read -r name; do
	told=
	while read -r prefix; do
		case $name in "$prefix"*) told=1 ;; esac
	done <"$tmp/prefixes"
	[ -n "$told" ] || echo "$name"
done >"$tmp/silent"
complain "$page is silent about upstream's" "$tmp/silent"
while read -r name; do
	grep -rqw --include='*.sh' --include='*.c' --include='*.py' -- "$name" tests/unit tests/integ tests/python ||
		echo "$name"
done <"$tmp/read" >"$tmp/untested"
complain "no test sets" "$tmp/untested"

# ---- the table of variables without effect: a name that ends in _ covers all that begin with it
sed -n '/^static const char \*const inert/,/^};/p' common/env.c | grep -oE '"[A-Z0-9_]+"' | tr -d '"' | sort -u >"$tmp/table"
[ "$(wc -l <"$tmp/table")" -gt 80 ] || { echo "common/env.c has no table"; exit 1; }
# covered FILE - the names of FILE that the table covers
covered() {
	while read -r name; do
		while read -r row; do
			case $row in
			*_) case $name in "$row"*) echo "$name" ;; esac ;;
			"$name") echo "$name" ;;
			esac
		done <"$tmp/table"
	done <"$1" | sort -u
}
find common proto meta engine tiers client master node mcfs tools python include -name '*.[ch]' -o -name '*.def' -o -name '*.py' |
	grep -v '^common/env.c$' | xargs grep -hoE '"(MC|MOONCAKE)_[A-Z0-9_]+"' | tr -d '"' | sort -u >"$tmp/used"
# exceptions from rows of the table: the sources read them, and a page has them
sed -n '/^static const char \*const effective/,/^};/p' common/env.c | grep -oE '"[A-Z0-9_]+"' | tr -d '"' | sort -u >"$tmp/excepted"
[ -s "$tmp/excepted" ] || { echo "common/env.c has no exceptions"; exit 1; }
comm -23 "$tmp/excepted" "$tmp/used" >"$tmp/unread"
complain "common/env.c says that it has an effect, but no code reads" "$tmp/unread"
while read -r name; do
	grep -qw -- "$name" man/mcs.3.in || echo "$name"
done <"$tmp/excepted" >"$tmp/untold"
complain "mcs(3) says nothing of" "$tmp/untold"
# the Python package reads these only to warn that they have no effect, or for its KVBootstrapServer only
grep -vxE 'MOONCAKE_OFFLOAD_(ENABLED|FILE_STORAGE_PATH)|MC_METADATA_(HTTP|MAX)_[A-Z_]+' "$tmp/used" |
	comm -23 - "$tmp/excepted" >"$tmp/effective"
covered "$tmp/effective" >"$tmp/wrong"
complain "common/env.c says that it has no effect, but the sources read" "$tmp/wrong"
# the documents' lists
sed -n '/^\.SS Without effect/,/^\.SH SEE/p' "$page" | grep -oE '\b(MC|MOONCAKE)_[A-Z0-9_]+' | sort -u |
	grep -vxE 'MC_((TARGET|INITIATOR|LOCAL)_(SERVER|DEVICE)_NAME|METADATA_SERVER|TRANSFER_TIMEOUT)' >"$tmp/engine"
sed -n '/^- Environment variables of upstream/,/^$/p' docs/COMPATIBILITY.md | grep -oE '\b(MC|MOONCAKE)_[A-Z0-9_]+' |
	sort -u >"$tmp/store"
[ "$(wc -l <"$tmp/engine")" -gt 50 ] && [ "$(wc -l <"$tmp/store")" -gt 10 ] || { echo "no lists in the documents"; exit 1; }
sort -u "$tmp/engine" "$tmp/store" >"$tmp/documented"
covered "$tmp/documented" | comm -23 "$tmp/documented" - >"$tmp/missing"
complain "common/env.c has no row for the documents'" "$tmp/missing"
# each row is in a document: the name, or names that begin with it
while read -r row; do
	grep -q "^$row" "$tmp/documented" || echo "$row"
done <"$tmp/table" >"$tmp/untold"
complain "no document mentions the row of common/env.c" "$tmp/untold"
# ---- protocols
sed -n '/^static const char \*const replaced/,/^};/p' common/net/protocol.c | grep -oE '"[a-z_]+"' >"$tmp/c"
sed -n '/^FALLBACK = /,/)$/p' python/mooncake/_setup.py | grep -oE '"[a-z_]+"' >"$tmp/python"
[ "$(wc -l <"$tmp/c")" -gt 10 ] || { echo "common/net/protocol.c has no list"; exit 1; }
diff "$tmp/c" "$tmp/python" >"$tmp/differ" || :
complain "the protocols of common/net/protocol.c and python/mooncake/_setup.py differ" "$tmp/differ"
exit "$status"
