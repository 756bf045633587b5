# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# functions.sh - functions for all shell tests.  Each test begins like this:
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
# The test runs under "set -euo pipefail" in its own directory $tmp.  When it ends, for whatever reason,
# the cleanups run in the reverse order of their cleanup_fn calls.  Then no process, mount or namespace of
# the test may be left, else the test fails.  A test waits with wait_for or with a command that has a
# deadline; no test sleeps for a guessed time.
[ -n "${BASH_VERSION-}" ] || exec bash "$0" "$@"
set -euo pipefail

: "${top_srcdir:=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}"
: "${top_builddir:=$top_srcdir/build}"
# Remove the programs' own variables, which the caller's shell may have set.
unset "${!MOONCAKE_@}" "${!MC_@}"
test_name=$(basename "$0" .sh)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/mc-$test_name.XXXXXX")
export top_srcdir top_builddir
# Identifies the processes of this test: every child inherits the variable, also a daemon that left
# its parent.
export MC_TEST_ID=$tmp
export LC_ALL=C
# The journal of a master, which is kept by default.
export XDG_STATE_HOME=$tmp/state

# ---- end of a test --------------------------------------------------------------------------------

# skip REASON... - the test needs something that this machine lacks
skip() {
	echo "SKIP: $*"
	exit 77
}

# fail MESSAGE... - print to the original standard output, also where the output of the failing
# command is discarded.  The message is repeated after the logs, because CI shows only the end.
exec {TOLD_TO}>&1
fail() {
	echo "FAIL: $*" | tee -a "$tmp/reason" >&"$TOLD_TO"
	exit 1
}

cleanups=()
# cleanup_fn COMMAND ARG... - run the command when the test ends, the last registered one first.  A
# failure is reported, and the other commands still run.
cleanup_fn() {
	cleanups+=("$(printf '%q ' "$@")")
}

# processes_left - pids and command lines of programs that this test started.  Only a child's
# environment shows the variable, so the test's own shell is not listed.
processes_left() {
	local dir
	for dir in /proc/[0-9]*; do
		grep -qzxF "MC_TEST_ID=$tmp" "$dir/environ" 2>/dev/null || continue
		# the parent reaps its zombie
		grep -q '^State:.*Z' "$dir/status" 2>/dev/null && continue
		echo "${dir#/proc/} $(tr '\0' ' ' <"$dir/cmdline" 2>/dev/null)"
	done
	return 0
}

# one_mcfs - succeeds when exactly one mcfs has left its parent; sets pid.  Use with wait_for: the
# guard process has the same name until it renames itself.
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
	# a closed output pipe must not interrupt the cleanups
	trap '' INT TERM PIPE
	set +e
	cd /
	if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
		for i in "$tmp"/*.log; do
			[ -s "$i" ] && echo "--- ${i##*/}" && tail -n 40 "$i"
		done
		[ -s "$tmp/reason" ] && cat "$tmp/reason"
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

# wait_until_none SECONDS COMMAND... - wait until the command prints nothing; print its last output
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

# ---- requirements of a test -----------------------------------------------------------------------

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
	# A container may have the device and nevertheless refuse the mount.
	[ "$(id -u)" -ne 0 ] || may_mount || skip "mounting is not allowed here"
	[ "$(id -u)" -eq 0 ] || requires fusermount3
}

# Try it in a separate mount namespace.  "--propagation unchanged": in a chroot, the propagation
# cannot be changed.
may_mount() {
	local status=0
	mkdir "$tmp/may-mount"
	unshare -m --propagation unchanged sh -c "mount -t tmpfs none '$tmp/may-mount' &&
		umount '$tmp/may-mount'" 2>/dev/null || status=1
	rmdir "$tmp/may-mount"
	return "$status"
}

# requires_terminal - script(1) can create a terminal
requires_terminal() {
	requires script
	script -qec true /dev/null >/dev/null 2>&1 </dev/null || skip "script(1) cannot create a terminal here"
}

# requires_netns - for tests whose programs listen at addresses of network namespaces
requires_netns() {
	requires_root
	export MC_ALLOW_INSECURE=1
	requires ip nsenter
	unshare -n ip link add type veth 2>/dev/null || skip "network namespaces or veth are not allowed here"
}

# requires_memory MIB
requires_memory() {
	local free
	free=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
	[ "$free" -ge "$1" ] || skip "needs $1 MiB of memory, $free are available"
}

