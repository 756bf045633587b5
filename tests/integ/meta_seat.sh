#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Leases of leaders on a real etcd with three members and on a real redis: one leader at a time, terms that only grow,
# members, an orderly end, a killed leader, a stopped one, servers that are away or have lost their data.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
requires curl
TTL=2000

seat() {
	node_run "$1" "$top_builddir/tests/integ/seat_node" "$CONN" "${CLUSTER:-c}" "$1:1" "$TTL"
}

# B leads with term 70, and A replaces it during its lease, once: B's lease is lost.
check_replace() {
	expect b 'members a:1' ok
	expect_error a replace -11 'the state has changed'
	expect b 'members a:1,b:1' ok
	expect a look 'term=70 leader=b:1 members=a:1,b:1'
	expect a replace 'term=71'
	expect a leads yes
	expect_error b 'members b:1' -1010 'another master leads'
	expect a look 'term=71 leader=a:1 members=a:1,b:1'
	expect a renew ok
	# The end of the replaced leader does not end the lease of the next one.
	expect b look 'term=71 leader=a:1 members=a:1,b:1'
	expect b replace 'term=72'
	expect a leave ok
	expect a look 'term=72 leader=b:1 members=a:1,b:1'
	expect_error a renew -1010 'does not lead'
	expect b renew ok
	# Both replace the same leader: one of them leads.
	expect b look 'term=72 leader=b:1 members=a:1,b:1'
	expect a replace 'term=73'
	expect_error b replace -11 'another master leads'
	expect a leave ok
	expect b look 'term=73 leader= members=a:1,b:1'
	expect_error b replace -11 'could be replaced'
	expect b take 'term=74'
}

# nodes A and B; A leads with @1
check_two() {
	local term
	seat a
	seat b
	expect a look 'term=0 leader= members='
	expect b look 'term=0 leader= members='
	expect a take 'term=1'
	expect a leads yes
	# B has seen an older state.
	expect_error b take -11 'another master leads'
	expect b leads no
	expect b look 'term=1 leader=a:1 members=a:1'
	expect_error b take -11 'another master leads'
	expect a 'members a:1,b:1' ok
	expect b look 'term=1 leader=a:1 members=a:1,b:1'
	expect_error b 'members b:1' -1010 'does not lead'
	# A given back lease is free at once, and the term grows; the new leader may ask for a higher one.
	expect a leave ok
	expect a leads no
	expect_error a renew -1010 'does not lead'
	expect b look 'term=1 leader= members=a:1,b:1'
	expect b 'take 70' 'term=70'
	expect a look 'term=70 leader=b:1 members=a:1,b:1'
	check_replace
	# A killed leader's lease expires, not earlier than it may still lead.
	node_kill b
	expect_error a take -11 'another master leads'
	wait_for 8 taken a
	expect a look 'term=75 leader=a:1 members=a:1,b:1'
	expect a renew ok
}

taken() {
	[[ "$(ask "$1" look)" == *' leader= '* ]] && [ "$(ask "$1" take)" = "term=${2:-75}" ]
}

# A leads: it is stopped longer than its lease, and another node leads meanwhile.
check_stopped() {
	seat b
	kill -STOP "${NODE_PID[a]}"
	wait_for 8 taken b 76
	kill -CONT "${NODE_PID[a]}"
	expect a leads no
	expect_error a 'members a:1' -1010 'another master leads'
	expect_error a renew -1010 'does not lead'
	expect b leads yes
	expect b renew ok
	expect a look 'term=76 leader=b:1 members=a:1,b:1'
	expect b leave ok
}

# Both try at the same time, with the same view: one of them leads.
check_races() {
	local won i
	for ((i = 0; i < 20; i++)); do
		ask a look >/dev/null
		ask b look >/dev/null
		echo take >&"${NODE_IN[a]}"
		echo take >&"${NODE_IN[b]}"
		won=$(printf '%s\n' "$(hear a)" "$(hear b)" | grep -c '^term=' || :)
		equal "leaders in race $i" "$won" 1
		ask a leave >/dev/null
		ask b leave >/dev/null
	done
}

