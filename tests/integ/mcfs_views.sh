#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Other views of the same keys: each key as one name (keymap=flat), by prefix (.mcfs/prefix), only
# those of this node (.mcfs/local, list=local), none (list=off); and the free space of this node
# alone (df=local).
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3 jq rsync
start_master
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=32MiB --port=0
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=64MiB --port=0
start_mcfs "$MASTER" "$tmp/flat" --global_segment_size=0 --port=0 --keymap=flat
start_mcfs "$MASTER" "$tmp/local" --global_segment_size=32MiB --port=0 --list=local --df=local
start_mcfs "$MASTER" "$tmp/off" --global_segment_size=0 --port=0 --list=off
for dir in a b flat local off; do mkdir -p "$tmp/$dir.seen"; done
a=$tmp/a flat=$tmp/flat

# locality FILE... - print the locality of each file
locality() {
	python3 -c 'import os, sys
for f in sys.argv[1:]:
    print(os.getxattr(f, "user.mooncake.locality").decode())' "$@"
}
# at NODE KEY - store the file on that node only
at() {
	local size=${3:-100000}
	head -c "$size" /dev/urandom >"$tmp/content"
	for _ in $(seq 50); do
		cp "$tmp/content" "$tmp/$1/$2"
		[ "$(locality "$tmp/$1/$2")" = local ] && return
		rm "$tmp/$1/$2"
	done
	fail "no copy of $2 on $1"
}
mkdir "$a/d"
at a top
at a d/on-a
at b d/on-b
at b d/on-b2
at local e

# ---- keymap=flat
equal "flat names" "$(ls "$flat")" $'d%2Fon-a\nd%2Fon-b\nd%2Fon-b2\ne\ntop'
cmp "$flat/d%2Fon-a" "$a/d/on-a" || fail "d/on-a through the flat mount"
echo new >"$flat/x%2Fy%2Fz"
equal "a flat name in the tree" "$(cat "$a/x/y/z")" new
echo 100 >"$flat/100%25"
equal "a sign in the tree" "$(cat "$a/100%")" 100
echo dot >"$flat/%2Emcfs"
equal "a key with the name of the control directory" "$(cat "$a/%2Emcfs")" dot
[ -e "$flat/.mcfs/version" ] || fail "no control directory"
grep -q '%2Emcfs' <(ls -A "$flat") || fail "the control directory is not listed"
mv "$flat/x%2Fy%2Fz" "$flat/x%2Fmoved"
equal "moved" "$(cat "$a/x/moved")" new
wait_for 10 test ! -e "$a/x/y"
rm "$flat/x%2Fmoved" "$flat/100%25" "$flat/%2Emcfs"
wait_for 10 test ! -e "$a/x"
[ ! -e "$flat/d" ] || fail "a directory in the flat mount"
fails mkdir "$flat/dir"
grep -q "not permitted" "$tmp/fails.out" || fail "mkdir: $(cat "$tmp/fails.out")"
fails sh -c ": >'$flat/lone%'"
grep -q "Invalid argument" "$tmp/fails.out" || fail "a single percent sign: $(cat "$tmp/fails.out")"
fails cat "$flat/lone%"
grep -q "No such file" "$tmp/fails.out" || fail "a single percent sign: $(cat "$tmp/fails.out")"
fails cat "$flat/d%2fon-a"
exec {fd}>"$flat/p%2Fpending"
equal "a file that is being written" "$(find "$flat" -name "*pending" -printf "%f")" p%2Fpending
exec {fd}>&-
rm "$flat/p%2Fpending"
rsync -a "$flat/" "$tmp/flat.seen/" 2>"$tmp/rsync.log" || fail "rsync: $(cat "$tmp/rsync.log")"
cmp "$tmp/flat.seen/d%2Fon-b" "$a/d/on-b" || fail "a copy to the flat mount"

