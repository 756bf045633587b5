#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A room includes only lower rooms:
#	common < proto < {meta, tiers} < engine < client < {node, tools, python}
#	node < mcfs; proto < {meta, tiers} < master
# Inside client: session < direct < owner.
# mcfs, node and tools use only the public API and common; python uses only the public API.  Our headers are
# included as "room/file.h"; a room's *_i.h is private to it.  Two files start a server of another room:
# mcfs/standalone.c starts a master in the same process, and tools/mooncake_http_metadata_server.c starts
# the metadata server that the master contains, too.
set -eu
cd "${top_srcdir:?}"
found=$(mktemp)
trap 'rm -f "$found"' EXIT

# room and the rooms that it may include
rooms='common:common
proto:common proto
meta:common proto meta
tiers:common proto tiers
engine:common proto meta tiers engine
client:common proto meta tiers engine client
master:common proto meta tiers master
node:common node
mcfs:common node mcfs
tools:common tools
python:python'

echo "$rooms" | while IFS=: read -r room allowed; do
	find "$room" -name '*.[ch]' -o -name '*.def' | sort | xargs grep -nE '^[[:space:]]*#[[:space:]]*include' |
	while IFS=: read -r file line text; do
		case $text in
		*'<'*)
			# Any room may include our public headers; a private header in angle brackets
			# would bypass this test.
			name=$(expr "$text" : '.*<\([^>]*\)>') || name=
			case $name in
			common/* | proto/* | meta/* | engine/* | tiers/* | client/* | master/* | node/* | mcfs/* | tools/* | python/*)
				echo "$file:$line: \"$name\" is ours, write it in quotes" ;;
			esac
			continue ;;
		esac
		name=$(expr "$text" : '.*"\([^"]*\)"') || continue
		# configure creates config.h
		[ "$name" = config.h ] && continue
		to=${name%%/*}
		[ "$to/${name#*/}" = "$name" ] || { echo "$file:$line: \"$name\": write \"room/file.h\""; continue; }
		[ -f "$name" ] || { echo "$file:$line: \"$name\" does not exist from the top of the tree"; continue; }
		case " $allowed " in
		*" $to "*) ;;
		*)
			case "$file $name" in
			"mcfs/standalone.c master/master.h") ;;
			"tools/mooncake_http_metadata_server.c meta/server_http.h") ;;
			*) echo "$file:$line: $room must not include $name" ;;
			esac
			;;
		esac
		case $to:$name in
		"$room":*) ;;
		*_i.h) echo "$file:$line: $name is private to $to" ;;
		esac
	done
done >"$found"

grep -nE '#[[:space:]]*include[[:space:]]*"client/(direct|owner)/' client/session/*.[ch] >>"$found" || :
grep -nE '#[[:space:]]*include[[:space:]]*"client/owner/' client/direct/*.[ch] >>"$found" || :

# Installed headers include only installed headers.
grep -nE '#[[:space:]]*include[[:space:]]*"' include/mooncake/*.h >>"$found" || :

cat "$found"
[ ! -s "$found" ]
