#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plain English (docs/STYLE.md): count the banned patterns in text that users see, in comments and in test names.
# Comments that begin with a preposition, and static functions named by one word, are counted too.
# tests/lint/prose.allowed has the count that each room may have; counts may only go down.
#	prose.sh		check
#	prose.sh -l [ROOM...]	list what matches, as file:line: kind: text
set -eu
cd "${top_srcdir:-.}"
command -v perl >/dev/null || { echo "SKIP: perl is not installed"; exit 77; }

if [ "${1-}" = -l ]; then
	shift
	PROSE_LIST=1
	export PROSE_LIST
fi
status=0
perl tests/lint/prose.pl "$@" || status=1
[ -z "${PROSE_LIST-}" ] || exit "$status"

# Commit subjects of this change.  A tarball has none.
base=$(git rev-parse -q --verify origin/main 2>/dev/null) || base=
if [ -n "$base" ]; then
	git log --no-merges --format=%s "$base..HEAD"
else
	git log --no-merges --format=%s -1 2>/dev/null || :
fi | awk '
length($0) > 72 { print "warning: subject longer than 72 characters: " $0 }
!/^[a-z][a-z0-9_\/., -]*: [a-z]/ { print "warning: subject is not \"room: verb ...\": " $0; next }
{ sub(/^[^:]*: /, ""); word = $1 }
word ~ /(ed|ing)$/ || word ~ /^(a|an|the|who|what|which|that|this|no|one|some|more|all|each|every|it|its|there|only|of|in|on|as|is|are|for|with)$/ {
	print "warning: subject does not begin with an imperative verb: " $0
}'
exit "$status"
