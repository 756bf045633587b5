#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcctl uses the local pool of "mcfs --standalone" that --mount names, for its user and root; when no master is named
# and none answers, it fails and names the local pools.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/integ/mcctl_functions.sh"
requires_fuse
requires_root
mcctl=$top_builddir/tools/mcctl
# In a mount namespace of its own, the test sees no pools of other tests; in a network namespace, no master.
if [ -z "${MCCTL_LOCAL_NS-}" ]; then
	unshare -mn true 2>/dev/null || skip "no mount or network namespace can be created"
	rmdir "$tmp"
	MCCTL_LOCAL_NS=1 exec unshare -mn bash "$0"
fi
while read -r _ where type _; do
	[ "$type" != fuse.mcfs ] || umount -l "$where" || :
done </proc/self/mounts
ip link set lo up
chmod 755 "$tmp"

# reports WORDS STATUS ARG... - mcctl fails with this status and these words
reports() {
	local words=$1 wanted=$2
	shift 2
	status "$wanted" timeout 20 "$mcctl" "$@" >"$tmp/stdout"
	grep -q -- "$words" "$tmp/stderr" || fail "no \"$words\" in: $(cat "$tmp/stderr")"
}

reports "is the master running.*--mount=DIR" 3 --timeout=1 ls
start_standalone "$tmp/one" --global_segment_size=32MiB
echo first >"$tmp/one/first"

# ---- by --mount
equal "ls" "$("$mcctl" --mount="$tmp/one" ls)" first
equal "a path of another form" "$(cd "$tmp" && "$mcctl" --mount=./one/ ls)" first
"$mcctl" --mount="$tmp/one" stat first | found -x 'size: *6 .*'
equal "capacity" "$("$mcctl" --mount="$tmp/one" --json df | jq .pool.capacity)" 33554432
"$mcctl" --mount="$tmp/one" doctor >"$tmp/doctor" || fail "doctor: $(cat "$tmp/doctor")"
grep -q "local pool" "$tmp/doctor" || fail "doctor: $(cat "$tmp/doctor")"
equal "get" "$("$mcctl" --mount="$tmp/one" get first)" first
echo second | "$mcctl" --mount="$tmp/one" put second
equal "put" "$(cat "$tmp/one/second")" second
"$mcctl" --mount="$tmp/one" rm -f second
reports "not a mount of mcfs" 2 --mount="$tmp" ls
reports "exclude each other" 2 --mount="$tmp/one" --master=127.0.0.1:1 ls
# never the HTTP server of another pool's master
reports "has no HTTP server" 3 --mount="$tmp/one" snapshot
"$mcctl" --mount="$tmp/one" health | found -x healthy

# ---- by itself
# a script that reads the table must not take another pool for that of a dead master
for command in df ls 'rm first' doctor; do
	# shellcheck disable=SC2086
	reports "choose one with --mount" 3 $command
	grep -qx "$tmp/one" "$tmp/stderr" || fail "the pool is not named: $(cat "$tmp/stderr")"
	[ ! -s "$tmp/stdout" ] || fail "$command printed: $(cat "$tmp/stdout")"
done
equal "the file after a refused rm" "$(cat "$tmp/one/first")" first
# a named master is never replaced
reports "127.0.0.1:1" 3 --timeout=1 --master=127.0.0.1:1 ls
MOONCAKE_MASTER=127.0.0.1:1 reports "127.0.0.1:1" 3 --timeout=1 ls

# ---- a stopped daemon
stop_still "$MCFS_PID"
reports "does not answer\|timed out" 3 --mount="$tmp/one" ls
kill -CONT "$MCFS_PID"

# ---- several pools
first_pid=$MCFS_PID
start_standalone "$tmp/two" --global_segment_size=32MiB
echo other >"$tmp/two/other"
reports "^$tmp/two$" 3 ls
grep -q "^$tmp/one$" "$tmp/stderr" || fail "not all pools are listed: $(cat "$tmp/stderr")"
grep -q -- "--mount=DIR" "$tmp/stderr" || fail "no way to choose: $(cat "$tmp/stderr")"
equal "the second pool" "$("$mcctl" --mount="$tmp/two" ls)" other
kill_pid "$MCFS_PID"
reports "^$tmp/one$" 3 ls
! grep -q "$tmp/two" "$tmp/stderr" || fail "a dead mount is offered: $(cat "$tmp/stderr")"
umount "$tmp/two"
stop_pid "$first_pid"

# ---- a mount of a master
rpc=
free_port rpc
spawn master "$top_builddir/master/mooncake_master" --rpc_address=127.0.0.1 --rpc_port="$rpc" --metrics_port=0
MASTER=127.0.0.1:$rpc
start_mcfs "$MASTER" "$tmp/three" --global_segment_size=32MiB
echo x >"$tmp/three/remote"
equal "ls by a mount" "$("$mcctl" --mount="$tmp/three" ls)" remote
reports "is the master running" 3 --timeout=1 ls
# the default address goes before local pools
start_standalone "$tmp/one" --global_segment_size=32MiB
spawn default "$top_builddir/master/mooncake_master" --rpc_address=127.0.0.1 --metrics_port=0
wait_for 20 connects 127.0.0.1:50051 || fail "no master at the default address"
equal "objects at the default address" "$("$mcctl" --json df | jq .pool.objects)" 0
end_pid "$SPAWNED"

# ---- another user's pool
requires setpriv
[ -u "$(command -v fusermount3)" ] || skip "fusermount3 is not set-uid root"
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
as_user test -x "$mcctl" || skip "others cannot read the build directory"
mknod -m 666 "$tmp/fuse" c 10 229 && mount --bind "$tmp/fuse" /dev/fuse || skip "/dev/fuse cannot be replaced"
cleanup_fn umount -l /dev/fuse
mkdir "$tmp/user"
chown 65534 "$tmp/user"
cleanup_fn unmount_any "$tmp/user"
as_user timeout 30 "$top_builddir/mcfs/mcfs" --standalone --global_segment_size=32MiB "$tmp/user"
as_user sh -c "echo theirs >'$tmp/user/theirs'"
equal "the user's pool, by the user" "$(as_user "$mcctl" --mount="$tmp/user" ls)" theirs
status 3 as_user "$mcctl" ls
grep -qx "$tmp/user" "$tmp/stderr" || fail "the user's pool is not named: $(cat "$tmp/stderr")"
! grep -qx "$tmp/one" "$tmp/stderr" || fail "root's pool is offered: $(cat "$tmp/stderr")"
equal "the user's pool, by root" "$("$mcctl" --mount="$tmp/user" ls)" theirs
status 3 as_user "$mcctl" --mount="$tmp/one" ls
grep -q "as the user who mounted it" "$tmp/stderr" || fail "another user's pool: $(cat "$tmp/stderr")"
users_daemon=$(processes_left | awk -v dir="$tmp/user" '$2 ~ /mcfs$/ && $NF == dir { print $1 }')
as_user fusermount3 -u "$tmp/user"
wait_for 20 gone "$users_daemon" || fail "the user's daemon does not end"
exit 0
