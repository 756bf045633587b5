#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tables of tests/integ/security_corpus.sh have a row for each message of the protocol, but HELLO, and for each
# route of each HTTP server, and no others.  A source file with an HTTP server is in the list below.
set -eu
cd "${top_srcdir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0
# complain TEXT FILE
complain() {
	[ ! -s "$2" ] || { echo "$1:"; cat "$2"; status=1; }
}

# ---- messages
sed -nE 's/^MCP_MESSAGE\(([^,]+),.*/\1/p' proto/*.def | grep -vx HELLO | sort >"$tmp/messages"
awk '!/^#/ { print $1 }' tests/integ/security.table | sort >"$tmp/rows"
[ "$(wc -l <"$tmp/messages")" -gt 30 ] || { echo "proto/*.def: no messages were found"; exit 1; }
comm -23 "$tmp/messages" "$tmp/rows" >"$tmp/missing"
complain "tests/integ/security.table has no row for these messages" "$tmp/missing"
comm -13 "$tmp/messages" "$tmp/rows" >"$tmp/stale"
complain "tests/integ/security.table has rows for these, which are no messages (any more)" "$tmp/stale"

# ---- routes: the servers of each file that has one; "-": not a part of a pool with security
cat >"$tmp/files" <<'F'
client/api/http.c handle
master/admin/admin_http.c master standby
master/ha/standby_http.c standby
mcfs/control/http.c mcfs
meta/server_http.c metadata metadata-tool
node/main.c node
python/mooncake/mooncake_store_service.py rest
python/mooncake/http_metadata_server.py -
F
# The admin service of a master has its table in admin_http.c, and is started in master.c.
servers='struct mc_http_route [a-z_]+\[\] = \{|add_routes\(|\.add_route\('
grep -rlE --include='*.c' --include='*.py' "$servers" common proto meta tiers engine client master node mcfs tools \
	python | sort >"$tmp/found"
cut -d' ' -f1 "$tmp/files" | sort >"$tmp/known"
comm -3 "$tmp/known" "$tmp/found" | tr -d '\t' >"$tmp/differ"
complain "these have an HTTP server and no row in tests/lint/security.sh, or a row and no server" "$tmp/differ"
while read -r file names; do
	[ "$names" != - ] || continue
	# X("GET", "/path", ...), { "GET", "/path", ... }, { NULL, "/path", ... }, (web.get, "/path", ...)
	sed -nE -e 's/.*(X\(|\{ )"?([A-Z]+)"?, "([^"]+)", .*/\2 \3/p' \
		-e 's/^ *\(web\.([a-z]+), "([^"]+)", .*/\U\1\E \2/p' "$file" |
		sed 's/{\([a-z]*\):[^}]*}/{\1}/' >"$tmp/routes"
	[ -s "$tmp/routes" ] || { echo "$file: no routes were found"; status=1; }
	for name in $names; do
		sed "s/^/$name /" "$tmp/routes"
	done
done <"$tmp/files" | sort -u >"$tmp/routes.all"
# PATCH and /no/such/path stand for all other requests.
awk '!/^#|^with / && $2 != "PATCH" && $3 != "/no/such/path" { print $1, $2, $3 }' tests/integ/security_http.table |
	sort >"$tmp/rows"
comm -23 "$tmp/routes.all" "$tmp/rows" >"$tmp/missing"
complain "tests/integ/security_http.table has no row for these routes" "$tmp/missing"
comm -13 "$tmp/routes.all" "$tmp/rows" >"$tmp/stale"
complain "tests/integ/security_http.table has rows for these, which are no routes (any more), or two" "$tmp/stale"
awk '$1 == "with" { print $2, $3 }' tests/integ/security_http.table | sort >"$tmp/with"
cut -d' ' -f2- "$tmp/routes.all" | sort -u | comm -13 - "$tmp/with" >"$tmp/stale"
complain "tests/integ/security_http.table has a request for these, which are no routes (any more)" "$tmp/stale"
exit "$status"
