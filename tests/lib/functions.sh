# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# functions.sh - what every shell test begins with:
#
#	#!/bin/bash
#	# SPDX-License-Identifier: Apache-2.0
#	# One sentence: the behaviour that this test shows.
#	. "${top_srcdir:-.}/tests/lib/functions.sh"
#	requires_fuse
#	start_master
#	start_mcfs "$MASTER" "$tmp/mnt"
#	...
#
# The test runs under "set -euo pipefail" in its own directory $tmp.  However it ends, cleanups run in
# the reverse order of their cleanup_fn, then nothing of the test may be left: a process, a mount or a
# namespace that is still there fails it.  Waiting is always wait_for or a command with a deadline;
# nothing sleeps for "some time".
[ -n "${BASH_VERSION-}" ] || exec bash "$0" "$@"
set -euo pipefail

: "${top_srcdir:=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}"
: "${top_builddir:=$top_srcdir/build}"
# The programs' own variables must not leak in from the caller's shell.
unset "${!MOONCAKE_@}" "${!MC_@}"
test_name=$(basename "$0" .sh)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/mc-$test_name.XXXXXX")
export top_srcdir top_builddir
# How processes of this test are known: every child inherits it, also a daemon that left its parent.
export MC_TEST_ID=$tmp
export LC_ALL=C

# ---- how a test ends ------------------------------------------------------------------------------

# skip REASON... - this machine lacks something
skip() {
	echo "SKIP: $*"
	exit 77
}

# fail MESSAGE... - also seen when the command that fails is waited for and its output thrown away
exec {TOLD_TO}>&1
fail() {
	echo "FAIL: $*" >&"$TOLD_TO"
	exit 1
}

cleanups=()
# cleanup_fn COMMAND ARG... - run it when the test ends, last one first; its failure is reported and
# the others still run
cleanup_fn() {
	cleanups+=("$(printf '%q ' "$@")")
}

# processes_left - pids and command lines of programs that this test started.  A shell knows the
# variable only from its child on, so the test itself is not among them.
processes_left() {
	local dir
	for dir in /proc/[0-9]*; do
		grep -qzxF "MC_TEST_ID=$tmp" "$dir/environ" 2>/dev/null || continue
		# a zombie is its parent's business
		grep -q '^State:.*Z' "$dir/status" 2>/dev/null && continue
		echo "${dir#/proc/} $(tr '\0' ' ' <"$dir/cmdline" 2>/dev/null)"
	done
	return 0
}

# one_mcfs - there is one mcfs that has left its parent, and pid is its; to be waited for: its guard is alike until it
# has renamed itself
one_mcfs() {
	# shellcheck disable=SC2034  # for the caller
	pid=$(processes_left | awk '$2 ~ /mcfs$/ { print $1 }')
	[ "$(wc -w <<<"$pid")" -eq 1 ]
}

mounts_left() {
	awk -v dir="$tmp/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts
}

