#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs that depend on attributes, on a mount: cp -a, rsync -a twice, tar with owners, git, make, a compiled program.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_root
requires rsync
requires_memory 2048
start_standalone "$tmp/mnt" --global_segment_size=512MiB
m=$tmp/mnt
src=$tmp/src
# listing DIR - type, mode, owner, times of all below it, and targets of links
listing() {
	(cd "$1" && find . ! -type d -printf '%P %y %m %U:%G %T@ %l\n' -o -printf '%P %y %m %U:%G\n' | LC_ALL=C sort)
}
same() {
	diff <(listing "$src") <(listing "$2") >"$tmp/diff" || { head "$tmp/diff"; fail "$1: attributes differ"; }
	diff -r -x fifo --no-dereference "$src" "$2" || fail "$1: contents differ"
}

mkdir -p "$src/sub/deep" "$src/group"
cp "$top_srcdir"/common/*.h "$src/sub/"
echo 'echo it runs' >"$src/script"
chmod 750 "$src/script"
chmod 600 "$src/sub/list.h"
chown 11:12 "$src/sub/list.h" "$src/sub/deep"
chmod 2770 "$src/group"
touch -d "2001-02-03 04:05:06.789 UTC" "$src/sub/clock.h"
ln -s ../script "$src/sub/link"
touch -h -d @1000000000 "$src/sub/link"
mkfifo "$src/fifo"
touch -d @2000000 "$src/fifo"

cp -a "$src" "$m/cp"
same "cp -a" "$m/cp"
equal "time of a copied directory" "$(stat -c %Y "$m/cp/sub")" "$(stat -c %Y "$src/sub")"
rsync -a "$src/" "$m/rsync/"
same "rsync -a" "$m/rsync"
equal "what a second rsync -a transfers" "$(rsync -ai "$src/" "$m/rsync/")" ""
rsync -a "$src/sub/" "$m/" || fail "rsync -a to the mount point"
equal "time of the mount point" "$(stat -c %Y "$m")" "$(stat -c %Y "$src/sub")"
fails chmod 700 "$m"
tar cpf "$m/t.tar" --format=posix -C "$src" .
mkdir "$m/tar"
tar xpf "$m/t.tar" -C "$m/tar" --same-owner
same "tar" "$m/tar"
tar dpf "$m/t.tar" -C "$m/tar" || fail "tar --compare"
equal "a program of the mount" "$("$m/cp/script" 2>&1 || bash "$m/cp/script")" "it runs"

if command -v git >/dev/null; then
	export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
	git init -q "$m/repo"
	equal "git's core.fileMode" "$(git -C "$m/repo" config core.fileMode)" true
	cp -r "$src/sub" "$m/repo/"
	git -C "$m/repo" add -A
	git -C "$m/repo" commit -qm one
	equal "git status" "$(git -C "$m/repo" status --porcelain)" ""
	chmod 755 "$m/repo/sub/clock.h"
	equal "git status after chmod" "$(git -C "$m/repo" status --porcelain)" " M sub/clock.h"
	git -C "$m/repo" commit -qam two
	git -C "$m/repo" checkout -q HEAD~1
	equal "mode after a checkout" "$(stat -c %a "$m/repo/sub/clock.h")" 644
else
	echo "without git"
fi

mkdir "$m/make"
cat >"$m/make/hello.c" <<'C'
#include "hello.h"
#include <stdio.h>
int main(void) { return puts(HELLO) < 0; }
C
echo '#define HELLO "first"' >"$m/make/hello.h"
printf 'hello: hello.o\n\tcc -o $@ $<\nhello.o: hello.c hello.h\n\tcc -c -o $@ $<\n' >"$m/make/Makefile"
make -s -C "$m/make"
equal "a compiled program" "$("$m/make/hello")" first
equal "a second make" "$(make -C "$m/make" | grep -c 'cc ' || :)" 0
wait_for 5 test "$(date +%s%N)" -gt "$(stat -c %Y "$m/make/hello")000000000"
echo '#define HELLO "second"' >"$m/make/hello.h"
make -s -C "$m/make"
equal "a program after a change" "$("$m/make/hello")" second
touch -d "1 hour ago" "$m/make/hello.h"
equal "make after a time in the past" "$(make -C "$m/make" | grep -c 'cc ' || :)" 0
[ ! -s "$m/.mcfs/errors" ] || { cat "$m/.mcfs/errors"; fail "errors were recorded"; }
unmount "$m"