# Without its server a leader leads until its lease ends by its own clock.
check_away() {
	ask a look >/dev/null
	ask a take >/dev/null
	expect a leads yes
	server_away
	[[ "$(ask a renew)" == -* ]] || fail "the lease is prolonged without a server"
	wait_for 8 says a leads no
	server_back
}

peers=''
etcd_member() {
	spawn "etcd$1" etcd --name "n$1" --data-dir "$tmp/etcd$1" --listen-client-urls "http://127.0.0.1:${client[$1]}" \
		--advertise-client-urls "http://127.0.0.1:${client[$1]}" --listen-peer-urls "http://127.0.0.1:${peer[$1]}" \
		--initial-advertise-peer-urls "http://127.0.0.1:${peer[$1]}" --initial-cluster "$peers" --log-level error
	member[$1]=$SPAWNED
}
etcd_answers() {
	curl -sf --noproxy '*' --max-time 2 "http://127.0.0.1:${client[$1]}/health" | found '"true"'
}

declare -A client=() peer=() member=()
if command -v etcd >/dev/null; then
	for i in 1 2 3; do
		free_port PORT
		client[$i]=$PORT
		free_port PORT
		peer[$i]=$PORT
		peers+="${peers:+,}n$i=http://127.0.0.1:$PORT"
	done
	for i in 1 2 3; do etcd_member $i; done
	for i in 1 2 3; do wait_for 30 etcd_answers $i; done
	CONN="etcd://127.0.0.1:${client[1]};127.0.0.1:${client[2]},127.0.0.1:${client[3]}"
	server_away() { kill -STOP "${member[2]}" "${member[3]}"; }
	server_back() { kill -CONT "${member[2]}" "${member[3]}"; }
	check_two
	check_stopped
	check_races
	# One member less: the others serve.
	kill_pid "${member[1]}"
	# etcd may have to elect its own leader first
	takes() { ask b look >/dev/null; [[ "$(ask b take)" == term=* ]]; }
	wait_for 20 takes || fail "no leader with two members of etcd"
	expect b leave ok
	etcd_member 1
	wait_for 30 etcd_answers 1
	check_away
	wait_for 20 eval '[[ "$(ask b look)" == term=* ]]'
	# A person deletes the key: the lease is lost.
	ask b look >/dev/null
	wait_for 8 eval '[[ "$(ask b look)" == *leader=\ * && "$(ask b take)" == term=* ]]'
	curl -sf --noproxy '*' "http://127.0.0.1:${client[2]}/v3/kv/deleterange" \
		-d "{\"key\":\"$(printf mooncake-store/c/master_view | base64)\"}" >/dev/null
	expect_error b renew -1010 'is not ours'
	node_end a
	node_end b
else
	echo "etcd is not installed"
fi

command -v redis-server >/dev/null || skip "redis-server is not installed"
PORT=''
free_port PORT
CONN=redis://127.0.0.1:$PORT
server_start() {
	spawn redis redis-server --bind 127.0.0.1 --port "$PORT" --save '' --appendonly no --dir "$tmp"
	SERVER_PID=$SPAWNED
	started "$SERVER_PID" redis 20 connects "127.0.0.1:$PORT"
}
server_away() { kill -STOP "$SERVER_PID"; }
server_back() { kill -CONT "$SERVER_PID"; }
server_start
check_two
check_stopped
check_races
check_away
# The server restarts without its data: the lease is lost, and a term that a master knows is not given again.
wait_for 8 eval '[[ "$(ask b look)" == *leader=\ * ]]'
term=$(ask b take)
kill_pid "$SERVER_PID"
server_start
expect_error b renew -1010 'lost'
expect a look 'term=0 leader= members='
expect a "take $((${term#term=} + 1))" "term=$((${term#term=} + 1))"
node_end a
node_end b

# Servers without leases, and mistakes.
fails "$top_builddir/tests/integ/seat_node" http://127.0.0.1:1/metadata c a:1 1000
grep -q 'no leases: use etcd or redis' "$tmp/fails.out"
fails "$top_builddir/tests/integ/seat_node" "$CONN" c 'a,b' 1000
grep -q 'invalid name' "$tmp/fails.out"
