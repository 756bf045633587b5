#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The init script starts, reports, restarts and stops the master; starting it twice does no harm.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_root
requires curl start-stop-daemon
[ -r /lib/lsb/init-functions ] || skip "no LSB init functions"
requires_plain_program "$top_builddir/master/mooncake_master"

mkdir -m 0700 "$tmp/unreachable"
chmod 755 "$tmp"
rpc='' http='' busy=''
free_port rpc
free_port http
mkdir -p "$tmp/default"
echo "v: 0" >"$tmp/master.yaml"
cat >"$tmp/default/mooncake-master" <<SH
PIDFILE=$tmp/pid
RUN_AS=root
LOG_DIR=$tmp/log
STATE_DIR=$tmp/state
MASTER_OPTIONS="--config_path=$tmp/master.yaml --rpc_address=127.0.0.1 --rpc_port=$rpc --metrics_host=127.0.0.1 --metrics_port=$http"
SH
sed -e "s|@bindir@|$top_builddir/master|g" -e "s|@sysconfdir@|$tmp|g" \
	"$top_srcdir/init/mooncake-master.in" >"$tmp/init"
chmod +x "$tmp/init"
serves() { master_serves "127.0.0.1:$http"; }
# ended PID - its program has ended; the kernel may still free the memory of its other threads
ended() { gone "$1" || grep -q '^State:.*zombie' "/proc/$1/status" 2>/dev/null; }
cleanup_fn "$tmp/init" stop

fails "$tmp/init" status
# start fails when the master does not serve, and says why: a port in use, a wrong option, a log that it cannot write
cannot_start() { # cannot_start WORDS LINE-OF-SETTINGS
	cp "$tmp/default/mooncake-master" "$tmp/settings"
	echo "$2" >>"$tmp/default/mooncake-master"
	fails "$tmp/init" start
	grep -q -- "$1" "$tmp/fails.out" || fail "no \"$1\" in: $(cat "$tmp/fails.out")"
	fails "$tmp/init" status
	cp "$tmp/settings" "$tmp/default/mooncake-master"
}
free_port busy
spawn busy python3 -c "import socket, time; s = socket.create_server(('127.0.0.1', $busy)); time.sleep(600)"
wait_for 20 connects "127.0.0.1:$busy"
cannot_start "does not serve: .*address already in use: .*:$busy" \
	"MASTER_OPTIONS=\"\$MASTER_OPTIONS --rpc_port=$busy\""
cannot_start 'did you mean --rpc_port' 'MASTER_OPTIONS="$MASTER_OPTIONS --rpc_prot=1"'
cannot_start "does not serve: .*the log $tmp/unreachable/log: permission denied" "RUN_AS=nobody LOG_DIR=$tmp/unreachable/log"
end_pid "$SPAWNED"
# it returns when the master serves
"$tmp/init" start
serves || fail "start returned before the master served"
"$tmp/init" status
pid=$(cat "$tmp/pid")
"$tmp/init" start
equal "pid after a second start" "$(cat "$tmp/pid")" "$pid"
[ -n "$(ls "$tmp/log")" ] || fail "no log file"

# the journal directory keeps the index
[ -n "$(ls "$tmp/state")" ] || fail "no journal"
# reload changes the log level and keeps the process
echo "v: 2" >"$tmp/master.yaml"
"$tmp/init" reload
wait_for 10 grep -rq "debug main: log options reloaded" "$tmp/log"
equal "pid after reload" "$(cat "$tmp/pid")" "$pid"

"$tmp/init" restart
serves || fail "restart returned before the master served"
[ "$(cat "$tmp/pid")" != "$pid" ] || fail "restart kept the process"
ended "$pid" || fail "the old process is still there"

pid=$(cat "$tmp/pid")
"$tmp/init" stop
ended "$pid" || fail "stop returned before the process had ended"
fails "$tmp/init" status
"$tmp/init" stop
fails "$tmp/init" nonsense
