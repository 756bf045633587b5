#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mooncake_client serves programs that have no memory of their own: at a given port, or
# automatically when it serves the same master.  Users without permission are refused; a program
# that is killed leaves nothing behind.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires python3 curl
unless_sanitized "the library cannot be loaded into a program that is not sanitized"
library=$top_builddir/client/.libs/libmooncake_store.so
[ -e "$library" ] || skip "there is no shared library in this build tree"
start_master
lane='' http=''
free_port lane
free_port http

# start_client PORT [FLAG...]
start_client() {
	spawn "client-$1" "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host=127.0.0.1 \
		--port="$1" --global_segment_size=64MiB --segment_kind=memfd --enable_http_server \
		--http_port="$http" "${@:2}"
	CLIENT_PID=$SPAWNED
}
gauge() {
	[ "$(metric "127.0.0.1:$http" "$1")" = "$2" ]
}

start_client "$lane"
started "$CLIENT_PID" mooncake_client 20 curl -sf "http://127.0.0.1:$http/health"
equal health "$(curl -sf "http://127.0.0.1:$http/health")" '{"status":"healthy","code":0}'

spawn dummy python3 "$top_srcdir/tests/integ/node_client.py" "$library" dummy "127.0.0.1:$lane"
dummy=$SPAWNED
started "$dummy" "the dummy client" 20 grep -q ready "$tmp/dummy.log"
gauge mooncake_node_connections 1 || fail "no connection is counted"
[ "$(metric "127.0.0.1:$http" mooncake_node_ops_total 'op="put"')" -ge 1 ] || fail "no put is counted"
kill_pid "$dummy"
wait_for 10 gauge mooncake_node_connections 0
wait_for 10 gauge mooncake_node_rings 0

# over TCP it serves upstream's clients, see node_upstream.sh
connects "127.0.0.1:$lane" || fail "nothing listens on TCP"
fails timeout 20 python3 "$top_srcdir/tests/integ/node_client.py" "$library" dummy 127.0.0.1:1
grep -q 'mooncake_client_1.sock' "$tmp/fails.out" || { cat "$tmp/fails.out"; fail "the socket is not named"; }

# a second daemon cannot use the same port
fails timeout 20 "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host=127.0.0.1 \
	--port="$lane" --global_segment_size=0
grep -q 'address already in use' "$tmp/fails.out" || { cat "$tmp/fails.out"; fail "the reason"; }

nobody() {
	timeout 20 setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
python=/usr/bin/python3
[ -x "$python" ] || python=python3
if [ "$(id -u)" -eq 0 ] && nobody "$python" -c '' 2>/dev/null; then
	cp "$top_srcdir/tests/integ/node_client.py" "$library" "$tmp" && chmod 755 "$tmp" "$tmp"/*
	nobody "$python" "$tmp/node_client.py" "$tmp/libmooncake_store.so" refused \
		"mooncake_client_$lane.sock" || fail "another user is not refused"
	gauge mooncake_node_refused_total 1 || fail "the refusal is not counted"

	# a daemon of another user at the well-known port receives nothing
	spawn squatter setpriv --reuid=65534 --regid=65534 --clear-groups "$python" "$tmp/node_client.py" \
		"$tmp/libmooncake_store.so" squat mooncake_client_50052.sock
	squatter=$SPAWNED
	ready_or_taken() { grep -qE 'ready|taken' "$tmp/squatter.log"; }
	wait_for 20 ready_or_taken
	if grep -q ready "$tmp/squatter.log"; then
		spawn beside python3 "$top_srcdir/tests/integ/node_client.py" "$library" auto "$MASTER"
		started "$SPAWNED" "the program" 20 grep -q ready "$tmp/beside.log"
		wait_for 20 grep -q came "$tmp/squatter.log"
		grep -q told "$tmp/squatter.log" && fail "another user's program is used as the daemon"
		end_pid "$SPAWNED"
	fi
	end_pid "$squatter"
else
	echo "only root can become another user, so this part is left out"
fi
# upstream's words, for which scripts search
grep -q "Client HTTP server started on port $http\$" "$tmp/client-"*.log || fail "no line about the HTTP server"
stop_pid "$CLIENT_PID"

# Automatically: at the well-known port, if no other program has it.
free_port http
start_client 50052
up_or_taken() { grep -qE 'mooncake_client .* is up|already in use' "$tmp/client-50052.log"; }
wait_for 20 up_or_taken
if grep -q 'is up' "$tmp/client-50052.log"; then
	spawn auto python3 "$top_srcdir/tests/integ/node_client.py" "$library" auto "$MASTER"
	started "$SPAWNED" "the program" 20 grep -q ready "$tmp/auto.log"
	gauge mooncake_node_connections 1 || fail "the daemon is not found"
	[ "$(metric "127.0.0.1:$http" mooncake_node_ops_total 'op="put"')" -ge 1 ] || fail "no put by the daemon"
	# the daemon dies: the program does not
	kill_pid "$CLIENT_PID"
	alive "$SPAWNED" || fail "the program died with the daemon"
else
	echo "another daemon has port 50052, so this part is left out"
fi
