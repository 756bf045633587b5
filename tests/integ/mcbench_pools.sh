#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcbench replays a trace on pools of its own: one run for each size and eviction policy.  A pool has room for exactly the
# given number of blocks, two runs with one thread have the same hits, and every master ends with mcbench.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/integ/mcctl_functions.sh"
requires python3
mkdir "$tmp/private"
bench() {
	TMPDIR=$tmp/private timeout 120 "$top_builddir/tools/mcbench" --threads=1 --block_size=1KiB "$@"
}
make_trace() {
	python3 "$top_srcdir/tests/perf/make_trace.py" "$@"
}
# The columns of a CSV file that do not depend on the speed of the machine.
hits() {
	cut -d, -f1-8 "$1"
}

# ---- every kind of trace is accepted, and the same arguments make the same trace
for kind in uniform zipf scan loop chat agent; do
	make_trace "$kind" --requests 300 --seed 3 >"$tmp/$kind.jsonl"
	make_trace "$kind" --requests 300 --seed 3 | cmp - "$tmp/$kind.jsonl"
	bench --pool_blocks=500 --json replay "$tmp/$kind.jsonl" >"$tmp/$kind.json"
	jq -e 'length == 1 and (.[0] | .requests == 300 and .errors == 0 and .wrong_bytes == 0)' "$tmp/$kind.json" >/dev/null ||
		fail "$kind: $(cat "$tmp/$kind.json")"
done
make_trace chat --requests 300 --seed 4 >"$tmp/other.jsonl"
fails cmp "$tmp/other.jsonl" "$tmp/chat.jsonl"

# ---- a table, with a file of the same results
bench --pool_blocks=300,100 --policies=lru,fifo --csv="$tmp/a.csv" replay "$tmp/chat.jsonl" >"$tmp/table"
equal "header of the file" "$(head -n 1 "$tmp/a.csv")" \
	policy,pool_blocks,block_size,threads,requests,blocks,hit_ratio,raw_hit_ratio,seconds
equal "runs" "$(tail -n +2 "$tmp/a.csv" | cut -d, -f1-5 | xargs)" \
	"lru,300,1024,1,300 fifo,300,1024,1,300 lru,100,1024,1,300 fifo,100,1024,1,300"
for size in 300 100; do
	wanted=$(awk -F, -v size="$size" '$2 == size { printf " %s", $7 }' "$tmp/a.csv")
	equal "row $size" "$(awk -v size="$size" '$1 == size { for (i = NF - 1; i <= NF; i++) printf " %s", $i }' "$tmp/table")" \
		"$wanted"
done
grep -qE '^ +pool blocks +size +lru +fifo$' "$tmp/table" || fail "no head: $(cat "$tmp/table")"
grep -q '^wrong bytes: 0 in 0 of [1-9]' "$tmp/table" || fail "$(cat "$tmp/table")"
awk -F, 'NR > 1 && ($7 <= 0 || $7 > $8 || $8 >= 100) { exit 1 }' "$tmp/a.csv" || fail "impossible: $(cat "$tmp/a.csv")"

# ---- determinism
bench --pool_blocks=300,100 --policies=lru,fifo --csv=- replay "$tmp/chat.jsonl" >"$tmp/b.csv"
equal "hits of a second run" "$(hits "$tmp/b.csv")" "$(hits "$tmp/a.csv")"

# the policy that learns, too; it has more hits of conversations
bench --pool_blocks=300 --policies=lru,learn --csv="$tmp/c.csv" replay "$tmp/chat.jsonl" >/dev/null
bench --pool_blocks=300 --policies=lru,learn --csv=- replay "$tmp/chat.jsonl" >"$tmp/d.csv"
equal "hits of a second run" "$(hits "$tmp/d.csv")" "$(hits "$tmp/c.csv")"
awk -F, 'NR == 2 { lru = $7 } NR == 3 && $7 < lru { exit 1 }' "$tmp/c.csv" || fail "learn has fewer hits: $(cat "$tmp/c.csv")"

# ---- the number of blocks is exact, also below the 4 KiB of a page and with checksums behind the bytes: a loop
# over as many keys hits always, over one more never
make_trace loop --keys 70 --requests 280 >"$tmp/loop.jsonl"
for size in 1000 5000 64KiB 100000; do
	bench --block_size="$size" --pool_blocks=70,69 --policies=fifo --csv=- replay "$tmp/loop.jsonl" >"$tmp/loop.csv"
	equal "hits with blocks of $size" "$(tail -n +2 "$tmp/loop.csv" | cut -d, -f2,7 | xargs)" "70,75.00 69,0.00"
done

