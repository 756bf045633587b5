#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# transfer_engine_bench between two processes: without a metadata server, and with our HTTP server,
# etcd and redis if they are installed; its output, and its messages for wrong options.  Engines
# that end remove their entries, also when a signal ends them (enableGracefulShutdown).
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl jq
bench=$top_builddir/tools/transfer_engine_bench
small=(--buffer_size=8MiB --block_size=4096 --batch_size=64 --duration=1s --threads=2)

# start_target NAME SERVER [FLAG...] - sets SEGMENT and TARGET_PID
start_target() {
	local name=$1 server=$2
	shift 2
	rm -f "$tmp/target.log"
	spawn target "$bench" --mode=target --local_server_name="$name" --metadata_server="$server" \
		--buffer_size=8MiB "$@"
	TARGET_PID=$SPAWNED
	started "$TARGET_PID" target 20 grep -q 'Target is ready' "$tmp/target.log"
	SEGMENT=$(sed -n 's/^Target is ready, segment //p' "$tmp/target.log")
}

# initiate SERVER [FLAG...] - run an initiator; output in $tmp/out
initiate() {
	local server=$1
	shift
	timeout 120 "$bench" --metadata_server="$server" --local_server_name="me$RANDOM" \
		--segment_id="$SEGMENT" "${small[@]}" "$@" >"$tmp/out" 2>"$tmp/err" ||
		fail "initiator $*: $(cat "$tmp/out" "$tmp/err")"
}

# ---- no server -------------------------------------------------------------------------------------

SEGMENT=''
start_target 127.0.0.1 P2PHANDSHAKE
grep -q "using P2P handshake, listening on $SEGMENT\$" "$tmp/target.log" || fail "$(cat "$tmp/target.log")"
for operation in read write; do
	initiate P2PHANDSHAKE --local_server_name=127.0.0.1 --operation="$operation"
	grep -qE '^Test completed: duration [0-9.]+, batch count [1-9][0-9]*, throughput [0-9]+\.[0-9]{2} GB/s$' \
		"$tmp/out" || fail "$(cat "$tmp/out")"
	initiate P2PHANDSHAKE --local_server_name=127.0.0.1 --operation="$operation" --memory=user --json
	jq -e '.batches > 0 and .failed == 0 and .bytes == .batches * 64 * 4096 and
		.batch_latency_us.p50 > 0 and .operation == "'"$operation"'"' "$tmp/out" >/dev/null ||
		fail "$(cat "$tmp/out")"
done
initiate P2PHANDSHAKE --local_server_name=127.0.0.1 --protocol=efa
equal "warnings about efa" "$(grep -c 'warn protocol: "efa" is not available, continuing with tcp' "$tmp/err")" 1
initiate P2PHANDSHAKE --local_server_name=127.0.0.1 --protocol=rdma --device_name=nosuch0
equal "warnings about rdma" "$(grep -c 'using tcp and shared memory' "$tmp/err")" 1
initiate P2PHANDSHAKE --local_server_name=127.0.0.1 --report_unit=MiB --report_precision=0
grep -qE 'throughput [0-9]+ MiB/s$' "$tmp/out" || fail "$(cat "$tmp/out")"
# ends_with STATUS FLAG - the program ends with that status and a message
ends_with() {
	local status=0
	timeout 60 "$bench" --metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 \
		--segment_id="$SEGMENT" "${small[@]}" "$2" >"$tmp/fails.out" 2>&1 || status=$?
	[ "$status" -eq "$1" ] || fail "$2: status $status, not $1: $(cat "$tmp/fails.out")"
	grep -q 'transfer_engine_bench: ' "$tmp/fails.out" || fail "$2: $(cat "$tmp/fails.out")"
}

for flag in --mode=neither --operation=erase --memory=none --report_unit=furlong --protocol=rmda --protocol=rpc_only; do
	ends_with 2 "$flag"
done
ends_with 2 target
ends_with 1 --block_size=1GiB
ends_with 1 --segment_id=127.0.0.1:1
if timeout 60 "$bench" --metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 --segment_id="$SEGMENT" \
	"${small[@]}" --json >/dev/full 2>"$tmp/full"; then fail "succeeded although the result cannot be written"; fi
