#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mooncake_master as an operator uses it: help, invalid options, busy ports, config files, logs, signals.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl
master=$top_builddir/master/mooncake_master

# help and version
"$master" --help >"$tmp/help"
grep -q -- '--default_kv_lease_ttl=MS' "$tmp/help"
"$master" --version >"$tmp/version"
grep -q mooncake_master "$tmp/version"
"$master" --print_config --eviction_ratio 0.2 >"$tmp/config"
grep -q '^eviction_ratio = 0.2' "$tmp/config"
"$master" --help=man >"$tmp/man"
grep -q 'eviction_high_watermark_ratio' "$tmp/man"

# clear errors: one line that names the cause, a status that is not 0
refuses() {
	local text=$1
	shift
	fails timeout 20 "$master" "$@"
	grep -q -- "$text" "$tmp/fails.out" || fail "$*: no '$text' in: $(cat "$tmp/fails.out")"
	equal "lines for $*" "$(wc -l <"$tmp/fails.out")" 1
}
spare='' spare_http=''
free_port spare
free_port spare_http
refuses 'eviction_ratio.*out of range' --eviction_ratio=2
refuses "use offset" --memory_allocator=slab
refuses 'allocation_strategy=nearest' --allocation_strategy=nearest
refuses 'eviction_policy=mru' --eviction_policy=mru
refuses 'max_kv_soft_pin_ttl' --max_kv_soft_pin_ttl=1s
refuses 'put_start_release_timeout_sec' --put_start_release_timeout_sec=10
refuses 'enable_ha needs' --enable_ha
refuses 'no interface of this name' --rpc_interface=nonesuch0
refuses 'unexpected argument' extra
refuses "$tmp/none.json" --config_path="$tmp/none.json"
refuses "$tmp/none" --log_dir="$tmp/none/dir" --rpc_port="$spare" --metrics_port="$spare_http"
refuses 'cannot\|no such\|not' --allow_insecure --minloglevel=2 --rpc_address=no.such.host.invalid --rpc_port="$spare" \
	--metrics_port="$spare_http"

# an unknown flag is refused, with the most similar flag, and status 2
refuses 'evicton_ratio is unknown; did you mean --eviction_ratio' --evicton_ratio=0.1
status=0
"$master" --evicton_ratio=0.1 2>"$tmp/status" || status=$?
equal "status after an unknown flag" "$status" 2
# unknown keys of a file and flags of glog are named once in the log, which is a file here, in a directory that is made
printf 'evicton_ratio: 0.1\nmmap_arena_pool_size: 1gb\n' >"$tmp/named.yaml"
start_master --config_path="$tmp/named.yaml" --logbufsecs=5 --stderrthreshold=1 --log_dir="$tmp/named" --v=1
kill -HUP "$MASTER_PID"
wait_for 10 grep -q 'log options reloaded' "$tmp/named/mooncake_master.INFO"
for line in 'config key evicton_ratio is unknown and ignored; did you mean eviction_ratio' \
	'mmap_arena_pool_size has no effect: ' 'logbufsecs has no effect: '; do
	equal "lines about $line" "$(cat "$tmp"/named/mooncake_master.INFO.* | grep -c "$line")" 1
	# --stderrthreshold: standard error has the warnings too, and nothing else
	equal "lines on standard error about $line" "$(grep -c "$line" "$tmp/master.log")" 1
done
fails grep -v ' warn ' "$tmp/master.log"
# a fatal error is in the log file too
refuses 'enable_ha needs' --enable_ha --log_dir="$tmp/fatal"
grep -q 'err main: .*enable_ha needs' "$tmp/fatal/mooncake_master.INFO"
connects "$MASTER"
equal health "$(curl -sf --max-time 5 "http://$MASTER_HTTP/health")" \
	'{"status":"ok","role":"leader","ha_state":"serving","service_ready":true,"leader_address":null,"view_version":null}'
curl -sf --max-time 5 -o "$tmp/metrics" "http://$MASTER_HTTP/metrics"
grep -q '^master_key_count 0$' "$tmp/metrics"
curl -sf --max-time 5 -o "$tmp/summary" "http://$MASTER_HTTP/metrics/summary"
grep -q '^role=leader, state=serving' "$tmp/summary"

