#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes go down only: common < proto < {meta, tiers} < engine < client < {node, tools, python}; node < mcfs;
# proto < {meta, tiers} < master.  mcfs, node and tools stand on the public API alone (and on common), python on the public API.
# Ours are written "room/file.h"; a room's *_i.h is its own.  Two files run a server of another room:
# mcfs/standalone.c a master in the same process, and tools/mooncake_http_metadata_server.c the one that
# the master has too.
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
client:common proto tiers engine client
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
			# A public header of ours may be included by any room; a private one in angle
			# brackets would go around this test.
			name=$(expr "$text" : '.*<\([^>]*\)>') || name=
			case $name in
			common/* | proto/* | meta/* | engine/* | tiers/* | client/* | master/* | node/* | mcfs/* | tools/* | python/*)
				echo "$file:$line: \"$name\" is ours, write it in quotes" ;;
			esac
			continue ;;
		esac
		name=$(expr "$text" : '.*"\([^"]*\)"') || continue
		# config.h is made by configure
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

# The installed headers stand alone.
grep -nE '#[[:space:]]*include[[:space:]]*"' include/mooncake/*.h >>"$found" || :

cat "$found"
[ ! -s "$found" ]
