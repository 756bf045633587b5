# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# te_meta_upstream.sh RELEASE - our engine and that release of upstream's find each other through
# metadata servers and move each other's memory; shared by the tests te_meta_0_3_*.sh.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
. "${top_srcdir:?}/tests/integ/meta_servers.sh"
requires curl
upstream_python "$1"
export no_proxy=127.0.0.1

# Upstream's wheel is built without redis and aborts when redis is requested: checked here, so that
# a release that changes this is noticed.
redis_of_theirs() {
	server_use redis || return 0
	"$UPSTREAM_PYTHON" "$top_srcdir/tests/integ/te_meta_node.py" "$CONN" theirs "$LEN" \
		</dev/null >"$tmp/redis.log" 2>&1 &&
		fail "upstream $1 supports redis now: put it in the list of kinds below"
	grep -q 'Unable to find metadata storage plugin redis' "$tmp/redis.log" ||
		fail "upstream $1 and redis: $(tail -n 3 "$tmp/redis.log")"
	echo "not tried with redis: upstream's wheel $1 is built without it and aborts (our engines: te_meta.sh)"
	end_pid "$SERVER_PID"
}
redis_of_theirs "$1"

# Memory of the shortest and of the longest size.
extremes() {
	local LEN
	for LEN in 1 $((256 << 20)); do
		engine_start "ours-$LEN" "${ours[@]}"
		engine_start "theirs-$LEN" "$UPSTREAM_PYTHON" "$top_srcdir/tests/integ/te_meta_node.py"
		both_ways "ours-$LEN" "theirs-$LEN"
		node_end "ours-$LEN"
		node_end "theirs-$LEN"
	done
}

for kind in http etcd; do
	server_use "$kind" || continue
	extremes
	engine_start ours "${ours[@]}"
	engine_start theirs "$UPSTREAM_PYTHON" "$top_srcdir/tests/integ/te_meta_node.py"
	both_ways ours theirs
	both_ways theirs ours
	engine_start more "${ours[@]}"
	both_ways more theirs
	for node in ours theirs more; do
		node_end "$node"
	done
	end_pid "$SERVER_PID"
done
