# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# meta_functions.sh - nodes of a metadata server, and checks for all kinds of servers.  The test defines
#
#	server_start	starts a server on $PORT, waits until it answers, sets SERVER_PID
#	CONN		the connection string
#
# A node is tests/integ/meta_node with pipes; that file lists the commands.
: "${tmp:?}" "${top_builddir:?}"
# Texts of dead nodes expire soon, unless a test sets another TTL.
export MC_METADATA_TTL_SEC=5
declare -A NODE_IN=() NODE_OUT=() NODE_PID=()

# node_start NAME CONN [VARIABLE=VALUE...]
node_start() {
	local name=$1 server=$2
	shift 2
	node_run "$name" env "$@" "$top_builddir/tests/integ/meta_node" "$server"
}

# node_run NAME COMMAND... - start a program that reads commands and writes answers, one per line
node_run() {
	local name=$1 in out
	shift
	rm -f "$tmp/$name.in" "$tmp/$name.out"
	mkfifo "$tmp/$name.in" "$tmp/$name.out"
	"$@" <"$tmp/$name.in" >"$tmp/$name.out" 2>>"$tmp/$name.log" &
	NODE_PID[$name]=$!
	cleanup_fn end_pid "$!"
	exec {in}>"$tmp/$name.in" {out}<"$tmp/$name.out"
	NODE_IN[$name]=$in
	NODE_OUT[$name]=$out
}

# hear NAME - print the next line of its output
hear() {
	local line
	read -r -t 40 -u "${NODE_OUT[$1]}" line || fail "no answer from node $1"
	echo "$line"
}

# ask NAME COMMAND - send a command and print the answer
ask() {
	echo "$2" >&"${NODE_IN[$1]}"
	hear "$1"
}

# expect NAME COMMAND ANSWER
expect() {
	equal "$1: $2" "$(ask "$1" "$2")" "$3"
}

# expect_error NAME COMMAND NUMBER TEXT - the command fails with NUMBER and a detail that matches TEXT
expect_error() {
	local said
	said=$(ask "$1" "$2")
	[ "${said%% *}" = "$3" ] || fail "$1: $2: ${said:0:300}, not error $3"
	grep -q -- "$4" <<<"$said" || fail "$1: $2: no '$4' in: ${said:0:300}"
}

says() {
	[ "$(ask "$1" "$2")" = "$3" ]
}

is_gone() {
	[[ "$(ask "$1" "get $2")" == "-2 "* ]]
}

# node_end NAME [SECONDS] - end the node; its exit status must be 0
node_end() {
	local in=${NODE_IN[$1]} out=${NODE_OUT[$1]}
	echo end >&"$in"
	exec {in}>&- {out}<&-
	wait_for "${2:-30}" gone "${NODE_PID[$1]}" || fail "node $1 does not end"
	wait "${NODE_PID[$1]}" || fail "node $1 ended with status $?"
}

node_kill() {
	local in=${NODE_IN[$1]} out=${NODE_OUT[$1]}
	kill_pid "${NODE_PID[$1]}"
	exec {in}>&- {out}<&-
}

# Other nodes see published, replaced and removed texts.
check_texts() {
	node_start a "$CONN"
	node_start b "$CONN"
	expect_error a 'get mooncake/ram/x' -2 'no mooncake/ram/x'
	expect a 'publish mooncake/ram/x {"name":"x y","n":"\u00e9+&?=%41"}' ok
	expect b 'get mooncake/ram/x' '{"name":"x y","n":"\u00e9+&?=%41"}'
	expect a 'publish mooncake/ram/x two' ok
	expect b 'get mooncake/ram/x' two
	expect a 'publish odd/k&e?y=%41+1 é' ok
	expect b 'get odd/k&e?y=%41+1' é
	expect a 'long mooncake/ram/long 1000000' ok
	expect b 'check mooncake/ram/long 1000000' same
	expect a 'rpc n1 10.1.2.3 15000' ok
	expect b 'rpc_get n1' '10.1.2.3 15000'
	expect b 'get mooncake/rpc_meta/n1' '{"ip_or_host_name":"10.1.2.3","rpc_port":15000}'
	expect a 'unpublish mooncake/ram/x' ok
	expect_error b 'get mooncake/ram/x' -2 'no mooncake/ram/x'
	expect a 'unpublish mooncake/ram/x' ok
	expect a 'rpc_unpublish n1' ok
	expect_error b 'rpc_get n1' -2 'rpc_meta/n1'
	expect b 'publish mooncake/rpc_meta/bad {"ip_or_host_name":"h","rpc_port":70000}' ok
	expect_error a 'rpc_get bad' -22 "invalid address record of a node"
	node_end a
	node_end b
}