# requires_plain_program FILE - the file is the program itself, not libtool's wrapper script
requires_plain_program() {
	[ "$(head -c 4 "$1" | tail -c 3)" = ELF ] || skip "$1 is a script in this build tree"
}

# ... | found ARG... - grep that reads all of its input: "grep -q" exits at the first match, and
# SIGPIPE would then kill the writer
found() {
	grep "$@" | cat >/dev/null
}

# unless_sanitized REASON - for tests that measure time or memory
unless_sanitized() {
	[ -z "${SANITIZER-}" ] || skip "$1"
}

# ---- waiting --------------------------------------------------------------------------------------

# wait_for SECONDS COMMAND... - wait until the command succeeds; at the timeout print a line and return 1
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
	kill -0 "$1" 2>/dev/null || return 1
	# the first thread of a killed process may be a zombie while another one still holds files and sockets
	awk '/^State:/ { zombie = $2 == "Z" } /^Threads:/ { threads = $2 } END { exit zombie && threads <= 1 }' \
		"/proc/$1/status" 2>/dev/null
}

gone() {
	! alive "$1"
}

connects() {
	timeout 1 bash -c "exec 3<>/dev/tcp/${1%:*}/${1##*:}"
}

# ---- processes ------------------------------------------------------------------------------------

# in_ns NAME COMMAND... - run the command in that network namespace, with the mounts of this one;
# NAME "": no other namespace
in_ns() {
	local ns=$1
	shift
	if [ -n "$ns" ]; then
		nsenter --net="/run/netns/$ns" "$@"
	else
		"$@"
	fi
}

# spawn NAME COMMAND... - run the command in the background, in namespace $NS if set.  Output:
# $tmp/NAME.log; pid: $SPAWNED.  The process is stopped when the test ends.
spawn() {
	local log=$tmp/$1.log
	shift
	if [ -n "${NS-}" ]; then
		# nsenter executes the program, so this is the program's pid
		nsenter --net="/run/netns/$NS" "$@" >>"$log" 2>&1 </dev/null &
	else
		"$@" >>"$log" 2>&1 </dev/null &
	fi
	SPAWNED=$!
	cleanup_fn end_pid "$SPAWNED"
}

# end_pid PID - end the process in any state: SIGTERM, later SIGKILL.  For cleanups.
end_pid() {
	alive "$1" || { wait "$1" 2>/dev/null || :; return 0; }
	kill -CONT "$1" 2>/dev/null || :
	kill -TERM "$1" 2>/dev/null || :
	wait_for 15 gone "$1" || kill -KILL "$1" 2>/dev/null || :
	wait "$1" 2>/dev/null || :
}

# stop_pid PID [SECONDS] - send SIGTERM; the process must end in time with status 0
stop_pid() {
	local status=0
	kill -TERM "$1"
	wait_for "${2:-15}" gone "$1" || fail "process $1 does not end after SIGTERM"
	wait "$1" || status=$?
	[ "$status" -eq 0 ] || fail "process $1 ended with status $status after SIGTERM"
}

# kill_pid PID - send SIGKILL and wait until the process has ended
kill_pid() {
	kill -KILL "$1"
	wait_for 10 gone "$1"
	wait "$1" 2>/dev/null || :
}

# stop_still PID - send SIGSTOP and wait until all threads have stopped: the signal takes effect later
stop_still() {
	kill -STOP "$1"
	wait_for 10 stands_still "$1"
}

