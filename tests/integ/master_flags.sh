#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every flag of upstream's master (upstream_flags.txt) is accepted with its default.  Another value
# is either honoured (on the command line, in JSON and in YAML), refused at the start with a reason, or
# reported as without effect; the manual page lists refused and reported flags.  No flag is silently ignored.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl
master=$top_builddir/master/mooncake_master
page=$top_builddir/man/mooncake_master.1
# Configuration that must stay the same when all of upstream's defaults are given.
"$master" --print_config | sed 's/  # .*//' >"$tmp/base"
sed -n '/THIS VERSION LACKS/,$p' "$page" >"$tmp/lacking"
declare -A other
alias_of() {
	case $1 in
	snapshot_payload_store_type | snapshot_payload_backend_type) echo snapshot_object_store_type ;;
	snapshot_catalog_backend_type) echo snapshot_catalog_store_type ;;
	enable_oplog_snapshot) echo enable_snapshot ;;
	client_active_ttl_sec) echo client_ttl ;;
	*) echo "$1" ;;
	esac
}
differs() { # differs TYPE DEFAULT - a value of that type that is not the default
	case $1,$2 in
	bool,true) echo false ;;
	bool,*) echo true ;;
	double,*) echo 0.25 ;;
	string,*.*) echo 192.0.2.7 ;;
	string,[0-9]*) echo $(($2 + 60000)) ;;
	string,*) echo something ;;
	int64,9223372036854775807) echo 12345 ;;
	*) echo $(($2 + 7)) ;;
	esac
}
sed -n '/UPSTREAM OPTIONS WITHOUT EFFECT/,$p' "$page" >"$tmp/idle"
honoured=0 refused=0 idle=0
while read -r name type default; do
	[ "$name" != '#' ] || continue
	[ "$default" != - ] || default=''
	[ "$name" != config_path ] || continue
	case $default in *.*[0-9]) [ "$type" != double ] || default=$(printf '%.10g' "$default") ;; esac
	"$master" --print_config "--$name=$default" >"$tmp/config" 2>&1 ||
		fail "--$name=$default, upstream's default, is refused: $(cat "$tmp/config")"
	sed 's/  # .*//' "$tmp/config" | cmp - "$tmp/base" ||
		fail "upstream's default of $name is not ours: $(sed 's/  # .*//' "$tmp/config" | diff "$tmp/base" - || :)"
	value=$(differs "$type" "$default")
	own=$(alias_of "$name")
	if grep -q "^$own = " "$tmp/base"; then
		honoured=$((honoured + 1))
		"$master" --print_config "--$name=$value" >"$tmp/config" 2>&1 ||
			fail "--$name=$value is refused: $(cat "$tmp/config")"
		grep -q "^$own = .*command line" "$tmp/config" ||
			fail "--$name=$value changes nothing: $(grep "^$own = " "$tmp/config")"
		grep -qF -- "\\fB\\-\\-$own\\fR" "$page" || fail "$name is not in the manual page"
		[ "$own" != "$name" ] || other[$name]=$value
	elif grep -qF -- "\\fB\\-\\-$name\\fR" "$tmp/idle"; then
		idle=$((idle + 1))
		"$master" --print_config "--$name=$value" >"$tmp/config" 2>"$tmp/warning"
		grep -q "warning: --$name has no effect: " "$tmp/warning" || fail "--$name=$value: no warning"
		equal "lines about $name" "$(wc -l <"$tmp/warning")" 1
	else
		refused=$((refused + 1))
		# "off" is the only state of a missing feature
		[ "$type,$default" != bool,true ] || continue
		fails timeout 20 "$master" "--$name=$value"
		grep -q "$name.*not built into this version" "$tmp/fails.out" ||
			fail "--$name=$value: $(cat "$tmp/fails.out")"
		grep -qF -- "\\fB\\-\\-$name\\fR" "$tmp/lacking" ||
			fail "$name is not in the manual page's list of what is lacking"
	fi
