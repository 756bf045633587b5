#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unmodified dummy clients of upstream (its packages 0.3.13.post1 and 0.3.14 from PyPI) use our mooncake_client over TCP:
# all calls, large values, two clients at a time, clients that are killed or stopped or that shrink their memory, and a
# daemon that is killed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/upstream.sh"
requires curl
upstream_python 0.3.13.post1
script=$top_srcdir/tests/integ/node_upstream.py
start_master --default_kv_lease_ttl=500
lane='' http=''
free_port lane
free_port http
daemon=127.0.0.1:$lane

start_client() {
	spawn node "$top_builddir/node/mooncake_client" --port="$lane" --host=127.0.0.1 --master_server_address="$MASTER" \
		--global_segment_size=400MB --enable_http_server --http_port="$http"
	NODE_PID=$SPAWNED
	started "$NODE_PID" mooncake_client 20 curl -sf "http://127.0.0.1:$http/health"
}
gauge() {
	[ "$(metric "127.0.0.1:$http" "$1")" = "$2" ]
}
# dummy CASE [ARGUMENT...]
dummy() {
	timeout 60 "$UPSTREAM_PYTHON" "$script" "$daemon" "$@" >"$tmp/$1.log" 2>&1 ||
		fail "$1: $(grep -v '^[IWE][0-9]\|^WARNING' "$tmp/$1.log" | tail -n 3)"
}

start_client
dummy all_calls
dummy large
dummy shrink
alive "$NODE_PID" || fail "the daemon has ended"
wait_for 5 gauge mooncake_node_upstream_clients 0
wait_for 5 gauge mooncake_node_upstream_connections 0

timeout 60 "$UPSTREAM_PYTHON" "$script" "$daemon" meet first second >"$tmp/first.log" 2>&1 &
first=$!
dummy meet second first
wait "$first" || fail "the first of two clients failed"

# a killed client
spawn keep "$UPSTREAM_PYTHON" "$script" "$daemon" keep held
keep=$SPAWNED
started "$keep" "a dummy client" 20 grep -q ready "$tmp/keep.log"
gauge mooncake_node_upstream_clients 1 || fail "the client is not counted"
kill_pid "$keep"
wait_for 5 gauge mooncake_node_upstream_clients 0

# a client that is stopped for more than 10 s keeps its memory
spawn silent "$UPSTREAM_PYTHON" "$script" "$daemon" silent "$tmp/continued"
silent=$SPAWNED
started "$silent" "a dummy client" 20 grep -q ready "$tmp/silent.log"
kill -STOP "$silent"
sleep 12
gauge mooncake_node_upstream_clients 1 || fail "a client was dropped while it lives"
kill -CONT "$silent"
touch "$tmp/continued"
wait "$silent" || fail "silent: $(tail -n 1 "$tmp/silent.log")"

# a killed daemon
spawn outlive "$UPSTREAM_PYTHON" "$script" "$daemon" outlive "$tmp/restarted"
outlive=$SPAWNED
started "$outlive" "a dummy client" 20 grep -q ready "$tmp/outlive.log"
kill_pid "$NODE_PID"
started "$outlive" "a dummy client" 20 grep -q failed "$tmp/outlive.log"
start_client
touch "$tmp/restarted"
wait "$outlive" || fail "outlive: $(tail -n 1 "$tmp/outlive.log")"

# another port
"$UPSTREAM_PYTHON" - "127.0.0.1:1" >"$tmp/wrong.log" 2>&1 <<'P' || fail "setup_dummy with a wrong port"
import sys
import mooncake.store as ms
sys.exit(ms.MooncakeDistributedStore().setup_dummy(0, 1 << 20, sys.argv[1]) != -1)
P

# another user
nobody() {
	timeout 20 setpriv --reuid=65534 --clear-groups "$@"
}
if [ "$(id -u)" = 0 ] && nobody /usr/bin/python3 -c ''; then
	nobody /usr/bin/python3 - "$lane" <<'P' || fail "another user was served"
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.settimeout(10)
s.sendall(bytes.fromhex("15000000000000008763689a0000000000000000"))
try:
    sys.exit(s.recv(1) != b"")
except ConnectionResetError:
    pass
P
fi
# the next release, which appends fields to its requests; last, because the test skips without its package
upstream_python 0.3.14
LD_LIBRARY_PATH=$UPSTREAM_LIBRARIES dummy all_calls
stop_pid "$NODE_PID"
