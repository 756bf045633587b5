#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Metadata in a real redis: texts, expiry, outages, password and database, and upstream's keys.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
requires redis-server redis-cli

PASSWORD=''
server_start() {
	spawn redis redis-server --bind 127.0.0.1 --port "$PORT" --save '' --appendonly no --dir "$tmp" \
		${PASSWORD:+--requirepass "$PASSWORD"}
	SERVER_PID=$SPAWNED
	started "$SERVER_PID" redis 20 answers
}
cli() {
	env ${PASSWORD:+"REDISCLI_AUTH=$PASSWORD"} redis-cli -h 127.0.0.1 -p "$PORT" "$@"
}
answers() {
	[ "$(cli ping)" = PONG ]
}

PORT=''
free_port PORT
CONN=redis://127.0.0.1:$PORT
server_start
check_all

# keys and values have upstream's form
node_start u "$CONN" MC_METADATA_TTL_SEC=30
expect u 'publish mooncake/ram/u {"a":1}' ok
equal 'value in redis' "$(cli get mooncake/ram/u)" '{"a":1}'
ttl=$(cli ttl mooncake/ram/u)
[ "$ttl" -gt 0 ] && [ "$ttl" -le 30 ] || fail "ttl $ttl"
cli set mooncake/ram/theirs 'from upstream' >/dev/null
expect u 'get mooncake/ram/theirs' 'from upstream'
cli rpush mooncake/ram/list 1 >/dev/null
expect_error u 'get mooncake/ram/list' -22 WRONGTYPE
node_end u

# an emptied server receives all texts again with the next refresh
node_start again "$CONN" MC_METADATA_TTL_SEC=3
expect again 'publish mooncake/ram/again 1' ok
cli flushall >/dev/null
wait_for 10 says again 'get mooncake/ram/again' 1
node_end again

# of two nodes with one name, the last one is found while it lives; after it is killed, the other
# one is found again
calls() {
	cli info commandstats | awk -F '[=,]' '/^cmdstat_(get|expire):/ { n += $2 } END { print n + 0 }'
}
asked_more() {
	[ "$(calls)" -ge "$1" ]
}
node_start see "$CONN"
node_start first "$CONN" MC_METADATA_TTL_SEC=3
node_start last "$CONN" MC_METADATA_TTL_SEC=3
expect first 'publish mooncake/ram/twin first' ok
expect last 'publish mooncake/ram/twin last' ok
# both nodes have refreshed
wait_for 20 asked_more $(($(calls) + 9))
expect see 'get mooncake/ram/twin' last
node_kill last
wait_for 20 says see 'get mooncake/ram/twin' first
# a value of another type does not disturb other keys
expect first 'publish mooncake/ram/twin2 2' ok
cli del mooncake/ram/twin >/dev/null
cli rpush mooncake/ram/twin 1 >/dev/null
cli del mooncake/ram/twin2 >/dev/null
wait_for 20 says see 'get mooncake/ram/twin2' 2
wait_for 20 says see 'get mooncake/ram/twin' first
node_end first
node_end see

# another database
node_start db3 "$CONN" MC_REDIS_DB_INDEX=3
expect db3 'publish mooncake/ram/in3 1' ok
equal 'database 3' "$(cli -n 3 get mooncake/ram/in3)" 1
equal 'database 0' "$(cli -n 0 get mooncake/ram/in3)" ''
node_end db3
node_start db4 "$CONN/4" MC_REDIS_DB_INDEX=3
expect db4 'publish mooncake/ram/in4 1' ok
equal 'database 4' "$(cli -n 4 get mooncake/ram/in4)" 1
node_end db4
node_start db200 "$CONN/200"
expect_error db200 'get x' -22 'DB index'
node_end db200

# an unexpected, missing, wrong and right password
node_start p0 "$CONN" MC_REDIS_PASSWORD=x
expect_error p0 'get x' -13 'AUTH'
node_end p0
kill_pid "$SERVER_PID"
PASSWORD='s3cret @/%'
server_start
node_start p1 "$CONN"
expect_error p1 'get x' -13 NOAUTH
node_end p1
node_start p2 "$CONN" MC_REDIS_PASSWORD=wrong
expect_error p2 'publish mooncake/ram/x 1' -13 WRONGPASS
expect_error p2 'get mooncake/ram/x' -13 WRONGPASS
node_end p2
node_start p3 "$CONN" MC_REDIS_PASSWORD="$PASSWORD"
expect p3 'publish mooncake/ram/x 1' ok
expect p3 'get mooncake/ram/x' 1
node_end p3
cli acl setuser alice on '>pw' allkeys allcommands >/dev/null
node_start p4 "$CONN" MC_REDIS_USERNAME=alice MC_REDIS_PASSWORD=pw
expect p4 'publish mooncake/ram/y 1' ok
node_end p4
node_start p5 "redis://:s3cret%20%40%2f%25@127.0.0.1:$PORT/2"
expect p5 'publish mooncake/ram/z 1' ok
equal 'by URL' "$(cli -n 2 get mooncake/ram/z)" 1
node_end p5
grep -qr s3cret "$tmp"/*.log && fail 'a password is in a log'

# a server of another kind gives an error and does not hang the client
node_start wrong "etcd://127.0.0.1:$PORT" NODE_MS=3000
[[ "$(ask wrong 'get x')" == -*"127.0.0.1:$PORT"* ]] || fail 'etcd at the address of redis'
node_end wrong
