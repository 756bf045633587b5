#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# quickstart mounts and prints the next steps; a second run changes nothing, a dead mount is no
# problem, and every obstacle is reported.  It uses the existing build, and a fake apt installs
# packages.
. "${top_srcdir:-.}/tests/lib/functions.sh"

# A tree that is built already, so make does nothing.
tree=$tmp/tree
mkdir -p "$tree/build/mcfs" "$tree/tests/lib" "$tmp/bin"
cp "$top_srcdir/quickstart" "$top_srcdir/packages.txt" "$tree"
cp "$top_srcdir/tests/lib/results.sh" "$tree/tests/lib"
printf '#!/bin/sh\nexit 1\n' >"$tree/configure"
printf 'CMOCKA_LIBS = -lcmocka\nall:\n\ncheck:\n\t@echo PASS: a; echo $(WORST): b.sh; echo noise; for r in %s; do %s; done\n' \
	'PASS PASS SKIP $(WORST)' "echo ':test-result: '\$\$r >r\$\$\$\$-\$\$((n += 1)).trs" >"$tree/build/Makefile"
ln -s "$top_builddir/mcfs/mcfs" "$tree/build/mcfs/mcfs"
printf '#!/bin/sh\ngrep -qx "$4" %s/installed 2>/dev/null && printf installed\n' "$tmp" >"$tmp/bin/dpkg-query"
printf '#!/bin/sh\necho "$@" >>%s/apt\ncase "$*" in *install*) exit $(cat %s/apt-status) ;; esac\n' \
	"$tmp" "$tmp" >"$tmp/bin/apt-get"
printf '#!/bin/sh\nexec "$@"\n' >"$tmp/bin/sudo"
chmod +x "$tree/configure" "$tmp/bin"/*
awk '!/^#/ && NF { print $1 }' "$top_srcdir/packages.txt" >"$tmp/all"
cp "$tmp/all" "$tmp/installed"
echo 0 >"$tmp/apt-status"

quickstart() { PATH=$tmp/bin:$PATH timeout 120 "$tree/quickstart" "$@" >"$tmp/out" 2>&1; }
says() { grep -q -- "$1" "$tmp/out" || { cat "$tmp/out"; fail "no output line: $1"; }; }

# ---- packages ----
fails quickstart --nonsense
says 'unknown option --nonsense'
quickstart --help
says 'quickstart check'
[ ! -e "$tmp/apt" ] || fail "a package was installed although none was missing"
grep -vx -e libisal-dev -e valgrind "$tmp/all" >"$tmp/installed"
echo 100 >"$tmp/apt-status"
fails quickstart "$tmp/mnt"
says '^    libisal-dev$'
fails quickstart check
says '^    libisal-dev valgrind$'
cp "$tmp/all" "$tmp/installed"
rm "$tmp/apt"

# ---- check: sums ----
env WORST=PASS PATH="$tmp/bin:$PATH" "$tree/quickstart" check >"$tmp/out" 2>&1
equal "closing line" "$(tail -n 1 "$tmp/out")" '3 passed, 0 failed, 1 skipped'
echo 'why it failed' >"$tree/build/b.log"
fails env WORST=FAIL PATH="$tmp/bin:$PATH" "$tree/quickstart" check
equal "what it shows of a failure" "$(sed -n '/^FAIL/,/^ /p' "$tmp/fails.out")" $'FAIL: b.sh\n    why it failed'
equal "closing line of a failure" "$(tail -n 1 "$tmp/fails.out")" '2 passed, 1 failed, 1 skipped'
[ ! -e "$tmp/apt" ] || fail "a package was installed although none was missing"

# ---- mount ----
requires_fuse
mkdir "$tmp/full" && touch "$tmp/full/file"
fails quickstart "$tmp/full"
says 'is not empty'
fails quickstart "$tmp/full/file"
says 'is not a directory'
cleanup_fn unmount_any "$tmp/mnt"
mcfs_pid() { pgrep -f "^$tree/build/mcfs/mcfs --standalone $tmp/mnt "; }
quickstart "$tmp/mnt"
equal "the last line" "$(tail -n 1 "$tmp/out" | sed 's/^ *//; s/fusermount3 -u/umount/')" \
	"stop:      umount $tmp/mnt"
says 'try it:'
says "where:     $tmp/mnt"
echo hello >"$tmp/mnt/greeting"

quickstart "$tmp/mnt"
says 'mounted and serving already'
equal "contents" "$(cat "$tmp/mnt/greeting")" hello
pid=$(mcfs_pid)
kill_pid "$pid"
fails stat "$tmp/mnt/greeting"

quickstart "$tmp/mnt"
says 'whose daemon is gone'
[ ! -e "$tmp/mnt/greeting" ] || fail "a new pool has an old file"
pid=$(mcfs_pid)
unmount "$tmp/mnt"
wait_for 30 gone "$pid"
