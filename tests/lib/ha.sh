# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# ha.sh - for tests of several masters: a store, masters of one cluster, and the one that leads.
# shellcheck disable=SC2154,SC2034  # variables of functions.sh, and for the tests

# start_etcd - one member; sets STORE
start_etcd() {
	local client peer
	free_port client
	free_port peer
	spawn etcd etcd --name n --data-dir "$tmp/etcd" --listen-client-urls "http://127.0.0.1:$client" \
		--advertise-client-urls "http://127.0.0.1:$client" --listen-peer-urls "http://127.0.0.1:$peer" \
		--initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "n=http://127.0.0.1:$peer" \
		--log-level error
	STORE_PID=$SPAWNED
	STORE=(--etcd_endpoints="127.0.0.1:$client")
	started "$STORE_PID" etcd 30 connects "127.0.0.1:$client"
}

# start_redis - sets STORE
start_redis() {
	local number
	free_port number
	spawn redis redis-server --bind 127.0.0.1 --port "$number" --save '' --appendonly no --dir "$tmp"
	STORE_PID=$SPAWNED
	STORE=(--ha_backend_type=redis --ha_backend_connstring="127.0.0.1:$number")
	started "$STORE_PID" redis 20 connects "127.0.0.1:$number"
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
