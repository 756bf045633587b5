# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# ha.sh - for tests of several masters: a store, masters of one cluster, and the one that leads.
# shellcheck disable=SC2154,SC2034  # variables of functions.sh, and for the tests

# start_etcd [MEMBERS] - sets STORE, STORE_URL for clients, and STORE_PIDS
start_etcd() {
	local i members=${1:-1} cluster='' all='' client=() peer=()
	for ((i = 0; i < members; i++)); do
		free_port "client[$i]"
		free_port "peer[$i]"
		cluster+=${cluster:+,}n$i=http://127.0.0.1:${peer[i]}
		all+=${all:+;}127.0.0.1:${client[i]}
	done
	STORE_PIDS=()
	for ((i = 0; i < members; i++)); do
		spawn "etcd$i" etcd --name "n$i" --data-dir "$tmp/etcd$i" --listen-client-urls "http://127.0.0.1:${client[i]}" \
			--advertise-client-urls "http://127.0.0.1:${client[i]}" --listen-peer-urls "http://127.0.0.1:${peer[i]}" \
			--initial-advertise-peer-urls "http://127.0.0.1:${peer[i]}" --initial-cluster "$cluster" --log-level error
		STORE_PIDS+=("$SPAWNED")
	done
	STORE=(--etcd_endpoints="$all") STORE_URL=etcd://$all
	for ((i = 0; i < members; i++)); do
		started "${STORE_PIDS[i]}" etcd 30 connects "127.0.0.1:${client[i]}"
	done
	wait_for 30 eval 'curl -sf --max-time 2 "http://127.0.0.1:${client[0]}/health" | found "\"health\":\"true\""'
}

# start_redis - sets STORE, STORE_URL and STORE_PIDS
start_redis() {
	local number
	free_port number
	spawn redis redis-server --bind 127.0.0.1 --port "$number" --save '' --appendonly no --dir "$tmp"
	STORE_PIDS=("$SPAWNED")
	STORE=(--ha_backend_type=redis --ha_backend_connstring="127.0.0.1:$number") STORE_URL=redis://127.0.0.1:$number
	started "$SPAWNED" redis 20 connects "127.0.0.1:$number"
}

declare -A RPC=() HTTP=() PID=()

# masters NAME... - choose ports, and set MASTERS to the list for clients
masters() {
	local name number
	MASTERS=
	for name; do
		free_port number
		RPC[$name]=127.0.0.1:$number
		free_port number
		HTTP[$name]=127.0.0.1:$number
		MASTERS+=${MASTERS:+,}${RPC[$name]}
	done
}

# start_ha NAME [FLAG...] - start that master, or start it again
start_ha() {
	local name=$1
	shift
	spawn "master-$name" "$top_builddir/master/mooncake_master" --enable_ha "${STORE[@]}" --rpc_address=127.0.0.1 \
		--rpc_port="${RPC[$name]##*:}" --metrics_host=127.0.0.1 --metrics_port="${HTTP[$name]##*:}" \
		--journal_dir="$tmp/journal-$name" --ha_leader_lease_ttl_sec="${TTL:-2}" --client_ttl=10 "$@"
	PID[$name]=$SPAWNED
}

# leader - print the name of the master that serves
leader() {
	local name
	for name in "${!HTTP[@]}"; do
		if master_serves "${HTTP[$name]}"; then
			echo "$name"
			return 0
		fi
	done
	return 1
}

# in_sync NAME N - N standbys could take over from this leader
in_sync() {
	[ "$(metric "${HTTP[$1]}" mooncake_master_standbys_in_sync)" = "$2" ]
}
