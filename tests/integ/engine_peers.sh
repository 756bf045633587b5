#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine that serves 64 peers at once is fair, needs little memory for them, frees it later, and
# is idle without peers' requests.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/engine_functions.sh"

# memory in KiB that the process has touched, without the memory that it offers
own_memory() {
	awk '/^RssAnon/ { print $2 - '"$1"' }' "/proc/$ENGINE/status"
}
files() {
	find "/proc/$ENGINE/fd" -mindepth 1 | wc -l
}
few_files() { [ "$(files)" -le "$1" ]; }

LEN=$((64 << 20))
engine_start 127.0.0.1 $LEN
fds=$(files)
# fair KIND - the best of several rounds counts, since other programs may disturb one
fair() {
	local n least most sum
	for _ in 1 2 3 4 5 6 7 8; do
		engine_drive 127.0.0.1 "$1" 64 65536 4
		read -r n least most sum < <(rates)
		equal 'clients' "$n" 64
		echo "$1: $least to $most bytes/s, total $sum"
		awk -v a="$least" -v b="$most" 'BEGIN { exit !(b <= 2 * a) }' && return
		[ -z "${SANITIZER-}" ] || return 0
	done
	fail "$1: one peer gets $most bytes/s and another $least"
}

for kind in ours upstream; do
	fair $kind
	if [ -z "${SANITIZER-}" ]; then
		used=$(own_memory $((LEN / 1024)))
		[ "$used" -lt 65536 ] || fail "$kind: $used KiB for 64 peers"
	fi
	wait_for 10 few_files "$fds" || fail "$kind: connections of peers that ended stay open"
done

# idle again, after all tests above
engine_asks 'sleep 3000'
read -r ms wakes <<<"$ANSWER"
echo "idle for 3 s: $ms ms of CPU time, $wakes wake-ups"
if [ -z "${SANITIZER-}" ]; then
	awk -v ms="$ms" 'BEGIN { exit !(ms < 30) }' || fail "an idle engine used $ms ms of CPU time in 3 s"
	[ "$wakes" -lt 100 ] || fail "an idle engine woke $wakes times in 3 s"
fi
engine_end
