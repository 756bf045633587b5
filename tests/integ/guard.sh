#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs listen on the loopback unless the operator permits more: the states of each program's addresses, and one line
# that says what to do.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl ss
unset MC_ALLOW_INSECURE MC_METADATA_HTTP_TOKEN MC_METADATA_HTTP_ALLOW_INSECURE
OPEN='warn net: no security: every host that reaches' CLOSED='warn net: listening on 127\.0\.0\.1 only; for other hosts'
master=$top_builddir/master/mooncake_master client=$top_builddir/node/mooncake_client mcfs=$top_builddir/mcfs/mcfs
bench=$top_builddir/tools/transfer_engine_bench meta=$top_builddir/tools/mooncake_http_metadata_server
rpc='' http='' other=''
free_port rpc
free_port http
free_port other
base=(--journal_dir=none --rpc_port="$rpc" --metrics_port="$http")
mkdir "$tmp/mnt"

# refused OPTION=VALUE COMMAND... - one line with the option, the reason and the way out
refused() {
	fails timeout 20 "${@:2}"
	equal "lines of: ${*:2}" "$(grep -c . "$tmp/fails.out")" 1
	grep -q -- "$1: every host that reaches this address could .*--allow_insecure" "$tmp/fails.out" ||
		fail "${*:2}: $(cat "$tmp/fails.out")"
}

# up LOG COMMAND... - start it, and wait for its "is up" or "is ready"
up() {
	: >"$tmp/$1.log"
	spawn "$@"
	started "$SPAWNED" "$*" 20 grep -q 'is up \|is ready' "$tmp/$1.log"
}

# warned LOG OPEN CLOSED - that many lines of each kind
warned() {
	equal "warnings of open addresses in $1" "$(grep -c "$OPEN" "$tmp/$1.log")" "$2"
	equal "warnings of closed addresses in $1" "$(grep -c "$CLOSED" "$tmp/$1.log")" "$3"
	end_pid "$SPAWNED"
}

# listens LOG ADDRESS... - the process listens at these TCP addresses and no others, without their ports
listens() {
	local want
	want=$(printf '%s\n' "${@:2}" | sort -u)
	equal "addresses of $1" "$(ss -Hltnp | grep "pid=$SPAWNED," | awk '{ sub(/:[0-9]+$/, "", $4); print $4 }' | sort -u)" \
		"$want"
}

# ---- the master
up master "$master" "${base[@]}"
listens master 127.0.0.1
grep -q "$CLOSED use --security=on (docs/SECURITY.md) or --allow_insecure\$" "$tmp/master.log"
warned master 0 1
# loopback addresses need nothing; a name is one only if it is localhost
for host in 127.0.0.1 127.9.9.9 localhost ::ffff:127.0.0.1; do
	up master "$master" "${base[@]}" --rpc_address="$host" --metrics_host="$host"
	warned master 0 0
done
up master "$master" "${base[@]}" --rpc_interface=lo --metrics_host=127.0.0.1
warned master 0 0
interface=$(ip -o -4 addr show scope global 2>/dev/null | awk '{ print $2; exit }') || :
for one in --rpc_address=0.0.0.0 --rpc_address=:: --rpc_address="$(uname -n).invalid" --rpc_address=::ffff:10.0.0.1 \
	--metrics_host=0.0.0.0 --metrics_host=10.0.0.1 ${interface:+--rpc_interface="$interface"}; do
	refused "${one#--}" "$master" "${base[@]}" "$one"
done
refused http_metadata_server_host=:: "$master" "${base[@]}" --enable_http_metadata_server --http_metadata_server_host=::
refused 'kv_events_bind_endpoint=tcp://\*:0' "$master" "${base[@]}" --enable_kv_events --kv_events_backend_id=x \
	--kv_events_bind_endpoint='tcp://*:0'
# the three ways to permit it
up master "$master" "${base[@]}" --allow_insecure --enable_http_metadata_server --http_metadata_server_port="$other"
listens master 0.0.0.0
warned master 1 0
up master env MC_ALLOW_INSECURE=1 "$master" "${base[@]}" --rpc_address=0.0.0.0
warned master 1 0
printf 'rpc_address: 0.0.0.0\n' >"$tmp/conf.yaml"
refused rpc_address=0.0.0.0 "$master" "${base[@]}" --config_path="$tmp/conf.yaml"
printf 'allow_insecure: true\n' >>"$tmp/conf.yaml"
up master "$master" "${base[@]}" --config_path="$tmp/conf.yaml"
warned master 1 0
refused rpc_address=0.0.0.0 "$master" "${base[@]}" --config_path="$tmp/conf.yaml" --noallow_insecure

# ---- the node's daemons
up master "$master" "${base[@]}" --metrics_host=127.0.0.1 --rpc_address=127.0.0.1
node=("$client" --master_server_address="127.0.0.1:$rpc" --global_segment_size=0 --port=0)
for host in 0.0.0.0 :: 10.1.2.3:500 "$(uname -n).invalid"; do
	refused "host=$host" "${node[@]}" --host="$host"
	refused "host=$host" "$mcfs" -f -o "host=$host" "127.0.0.1:$rpc" "$tmp/mnt"
done
refused host=0.0.0.0 env MC_HOST=0.0.0.0 "${node[@]}"
# a name of the master beyond the loopback gives an own address there, where there is a route
if [ -n "$interface" ]; then
	refused 'host .not set.*' "${node[@]}" --master_server_address="$(ip -o -4 addr show dev "$interface" |
		awk '{ sub("/.*", "", $4); print $4; exit }'):1"
fi
up node "${node[@]}"
warned node 0 0
up node "${node[@]}" --enable_http_server --http_port="$other"
listens node 127.0.0.1
warned node 0 1
up node "${node[@]}" --enable_http_server --http_port="$other" --host=0.0.0.0 --allow_insecure
warned node 1 0
if [ -r /dev/fuse ] && [ "$(id -u)" = 0 ]; then
	start_mcfs "127.0.0.1:$rpc" "$tmp/mnt" --global_segment_size=0 -o allow_insecure,host=0.0.0.0
	equal "warnings of mcfs" "$(grep -c "$OPEN" "$tmp/mcfs-mnt.log")" 1
	stop_pid "$MCFS_PID"
fi

# ---- servers of transfer engines
up meta "$meta" --port "$other"
listens meta 127.0.0.1
warned meta 0 1
refused host=0.0.0.0 "$meta" --port "$other" --host 0.0.0.0
up meta "$meta" --port "$other" --host 0.0.0.0 --allow_insecure
warned meta 1 0
up meta env MC_METADATA_HTTP_TOKEN=secret "$meta" --port "$other" --host 0.0.0.0
warned meta 0 0
target=("$bench" --mode=target --buffer_size=1MiB)
up bench "${target[@]}"
listens bench 127.0.0.1
warned bench 0 1
refused local_server_name=0.0.0.0 "${target[@]}" --local_server_name=0.0.0.0
up bench env MC_ALLOW_INSECURE=1 "${target[@]}" --local_server_name=0.0.0.0
warned bench 1 0
# with a metadata server an engine has a name and takes all addresses
up meta "$meta" --port "$other" --host 127.0.0.1
target+=(--metadata_server="http://127.0.0.1:$other/metadata" --local_server_name=a)
up bench "${target[@]}"
listens bench 127.0.0.1
warned bench 0 1
refused MC_TCP_BIND_ADDRESS=10.0.0.1 env MC_TCP_BIND_ADDRESS=10.0.0.1 "${target[@]}"
up bench "${target[@]}" --allow_insecure
warned bench 1 0
