#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files that the documents mention exist; absolute paths belong to the system and are not checked.  No line of docs/ has
# more than 120 columns, and the overview has at most 450 lines.
set -eu
cd "${top_srcdir:?}"
status=0
for doc in README.md docs/*.md */README; do
	for path in $(grep -oP '(?<![/\w])(?:common|proto|meta|engine|tiers|client|master|mcfs|tools|include|init|man|docs|tests)/[A-Za-z0-9_/@-]+\.(c|h|def|sh|am|md|in|map|[1-9])\b' "$doc" | sort -u); do
		[ -e "$path" ] || { echo "$doc: $path does not exist"; status=1; }
	done
	# [text](target): relative to the document
	for target in $(grep -oE '\]\([^)#:]+\)' "$doc" | tr -d '])(' | sort -u); do
		[ -e "$(dirname "$doc")/$target" ] || { echo "$doc: link to $target"; status=1; }
	done
done
awk 'length > 120 { print FILENAME ":" FNR ": longer than 120 columns"; bad = 1 } END { exit bad }' docs/*.md || status=1
[ "$(wc -l <docs/ARCHITECTURE.md)" -le 450 ] || { echo "docs/ARCHITECTURE.md: more than 450 lines"; status=1; }
exit "$status"
