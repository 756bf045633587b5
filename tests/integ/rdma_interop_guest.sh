#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdma_interop_guest.sh BUILD SOURCE PYTHON UPSTREAM_PYTHON UPSTREAM_BENCH - the part of rdma_interop.sh that runs in the
# virtual machine, as root, with the NICs rxe0 and rxe1.  Prints "case NAME MS" for each case.
set -euo pipefail
build=$1 source=$2 bench=$5
python=$3 upstream=$4
work=$(mktemp -d)
cd "$work"
ulimit -l unlimited
unset PYTHONPATH
# Both nodes are in one machine, where our engine would use no NIC.
export MC_RDMA_SAME_HOST=1 PYTHONDONTWRITEBYTECODE=1
# shellcheck source=tests/lib/guest.sh
. "$source/tests/lib/guest.sh"

declare -A in=() pid=() segment=()

# node NAME ours|theirs NIC BYTES - start a node; sets ${segment[NAME]}
node() {
	local run=("$upstream") fd
	[ "$2" = theirs ] || run=(env PYTHONPATH="$build/python/lib" "$python")
	rm -f "$1.in" "$1.out"
	mkfifo "$1.in"
	"${run[@]}" "$source/tests/integ/rdma_node.py" 127.0.0.1 "$3" "$4" <"$1.in" >"$1.out" 2>"$1.log" &
	pid[$1]=$!
	exec {fd}>"$1.in"
	in[$1]=$fd
	wait_until "node $1 does not start" test -s "$1.out"
	segment[$1]=$(head -n 1 "$1.out")
}

# ask NAME TARGET THREADS SIZE... - the answer is line ${asked[NAME]} of its output
ask() {
	local name=$1 target=$2
	shift 2
	echo "${segment[$target]} $*" >&"${in[$name]}"
}

lines() { [ "$(wc -l <"$1.out")" -ge "$2" ]; }

# answers NAME LINE - that line of its output, the first one is its name, says ok
answers() {
	wait_until "no answer from node $1" lines "$1" "$2"
	[ "$(sed -n "$2p" "$1.out")" = ok ] || fail "node $1: $(sed -n "$2p" "$1.out")"
}

# The last one started comes first: it has inherited the input of the others.
end() {
	local fd name
	for name; do
		fd=${in[$name]}
		exec {fd}>&-
		wait "${pid[$name]}" || fail "node $name ended with status $?"
	done
}

sizes() {
	node owner "$1" rxe0 $((64 << 20))
	node asker "$2" rxe1 4096
	ask asker owner 1 1 64 4096 65537 1000003 $((64 << 20))
	answers asker 2
	ask asker owner 8 1 100 65536 1048577
	answers asker 3
	end asker owner
}

theirs_asks_ours() { sizes ours theirs; }
ours_asks_theirs() { sizes theirs ours; }

# The NIC reads and writes the memory that our engine has freed and allocated again.
managed() {
	node owner theirs rxe0 $((16 << 20))
	MANAGED=1 node asker ours rxe1 4096
	for line in 2 3 4; do
		ask asker owner 1 $((2 << 20)) $((1 << 20)) $((line * 4096))
		answers asker $line
	done
	end asker owner
}

# Both connect at one time, and then use one pair of queue pairs in both directions.
both_at_once() {
	for _ in 1 2 3; do
		node a ours rxe0 $((16 << 20))
		node b theirs rxe1 $((16 << 20))
		ask a b 4 100 65536 1048576
		ask b a 4 100 65536 1048576
		answers a 2
		answers b 2
		ask a b 1 4096
		answers a 3
		ask b a 1 4096
		answers b 3
		end b a
	done
}

# An upstream node is killed; another one is found after it.
killed() {
	local begin=$SECONDS
	node a ours rxe0 4096
	node b theirs rxe1 $((16 << 20))
	ask a b 1 65536
	answers a 2
	kill -9 "${pid[b]}"
	ask a b 1 65536
	wait_until "no answer after the node was killed" lines a 3
	[ "$(sed -n 3p a.out)" != ok ] || fail "a transfer to a killed node succeeds"
	[ $((SECONDS - begin)) -lt 20 ] || fail "it took $((SECONDS - begin)) s to notice that the node was killed"
	node b theirs rxe1 $((16 << 20))
	ask a b 1 65536
	answers a 4
	end b a
}

# bench TARGET INITIATOR NAME
benches() {
	local base=(--metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 --protocol=rdma --buffer_size=33554432)
	"$1" "${base[@]}" --device_name=rxe0 --mode=target >target.log 2>&1 &
	local target=$!
	wait_until "the target does not listen" grep -q 'listening on [^ ]*:[0-9]' target.log
	for operation in read write; do
		timeout 60 "$2" "${base[@]}" --device_name=rxe1 --operation=$operation --block_size=65536 --batch_size=8 \
			--duration=2 --threads=2 \
			--segment_id="$(sed -n 's/.*listening on \([^ ]*:[0-9]*\).*/\1/p' target.log | head -n 1)" >bench.log 2>&1 ||
			fail "the bench fails: $(tail -n 5 bench.log)"
		grep -qE 'batch count [1-9]' bench.log || fail "the bench moves nothing: $(tail -n 5 bench.log)"
		echo "bench $3 $operation $(sed -n 's/.*throughput //p' bench.log)"
	done
	kill "$target"
	wait "$target" || :
}

bench_theirs_to_ours() { benches "$build/tools/transfer_engine_bench" "$bench" theirs_to_ours; }
bench_ours_to_theirs() { benches "$bench" "$build/tools/transfer_engine_bench" ours_to_theirs; }

cases theirs_asks_ours ours_asks_theirs managed both_at_once killed bench_theirs_to_ours bench_ours_to_theirs
