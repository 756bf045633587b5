#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Metadata in a real etcd: texts, leases, outages, loss of all data, several members, and upstream's keys.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
requires etcd curl jq base64

server_start() {
	spawn etcd etcd --name n --data-dir "$tmp/etcd" --listen-client-urls "http://127.0.0.1:$PORT" \
		--advertise-client-urls "http://127.0.0.1:$PORT" \
		--listen-peer-urls "http://127.0.0.1:$PEER_PORT" \
		--initial-advertise-peer-urls "http://127.0.0.1:$PEER_PORT" \
		--initial-cluster "n=http://127.0.0.1:$PEER_PORT" --log-level error
	SERVER_PID=$SPAWNED
	started "$SERVER_PID" etcd 30 answers
}
answers() {
	curl -sf --noproxy '*' --max-time 2 "http://127.0.0.1:$PORT/health" | found '"true"'
}
# etcd_do CALL JSON
etcd_do() {
	curl -sf --noproxy '*' --max-time 10 "http://127.0.0.1:$PORT/v3/$1" -d "$2"
}
key64() {
	printf %s "$1" | base64 -w 0
}
leases() {
	etcd_do kv/lease/leases '{}' | jq '.leases | length'
}

PORT='' PEER_PORT='' DEAD_PORT=''
free_port PORT
free_port PEER_PORT
free_port DEAD_PORT
CONN=etcd://127.0.0.1:$PORT
server_start
check_all

# keys and values have upstream's form; our keys are attached to a lease
node_start u "127.0.0.1:$PORT" MC_METADATA_TTL_SEC=30
expect u 'publish mooncake/ram/u {"a":1}' ok
expect u 'publish mooncake/ram/u2 2' ok
etcd_do kv/range "{\"key\":\"$(key64 mooncake/ram/u)\"}" >"$tmp/range"
equal 'value in etcd' "$(jq -r '.kvs[0].value' "$tmp/range" | base64 -d)" '{"a":1}'
lease=$(jq -r '.kvs[0].lease' "$tmp/range")
equal 'lease of the other key' "$lease" \
	"$(etcd_do kv/range "{\"key\":\"$(key64 mooncake/ram/u2)\"}" | jq -r '.kvs[0].lease')"
etcd_do kv/put "{\"key\":\"$(key64 mooncake/ram/theirs)\",\"value\":\"$(key64 'from upstream')\"}" >/dev/null
expect u 'get mooncake/ram/theirs' 'from upstream'
etcd_do kv/put "{\"key\":\"$(key64 mooncake/ram/empty)\"}" >/dev/null
expect u 'get mooncake/ram/empty' ''
etcd_do kv/put "{\"key\":\"$(key64 mooncake/ram/nul)\",\"value\":\"AAEC\"}" >/dev/null
expect_error u 'get mooncake/ram/nul' -22 'not text'
# a text that is too long for etcd
expect_error u 'long mooncake/ram/longer 3000000' -90 'larger than max\|too large'
expect_error u 'get mooncake/ram/longer' -2 'no mooncake'
node_end u

# one of our texts that is deleted, or replaced by an older one of ours, is put again; another
# node's text stays
etcd_delete() {
	etcd_do kv/deleterange "{\"key\":\"$(key64 "$1")\"}" >/dev/null
}
node_start heals "$CONN" MC_METADATA_TTL_SEC=3
expect heals 'publish mooncake/ram/heals 2' ok
expect heals 'publish mooncake/ram/theirs2 ours' ok
expect heals 'publish mooncake/ram/last 1' ok
etcd_delete mooncake/ram/heals
wait_for 20 says heals 'get mooncake/ram/heals' 2
lease=$(etcd_do kv/range "{\"key\":\"$(key64 mooncake/ram/heals)\"}" | jq -r '.kvs[0].lease')
etcd_do kv/put "{\"key\":\"$(key64 mooncake/ram/heals)\",\"value\":\"$(key64 1)\",\"lease\":\"$lease\"}" >/dev/null
wait_for 20 says heals 'get mooncake/ram/heals' 2
node_start heir "$CONN"
expect heir 'publish mooncake/ram/theirs2 theirs' ok
for i in 1 2; do
	etcd_delete mooncake/ram/last
	wait_for 20 says heals 'get mooncake/ram/last' 1
