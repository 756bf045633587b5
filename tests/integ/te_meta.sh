#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Engines that find each other through a metadata server of each kind, and continue while it is down.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
. "${top_srcdir:?}/tests/integ/meta_servers.sh"
requires curl jq

# expect_reason NAME COMMAND TEXT - the command fails with a reason that has TEXT
expect_reason() {
	local said
	said=$(ask "$1" "$2")
	grep -q -- "$3" <<<"$said" || fail "$1: $2: no '$3' in: $said"
}

without_server() {
	kill_pid "$SERVER_PID"
	# open segments still work
	both_ways a b
	# another engine starts nevertheless, and gives the reason why it finds no peer
	engine_start late "${ours[@]}"
	grep -q "out of reach, publishing later: .*127.0.0.1.*$PORT" "$tmp/late.log"
	expect_reason late 'read a 1' "127.0.0.1:$PORT"
	expect_reason a 'read unknown 1' "127.0.0.1:$PORT"
	server_start
	wait_for 20 says c 'read b 5' ok
	# other engines find it once the server is reachable
	expect late 'fill 6' ok
	wait_for 20 says a 'read late 6' ok
	# the server has forgotten a, which publishes again on its next refresh
	expect a 'fill 3' ok
	wait_for 20 says late 'read a 3' ok
	both_ways late a
	both_ways a b
}

# A server that accepts connections and does not answer: only one call waits for it.
with_stopped_server() {
	local before took
	stop_still "$SERVER_PID"
	before=${EPOCHREALTIME/./}
	engine_start slow "${ours[@]}"
	took=$((${EPOCHREALTIME/./} - before))
	[ "$took" -lt 9000000 ] || fail "an engine took $took us to start without an answer"
	both_ways a b
	kill -CONT "$SERVER_PID"
	expect slow 'fill 7' ok
	wait_for 20 says a 'read slow 7' ok
	node_end slow
	both_ways a b
}

# puts - print the number of texts that the server received
puts() {
	curl -sf --noproxy '*' "http://127.0.0.1:$PORT/metrics" |
		sed -n 's/^mooncake_metadata_requests_total{method="put"} //p'
}

# A buffer longer than MC_MAX_MR_SIZE is published in pieces, and transferred as one buffer.
in_pieces() {
	engine_start pieces env MC_MAX_MR_SIZE=65536 "${ours[@]}"
	curl -sf --noproxy '*' "$CONN?key=mooncake/ram/pieces" >"$tmp/segment"
	equal 'pieces' "$(jq -c '[.buffers | length, (map(.length) | add), .[0].length, .[15].length,
		(.[15].addr - .[0].addr)]' "$tmp/segment")" '[16,1000003,65536,16963,983040]'
	both_ways pieces a
	both_ways a pieces
	node_end pieces
}

# An engine that ends does not remove the entries of another engine that has taken its name.
successor() {
	node_run first "${ours[@]}" "$CONN" heir "$LEN"
	equal 'the first' "$(hear first)" ok
	engine_start heir "${ours[@]}"
	expect heir 'fill 8' ok
	node_end first
	engine_start finds "${ours[@]}"
	expect finds 'read heir 8' ok
	node_end finds
	node_end heir
}

# An engine that has removed its entries is found again after it registers memory.
removed() {
	engine_start comes "${ours[@]}"
	expect comes 'fill 9' ok
	expect comes 'remove 0' ok
	expect_reason a 'read comes 9' 'no mooncake/ram/comes'
	expect comes 'batch 1' ok
	expect a 'read comes 9' ok
	expect comes 'remove 0' ok
	node_end comes
}

# Registering a batch of buffers publishes once, and so does unregistering it.
published_once() {
	local before after
	engine_start many env MC_METADATA_TTL_SEC=600 "${ours[@]}"
	# other engines refresh meanwhile
	node_end a
	before=$(puts)
	expect many 'batch 1000' ok
	after=$(puts)
	equal 'texts told for 1,000 buffers' $((after - before)) 2
	node_end many
}

for kind in http etcd redis; do
	server_use "$kind" || continue
	engine_start a "${ours[@]}"
	engine_start b "${ours[@]}"
	both_ways a b
	expect_reason a 'read unknown 1' 'no mooncake/ram/unknown'
	removed
	engine_start c "${ours[@]}"
	without_server
	with_stopped_server
	# c opens the segment that was published again; the entries of a dead node expire
	node_kill b
	node_start see "$CONN"
	wait_for 60 is_gone see mooncake/ram/b
	wait_for 60 is_gone see mooncake/rpc_meta/b
	engine_start d "${ours[@]}"
	expect_reason d 'read b 5' 'no mooncake/ram/b'
	if [ "$kind" = http ]; then
		in_pieces
	else
		successor
	fi
	for node in c d late see; do
		node_end "$node"
	done
	if [ "$kind" = http ]; then
		published_once
	else
		node_end a
	fi
	end_pid "$SERVER_PID"
done
