# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# meta_servers.sh - a metadata server of each kind, and engines that use it (sourced after meta_functions.sh).
: "${tmp:?}" "${top_builddir:?}" "${top_srcdir:?}"
LEN=1000003
# flags of our HTTP server
SERVER_FLAGS=()

# server_use KIND - set $PORT and $CONN; status 1 and a line of output if the kind is skipped
server_use() {
	KIND=$1
	free_port PORT
	case $KIND in
	http) CONN=http://127.0.0.1:$PORT/metadata ;;
	etcd) command -v etcd >/dev/null || { echo "etcd is not installed"; return 1; }
		CONN=etcd://127.0.0.1:$PORT PEER_PORT=''
		free_port PEER_PORT ;;
	redis) command -v redis-server >/dev/null || { echo "redis is not installed"; return 1; }
		CONN=redis://127.0.0.1:$PORT ;;
	esac
	server_start
}

server_start() {
	case $KIND in
	http) spawn server "$top_builddir/tools/mooncake_http_metadata_server" --host 127.0.0.1 --port "$PORT" \
		"${SERVER_FLAGS[@]}" ;;
	etcd) spawn server etcd --name n --data-dir "$tmp/etcd.$PORT" --log-level error \
		--listen-client-urls "http://127.0.0.1:$PORT" \
		--advertise-client-urls "http://127.0.0.1:$PORT" \
		--listen-peer-urls "http://127.0.0.1:$PEER_PORT" \
		--initial-advertise-peer-urls "http://127.0.0.1:$PEER_PORT" \
		--initial-cluster "n=http://127.0.0.1:$PEER_PORT" ;;
	redis) spawn server redis-server --bind 127.0.0.1 --port "$PORT" --save '' --appendonly no \
		--dir "$tmp" ;;
	esac
	SERVER_PID=$SPAWNED
	started "$SERVER_PID" "$KIND" 30 server_answers
}

server_answers() {
	case $KIND in
	redis) redis-cli -p "$PORT" ping ;;
	*) curl -sf --noproxy '*' --max-time 2 "http://127.0.0.1:$PORT/health" ;;
	esac
}

# engine_start NAME COMMAND... - start an engine as a node; META NAME LEN are appended
engine_start() {
	local name=$1
	shift
	node_run "$name" "$@" "$CONN" "$name" "$LEN"
	equal "$name" "$(hear "$name")" ok
}
# shellcheck disable=SC2034 # the tests start it
ours=("$top_builddir/tests/integ/te_meta_node")

# both_ways A B - A reads and writes B's memory, and B reads and writes A's
both_ways() {
	expect "$2" 'fill 3' ok
	expect "$1" "read $2 3" ok
	expect "$1" "write $2 4" ok
	expect "$2" 'check 4' ok
	expect "$2" "read $1 4" ok
	expect "$2" "write $1 5" ok
	expect "$1" 'check 5' ok
}
