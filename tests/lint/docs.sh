#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files that the documents mention exist.  Absolute paths belong to the system and are not checked.
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
exit "$status"
