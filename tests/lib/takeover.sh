# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# takeover.sh - for tests that kill the daemon of a mount; its supervisor $supervisor then starts another one.

supervisor='' daemon=''

# daemon_of SUPERVISOR - pid of the current daemon, the child that mounts
daemon_of() {
	local child
	for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
		[ "$(cat "/proc/$child/comm" 2>/dev/null)" != mcfs ] || echo "$child"
	done
}
# another_than PID - succeeds when there is a daemon other than PID; sets $daemon
another_than() {
	daemon=$(daemon_of "$supervisor")
	[ -n "$daemon" ] && [ "$daemon" != "$1" ]
}
# supervised - wait until $supervisor has a daemon and all that the next daemon needs.  It receives
# the mount's descriptor last, shortly after the mount is visible.
supervised() {
	another_than none || fail "no daemon below the supervisor"
	wait_for 30 has_the_mount || fail "the supervisor does not receive the mount's descriptor"
}
has_the_mount() {
	find "/proc/$supervisor/fd" -lname /dev/fuse | found .
}
# taken_over MOUNTPOINT N - succeeds after N takeovers
taken_over() {
	timeout 5 grep -q "^takeovers  *$2$" "$1/.mcfs/stats"
}
# nothing_open MOUNTPOINT - no handle is open except that of the file which reports the number
nothing_open() {
	[ "$(open_handles "$1")" = 1 ]
}
open_handles() {
	awk '$1 == "open_handles" { print $2 }' "$1/.mcfs/stats"
}
