# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# interop_lib.sh - one node offers memory, the other one reads and writes all of it, and both compare.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/upstream.sh"

ours=("$top_builddir/tests/integ/interop_actor")
LEN=$((256 << 20))
# the address that upstream's nodes publish
export MC_TCP_BIND_ADDRESS=127.0.0.1

# serve COMMAND... - start a node that offers LEN bytes; sets $TARGET to its name
serve() {
	rm -f "$tmp/in" "$tmp/out"
	mkfifo "$tmp/in" "$tmp/out"
	timeout 300 "$@" <"$tmp/in" >"$tmp/out" 2>"$tmp/server.log" &
	node=$!
	cleanup_fn end_pid "$node"
	exec 7>"$tmp/in" 8<"$tmp/out"
	read -r -t 60 TARGET <&8 || fail "no node: $*"
}

# tell WORD SEED - make the node fill or check its memory
tell() {
	local line
	(trap '' PIPE; echo "$*" >&7) 2>/dev/null || fail "the node ended before $*: $(tail -n 20 "$tmp/server.log")"
	read -r -t 60 line <&8 || fail "no answer from the node to $*: $(tail -n 20 "$tmp/server.log")"
	[ "$line" = ok ] || fail "$*: $line"
}

end_node() {
	exec 7>&- 8<&-
	wait_for 20 gone "$node" || fail "the node does not end"
}

# both_ways META SERVER... -- DRIVER... - read and write; the driver's command line gets "read|write
# META NAME LEN SEED" appended
both_ways() {
	local meta=$1 server=()
	shift
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	serve "${server[@]}" serve "$meta" "$LEN"
	tell fill 1
	timeout 300 "$@" read "$meta" "$TARGET" "$LEN" 1 "${VERSION-}" >"$tmp/driver.log" 2>&1 ||
		fail "reading does not work: ${server[*]} and $*"
	timeout 300 "$@" write "$meta" "$TARGET" "$LEN" 2 "${VERSION-}" >"$tmp/driver.log" 2>&1 ||
		fail "writing does not work: ${server[*]} and $*"
	tell check 2
	end_node
}

# interop RELEASE - both roles, both versions of the protocol, with and without upstream's connection pool
interop() {
	upstream_python "$1"
	theirs=("$UPSTREAM_PYTHON" "$top_srcdir/tests/integ/interop_actor.py")
	VERSION=0 both_ways P2PHANDSHAKE "${theirs[@]}" -- "${ours[@]}"
	both_ways P2PHANDSHAKE "${ours[@]}" -- "${theirs[@]}"
	LEN=$((32 << 20))
	VERSION=1 both_ways P2PHANDSHAKE "${theirs[@]}" -- "${ours[@]}"
	both_ways P2PHANDSHAKE "${ours[@]}" -- env MC_TCP_PROTO=1 MC_TCP_ENABLE_CONNECTION_POOL=1 "${theirs[@]}"
	both_ways P2PHANDSHAKE "${ours[@]}" -- env MC_TCP_ENABLE_CONNECTION_POOL=0 "${theirs[@]}"
	interop_http
	interop_etcd
}

# found_by META - each node finds the other through the metadata server, and blocks of all sizes are moved
found_by() {
	local LEN=$((256 << 20))
	VERSION=0 both_ways "$1" "${theirs[@]}" -- "${ours[@]}"
	both_ways "$1" "${ours[@]}" -- "${theirs[@]}"
}

# metadata in upstream's HTTP server
interop_http() {
	PORT=''
	free_port PORT
	spawn http "$(dirname "$UPSTREAM_PYTHON")/mooncake_http_metadata_server" --host 127.0.0.1 --port "$PORT"
	started "$SPAWNED" "upstream's metadata server" 30 connects "127.0.0.1:$PORT"
	found_by "http://127.0.0.1:$PORT/metadata"
	end_pid "$SPAWNED"
}

interop_etcd() {
	PORT='' PEER_PORT=''
	command -v etcd >/dev/null || { echo "etcd is not installed: not tried"; return; }
	free_port PORT
	free_port PEER_PORT
	spawn etcd etcd --name n --data-dir "$tmp/etcd" --listen-client-urls "http://127.0.0.1:$PORT" \
		--advertise-client-urls "http://127.0.0.1:$PORT" --listen-peer-urls "http://127.0.0.1:$PEER_PORT" \
		--initial-advertise-peer-urls "http://127.0.0.1:$PEER_PORT" \
		--initial-cluster "n=http://127.0.0.1:$PEER_PORT" --log-level error
	started "$SPAWNED" etcd 30 connects "127.0.0.1:$PORT"
	found_by "etcd://127.0.0.1:$PORT"
	end_pid "$SPAWNED"
}
