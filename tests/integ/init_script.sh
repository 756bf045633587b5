#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The init script starts, reports, restarts and stops the master; starting it twice does no harm.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_root
requires curl start-stop-daemon
[ -r /lib/lsb/init-functions ] || skip "no LSB init functions"
requires_plain_program "$top_builddir/master/mooncake_master"

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
cleanup_fn "$tmp/init" stop

fails "$tmp/init" status
"$tmp/init" start
wait_for 20 serves
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
wait_for 20 serves
[ "$(cat "$tmp/pid")" != "$pid" ] || fail "restart kept the process"
gone "$pid" || fail "the old process is still there"

pid=$(cat "$tmp/pid")
"$tmp/init" stop
gone "$pid" || fail "stop returned before the process had ended"
fails "$tmp/init" status
"$tmp/init" stop
fails "$tmp/init" nonsense