# ---- a picture: the program that draws gets each point; without one the other results are there
mkdir "$tmp/fake" "$tmp/bare"
printf '#!/bin/sh\ncat >"%s"\n' "$tmp/commands" >"$tmp/fake/gnuplot"
chmod +x "$tmp/fake/gnuplot"
PATH=$tmp/fake:$PATH bench --pool_blocks=300,100 --policies=lru,fifo --csv="$tmp/c.csv" --plot="$tmp/a.svg" \
	replay "$tmp/chat.jsonl" >/dev/null
equal "points" "$(grep -E '^[0-9]+ ' "$tmp/commands" | awk '{ printf "%s,%.2f\n", $1, $2 }')" \
	"$(for policy in lru fifo; do for size in 100 300; do grep "^$policy,$size," "$tmp/c.csv" | cut -d, -f2,7; done; done)"
grep -qF "set output '$tmp/a.svg'" "$tmp/commands" || fail "$(cat "$tmp/commands")"
# The build tree's wrapper script needs other programs.
IFS=: read -ra dirs <<<"$PATH"
for dir in "${dirs[@]}"; do
	# several directories may have a program
	ln -s "$dir"/* "$tmp/bare" 2>/dev/null || :
done
rm -f "$tmp"/bare/{gnuplot*,python*}
PATH=$tmp/bare bench --pool_blocks=300,100 --plot="$tmp/b.png" replay "$tmp/chat.jsonl" >"$tmp/table" 2>"$tmp/stderr"
grep -q 'b.png is not drawn: there is neither gnuplot nor python3 with matplotlib' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
grep -qE '^ +100 ' "$tmp/table" || fail "no table: $(cat "$tmp/table")"
[ ! -e "$tmp/b.png" ] || fail "a picture was drawn"

# ---- wrong bytes in a run
printf '{"timestamp": %s, "hash_ids": [%s]}\n' 0 1 1500 2 3000 3 >"$tmp/slow.jsonl"
socket() {
	SOCKET=$(echo "$tmp"/private/mcbench-*/master)
	[ -S "$SOCKET" ] && timeout 5 "$top_builddir/tools/mcctl" --master="unix:$SOCKET" "$@"
}
spawn wrong env TMPDIR="$tmp/private" "$top_builddir/tools/mcbench" --threads=1 --block_size=1KiB --speed=1 \
	--pool_blocks=100 replay "$tmp/slow.jsonl"
wait_for 20 socket stat mcbench/1024-1/1 || fail "no pool: $(cat "$tmp/wrong.log")"
echo 'not what mcbench would put' | socket put mcbench/1024-1/3
status 1 wait "$SPAWNED"

# ---- mcbench ends by a signal: no master is left
for signal in INT TERM KILL; do
	spawn "$signal" env TMPDIR="$tmp/private" "$top_builddir/tools/mcbench" --threads=1 --block_size=1KiB --speed=1e-6 \
		--pool_blocks=100,200 replay "$tmp/slow.jsonl"
	wait_for 20 socket stat mcbench/1024-1/1 || fail "no pool: $(cat "$tmp/$signal.log")"
	master=$(processes_left | awk '/mooncake_master/ { print $1 }')
	[ -n "$master" ] || fail "no master: $(processes_left)"
	kill "-$signal" "$SPAWNED"
	wait_for 15 gone "$SPAWNED" || fail "mcbench does not end after SIG$signal"
	wait_for 15 gone "$master" || fail "the master does not end after SIG$signal"
	[ "$signal" != KILL ] || rm -r "$tmp"/private/mcbench-*
done
grep -q 'stopped: 0 of 2 runs are complete' "$tmp/TERM.log" || fail "$(cat "$tmp/TERM.log")"

# ---- mistakes
status 3 bench --pool_blocks=100 --policies=lru,bogus --csv="$tmp/d.csv" replay "$tmp/chat.jsonl"
grep -q 'the master with eviction policy bogus did not start: .*eviction_policy=bogus' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
equal "runs with an unknown policy" "$(wc -l <"$tmp/d.csv")" 1
status 3 bench --pool_blocks=100 --master_program="$tmp/none" replay "$tmp/chat.jsonl"
grep -q "cannot start the master $tmp/none: no such file" "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
status 3 bench --pool_blocks=100 --csv="$tmp/none/a.csv" replay "$tmp/chat.jsonl"
for wrong in --master=127.0.0.1:1 --segment_size=16MiB --keep --plot=a.pdf --pool_blocks=1 --pool_blocks=1k; do
	status 2 bench --pool_blocks=100 "$wrong" replay "$tmp/chat.jsonl"
done
status 2 bench --policies=lru replay "$tmp/chat.jsonl"
grep -q 'policies needs --pool_blocks' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
equal "directories left" "$(ls -A "$tmp/private")" ""