stands_still() {
	! grep -h '^State:' /proc/"$1"/task/*/status | found -v 'T (stopped)'
}

# free_port VARIABLE - an unused TCP port, reserved against the other tests of this run.  It is
# below the kernel's range of ephemeral ports, so no outgoing connection takes it meanwhile.
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

# started PID NAME SECONDS COMMAND... - wait until the command succeeds; fail early when the process ends
started() {
	local pid=$1 name=$2 seconds=$3
	shift 3
	up_or_gone() { "$@" || gone "$pid"; }
	wait_for "$seconds" up_or_gone "$@" || fail "$name is not ready"
	alive "$pid" || fail "$name ended during its start"
}

# start_master [FLAG...] - start a master on $MASTER_HOST (127.0.0.1) and free ports, in namespace
# $NS if set; sets MASTER and MASTER_HTTP, both "host:port", and MASTER_PID
start_master() {
	requires curl
	local rpc http host=${MASTER_HOST:-127.0.0.1}
	free_port rpc
	free_port http
	MASTER=$host:$rpc MASTER_HTTP=$host:$http
	restart_master "$@"
}

# restart_master [FLAG...] - start it again on the same ports after the first one has ended
restart_master() {
	spawn master "$top_builddir/master/mooncake_master" --rpc_address="${MASTER%:*}" \
		--rpc_port="${MASTER##*:}" --metrics_host="${MASTER_HTTP%:*}" \
		--metrics_port="${MASTER_HTTP##*:}" "$@"
	MASTER_PID=$SPAWNED
	started "$MASTER_PID" master 20 master_serves "$MASTER_HTTP"
}

# master_serves HOST:PORT - the master answers over HTTP before it serves clients, and reports when it does
master_serves() {
	in_ns "${NS-}" curl -sf --max-time 2 "http://$1/health" | found '"service_ready":true'
}

# start_mcfs MASTER DIR [FLAG...] - start a node with a mount in the foreground; sets MCFS_PID
start_mcfs() {
	local master=$1 dir=$2
	shift 2
	mount_with "$dir" -f "$master" "$dir" "$@"
}

# start_standalone DIR [FLAG...] - start master, memory and mount in one process; sets MCFS_PID
start_standalone() {
	local dir=$1
	shift
	mount_with "$dir" -f --standalone "$dir" "$@"
}

mount_with() {
	local dir=$1
	shift
	mkdir -p "$dir"
	# Runs after the daemon has ended, so a mount is left only if that failed.
	cleanup_fn unmount_any "$dir"
	spawn "mcfs-${dir##*/}" "$top_builddir/mcfs/mcfs" "$@"
	MCFS_PID=$SPAWNED
	started "$MCFS_PID" "mcfs on $dir" 30 is_mounted "$dir"
}

# fuse_connections - set $CONNECTIONS to the kernel's directory of FUSE connections.  Use a mount of
# this test: a mount of another test disappears when that test ends.
fuse_connections() {
	CONNECTIONS=$tmp/fusectl
	mkdir "$CONNECTIONS"
	if mount -t fusectl none "$CONNECTIONS" 2>/dev/null; then
		cleanup_fn umount "$CONNECTIONS"
	else
		CONNECTIONS=/sys/fs/fuse/connections
	fi
}

# requires_custom_io MOUNTPOINT - a takeover needs a daemon that has seen the raw requests
requires_custom_io() {
	grep -Eq '^custom_io +yes$' "$1/.mcfs/features" ||
		skip "this libfuse was built without fuse_session_custom_io(): a killed daemon's mount is made anew"
}

# metric HOST:PORT NAME [LABELS] - print the sum over all label sets that contain LABELS, 0 when
# absent; requested from namespace $NS
metric() {
	in_ns "${NS-}" curl -sf --max-time 5 "http://$1/metrics" | metric_sum "$2" "${3-}"
}

# metric_sum NAME [LABELS] - same for text on standard input
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

# unmount DIR - unmount as an operator does; afterwards the mount is gone
unmount() {
	if [ "$(id -u)" -eq 0 ]; then
		umount "$1"
	else
		fusermount3 -u "$1"
	fi
}

# For cleanups: unmount in whatever state the mount is.
unmount_any() {
	is_mounted "$1" || return 0
	unmount "$1" 2>/dev/null || umount -l "$1" 2>/dev/null || fusermount3 -uz "$1"
}

# xattr get NAME FILE | set NAME VALUE FILE | list FILE - read or set the attribute user.NAME, or
# list all names; few machines have getfattr(1)
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

# two_nodes - create the namespaces $NS_A and $NS_B, joined by a veth pair; their addresses $ADDR_A
# and $ADDR_B exist nowhere else
two_nodes() {
	NS_A=mct-$$-a NS_B=mct-$$-b ADDR_A=10.77.0.1 ADDR_B=10.77.0.2
	local ns
	for ns in "$NS_A" "$NS_B"; do
		ip netns add "$ns"
		cleanup_fn ip netns del "$ns"
		# not "ip -n": it creates a mount namespace, which fails in a chroot
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

# fails COMMAND... - the command must fail, but not because its deadline killed it; output to $tmp/fails.out
fails() {
	local status=0
	"$@" >"$tmp/fails.out" 2>&1 || status=$?
	[ "$status" -ne 0 ] || fail "succeeded: $*"
	[ "$status" -ne 124 ] || fail "hung: $*"
}
