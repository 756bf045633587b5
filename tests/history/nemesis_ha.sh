# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# nemesis_ha.sh - for nemesis.sh: three masters m1, m2, m3, each in a namespace of its own, and their store: etcd (three
# members e1, e2, e3) or, with HIST_STORE=redis, one redis (e1) that keeps nothing over its restart.
# shellcheck disable=SC2154,SC2034  # variables of nemesis.sh

store=${HIST_STORE:-etcd} lease=2
stores=(e1 e2 e3)
[ "$store" = etcd ] || stores=(e1)

ha_command() {
	local number=${1#?} i all=''
	case $1 in
	m?)
		cmd=("$top_builddir/master/mooncake_master" --enable_ha "${STORE[@]}" --ha_leader_lease_ttl_sec="$lease"
			--rpc_address="$host" --rpc_port="$M_RPC" --metrics_host="$admin" --metrics_port="$M_HTTP"
			--journal_dir="$tmp/journal.$1" --client_ttl="$ttl" --put_start_discard_timeout_sec=1
			--put_start_release_timeout_sec=2 --default_kv_lease_ttl=500 --journal_checkpoint_size=1mb)
		# clocks that jump: one master is an hour ahead, another a day behind, and each life at another time
		[ ! -e "$tmp/faketime" ] || cmd=(env LD_PRELOAD="$(cat "$tmp/faketime")" FAKETIME_DONT_FAKE_MONOTONIC=1
			FAKETIME="+$((number * number * RANDOM % 100000 - 50000))s" "${cmd[@]}")
		;;
	e?)
		if [ "$store" = redis ]; then
			cmd=(redis-server --bind "$host" --port "$E_CLIENT1" --protected-mode no --save '' --appendonly no
				--dir "$tmp")
			return
		fi
		for i in 1 2 3; do
			local peer=E_PEER$i
			all+=${all:+,}e$i=http://$host:${!peer}
		done
		local client=E_CLIENT$number peer=E_PEER$number
		cmd=(etcd --name "$1" --data-dir "$tmp/etcd.$1" --listen-client-urls "http://$host:${!client}"
			--advertise-client-urls "http://$host:${!client}" --listen-peer-urls "http://$host:${!peer}"
			--initial-advertise-peer-urls "http://$host:${!peer}" --initial-cluster "$all" --log-level error
			--heartbeat-interval 50 --election-timeout 300)
		;;
	esac
}

# ha_addresses - choose ports; clients use the list of the masters, or the store
ha_addresses() {
	local ns host admin name all=''
	free_port M_RPC
	free_port M_HTTP
	for name in "${stores[@]}"; do
		place "$name"
		free_port "E_CLIENT${name#e}"
		free_port "E_PEER${name#e}"
		local port=E_CLIENT${name#e}
		all+=${all:+;}$host:${!port}
	done
	STORE=(--etcd_endpoints="$all") STORE_URL=etcd://$all
	[ "$store" = etcd ] || {
		STORE=(--ha_backend_type=redis --ha_backend_connstring="$all") STORE_URL=redis://$all
	}
	MASTER=
	for name in m1 m2 m3; do
		place "$name"
		MASTER+=${MASTER:+,}$host:$M_RPC
	done
}

# ha_leader - set $leader to the name of the master that serves, and $MASTER_HTTP
ha_leader() {
	local name
	for name in m1 m2 m3; do
		place "$name"
		MASTER_HTTP=$admin:$M_HTTP
		if NS=$ns master_serves "$MASTER_HTTP"; then
			leader=$name
			return 0
		fi
	done
	return 1
}

# As plan_action; a third of the actions are aimed at the leader when they begin ("leader").
ha_action() {
	dice=$((RANDOM % 100)) arg=- alone=
	pick 100 300 700 1500 3000 6000
	duration=$picked
	pick m1 m2 m3 leader leader
	target=$picked
	if [ "$dice" -lt 28 ]; then
		kind="kill"
	elif [ "$dice" -lt 42 ]; then
		kind=stop
	elif [ "$dice" -lt 52 ]; then
		kind="trap"
		pick m1 m2 m3
		target=$picked
		pick "${master_points[@]}"
		arg=$picked=stop@$((RANDOM % 60 + 1))
	elif [ "$dice" -lt 60 ]; then
		kind="cut"
	elif [ "$dice" -lt 74 ]; then
		kind=drop
		pick m1:m2 m2:m3 m3:m1 m1:m m2:m m3:m m1:n1 m2:n2 m3:n3 n1:m1 n2:m2 n3:m3 leader:m leader:n1 leader:m3 leader:m1
		target=$picked
	elif [ "$dice" -lt 82 ]; then
		kind=stop
		pick "${stores[@]}"
		target=$picked
	elif [ "$dice" -lt 87 ]; then
		kind=stopstore target=store
	elif [ "$dice" -lt 92 ]; then
		# With the last leader gone as well, nothing would be left that knows the state.
		kind="kill" alone=yes
		pick "${stores[@]}"
		target=$picked
	elif [ "$dice" -lt 95 ]; then
		kind=fill alone=yes
	elif [ "$dice" -lt 98 ]; then
		kind=failover target=leader
	else
		kind="kill"
		pick c1 c2 c3
		target=$picked
	fi
}

# ha_aim - the process that "leader" means now
ha_aim() {
	local leader=m1 ns host MASTER_HTTP
	case $target in
	leader*)
		ha_leader || :
		target=$leader${target#leader}
		[ "${target%:*}" != "${target#*:}" ] || [ "$kind" != drop ] || target=$leader:m
		;;
	esac
}

ha_act() {
	local name token=''
	[ "$secure" = no ] || token=$(cat "$tmp/token")
	case $kind in
	stopstore)
		for name in "${stores[@]}"; do kill -STOP "$(pid_of "$name")" 2>/dev/null || :; done
		pause "$duration"
		for name in "${stores[@]}"; do kill -CONT "$(pid_of "$name")" 2>/dev/null || :; done
		;;
	failover)
		place "$target"
		in_ns "$ns" curl -s -X POST --max-time 3 ${token:+-H "Authorization: Bearer $token"} \
			"http://$admin:$M_HTTP/api/v1/failover" >/dev/null || :
		;;
	fill)
		[ ! -e "$tmp/journal.$target.tmpfs" ] || {
			dd if=/dev/zero of="$tmp/journal.$target/fill" bs=64k 2>/dev/null || :
			pause "$duration"
			rm -f "$tmp/journal.$target/fill"
		}
		;;
	esac
}

ha_disk() {
	mkdir "$tmp/journal.$1"
	if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=16m none "$tmp/journal.$1" 2>/dev/null; then
		cleanup_fn umount -l "$tmp/journal.$1"
		: >"$tmp/journal.$1.tmpfs"
	fi
}

# ha_wake - a master that starts itself again meets its fault point once more, when no action wakes it
ha_wake() {
	local name
	while sleep 0.5; do
		for name in m1 m2 m3; do
			[ -e "$tmp/busy.$name" ] || kill -CONT "$(pid_of "$name")" 2>/dev/null || :
		done
	done
}

# in_sync N - the leader has N standbys in sync
ha_in_sync() {
	local ns host admin leader MASTER_HTTP
	ha_leader && [ "$(NS=$ns metric "$MASTER_HTTP" mooncake_master_standbys_in_sync)" = "$1" ]
}
