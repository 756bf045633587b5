#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A process that reaches the masters' ports but is no master: its FEED and JOIN messages change neither the standby's copy
# nor the members in the store, and after each of them the leader's end loses no object.  Standbys that it offers, and
# that confirm late, do not slow down puts.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ha.sh"
requires curl python3 etcd
mcctl=$top_builddir/tools/mcctl
constant() { awk -v name="$1" '$2 == name { sub(/u$/, "", $3); print $3 }' "$top_srcdir/proto/msg.h"; }
hello=$(constant MCP_MAGIC),$(constant MCP_VERSION),$(constant MCP_MIN_VERSION)
forged() { timeout 30 python3 "$top_srcdir/tests/integ/ha_forged.py" "$hello" "$@"; }
TTL=3

# the term and the members in the store
state() {
	curl -sf --max-time 5 "http://${STORE_URL#etcd://}/v3/kv/range" \
		-d "{\"key\":\"$(printf mooncake-store/mooncake_cluster/master_state | base64 -w0)\"}" |
		sed 's/.*"value":"\([^"]*\)".*/\1/' | base64 -d
}
term() { state | sed 's/.*"term":\([0-9]*\).*/\1/'; }
# a leader may remove files meanwhile
copy() { (cd "$tmp/journal-$1" && sha256sum -- checkpoint-* journal-* || :); }

# same NAME WHAT - the standby has the same copy, the store the same members, and the leader counts it as before
same() {
	equal "copy of $1 after $2" "$(copy "$1")" "$was_copy"
	equal "members after $2" "$(state)" "$was_state"
}

# refused NAME WHAT FEED-ARGUMENT... - each message is refused, and nothing has changed, as $check says
check=same
refused() {
	local name=$1 what=$2
	shift 2
	forged feed "${RPC[$name]}" "$@" >"$tmp/said"
	! grep -qx 0 "$tmp/said" || fail "$what: a message was accepted: $(cat "$tmp/said")"
	"$check" "$name" "$what"
}

# When the lease has ended the standby leads, with its own copy, and changes the files itself.
leads_or_same() {
	local copy
	copy=$(copy "$1")
	[ "$(term)" != "$number" ] || equal "copy of $1 after $2" "$copy" "$was_copy"
}

all_there() {
	local i
	for ((i = 0; i < 10; i++)); do
		equal "k$i" "$("$mcctl" --master="$MASTERS" get "k$i" -)" "value $i"
	done
}

leads() { [ "$(leader)" = "$1" ]; }

# a checkpoint without objects, of that cluster
empty_checkpoint() {
	local rpc http pid
	free_port rpc
	free_port http
	spawn "private-$1" "$top_builddir/master/mooncake_master" --cluster_id="$1" --rpc_address=127.0.0.1 --rpc_port="$rpc" \
		--metrics_host=127.0.0.1 --metrics_port="$http" --journal_dir="$tmp/private-$1"
	pid=$SPAWNED
	started "$pid" "private master" 20 master_serves "127.0.0.1:$http"
	stop_pid "$pid"
	find "$tmp/private-$1" -name 'checkpoint-*' | tail -n 1
}

# instead_of NAME NEXT CHECKPOINT - while that leader stands still, its standby gets another state, and then leads
instead_of() {
	local old=$1 next=$2 number check=leads_or_same
	stop_still "${PID[$old]}"
	number=$(term)
	was_copy=$(copy "$next") was_state=$(state)
	refused "$next" "a checkpoint of nobody" "$number" "" "" "$3"
	refused "$next" "a checkpoint with a nonce" "$number" "$nonce" "${RPC[$next]}#0000000000000000" "$3"
	wait_for 20 leads "$next"
	kill_pid "${PID[$old]}"
	all_there
	start_ha "$old"
	wait_for 20 in_sync "$next" 1
}

start_etcd
# as etcd's own documents write it
STORE=(--etcd_endpoints="http://${STORE_URL#etcd://}")
masters a b
start_ha a
wait_for 20 leader >/dev/null
start_ha b
wait_for 20 in_sync a 1
node=
free_port node
spawn node "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port="$node" --master_server_address="$MASTERS" \
	--global_segment_size=64MB
wait_for 20 eval '"$mcctl" --master="$MASTERS" --json df | found "\"state\": *\"ok\""'
for ((i = 0; i < 10; i++)); do
	echo "value $i" >"$tmp/value"
	"$mcctl" --master="$MASTERS" put "k$i" "$tmp/value"
done
nonce=0123456789abcdef0123456789abcdef
was_copy=$(copy b) was_state=$(state)
name_b=$(sed 's/.*,"\([^"]*\)".*/\1/' <<<"$was_state")
[ "${name_b%#*}" = "${RPC[b]}" ] || fail "unknown members: $was_state"

echo "feeds of another term, and of the leader's"
refused b "the highest term" 18446744073709551615 "" ""
refused b "the leader's term" "$(term)" "" ""
refused b "a wrong nonce" "$(term)" "$nonce" "$name_b"
grep -q 'refused a feed: it is of term 18446744073709551615, and the term in the store is 1 peer=127.0.0.1' "$tmp/master-b.log"

echo "another standby at the address of the one in sync"
forged join "${RPC[a]}" "${RPC[b]}#0000000000000000" "$nonce" >/dev/null
wait_for 10 grep -q 'not fed any more.*#0000000000000000' "$tmp/master-a.log"
same b "a JOIN with another id"
[ "$(forged join "${RPC[a]}" "${RPC[b]}#0000000000000000" "${nonce//[0-9a-f]/0}")" != 0 ] ||
	fail "a JOIN without a nonce for the address of a living standby was accepted"
# The log has one such line in a second.
elsewhere() {
	[ "$(forged join "${RPC[a]}" "192.0.2.1:50051#0000000000000000" "$nonce")" != 0 ] &&
		grep -q 'asks for a standby at 192.0.2.1:50051, which is another host' "$tmp/master-a.log"
}
wait_for 10 elsewhere || fail "a JOIN for the address of another host was accepted, or without a word"
same b "further JOINs"
wait_for 20 in_sync a 1

echo "feeds while the leader stands still"
instead_of a b "$(empty_checkpoint mooncake_cluster)"
instead_of b a "$(empty_checkpoint other)"

echo "late standbys"
# median - milliseconds of a put
median() {
	local i begin
	for ((i = 0; i < 9; i++)); do
		begin=${EPOCHREALTIME/./}
		"$mcctl" --master="$MASTERS" put "late$1.$i" "$tmp/value"
		echo $(((${EPOCHREALTIME/./} - begin) / 1000))
	done | sort -n | sed -n 5p
}
before=$(median 0)
spawn late python3 "$top_srcdir/tests/integ/ha_forged.py" "$hello" slow "${RPC[a]}" 127.0.0.2 14 0.45
late=$SPAWNED
wait_for 20 grep -q part "$tmp/late.log"
wait_for 20 grep -q '127.0.0.2 has asked for 4 standbys already' "$tmp/master-a.log"
after=$(median 1)
echo "median put $before ms, with 14 late standbys $after ms"
[ "$after" -lt $((before + 200)) ] || fail "late standbys slow down puts: $before ms -> $after ms"
wait_for 20 in_sync a 1
end_pid "$late"
[ "$(metric "${HTTP[a]}" mooncake_master_standby_confirm_seconds_count)" -gt 0 ] || fail "no metric of confirmations"
kill_pid "${PID[a]}"
wait_for 20 leads b
all_there