at_exit() {
	local status=$? i left
	trap - EXIT
	# nor may a reader of our output that went away end this half-way
	trap '' INT TERM PIPE
	set +e
	cd /
	if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
		for i in "$tmp"/*.log; do
			[ -s "$i" ] && echo "--- ${i##*/}" && tail -n 40 "$i"
		done
	fi
	for ((i = ${#cleanups[@]} - 1; i >= 0; i--)); do
		eval "${cleanups[i]}" || echo "cleanup failed: ${cleanups[i]}"
	done
	left=$(wait_until_none 30 processes_left)
	if [ -n "$left" ]; then
		echo "FAIL: processes are left: $left"
		echo "$left" | while read -r i _; do kill -KILL "$i"; done
		[ "$status" -ne 0 ] || status=1
	fi
	left=$(mounts_left)
	if [ -n "$left" ]; then
		echo "FAIL: mounts are left: $left"
		echo "$left" | sort -r | while read -r i; do umount -l "$i"; done
		[ "$status" -ne 0 ] || status=1
	fi
	rm -rf --one-file-system "$tmp" || status=1
	exit "$status"
}

# wait_until_none SECONDS COMMAND... - until it prints nothing; prints what it still says then
wait_until_none() {
	local end=$((SECONDS + $1)) out
	shift
	while out=$("$@") && [ -n "$out" ] && [ "$SECONDS" -lt "$end" ]; do
		sleep 0.05
	done
	echo "$out"
}

trap at_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- what the machine must have -------------------------------------------------------------------

requires() {
	local program
	for program; do
		command -v "$program" >/dev/null || skip "$program is not installed"
	done
}

requires_root() {
	[ "$(id -u)" -eq 0 ] || skip "needs root"
}

requires_fuse() {
	[ -r /dev/fuse ] && [ -w /dev/fuse ] || skip "/dev/fuse cannot be opened here"
	# A container may show the device and refuse the mount.
	[ "$(id -u)" -ne 0 ] || may_mount || skip "mounting is not allowed here"
	[ "$(id -u)" -eq 0 ] || requires fusermount3
}

# In a mount namespace of its own; the propagation cannot be changed in a chroot.
may_mount() {
	local status=0
	mkdir "$tmp/may-mount"
	unshare -m --propagation unchanged sh -c "mount -t tmpfs none '$tmp/may-mount' &&
		umount '$tmp/may-mount'" 2>/dev/null || status=1
	rmdir "$tmp/may-mount"
	return "$status"
}

# a terminal, as script(1) makes one
requires_terminal() {
	requires script
	script -qec true /dev/null >/dev/null 2>&1 </dev/null || skip "no terminal can be made here"
}

requires_netns() {
	requires_root
	requires ip nsenter
	unshare -n ip link add type veth 2>/dev/null || skip "network namespaces or veth are not allowed here"
}

# requires_memory MIB
requires_memory() {
	local free
	free=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
	[ "$free" -ge "$1" ] || skip "needs $1 MiB of memory, $free are available"
}

# requires_plain_program FILE - it must be the program itself, not libtool's script around it
requires_plain_program() {
	[ "$(head -c 4 "$1" | tail -c 3)" = ELF ] || skip "$1 is a script in this build tree"
}

# ... | found ARG... - grep that reads all: "grep -q" goes at the first match, and who writes on is killed by SIGPIPE
found() {
	grep "$@" | cat >/dev/null
}

# unless_sanitized REASON - for what measures time or memory
unless_sanitized() {
	[ -z "${SANITIZER-}" ] || skip "$1"
}

# ---- waiting --------------------------------------------------------------------------------------

# wait_for SECONDS COMMAND... - until it succeeds; status 1 and a line when it does not
wait_for() {
	local seconds=$1 end=$((${EPOCHREALTIME/./} + $1 * 1000000))
	shift
	until "$@" >/dev/null 2>&1; do
		if [ "${EPOCHREALTIME/./}" -ge "$end" ]; then
			echo "not within $seconds s: $*"
			return 1
		fi
		sleep 0.02
	done
}

alive() {
	kill -0 "$1" 2>/dev/null && ! grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null
}

gone() {
	! alive "$1"
}

connects() {
	timeout 1 bash -c "exec 3<>/dev/tcp/${1%:*}/${1##*:}"
}

# ---- processes ------------------------------------------------------------------------------------

# in_ns NAME COMMAND... - in that network namespace, with everybody's mounts; NAME "" is here
in_ns() {
	local ns=$1
	shift
	if [ -n "$ns" ]; then
		nsenter --net="/run/netns/$ns" "$@"
	else
		"$@"
	fi
}

# spawn NAME COMMAND... - in the background, in namespace $NS when that is set; its output goes to
# $tmp/NAME.log, its pid to SPAWNED; it is stopped when the test ends
spawn() {
	local log=$tmp/$1.log
	shift
	if [ -n "${NS-}" ]; then
		# nsenter becomes the program, so the pid is the program's
		nsenter --net="/run/netns/$NS" "$@" >>"$log" 2>&1 </dev/null &
	else
		"$@" >>"$log" 2>&1 </dev/null &
	fi
	SPAWNED=$!
	cleanup_fn end_pid "$SPAWNED"
}

# end_pid PID - in whatever state it is: TERM, KILL when that does not help.  For cleanups.
end_pid() {
	alive "$1" || { wait "$1" 2>/dev/null || :; return 0; }
	kill -CONT "$1" 2>/dev/null || :
	kill -TERM "$1" 2>/dev/null || :
	wait_for 15 gone "$1" || kill -KILL "$1" 2>/dev/null || :
	wait "$1" 2>/dev/null || :
}

# stop_pid PID [SECONDS] - TERM; a clean end within the time is part of what is tested
stop_pid() {
	local status=0
	kill -TERM "$1"
	wait_for "${2:-15}" gone "$1" || fail "process $1 does not end after SIGTERM"
	wait "$1" || status=$?
	[ "$status" -eq 0 ] || fail "process $1 ended with status $status after SIGTERM"
}

# kill_pid PID - SIGKILL, and wait until it is gone
kill_pid() {
	kill -KILL "$1"
	wait_for 10 gone "$1"
	wait "$1" 2>/dev/null || :
}

# stop_still PID - SIGSTOP, and none of its threads runs any more: the signal alone is only asked for
stop_still() {
	kill -STOP "$1"
	wait_for 10 stands_still "$1"
}

stands_still() {
	! grep -h '^State:' /proc/"$1"/task/*/status | found -v 'T (stopped)'
}

# free_port VARIABLE - a TCP port that nobody uses, reserved against the other tests of this run.
# Below the kernel's range of ephemeral ports, so that no connection takes it meanwhile.
free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		mkdir "${TMPDIR:-/tmp}/mc-port.$port" 2>/dev/null || continue
		cleanup_fn rmdir "${TMPDIR:-/tmp}/mc-port.$port"
		grep -qi ":$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null && continue
		break
	done
	printf -v "$1" %s "$port"
}

# ---- the programs ---------------------------------------------------------------------------------

# started PID NAME SECONDS COMMAND... - wait for it as long as the process lives
started() {
	local pid=$1 name=$2 seconds=$3
	shift 3
	up_or_gone() { "$@" || gone "$pid"; }
	wait_for "$seconds" up_or_gone "$@" || fail "$name does not come up"
	alive "$pid" || fail "$name ended at its start"
}

# start_master [FLAG...] - on $MASTER_HOST (127.0.0.1) and free ports, in namespace $NS when that is
# set; gives MASTER and MASTER_HTTP, "host:port" both, and MASTER_PID
start_master() {
	requires curl
	local rpc http host=${MASTER_HOST:-127.0.0.1}
	free_port rpc
	free_port http
	MASTER=$host:$rpc MASTER_HTTP=$host:$http
	restart_master "$@"
}

# restart_master [FLAG...] - again on the same ports, after the first one has gone
restart_master() {
	spawn master "$top_builddir/master/mooncake_master" --rpc_address="${MASTER%:*}" \
		--rpc_port="${MASTER##*:}" --metrics_host="${MASTER_HTTP%:*}" \
		--metrics_port="${MASTER_HTTP##*:}" "$@"
	MASTER_PID=$SPAWNED
	started "$MASTER_PID" master 20 master_serves "$MASTER_HTTP"
}

# master_serves HOST:PORT - it answers over HTTP before it serves clients, and says so
master_serves() {
	in_ns "${NS-}" curl -sf --max-time 2 "http://$1/health" | found '"service_ready":true'
}

# start_mcfs MASTER DIR [FLAG...] - a node with a mount, in the foreground of its own; gives MCFS_PID
start_mcfs() {
	local master=$1 dir=$2
	shift 2
	mount_with "$dir" -f "$master" "$dir" "$@"
}

# start_standalone DIR [FLAG...] - master, memory and mount in one process; gives MCFS_PID
start_standalone() {
	local dir=$1
	shift
	mount_with "$dir" -f --standalone "$dir" "$@"
}

mount_with() {
	local dir=$1
	shift
	mkdir -p "$dir"
	# Runs after the daemon was ended, so it finds something only when that went wrong.
	cleanup_fn unmount_any "$dir"
	spawn "mcfs-${dir##*/}" "$top_builddir/mcfs/mcfs" "$@"
	MCFS_PID=$SPAWNED
	started "$MCFS_PID" "mcfs on $dir" 30 is_mounted "$dir"
}

# fuse_connections - the kernel's directory of them is $CONNECTIONS: mounted here, since what another test mounts it
# unmounts as well
fuse_connections() {
	CONNECTIONS=$tmp/fusectl
	mkdir "$CONNECTIONS"
	if mount -t fusectl none "$CONNECTIONS" 2>/dev/null; then
		cleanup_fn umount "$CONNECTIONS"
	else
		CONNECTIONS=/sys/fs/fuse/connections
	fi
}

# requires_custom_io MOUNTPOINT - what a daemon goes on with after another one, it has seen of the requests
requires_custom_io() {
	grep -Eq '^custom_io +yes$' "$1/.mcfs/features" ||
		skip "this libfuse was built without fuse_session_custom_io(): a killed daemon's mount is made anew"
}

# metric HOST:PORT NAME [LABELS] - the sum over all label sets that contain LABELS, 0 when absent;
# asked from namespace $NS
metric() {
	in_ns "${NS-}" curl -sf --max-time 5 "http://$1/metrics" | metric_sum "$2" "${3-}"
}

# metric_sum NAME [LABELS] - the same from text on standard input
metric_sum() {
	awk -v name="$1" -v labels="${2-}" '
	index($0, name "{") == 1 || index($0, name " ") == 1 {
		if (labels == "" || index($0, labels))
			sum += $NF
	}
	END { printf "%.0f\n", sum }'
}

# is_mounted DIR
is_mounted() {
	awk -v dir="$1" '$2 == dir { found = 1 } END { exit !found }' /proc/self/mounts
}

# unmount DIR - the operator's way, and the mount is gone afterwards
unmount() {
	if [ "$(id -u)" -eq 0 ]; then
		umount "$1"
	else
		fusermount3 -u "$1"
	fi
}

# For cleanups: whatever the state of the mount.
unmount_any() {
	is_mounted "$1" || return 0
	unmount "$1" 2>/dev/null || umount -l "$1" 2>/dev/null || fusermount3 -uz "$1"
}

# xattr get NAME FILE | set NAME VALUE FILE | list FILE - the attribute user.NAME, the names of all; getfattr(1) is
# on few machines
xattr() {
	requires python3
	python3 -c 'if True:
		import os, sys
		what, *args = sys.argv[1:]
		try:
			if what == "list":
				print(*sorted(os.listxattr(args[0])))
			elif what == "get":
				sys.stdout.buffer.write(os.getxattr(args[1], "user." + args[0]))
			else:
				os.setxattr(args[2], "user." + args[0], args[1].encode())
		except OSError as e:
			sys.exit(e.strerror)' "$@"
}

# ---- network namespaces ---------------------------------------------------------------------------

# two_nodes - namespaces $NS_A and $NS_B, joined by a veth pair; their addresses, which exist nowhere
# else, are ADDR_A and ADDR_B
two_nodes() {
	NS_A=mct-$$-a NS_B=mct-$$-b ADDR_A=10.77.0.1 ADDR_B=10.77.0.2
	local ns
	for ns in "$NS_A" "$NS_B"; do
		ip netns add "$ns"
		cleanup_fn ip netns del "$ns"
		# not "ip -n", which makes a mount namespace and fails in a chroot
		in_ns "$ns" ip link set lo up
	done
	in_ns "$NS_A" ip link add veth-a type veth peer name veth-b netns "$NS_B"
	in_ns "$NS_A" ip addr add "$ADDR_A/24" dev veth-a
	in_ns "$NS_B" ip addr add "$ADDR_B/24" dev veth-b
	in_ns "$NS_A" ip link set veth-a up
	in_ns "$NS_B" ip link set veth-b up
}

# ---- comparing ------------------------------------------------------------------------------------

# equal WHAT GOT WANTED
equal() {
	[ "$2" = "$3" ] || fail "$1: got '$2', wanted '$3'"
}

# fails COMMAND... - it must not succeed (and not be killed by its deadline); output to $tmp/fails.out
fails() {
	local status=0
	"$@" >"$tmp/fails.out" 2>&1 || status=$?
	[ "$status" -ne 0 ] || fail "succeeded: $*"
	[ "$status" -ne 124 ] || fail "hung: $*"
}
