#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Real trees are copied by cp -a, tar and rsync to the mount and back without a difference; du, find
# and rm -r see all files.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_memory 4096

start_standalone "$tmp/mnt" --global_segment_size=2GiB
m=$tmp/mnt

# tree NAME SOURCE
tree() {
	local name=$1 src=$2 files
	[ -d "$src" ] || { echo "without $src"; return 0; }
	files=$(find "$src" | wc -l)
	echo "$src: $files names, $(du -sm "$src" | cut -f1) MiB"

	cp -a "$src" "$m/$name-cp"
	diff -r --no-dereference "$src" "$m/$name-cp" || fail "cp -a $src"
	equal "names of find after cp -a $src" "$(find "$m/$name-cp" | wc -l)" "$files"
	equal "bytes of du after cp -a $src" \
		"$(find "$m/$name-cp" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }')" \
		"$(find "$src" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }')"

	mkdir "$m/$name-tar"
	tar cf - -C "$src" . | tar xf - -C "$m/$name-tar"
	diff -r --no-dereference "$src" "$m/$name-tar" || fail "tar x of $src"
	mkdir "$tmp/$name-out"
	tar cf - -C "$m/$name-tar" . | tar xf - -C "$tmp/$name-out"
	diff -r --no-dereference "$src" "$tmp/$name-out" || fail "tar c of $src"
	rm -r "$tmp/$name-out" "$m/$name-tar"

	if command -v rsync >/dev/null; then
		rsync -a "$src/" "$m/$name-rsync/"
		diff -r --no-dereference "$src" "$m/$name-rsync" || fail "rsync -a $src"
		rm -r "$m/$name-rsync"
	fi
	rm -r "$m/$name-cp"
	[ -z "$(ls -A "$m")" ] || fail "rm -r leaves files of $src"
}

if [ -n "${SANITIZER-}" ]; then
	# only parts: sanitized programs take minutes for everything
	tree linux /usr/include/linux
	tree git /usr/share/doc/git
else
	tree doc /usr/share/doc
	tree include /usr/include
fi
[ ! -s "$m/.mcfs/errors" ] || { cat "$m/.mcfs/errors"; fail "errors were recorded"; }
unmount "$m"
