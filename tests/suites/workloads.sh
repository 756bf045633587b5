#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ordinary programs on a mount: git, tar, rsync, sqlite3, bonnie++, a compiler.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_memory 3072
start_standalone "$tmp/mnt" --global_segment_size=1GiB
m=$tmp/mnt
has() {
	command -v "$1" >/dev/null || { echo "without $1"; return 1; }
}

if has git; then
	export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
	git init -q "$tmp/repo"
	cp -r "$top_srcdir/common" "$tmp/repo/"
	git -C "$tmp/repo" add -A
	git -C "$tmp/repo" commit -qm one
	timeout 120 git clone -q --bare --no-hardlinks "$tmp/repo" "$m/bare.git" || fail "git clone --bare onto the mount"
	timeout 120 git clone -q "$m/bare.git" "$m/work" || fail "git clone on the mount"
	diff -r -x .git "$tmp/repo" "$m/work" || fail "a clone differs"
	echo more >"$m/work/new"
	timeout 120 git -C "$m/work" add -A
	timeout 120 git -C "$m/work" commit -qm two
	timeout 120 git -C "$m/work" push -q || fail "git push"
	timeout 120 git -C "$m/bare.git" fsck --full --strict || fail "git fsck"
	timeout 120 git -C "$m/bare.git" gc -q || fail "git gc"
	equal "commits" "$(git -C "$m/bare.git" rev-list --count HEAD)" 2
fi
if has rsync; then
	timeout 120 rsync -a "$top_srcdir/master/" "$m/rs/"
	equal "what rsync would copy again by content" \
		"$(timeout 120 rsync -rnc --out-format=%n "$top_srcdir/master/" "$m/rs/" | grep -vc '/$')" 0
fi
if has tar; then
	tar -C "$top_srcdir" -cf "$m/t.tar" mcfs
	mkdir "$m/untar"
	tar -C "$m/untar" -xf "$m/t.tar"
	diff -r "$top_srcdir/mcfs" "$m/untar/mcfs" || fail "tar"
fi
if has sqlite3; then
	timeout 120 sqlite3 "$m/db" 'create table t(a, b); create index i on t(a);' || fail "sqlite3 create"
	for i in 1 2 3; do
		timeout 120 sqlite3 "$m/db" "with recursive c(x) as (select 1 union all select x + 1 from c where x < 2000)
			insert into t select x * $i, hex(randomblob(50)) from c;" || fail "sqlite3 insert $i"
	done
	equal "sqlite3 rows" "$(sqlite3 "$m/db" 'select count(*) from t')" 6000
	equal "sqlite3 integrity" "$(sqlite3 "$m/db" 'pragma integrity_check')" ok
fi
if has bonnie++; then
	asuser=()
	[ "$(id -u)" -ne 0 ] || asuser=(-u root)
	timeout 300 bonnie++ "${asuser[@]}" -q -d "$m" -s 0 -n 2:65536:1024:4 >"$tmp/bonnie.out" 2>&1 ||
		{ cat "$tmp/bonnie.out"; fail "bonnie++"; }
fi
quiet() { grep -qE '^staged_bytes +0$' "$m/.mcfs/stats"; }
wait_for 20 quiet || fail "staged bytes are left"
