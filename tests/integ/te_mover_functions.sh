# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# te_mover_functions.sh - engines that execute commands (te_mover), and upstream's engines.  Sourced
# after functions.sh.
# shellcheck disable=SC2034,SC2154

declare -A ASK=() ANSWERS=() PIDS=()

# talker NAME COMMAND... - run it in the background, in $NS if set; commands go to fd ${ASK[NAME]},
# answers come from ${ANSWERS[NAME]}
talker() {
	local name=$1 in out
	shift
	# nsenter executes the program, so this is the program's pid
	[ -z "${NS-}" ] || set -- nsenter --net="/run/netns/$NS" "$@"
	rm -f "$tmp/$name.in" "$tmp/$name.out"
	mkfifo "$tmp/$name.in" "$tmp/$name.out"
	"$@" <"$tmp/$name.in" >"$tmp/$name.out" 2>"$tmp/$name.log" &
	PIDS[$name]=$!
	cleanup_fn end_pid "$!"
	exec {in}>"$tmp/$name.in" {out}<"$tmp/$name.out"
	ASK[$name]=$in ANSWERS[$name]=$out
}

# mover NAME METADATA ADDRESS - start a te_mover, in $NS if set
mover() {
	talker "$1" env MC_TCP_BIND_ADDRESS="$3" "$top_builddir/tests/integ/te_mover" "$2" "$3"
}

# answer NAME SECONDS - read its next line into $ANSWER
answer() {
	read -r -t "$2" -u "${ANSWERS[$1]}" ANSWER || fail "no answer from $1 within $2 s"
}

# told NAME WORDS... - send a command; the answer is in $ANSWER
told() {
	local name=$1
	shift
	echo "$*" >&"${ASK[$name]}"
	answer "$name" 120
}

# expect NAME ANSWER WORDS... - send a command and compare the answer
expect() {
	local name=$1 want=$2
	shift 2
	told "$name" "$@"
	equal "$name: $*" "$ANSWER" "$want"
}

# upstream_serves NAME HOST BYTES - start an upstream node in $NS; its name is in $ANSWER
upstream_serves() {
	talker "$1" env MC_TCP_BIND_ADDRESS="$2" ACTOR_HOST="$2" "$UPSTREAM_PYTHON" \
		"$top_srcdir/tests/integ/interop_actor.py" serve "${META:-P2PHANDSHAKE}" "$3"
	answer "$1" 60
}

# no_more NAME DESCRIPTORS THREADS - the engine has no more than these, for use with wait_for.  When
# they were counted, two connections may have been missing.
no_more() {
	local fds threads
	told "$1" count
	read -r fds threads <<<"$ANSWER"
	[ "$fds" -le $(($2 + 2)) ] && [ "$threads" -le "$3" ]
}

# stream_ends NAME STATUS MOST_MS [RECONNECTS] - after "stream": it ended with STATUS, within
# MOST_MS and with at most that many reconnects
stream_ends() {
	answer "$1" 120
	[[ $ANSWER == "$2 "* ]] || fail "$1: a stream ends with $ANSWER, not $2"
	local status ms anew
	read -r status ms anew <<<"$ANSWER"
	echo "$1: $status after $ms ms and $anew connections"
	[ "$ms" -le "$3" ] || fail "$1: it took $ms ms, more than $3"
	[ "$anew" -le "${4-$anew}" ] || fail "$1: it took $anew connections, more than $4"
}
