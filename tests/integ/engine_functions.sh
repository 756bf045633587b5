# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# engine_functions.sh - engines at both ends of a network.
# shellcheck disable=SC2034,SC2154
actor=$top_builddir/tests/integ/engine_actor

# engine_start HOST LEN - start an engine, in $NS if set; sets $ENGINE to its pid and $WHO to its address
engine_start() {
	mkfifo "$tmp/in" "$tmp/out"
	in_ns "${NS-}" "$actor" serve "$1" "$2" <"$tmp/in" >"$tmp/out" 2>"$tmp/server.log" &
	exec 7>"$tmp/in" 8<"$tmp/out"
	read -r -t 30 ENGINE WHO <&8 || fail "the engine is not ready"
	cleanup_fn end_pid "$ENGINE"
	WHO_LEN=$2
}

# engine_asks LINE - send a line to the engine; sets $ANSWER
engine_asks() {
	echo "$1" >&7
	read -r -t 60 ANSWER <&8 || fail "no answer from the engine"
}

engine_end() {
	exec 7>&- 8<&-
	wait_for 20 gone "$ENGINE" || fail "the engine does not end"
	rm -f "$tmp/in" "$tmp/out"
}

# engine_drive HOST KIND CLIENTS SIZE SECONDS - run clients; their rates are in $tmp/rates, one per line
engine_drive() {
	# shellcheck disable=SC2086
	in_ns "${NS-}" timeout 300 "$actor" drive "$1" "$2" "$3" $WHO "$WHO_LEN" "$4" "$5" >"$tmp/rates" 2>"$tmp/drive.log" ||
		fail "$2: $(head -n 1 "$tmp/rates")"
}

# rates - print number, minimum, maximum and sum of the rates
rates() {
	sort -n "$tmp/rates" | awk '{ s += $1; v[NR] = $1 } END { print NR, v[1], v[NR], s }'
}