# each of the ports is busy: an error, and the running master continues
refuses "address already in use: .*:${MASTER##*:}" --rpc_address=127.0.0.1 \
	--rpc_port="${MASTER##*:}" --metrics_port="$spare_http"
refuses "address already in use: .*:${MASTER_HTTP##*:}" --metrics_host=127.0.0.1 \
	--rpc_port="$spare" --metrics_port="${MASTER_HTTP##*:}"
curl -sf --max-time 5 "http://$MASTER_HTTP/health" >/dev/null

# garbage on both ports changes nothing
head -c 100000 /dev/urandom | timeout 10 bash -c "cat >/dev/tcp/${MASTER%:*}/${MASTER##*:}" || :
head -c 100000 /dev/urandom | timeout 10 bash -c "cat >/dev/tcp/${MASTER_HTTP%:*}/${MASTER_HTTP##*:}" || :
curl -sf --max-time 5 "http://$MASTER_HTTP/health" >/dev/null
alive "$MASTER_PID" || fail "garbage killed the master"

# SIGTERM ends it with status 0, and the port is free again
stop_pid "$MASTER_PID"
restart_master
stop_pid "$MASTER_PID"

# SIGINT too
restart_master
kill -INT "$MASTER_PID"
wait_for 15 gone "$MASTER_PID"
status=0
wait "$MASTER_PID" || status=$?
equal "status after SIGINT" "$status" 0

# a lease of 0 is valid; with a client_ttl of 0 a client stays alive as long as its connection sends
# heartbeats
"$master" --default_kv_lease_ttl=0 --print_config | found '^default_kv_lease_ttl = 0'
refuses 'client_ttl' --client_ttl=0.05
start_master --client_ttl=0
mkfifo "$tmp/stays"
exec 9<>"$tmp/stays"
spawn owner bash -c "exec '$top_builddir/tests/fault/client_actor' $MASTER 20000 own 16 <'$tmp/stays'"
owner=$SPAWNED
state() { curl -sf "http://$MASTER_HTTP/get_segments_detail" | found "\"status\":\"$1\""; }
wait_for 20 state OK
silent_for() { metric "$MASTER_HTTP" master_ping_requests_total; }
pings=$(silent_for)
more_pings() { [ "$(silent_for)" -gt $((pings + 20)) ]; }
wait_for 20 more_pings
state OK || fail "with client_ttl=0 a living client counts as dead"
kill_pid "$owner"
wait_for 20 state SILENT
stop_pid "$MASTER_PID"

# a config file with upstream's key names; the command line overrides it; the log is written to files
mkdir "$tmp/logs"
printf '{"client_live_ttl_sec": 60, "default_kv_lease_ttl": "5s", "eviction_ratio": 0.1}\n' >"$tmp/m.json"
"$master" --config_path="$tmp/m.json" --print_config --eviction_ratio=0.3 >"$tmp/config"
grep -q '^client_ttl = 1m  # file' "$tmp/config" ||
	fail "client_live_ttl_sec has no effect: $(grep client_ttl "$tmp/config")"
grep -q '^eviction_ratio = 0.3' "$tmp/config"
start_master --config_path="$tmp/m.json" --log_dir="$tmp/logs" --rpc_socket="$tmp/master.sock"
test -S "$tmp/master.sock"
wait_for 10 grep -q 'is up' "$tmp/logs/mooncake_master.INFO"
# the lines of upstream's log for which scripts search
for line in "Master service started on port ${MASTER##*:}, " "HTTP metrics server started on port ${MASTER_HTTP##*:}\$" \
	"Master admin server started on port ${MASTER_HTTP##*:}\$"; do
	wait_for 10 grep -q "$line" "$tmp/logs/mooncake_master.INFO"
done
kill -HUP "$MASTER_PID"
curl -sf --max-time 5 "http://$MASTER_HTTP/health" >/dev/null
stop_pid "$MASTER_PID"
[ ! -e "$tmp/master.sock" ] || fail "the socket is left behind"