grep -q 'standard output' "$tmp/full" || fail "$(cat "$tmp/full")"
# SIGHUP of a closed terminal does not end a target
kill -HUP "$TARGET_PID"
initiate P2PHANDSHAKE --local_server_name=127.0.0.1 --operation=read
stop_pid "$TARGET_PID"

# ---- servers ---------------------------------------------------------------------------------------

# gone SERVER-COMMAND... - the command finds no key of the target
check_server() {
	local server=$1 keys=$2
	start_target target1 "$server"
	equal "name with $server" "$SEGMENT" target1
	initiate "$server"
	initiate "$server" --operation=write --memory=user
	MC_FORCE_TCP=1 initiate "$server" --operation=write
	[ "$("$keys")" -eq 2 ] || fail "$server has $("$keys") entries of the target, not 2"
	stop_pid "$TARGET_PID"
	[ "$("$keys")" -eq 0 ] || fail "$server still has $("$keys") entries of the target"
	# end by a signal, and by exit()
	for how in term exit; do
		local status=0
		spawn graceful "$top_builddir/tests/integ/te_graceful" "$server" target1 "$how"
		wait_for 20 has_entries "$keys" || fail "te_graceful publishes nothing: $(cat "$tmp/graceful.log")"
		kill -USR1 "$SPAWNED"
		wait "$SPAWNED" || status=$?
		[ "$how$status" = term143 ] || [ "$how$status" = exit3 ] || fail "te_graceful $how ended with $status"
		[ "$("$keys")" -eq 0 ] || fail "$server still has entries after $how"
	done
}
has_entries() {
	[ "$("$1")" -eq 2 ]
}

PORT=''
free_port PORT
http_keys() {
	local n=0
	for key in mooncake/ram/target1 mooncake/rpc_meta/target1; do
		curl -sf --noproxy '*' "http://127.0.0.1:$PORT/metadata?key=$key" >/dev/null && n=$((n + 1))
	done
	echo $n
}
export MC_TCP_BIND_ADDRESS=127.0.0.1
spawn http "$top_builddir/tools/mooncake_http_metadata_server" --host=127.0.0.1 --port="$PORT"
started "$SPAWNED" "HTTP server" 20 connects "127.0.0.1:$PORT"
check_server "http://127.0.0.1:$PORT/metadata" http_keys

redis_keys() {
	redis-cli -p "$PORT" -n 3 -a secret --no-auth-warning keys 'mooncake/*/target1' | grep -c target1 || :
}
if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then
	free_port PORT
	spawn redis redis-server --port "$PORT" --requirepass secret --save '' --dir "$tmp"
	started "$SPAWNED" redis 20 connects "127.0.0.1:$PORT"
	MC_REDIS_PASSWORD=secret MC_REDIS_DB_INDEX=3 check_server "redis://127.0.0.1:$PORT" redis_keys
fi

etcd_keys() {
	curl -sf --noproxy '*' "http://127.0.0.1:$PORT/v3/kv/range" -d '{"key":"'"$(printf mooncake/ | base64)"'",
		"range_end":"'"$(printf mooncake0 | base64)"'","keys_only":true}' |
		jq -r '.kvs // [] | .[].key | @base64d' | grep -c '/target1$' || :
}
PEER_PORT=''
if command -v etcd >/dev/null; then
	free_port PORT
	free_port PEER_PORT
	spawn etcd etcd --name n --data-dir "$tmp/etcd" --listen-client-urls "http://127.0.0.1:$PORT" \
		--advertise-client-urls "http://127.0.0.1:$PORT" \
		--listen-peer-urls "http://127.0.0.1:$PEER_PORT" \
		--initial-advertise-peer-urls "http://127.0.0.1:$PEER_PORT" \
		--initial-cluster "n=http://127.0.0.1:$PEER_PORT" --log-level error
	started "$SPAWNED" etcd 30 curl -sf --noproxy '*' --max-time 2 "http://127.0.0.1:$PORT/health"
	check_server "etcd://127.0.0.1:$PORT" etcd_keys
fi