done <"$top_srcdir/tests/integ/upstream_flags.txt"
[ "$honoured" -ge 60 ] || fail "fewer flags than expected are honoured: $honoured"
echo "$honoured honoured, $refused refused, $idle without effect"

# the list also has values that are not supported
for value in tenant_quota_connector_type=etcd \
	snapshot_catalog_store_type=redis; do
	fails timeout 20 "$master" "--$value"
	grep -q "$value.*not built into this version" "$tmp/fails.out" || fail "$value: $(cat "$tmp/fails.out")"
	grep -qF -- "\\fB\\-\\-$value\\fR" "$tmp/lacking" ||
		fail "$value is not in the manual page's list of what is lacking"
done

# same from files, with client_ttl under upstream's key
key_of() { [ "$1" = client_ttl ] && echo client_live_ttl_sec || echo "$1"; }
{
	sep='{'
	for name in "${!other[@]}"; do
		case ${other[$name]} in
		*.*.*) printf '%s"%s": "%s"' "$sep" "$(key_of "$name")" "${other[$name]}" ;;
		true | false | [0-9]*) printf '%s"%s": %s' "$sep" "$(key_of "$name")" "${other[$name]}" ;;
		*) printf '%s"%s": "%s"' "$sep" "$(key_of "$name")" "${other[$name]}" ;;
		esac
		sep=', '
	done
	echo '}'
} >"$tmp/all.json"
for name in "${!other[@]}"; do
	printf '%s: %s\n' "$(key_of "$name")" "${other[$name]}"
done >"$tmp/all.yaml"
for file in all.json all.yaml; do
	"$master" --config_path="$tmp/$file" --print_config >"$tmp/config"
	for name in "${!other[@]}"; do
		grep -q "^$name = .*# file" "$tmp/config" ||
			fail "$file: $name is not taken: $(grep "^$name = " "$tmp/config")"
	done
	# and the command line overrides the file
	"$master" --config_path="$tmp/$file" --eviction_ratio=0.75 --print_config >"$tmp/config"
	grep -q '^eviction_ratio = 0.75' "$tmp/config"
done

# a flag file, and gflags' spellings
printf -- '--eviction_ratio=0.5\n-client_ttl=33\n' >"$tmp/flags"
"$master" --flagfile="$tmp/flags" --noenable_metric_reporting --print_config >"$tmp/config"
grep -q '^eviction_ratio = 0.5 ' "$tmp/config"
grep -q '^client_ttl = 33s ' "$tmp/config"
grep -q '^enable_metric_reporting = false ' "$tmp/config"

# rpc_threads COUNT - that many RPC threads besides the heartbeat thread.  A thread sets its name
# when it first runs.
rpc_threads() {
	[ "$(cat /proc/"$SPAWNED"/task/*/comm | grep -c '^mc-rpc-[1-9]')" -eq "$1" ]
}

# options that only a running master shows: threads, the older name of the port, an interface's
# address, idle time
rpc='' http=''
free_port rpc
free_port http
MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
spawn threads "$master" --port="$rpc" --rpc_interface=lo --rpc_address=192.0.2.1 --metrics_host=127.0.0.1 \
	--metrics_port="$http" --rpc_thread_num=3 --rpc_conn_timeout_seconds=1
wait_for 20 master_serves "$MASTER_HTTP"
wait_for 20 rpc_threads 3
connects "$MASTER"
rpc_threads 3
stop_pid "$SPAWNED"
spawn threads "$master" --rpc_port="$rpc" --metrics_host=127.0.0.1 --metrics_port="$http" --max_threads=1 \
	--memory_allocator=cachelib
wait_for 20 master_serves "$MASTER_HTTP"
equal "lines about cachelib" "$(grep -c 'memory_allocator=cachelib is another name of offset' "$tmp/threads.log")" 1
wait_for 20 rpc_threads 1
stop_pid "$SPAWNED"
