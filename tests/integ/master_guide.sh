#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command lines of upstream's deployment guide start a master that serves an object: one node, several masters with
# etcd and with Redis, snapshots, disks.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ha.sh"
mcctl=$top_builddir/tools/mcctl

# guide URL FLAG... - start it with ports of the test, and store an object through the address that clients have
guide() {
	local url=$1 node number
	shift
	free_port number
	MASTER=127.0.0.1:$number
	free_port number
	MASTER_HTTP=127.0.0.1:$number
	spawn master "$top_builddir/master/mooncake_master" "$@" --rpc_port="${MASTER##*:}" --metrics_host=127.0.0.1 \
		--metrics_port="${MASTER_HTTP##*:}" --journal_dir="$tmp/journal"
	MASTER_PID=$SPAWNED
	started "$MASTER_PID" master 20 master_serves "$MASTER_HTTP"
	[ -n "$url" ] || url=$MASTER
	free_port number
	spawn node "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$number" --master_server_address="$url" \
		--global_segment_size=64MB "${node_flags[@]}"
	node=$SPAWNED
	wait_for 20 eval '"$mcctl" --master="'"$url"'" --json df | found "\"state\": *\"ok\""'
	echo value >"$tmp/value"
	"$mcctl" --master="$url" put key "$tmp/value"
	equal "value" "$("$mcctl" --master="$url" get key -)" value
	stop_pid "$node"
	stop_pid "$MASTER_PID"
	rm -rf "$tmp/journal"
}

node_flags=()
echo "one node"
meta=
free_port meta
guide "" --enable_http_metadata_server=true --http_metadata_server_host=127.0.0.1 --http_metadata_server_port="$meta"

echo "snapshots"
MOONCAKE_SNAPSHOT_LOCAL_PATH=$tmp/snapshots guide "" --enable_snapshot=true --snapshot_object_store_type=local \
	--snapshot_interval_seconds=60 --snapshot_retention_count=3 --enable_snapshot_restore=true
[ -n "$(find "$tmp/snapshots" -name manifest.json)" ] || fail "no snapshot was written"

echo "disks"
mkdir "$tmp/disk"
node_flags=(--enable_offload=true)
MOONCAKE_OFFLOAD_FILE_STORAGE_PATH=$tmp/disk guide "" --enable_offload=true
node_flags=()

if command -v etcd >/dev/null; then
	echo "etcd"
	start_etcd 3
	guide "$STORE_URL" --enable-ha=true --etcd-endpoints="${STORE_URL#etcd://}" --rpc-address=127.0.0.1
fi
command -v redis-server >/dev/null || skip "redis-server is not installed"
echo "Redis"
start_redis
MC_STORE_CLUSTER_ID=blue guide "$STORE_URL" --enable_ha=true --ha_backend_type=redis \
	--ha_backend_connstring="${STORE_URL#redis://}" --cluster_id=blue --rpc_address=127.0.0.1
