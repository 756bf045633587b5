#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Over a link with 1 ms delay each way and 1 % loss: two of our engines and two upstream engines in
# turn over the same link, with all of upstream's connections.  Over all reads and writes ours are
# as fast.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
. "${top_srcdir:?}/tests/integ/te_mover_functions.sh"
. "${top_srcdir:?}/tests/lib/poor_link.sh"
requires_poor_link
requires jq
UPSTREAM_PYTHON=''
upstream_python 0.3.13.post1
poor_link
export MC_TCP_ENABLE_CONNECTION_POOL=1 MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER=65535

NS=$NS_A mover target P2PHANDSHAKE "$PEER_A"
NS=$NS_B mover client P2PHANDSHAKE "$PEER_B"
told target offer $((64 << 20))
target=$ANSWER
told client offer $((64 << 20))
told client open "$target"
NS=$NS_A upstream_serves theirs "$PEER_A" $((64 << 20))
NS=$NS_B talker rival env MC_TCP_BIND_ADDRESS="$PEER_B" ACTOR_HOST="$PEER_B" "$UPSTREAM_PYTHON" \
	"$top_srcdir/tests/integ/interop_actor.py" bench P2PHANDSHAKE "$ANSWER" $((64 << 20))

# in_turns OP SIZE COUNT - three rounds; our rates relative to upstream's are appended to $ratios
in_turns() {
	local a b i
	for i in 1 2 3; do
		told client rate "$1" "$2" "$3" 1
		a=$ANSWER
		told rival "$1" "$2" "$3" 1 1
		b=$(jq -n "$ANSWER * 1e9 | floor")
		echo "$1 of $3 x $2, turn $i: ours $a, upstream's $b bytes/s"
		ratios+=("$(jq -n "$a / $b")")
	done
}

ratios=()
for shape in "4096 256" "65536 64" "1048576 8"; do
	read -r size count <<<"$shape"
	for op in read write; do
		in_turns $op "$size" "$count"
	done
done
median=$(printf '%s\n' "${ratios[@]}" | sort -g | sed -n $((${#ratios[@]} / 2))p)
echo "median of ${#ratios[@]} turns: $median times upstream"
[ -n "${SANITIZER-}" ] || jq -en "$median >= 1" >"$tmp/verdict" || fail "slower than upstream: $median of its rate"
