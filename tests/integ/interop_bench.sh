#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Upstream's transfer_engine_bench runs against our target, and ours against upstream's.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
upstream_python 0.3.13.post1
export MC_TCP_BIND_ADDRESS=127.0.0.1
ours=$top_builddir/tools/transfer_engine_bench
# the program itself: the script of that name would run it as a child
theirs=$("$UPSTREAM_PYTHON" -c 'import mooncake; print(list(mooncake.__path__)[0])')/transfer_engine_bench
size=$((64 << 20))

# target NAME PROGRAM - start it; $TARGET is the address in its log
listening() { grep -qoE 'listening on [0-9.]+:[0-9]+' "$tmp/$1.log"; }
target() {
	spawn "$1" "$2" --mode=target --metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 \
		--protocol=tcp --buffer_size="$size"
	started "$SPAWNED" "$1" 60 listening "$1"
	TARGET=$(grep -oE 'listening on [0-9.]+:[0-9]+' "$tmp/$1.log" | head -n 1 | grep -oE '[0-9.]+:[0-9]+')
}

# initiator NAME PROGRAM OPERATION
initiator() {
	timeout 120 "$2" --mode=initiator --metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 \
		--segment_id="$TARGET" --protocol=tcp --operation="$3" --block_size=65536 --batch_size=16 \
		--threads=4 --duration=2 --buffer_size="$size" >"$tmp/$1.log" 2>&1 || fail "$1: $3 against $TARGET"
	grep -qE 'batch count [1-9]' "$tmp/$1.log" || fail "$1: $3 moved no bytes"
	grep -oE 'duration .*throughput.*' "$tmp/$1.log" | sed "s/^/$1, $3: /"
}

target our-target "$ours"
for op in read write; do initiator their-initiator "$theirs" $op; done
end_pid "$SPAWNED"
target their-target "$theirs"
for op in read write; do initiator our-initiator "$ours" $op; done
end_pid "$SPAWNED"