done
expect heir 'get mooncake/ram/theirs2' theirs
expect heals 'unpublish mooncake/ram/theirs2' ok
expect heals 'unpublish mooncake/ram/heals' ok
expect heir 'get mooncake/ram/theirs2' theirs
is_gone heir mooncake/ram/heals
node_end heals
node_end heir

# the lease is revoked: all keys are put again with another lease
node_start again "$CONN" MC_METADATA_TTL_SEC=3
expect again 'publish mooncake/ram/again 1' ok
expect again 'publish mooncake/ram/again2 2' ok
lease=$(etcd_do kv/range "{\"key\":\"$(key64 mooncake/ram/again)\"}" | jq -r '.kvs[0].lease')
etcd_do kv/lease/revoke "{\"ID\":\"$lease\"}" >/dev/null
# a put finds the revoked lease first; the other key must nevertheless be put again
expect again 'publish mooncake/ram/again 3' ok
wait_for 10 says again 'get mooncake/ram/again2' 2
expect again 'get mooncake/ram/again' 3

# a cluster that lost all data
kill_pid "$SERVER_PID"
rm -rf "$tmp/etcd"
server_start
wait_for 20 says again 'get mooncake/ram/again' 3
wait_for 20 says again 'get mooncake/ram/again2' 2
node_end again

# a dead member, first or last in the list, does no harm
node_start m1 "etcd://127.0.0.1:$DEAD_PORT,127.0.0.1:$PORT"
expect m1 'publish mooncake/ram/m1 1' ok
node_start m2 "127.0.0.1:$DEAD_PORT,http://127.0.0.1:$PORT"
expect m2 'get mooncake/ram/m1' 1
node_end m1
node_end m2

# a node has one lease, however often it publishes: all other leases of this test expire
node_start l "$CONN" MC_METADATA_TTL_SEC=2
for ((i = 0; i < 50; i++)); do
	expect l "publish mooncake/ram/l$i $i" ok
done
one_lease() {
	[ "$(leases)" -eq 1 ]
}
wait_for 60 one_lease
node_end l

# users: the client requests a token, requests it again when etcd has forgotten it; other users are refused
etcd_do auth/user/add '{"name":"root","password":"r00t"}' >/dev/null
etcd_do auth/user/add '{"name":"al ice","password":"s3cret @/%"}' >/dev/null
etcd_do auth/role/add '{"name":"root"}' >/dev/null
etcd_do auth/role/add '{"name":"mooncake"}' >/dev/null
etcd_do auth/role/grant "{\"name\":\"mooncake\",\"perm\":{\"permType\":\"READWRITE\",
	\"key\":\"$(key64 mooncake/)\",\"range_end\":\"$(key64 mooncake0)\"}}" >/dev/null
etcd_do auth/user/grant '{"user":"root","role":"root"}' >/dev/null
etcd_do auth/user/grant '{"user":"al ice","role":"mooncake"}' >/dev/null
node_start early "etcd://al%20ice:s3cret%20%40%2f%25@127.0.0.1:$PORT"
expect_error early 'get mooncake/ram/x' -13 'authentication is not enabled'
etcd_do auth/enable '{}' >/dev/null
node_start nobody "$CONN"
expect_error nobody 'publish mooncake/ram/x 1' -13 'user name is empty'
node_end nobody
node_start wrong "etcd://al%20ice:wrong@127.0.0.1:$PORT"
expect_error wrong 'publish mooncake/ram/x 1' -13 'authentication failed'
node_end wrong
expect early 'publish mooncake/ram/x 1' ok
expect early 'get mooncake/ram/x' 1
expect_error early 'publish elsewhere/x 1' -13 'permission denied'
# etcd keeps tokens in memory only
kill_pid "$SERVER_PID"
server_start
expect early 'publish mooncake/ram/x 2' ok
expect early 'get mooncake/ram/x' 2
node_end early
grep -qr s3cret "$tmp"/*.log && fail 'a password is in a log'
true
