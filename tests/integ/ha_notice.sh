#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A false sign that the leader's process has ended: for a standby, its connection breaks and its port refuses, but the
# leader lives, and its clients reach it.  The standby leads at once.  The old leader, which does not reach the store either,
# answers no reader with an object that the new one has removed, or with the absence of one that it has.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ha.sh"
requires_netns
command -v redis-server >/dev/null || skip "redis-server is not installed"
mcctl=$top_builddir/tools/mcctl
two_nodes

NS=$NS_B spawn redis redis-server --bind "$ADDR_B" --protected-mode no --port 6379 --save '' --appendonly no --dir "$tmp"
NS=$NS_B started "$SPAWNED" redis 20 connects "$ADDR_B:6379"

# master NAME ADDRESS - in namespace $NS
master() {
	spawn "master-$1" "$top_builddir/master/mooncake_master" --enable_ha --ha_backend_type=redis \
		--ha_backend_connstring="$ADDR_B:6379" --ha_members="$ADDR_A:50051,$ADDR_B:50051" --rpc_address="$2" --metrics_host="$2" --metrics_port=9003 \
		--journal_dir="$tmp/journal-$1"
	PID[$1]=$SPAWNED
}
NS=$NS_A master a "$ADDR_A"
NS=$NS_A wait_for 20 master_serves "$ADDR_A:9003"
NS=$NS_B master b "$ADDR_B"
NS=$NS_A wait_for 20 eval '[ "$(metric "$ADDR_A:9003" mooncake_master_standbys_in_sync)" = 1 ]'

# at NAME COMMAND... - mcctl beside that master; objects without bytes need no node
at() {
	local ns=NS_$1 addr=ADDR_$1
	shift
	in_ns "${!ns}" "$mcctl" --master="${!addr}:50051" --timeout="${LIMIT:-10}" "$@"
}
: >"$tmp/empty"
at A put old "$tmp/empty"

# A standby that confirms, but always after its promise has ended, is removed, and reads go on.
while kill -STOP "${PID[b]}"; do
	sleep 0.3
	kill -CONT "${PID[b]}"
	sleep 0.01
done &
slows=$!
NS=$NS_A wait_for 10 eval '[ "$(metric "$ADDR_A:9003" mooncake_master_standbys_in_sync)" = 0 ]'
LIMIT=5 at A get old -
kill "$slows"
kill -CONT "${PID[b]}"
NS=$NS_A wait_for 20 eval '[ "$(metric "$ADDR_A:9003" mooncake_master_standbys_in_sync)" = 1 ]'

# B has A's address too: its packets to A are answered with resets by its own kernel, and connections are refused.
in_ns "$NS_B" sysctl -qw net.ipv4.conf.all.accept_local=1 net.ipv4.conf.veth-b.accept_local=1 \
	net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.veth-b.rp_filter=0
begin=${EPOCHREALTIME/./}
in_ns "$NS_B" ip addr add "$ADDR_A/32" dev lo
NS=$NS_B wait_for 10 master_serves "$ADDR_B:9003"
ms=$(((${EPOCHREALTIME/./} - begin) / 1000))
echo "the standby leads after $ms ms"
# It has just joined, so it waits for a promise of 2.15 s.
[ "$ms" -lt 4000 ] || fail "the standby leads after $ms ms, not before the end of the lease"
at B rm old
at B put new "$tmp/empty"
# The old leader's lease lasts.  It may answer nothing, whether it still waits or has started itself again.
kill -0 "${PID[a]}"
denies() {
	grep -q 'no such object' "$tmp/got"
}
for _ in 1 2; do
	LIMIT=1 at A get old - >"$tmp/got" 2>&1 && fail "the old leader still has the removed object"
	! denies || fail "the old leader answers: $(cat "$tmp/got")"
	LIMIT=1 at A get new - >"$tmp/got" 2>&1 && fail "the old leader has an object of the new one"
	! denies || fail "the old leader denies the object: $(cat "$tmp/got")"
done
cat "$tmp/got"

# The sign is gone: the old leader follows the new one.
in_ns "$NS_B" ip addr del "$ADDR_A/32" dev lo
NS=$NS_B wait_for 30 eval '[ "$(metric "$ADDR_B:9003" mooncake_master_standbys_in_sync)" = 1 ]'
grep -q 'starting again as a standby' "$tmp/master-a.log"
at B get new -
