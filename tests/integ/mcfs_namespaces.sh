#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A daemon in its own pid namespace, as in a container, serves processes that it cannot see, and
# logs a warning.  A daemon that cannot read the exit status of other users' processes publishes the
# files that these have closed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_root
requires unshare setpriv python3
unshare -p -f true 2>/dev/null || skip "pid namespaces are not allowed here"
m=$tmp/mnt
mkdir "$m"
cleanup_fn unmount_any "$m"
spawn mcfs unshare -p -f --kill-child "$top_builddir/mcfs/mcfs" -f --standalone "$m" --global_segment_size=32MiB
started "$SPAWNED" "mcfs in a pid namespace" 30 is_mounted "$m"
grep -qE "^all_processes_seen +no$" "$m/.mcfs/features" || fail "features: $(cat "$m/.mcfs/features")"
warned() { grep -c "of another pid namespace writes" "$tmp/mcfs.log"; }
fails warned
head -c 3000000 /dev/urandom >"$tmp/data"
cp "$tmp/data" "$m/copied"
cat "$tmp/data" >"$m/redirected"
cmp "$tmp/data" "$m/copied"
cmp "$tmp/data" "$m/redirected"
wait_for 10 warned >/dev/null || fail "no warning: $(cat "$tmp/mcfs.log")"
equal "warnings" "$(warned)" 1
# an open file is rewritten and appended to while a reader has it open
exec 3<"$m/copied"
echo short >"$m/copied"
echo end >>"$m/copied"
equal "rewritten" "$(cat "$m/copied")" $'short\nend'
cmp "$tmp/data" - <&3
exec 3<&-
unmount "$m"
wait_for 20 gone "$SPAWNED" || fail "mcfs does not end when it is unmounted"

spawn mcfs-blind setpriv --bounding-set=-sys_ptrace "$top_builddir/mcfs/mcfs" -f --standalone "$m" \
	--global_segment_size=32MiB -o allow_other --file_mode=0666 --dir_mode=0777
started "$SPAWNED" "mcfs without CAP_SYS_PTRACE" 30 is_mounted "$m"
grep -qE "^all_ends_seen +no$" "$m/.mcfs/features" || fail "features: $(cat "$m/.mcfs/features")"
chmod 755 "$tmp"
# writes NAME STATUS [CLOSES] - a process of another user writes to NAME, and ends with STATUS
writes() {
	python3 -c 'if True:
		import os, sys
		os.setgroups([])
		os.setresgid(*[65534] * 3)
		os.setresuid(*[65534] * 3)
		fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
		os.write(fd, b"written")
		if sys.argv[3:]:
			os.close(fd)
		os._exit(int(sys.argv[2]))' "$m/$1" "${@:2}"
}
writes closed 0 closes
fails writes closed-and-failed 1 closes
for f in closed closed-and-failed; do equal "what was closed" "$(cat "$m/$f")" written; done
fails writes half 1
[ ! -e "$m/half" ] || fail "a program that failed has published what it had written"
writes unclosed 0
[ ! -e "$m/unclosed" ] || fail "the exit status of a program is unknown, but its data was published"
grep -q "unclosed.*exit status is hidden" "$m/.mcfs/errors" || fail "no reason is logged: $(cat "$m/.mcfs/errors")"
unmount "$m"
wait_for 20 gone "$SPAWNED" || fail "mcfs does not end when it is unmounted"
