#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every flag of upstream's master (upstream_flags.txt) is accepted with its default.  With another value the master
# either serves (the value is honoured on the command line, in JSON and in YAML), refuses to start with a reason, or
# serves and reports the flag once as without effect, as docs/COMPATIBILITY_NAMES.tsv says; the manual page lists
# refused and reported flags.  No flag is silently ignored.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl jq
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
answer_of() { # answer_of FLAG - its state in the table of names
	awk -F'\t' -v name="$1" '$1 == "flag" && $2 == name { print $3 == "better" ? "same" : $3 }' \
		"$top_srcdir/docs/COMPATIBILITY_NAMES.tsv"
}
# starts FLAG VALUE - the master serves with it; its log is $tmp/once.log
rpc_once='' http_once=''
free_port rpc_once
free_port http_once
starts() {
	local name=$1 value=$2 more=(--journal_dir=none)
	case $name in
	allocation_strategy) value=cxl ;;
	memory_allocator) value=cachelib ;;
	dynamic_replication_mode) value=observe ;;
	ha_backend_type) value=redis ;;
	rpc_interface) value=lo ;;
	http_metadata_server_host | rpc_address | metrics_host) value=127.0.0.1 ;;
	http_metadata_server_port | enable_http_metadata_server)
		more+=(--enable_http_metadata_server --http_metadata_server_port=0)
		[ "$name" = enable_http_metadata_server ] || value=0
		;;
	snapshot_catalog_store_type | snapshot_catalog_backend_type) value=redis ;;
	snapshot_object_store_type | snapshot_payload_store_type | snapshot_payload_backend_type) value=local ;;
	tenant_quota_connector_type) value=etcd ;;
	# the journal is kept in its directory
	snapshot_backup_dir) value=$tmp/once ;;
	# ... and these need one
	enable_snapshot | enable_snapshot_restore | enable_oplog | enable_oplog_snapshot)
		more=(--journal_dir="$tmp/once") ;;
	# these tests start masters with them, which need more than one value
	enable_ha | etcd_endpoints | ha_backend_connstring | enable_kv_events) return 0 ;; # ha_*.sh, master_kv_events.sh
	rpc_port | port) value=$rpc_once ;;
	metrics_port) value=$http_once ;;
	esac
	# not that of the last one
	: >"$tmp/once.log"
	"$master" --rpc_address=127.0.0.1 --rpc_port="$rpc_once" --metrics_host=127.0.0.1 --metrics_port="$http_once" \
		"${more[@]}" "--$name=$value" 2>>"$tmp/once.log" &
	serves_or_ends $!
}
# serves_or_ends PID - the master with the log once.log serves; end it
serves_or_ends() {
	local tries=0
	until grep -q 'Master admin server started' "$tmp/once.log"; do
		kill -0 "$1" 2>/dev/null && [ "$((tries += 1))" -lt 2000 ] || return 1
		sleep 0.005
	done
	kill "$1"
	wait "$1"
}
honoured=0 refused=0 idle=0
idle_json='{}'
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
		equal "answer to $name" "$(answer_of "$name")" same
		starts "$name" "$value" || fail "the master does not start with --$name: $(cat "$tmp/once.log")"
	elif grep -qF -- "\\fB\\-\\-$name\\fR" "$tmp/idle"; then
		idle=$((idle + 1))
		equal "answer to $name" "$(answer_of "$name")" "no effect"
		idle_json=$(jq --arg n "$name" --arg v "$value" '.[$n] = $v' <<<"$idle_json")
		# any value, also one of another type
		for any in "$value" nonsense; do
			starts "$name" "$any" || fail "the master does not start with --$name: $(cat "$tmp/once.log")"
			equal "lines about $name" "$(grep -c " warn options: --$name has no effect: ...*" "$tmp/once.log")" 1
		done
	else
		refused=$((refused + 1))
		equal "answer to $name" "$(answer_of "$name")" absent
		case $name in pod_*) ;; *) fail "$name is refused" ;; esac # the election in Kubernetes
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

# a configuration file with all flags without effect, in JSON and in YAML: the master serves, one line each
echo "$idle_json" >"$tmp/idle.json"
jq -r 'to_entries[] | "\(.key): \(.value)"' <<<"$idle_json" >"$tmp/idle.yaml"
for file in idle.json idle.yaml; do
	starts config_path "$tmp/$file" || fail "the master does not start with $file: $(cat "$tmp/once.log")"
	for name in $(jq -r 'keys[]' <<<"$idle_json"); do
		equal "lines about $name in $file" "$(grep -c " warn options: $name has no effect: " "$tmp/once.log")" 1
	done
	equal "warnings of $file" "$(grep -c ' warn ' "$tmp/once.log")" "$idle"
done
# values that are accepted without effect, and unknown ones
starts snapshot_catalog_store_type redis
equal "lines about redis" "$(grep -c 'snapshot_catalog_store_type=redis has no effect: ' "$tmp/once.log")" 1
for value in snapshot_catalog_store_type=mysql tenant_quota_connector_type=redis ha_backend_type=k8s; do
	fails timeout 20 "$master" "--$value" --enable_ha --enable_multi_tenants --rpc_address=127.0.0.1 \
		--ha_backend_connstring=127.0.0.1:1
	grep -q "${value%=*}.*${value#*=}" "$tmp/fails.out" || fail "$value: $(cat "$tmp/fails.out")"
done
# gflags' own flags, and those of glog
FLAGS_eviction_ratio=0.31 "$master" --print_config --tryfromenv=eviction_ratio,client_ttl --undefok=alien --alien=1 \
	>"$tmp/config" 2>"$tmp/warning"
grep -q '^eviction_ratio = 0.31 ' "$tmp/config"
grep -q 'alien is ignored, as --undefok says' "$tmp/warning" || fail "$(cat "$tmp/warning")"
"$master" --print_config --minloglevel=4 --v=11 --stderrthreshold=0 --alsologtostderr >"$tmp/config"
grep -q '^minloglevel = 4 ' "$tmp/config"

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
