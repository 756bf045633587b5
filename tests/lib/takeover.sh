# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# takeover.sh - daemons of a mount that are killed and followed by another one, below the process $supervisor.

supervisor='' daemon=''

# daemon_of SUPERVISOR - the daemon of the moment, which is the child that mounts
daemon_of() {
	local child
	for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
		[ "$(cat "/proc/$child/comm" 2>/dev/null)" != mcfs ] || echo "$child"
	done
}
# another_than PID - there is a daemon, $daemon then, and it is not that one
another_than() {
	daemon=$(daemon_of "$supervisor")
	[ -n "$daemon" ] && [ "$daemon" != "$1" ]
}
# supervised - $supervisor has a daemon, and all that the next one goes on with: the mount is what it gets last, a moment
# after everybody can see it
supervised() {
	another_than none || fail "no daemon below the supervisor"
	wait_for 30 has_the_mount || fail "the supervisor is not given the mount"
}
has_the_mount() {
	find "/proc/$supervisor/fd" -lname /dev/fuse | found .
}
# taken_over MOUNTPOINT N - by so many daemons until now
taken_over() {
	timeout 5 grep -q "^takeovers  *$2$" "$1/.mcfs/stats"
}
# nothing_open MOUNTPOINT - but the file that tells it
nothing_open() {
	[ "$(open_handles "$1")" = 1 ]
}
open_handles() {
	awk '$1 == "open_handles" { print $2 }' "$1/.mcfs/stats"
}