# ---- by prefix of the key
equal "all that begins with d/on-b" "$(ls "$a/.mcfs/prefix/d%2Fon-b")" $'d%2Fon-b\nd%2Fon-b2'
equal "all that begins with t" "$(ls "$a/.mcfs/prefix/t")" top
equal "what nothing begins with" "$(ls "$a/.mcfs/prefix/nothing")" ""
equal "the directory of all prefixes" "$(ls "$a/.mcfs/prefix")" ""
cmp "$a/.mcfs/prefix/d%2F/d%2Fon-b" "$a/d/on-b" || fail "a file by its prefix"
equal "with attributes" "$(stat -c %s,%i "$a/.mcfs/prefix/d%2F/d%2Fon-b")" "$(stat -c %s,%i "$a/d/on-b")"
fails cat "$a/.mcfs/prefix/d%2F/top"
fails ls "$a/.mcfs/prefix/lone%"
fails sh -c ": >'$a/.mcfs/prefix/d%2F/d%2Fnew'"
fails rm "$a/.mcfs/prefix/d%2F/d%2Fon-b"
grep -q "not permitted" "$tmp/fails.out" || fail "rm by a prefix: $(cat "$tmp/fails.out")"
(cd "$a/.mcfs/prefix/d%2F" && [ "$(ls)" = $'d%2Fon-a\nd%2Fon-b\nd%2Fon-b2' ]) || fail "as a working directory"

# ---- files on this node
equal "of a" "$(ls "$a/.mcfs/local")" $'d%2Fon-a\ntop'
equal "of b" "$(ls "$tmp/b/.mcfs/local")" $'d%2Fon-b\nd%2Fon-b2'
cmp "$a/.mcfs/local/top" "$a/top" || fail "a file of this node"
fails cat "$a/.mcfs/local/d%2Fon-b"
grep -q "No such file" "$tmp/fails.out" || fail "another node's file: $(cat "$tmp/fails.out")"
equal "list=local" "$(ls "$tmp/local")" $'d\ne'
equal "list=local in a directory" "$(ls "$tmp/local/d")" ""
cmp "$tmp/local/top" "$a/top" || fail "an unlisted file exists"
for n in $(seq 600); do echo "$n" >"$tmp/local/n$n"; done
equal "what list=local shows, and is not near" "$(locality "$tmp/local"/n* | grep -vc local || :)" 0
near=$(find "$tmp/local" -name "n*" | wc -l)
equal "what is near" "$(python3 -c 'import os, sys
d = sys.argv[1]
print(sum(os.getxattr(f"{d}/n{n}", "user.mooncake.locality") == b"local" for n in range(1, 601)))' "$tmp/local")" "$near"
[ "$near" -gt 0 ] || fail "no file is local"
equal "names in .mcfs/local" "$(find "$tmp/local/.mcfs/local" -name "n*" | wc -l)" "$near"
rm "$a"/n*
equal "list=off" "$(ls "$tmp/off")" ""
cmp "$tmp/off/top" "$a/top" || fail "an unlisted file exists"
equal "list=off below .mcfs" "$(ls "$tmp/off/.mcfs/by-key")" ""

# ---- room
equal "df=local" "$(stat -f -c '%b*%S' "$tmp/local")" "8192*4096"
equal "df=pool" "$(stat -f -c '%b*%S' "$a")" "32768*4096"
used=$("$top_builddir/tools/mcctl" --master="$MASTER" segments --json |
	jq --arg n "$(sed -n 's/^node *//p' "$tmp/local/.mcfs/stats")" '[.. | objects | select(.name? == $n) | .used] | add')
equal "df=local, used" "$(($(stat -f -c '(%b-%f)*%S' "$tmp/local")))" "$(((used + 4095) / 4096 * 4096))"

# ---- mistakes
for option in keymap=tre list=none df=node; do
	fails "$top_builddir/mcfs/mcfs" -f --standalone "--$option" "$tmp/off.seen"
	grep -q "${option%=*}: unknown value ${option#*=}," "$tmp/fails.out" || fail "$option: $(cat "$tmp/fails.out")"
done
