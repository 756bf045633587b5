#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Engines that find each other by a metadata server of each kind, and go on without it.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
. "${top_srcdir:?}/tests/integ/meta_servers.sh"
requires curl

# expect_reason NAME COMMAND TEXT - it fails, and says why
expect_reason() {
	local said
	said=$(ask "$1" "$2")
	grep -q -- "$3" <<<"$said" || fail "$1: $2: no '$3' in: $said"
}

without_server() {
	kill_pid "$SERVER_PID"
	# open segments do not notice
	both_ways a b
	# another engine is told what is wrong: at its start, or when it opens
	node_run late "${ours[@]}" "$CONN" late "$LEN"
	equal 'an engine without its server' "$(hear late)" 'no engine'
	grep -q "cannot create a transfer engine: .*127.0.0.1.*$PORT" "$tmp/late.log"
	expect_reason a 'read unknown 1' "127.0.0.1:$PORT"
	server_start
	wait_for 20 says c 'read b 5' ok
}

for kind in http etcd redis; do
	server_use "$kind" || continue
	engine_start a "${ours[@]}"
	engine_start b "${ours[@]}"
	both_ways a b
	expect_reason a 'read unknown 1' 'no mooncake/ram/unknown'
	engine_start c "${ours[@]}"
	without_server
	# c opens what came back by itself; what dies is forgotten
	node_kill b
	node_start see "$CONN"
	wait_for 20 is_gone see mooncake/ram/b
	wait_for 20 is_gone see mooncake/rpc_meta/b
	engine_start d "${ours[@]}"
	expect_reason d 'read b 5' 'no mooncake/ram/b'
	for node in a c d see; do
		node_end "$node"
	done
	end_pid "$SERVER_PID"
done
