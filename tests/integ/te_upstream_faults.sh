#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An upstream peer that is stopped, killed, and restarted under its name with another address map,
# in the middle of our transfers.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
. "${top_srcdir:?}/tests/integ/te_mover_functions.sh"
requires curl
UPSTREAM_PYTHON='' PORT='' NODE=''
upstream_python 0.3.13.post1
export MC_TCP_PROGRESS_TIMEOUT_SEC=2 MC_TCP_STATUS_TIMEOUT_SEC=2
# If our own process does not run, which may last seconds when its code is read from a busy disk,
# that time does not count against the peer.  The number of attempts therefore shows whether it gave
# up in time.
late=30000 tries=8
free_port PORT
free_port NODE
spawn meta "$top_builddir/tools/mooncake_http_metadata_server" --host 127.0.0.1 --port "$PORT"
started "$SPAWNED" "the metadata server" 30 connects "127.0.0.1:$PORT"
META=http://127.0.0.1:$PORT/metadata
export ACTOR_PORT=$NODE
upstream_serves theirs 127.0.0.1 $((64 << 20))
equal "its name" "$ANSWER" "127.0.0.1:$NODE"

mover client "$META" 127.0.0.1
told client offer $((64 << 20))
told client open "127.0.0.1:$NODE"
first=$ANSWER
[[ $first == open* ]] || fail "$first"
expect client same echo $((8 << 20))
expect client upstream paths
fds='' threads=''
for op in read write; do
	expect client moving stream $op $((4 << 20)) 1500
	stop_still "${PIDS[theirs]}"
	stream_ends client timeout $((1500 + late))
	kill -CONT "${PIDS[theirs]}"
	expect client same echo $((8 << 20))
	# and without a deadline of the batch
	expect client moving stream $op $((4 << 20)) 0
	stop_still "${PIDS[theirs]}"
	stream_ends client failed $((9000 + late)) $tries
	kill -CONT "${PIDS[theirs]}"
	expect client same echo $((8 << 20))
	# the first round starts threads and connections that stay
	told client count
	[ -n "$fds" ] || read -r fds threads <<<"$ANSWER"
done
expect client moving stream read $((4 << 20)) 0
kill_pid "${PIDS[theirs]}"
stream_ends client failed $((10000 + late)) $((2 * tries))
# the same name, another address range of another length.  Upstream's node cannot replace its own old entries.
for key in rpc_meta ram; do
	curl -sf -m 10 -X DELETE "$META?key=mooncake/$key/127.0.0.1:$NODE" >"$tmp/delete.log" ||
		fail "$key cannot be removed: $(cat "$tmp/delete.log")"
done
upstream_serves theirs 127.0.0.1 $((72 << 20))
told client open "127.0.0.1:$NODE"
[[ $ANSWER == open* ]] || fail "after the restart: $ANSWER"
echo "addresses: ${first#open }, then ${ANSWER#open }"
expect client same echo $((8 << 20))
wait_for 20 no_more client "$fds" "$threads" || fail "descriptors and threads: $ANSWER, before $fds $threads"