# A text outlives its TTL while its node lives, and expires soon after the node has ended.
check_expiry() {
	node_start see "$CONN"
	node_start lives "$CONN" MC_METADATA_TTL_SEC=2
	node_start dies "$CONN" MC_METADATA_TTL_SEC=2
	node_start ends "$CONN" MC_METADATA_TTL_SEC=2
	expect lives 'publish mooncake/ram/lives 1' ok
	expect dies 'publish mooncake/ram/dies 1' ok
	expect dies 'rpc dies 127.0.0.1 1' ok
	expect ends 'publish mooncake/ram/ends 1' ok
	node_kill dies
	node_end ends
	wait_for 20 is_gone see mooncake/ram/dies
	wait_for 20 is_gone see mooncake/rpc_meta/dies
	wait_for 20 is_gone see mooncake/ram/ends
	expect see 'get mooncake/ram/lives' 1
	node_end lives
	node_end see
}

# Calls fail while the server is down; a restarted server receives all texts again.
check_outage() {
	node_start c "$CONN" MC_METADATA_TTL_SEC=6 NODE_MS=2000
	node_start see "$CONN" NODE_MS=2000
	expect c 'publish mooncake/ram/c before' ok
	expect c 'publish mooncake/ram/gone before' ok
	kill_pid "$SERVER_PID"
	expect_error see 'get mooncake/ram/c' -111 "127.0.0.1:$PORT"
	expect_error c 'publish mooncake/ram/c during' -111 "127.0.0.1:$PORT"
	expect_error c 'publish mooncake/ram/c2 during' -111 refused
	expect_error c 'unpublish mooncake/ram/gone' -111 refused
	wait_for 10 grep -q 'cannot refresh, keeping the known state' "$tmp/c.log"
	server_start
	wait_for 20 says see 'get mooncake/ram/c' during
	wait_for 20 says see 'get mooncake/ram/c2' during
	wait_for 10 grep -q 'the server is reachable again' "$tmp/c.log"
	wait_for 20 is_gone see mooncake/ram/gone
	# a stopped server: the call ends at its deadline
	stop_still "$SERVER_PID"
	local before=${EPOCHREALTIME/./} took
	expect_error see 'get mooncake/ram/c' -110 "127.0.0.1:$PORT"
	took=$((${EPOCHREALTIME/./} - before))
	[ "$took" -ge 1900000 ] && [ "$took" -lt 8000000 ] || fail "a stopped server took $took us"
	# a text that is published while the previous one is being sent is sent next
	expect_error c 'publish mooncake/ram/c slow' -110 "127.0.0.1:$PORT"
	expect_error c 'publish mooncake/ram/c slower' -110 "127.0.0.1:$PORT"
	kill -CONT "$SERVER_PID"
	wait_for 20 says see 'get mooncake/ram/c' slower
	stop_still "$SERVER_PID"
	# closing does not wait for the stopped server
	node_end c 5
	kill -CONT "$SERVER_PID"
	wait_for 10 is_gone see mooncake/ram/none
	node_end see
}

# The server is started after the node.
check_late() {
	kill_pid "$SERVER_PID"
	node_start early "$CONN" MC_METADATA_TTL_SEC=6 NODE_MS=2000
	expect_error early 'publish mooncake/ram/early 1' -111 refused
	expect_error early 'get mooncake/ram/early' -111 refused
	server_start
	wait_for 20 says early 'get mooncake/ram/early' 1
	node_end early
}

# 1,000 calls leave no descriptor open.
check_descriptors() {
	local before after
	node_start f "$CONN"
	for i in 1 2 3; do
		expect f "publish mooncake/ram/f $i" ok
		expect f 'get mooncake/ram/f' "$i"
	done
	before=$(ask f fds)
	for ((i = 0; i < 250; i++)); do
		expect f "publish mooncake/ram/f $i" ok
		expect f 'get mooncake/ram/f' "$i"
		expect f 'unpublish mooncake/ram/f' ok
		is_gone f mooncake/ram/f
	done
	after=$(ask f fds)
	# the refresher may have opened a connection of its own
	[ "$after" -le $((before + 4)) ] || fail "$before descriptors became $after"
	node_end f
}

check_all() {
	check_texts
	check_expiry
	check_outage
	check_late
	check_descriptors
}
