#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine that starts while the metadata server is down; a dead or a live node has a record with its name.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
. "${top_srcdir:?}/tests/integ/meta_servers.sh"
requires curl python3 jq
SERVER_FLAGS=(--persist "$tmp/file")

http() {
	curl -s --noproxy '*' --max-time 10 "$@"
}
record() {
	echo "{\"ip_or_host_name\": \"${2:-127.0.0.1}\", \"rpc_port\": $1}"
}
# put_record NAME PORT [HOST] - a record as of upstream's nodes, which never expires
put_record() {
	local key=mooncake/rpc_meta/$1
	case $KIND in
	http) http -f -X PUT -d "$(record "${@:2}")" "$CONN?key=$key" ;;
	etcd) http -f -d "{\"key\":\"$(printf %s "$key" | base64 -w0)\",
		\"value\":\"$(record "${@:2}" | tr -d '\n' | base64 -w0)\"}" "http://127.0.0.1:$PORT/v3/kv/put" ;;
	esac >/dev/null
}
has_text() {
	[ "$(http "$CONN?key=$1")" = "$2" ]
}
expect_error_start() {
	node_run "$1" "${ours[@]}" "$CONN" "$1" "$LEN"
	equal "$1" "$(hear "$1")" 'no engine'
}

dead=''
free_port dead
live=''
free_port live
for kind in http etcd; do
	server_use "$kind" || continue
	engine_start see "${ours[@]}"
	put_record heir "$dead"
	kill_pid "$SERVER_PID"
	# the port refuses connections, so the engine gets the name as soon as the server is reachable
	engine_start heir "${ours[@]}"
	expect heir 'fill 3' ok
	server_start
	wait_for 30 says see 'read heir 3' ok
	both_ways see heir
	[ "$kind" != http ] || grep -q "taking over the name of a dead node: .*port=$dead" "$tmp/heir.log"
	node_end heir
	node_end see
	[ "$kind" = http ] || { end_pid "$SERVER_PID"; continue; }

	# another node, or our own engine, has the dead node's port now: neither is that node
	engine_start other "${ours[@]}"
	read -r host port < <(http "$CONN?key=mooncake/rpc_meta/other" | jq -r '.ip_or_host_name + " " + (.rpc_port | tostring)')
	put_record reused "$port" "$host"
	engine_start reused "${ours[@]}"
	node_end reused
	node_end other
	own=''
	free_port own
	put_record "127.0.0.1:$own" "$own"
	engine_start "127.0.0.1:$own" env MC_LEGACY_RPC_PORT_BINDING=1 "${ours[@]}"
	node_end "127.0.0.1:$own"

	# the state of that node is unknown here: the kernel does not connect to such an address
	put_record far 15000 255.255.255.255
	http -f -X PUT -d theirs "$CONN?key=mooncake/ram/far" >/dev/null
	expect_error_start far
	grep -q 'is the name of the node at 255.255.255.255' "$tmp/far.log"
	has_text mooncake/rpc_meta/far "$(record 15000 255.255.255.255)"
	has_text mooncake/ram/far theirs

	# that node lives: its entries are not replaced or removed, and registering memory fails with the reason
	spawn daemon python3 -m http.server --bind 127.0.0.1 "$live"
	daemon=$SPAWNED
	started "$daemon" daemon 20 connects "127.0.0.1:$live"
	put_record two "$live"
	http -f -X PUT -d theirs "$CONN?key=mooncake/ram/two" >/dev/null
	kill_pid "$SERVER_PID"
	engine_start two "${ours[@]}"
	server_start
	wait_for 20 grep -q "another node has our name.*127.0.0.1:$live" "$tmp/two.log"
	equal 'registering' "$(ask two 'batch 3')" 'registerLocalMemoryBatch fails'
	has_text mooncake/ram/two theirs
	has_text mooncake/rpc_meta/two "$(record "$live")"
	# the engine ends without removing entries of the other
	node_end two
	has_text mooncake/ram/two theirs
	has_text mooncake/rpc_meta/two "$(record "$live")"
	# with a reachable server the engine fails at once
	expect_error_start two
	grep -q "is the name of the node at 127.0.0.1:$live" "$tmp/two.log"

	# when the node ends, its waiting successor gets the name
	kill_pid "$SERVER_PID"
	engine_start two "${ours[@]}"
	expect two 'fill 6' ok
	: >"$tmp/two.log"
	server_start
	wait_for 20 grep -q "another node has our name" "$tmp/two.log"
	kill_pid "$daemon"
	engine_start see "${ours[@]}"
	wait_for 30 says see 'read two 6' ok
	equal 'registering' "$(ask two 'batch 3')" ok
	grep -q 'the name is ours again' "$tmp/two.log" || fail "no word of it: $(cat "$tmp/two.log")"
	node_end two
	node_end see
	end_pid "$SERVER_PID"
done
