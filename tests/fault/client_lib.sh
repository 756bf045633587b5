# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# client_lib.sh - the client processes of the client's fault tests.
# shellcheck disable=SC2154,SC2034  # variables of functions.sh, and variables for the tests
actor_program=$top_builddir/tests/fault/client_actor
MIB=1048576

# actor TIMEOUT_MS ROLE ARG... - run one step; returns its status, output in $tmp/actor.out
actor() {
	local status=0
	timeout 60 "$actor_program" "$MASTER" "$@" >"$tmp/actor.out" 2>"$tmp/actor.log" || status=$?
	[ "$status" -ne 124 ] || fail "hung: actor $*"
	[ "$status" -ne 3 ] || fail "wrong bytes: actor $*"
	return "$status"
}

# actor_status STATUS TIMEOUT_MS ROLE ARG...
actor_status() {
	local want=$1 got=0
	shift
	actor "$@" || got=$?
	[ "$got" -eq "$want" ] || fail "actor $*: status $got, not $want: $(cat "$tmp/actor.out" "$tmp/actor.log")"
}

# start_actor NAME ROLE ARG... - run it in the background with open standard input; sets ACTOR_PID.
# tell NAME sends a line, the output is in $tmp/NAME.log
start_actor() {
	local name=$1
	shift
	mkfifo "$tmp/$name.in"
	sleep infinity >"$tmp/$name.in" &
	cleanup_fn end_pid $!
	"$actor_program" "$MASTER" 10000 "$@" <"$tmp/$name.in" >"$tmp/$name.log" 2>&1 &
	ACTOR_PID=$!
	cleanup_fn end_pid "$ACTOR_PID"
	wait_for 20 grep -qE 'ready|ok|error' "$tmp/$name.log" || fail "$name is not ready"
}

tell() {
	echo >"$tmp/$1.in"
}

pool_is() {
	actor 5000 stat "$1" && [ "$(cat "$tmp/actor.out")" = "$2" ]
}

# wait_pool SECONDS WHAT VALUE
wait_pool() {
	wait_for "$1" pool_is "$2" "$3" || fail "$2 is $(cat "$tmp/actor.out"), not $3"
}

# took FILE - milliseconds of the last step that the file reports
took() {
	sed -n 's/.* \([0-9]*\) ms$/\1/p' "$1" | tail -n 1
}
