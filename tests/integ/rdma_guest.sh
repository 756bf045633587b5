#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdma_guest.sh BUILD README KIND CASE... - the part of rdma_vm.sh that runs in the virtual machine, as root, with the NICs
# KIND0 to KIND3 (rxe: soft-RoCE, siw: soft-iWARP) on nic0 to nic3, which are ports port0 to port3 of one bridge.  Runs the
# cases, and prints "case NAME MS" for each.
set -euo pipefail
build=$1 readme=$2 kind=$3
shift 3
work=$(mktemp -d)
cd "$work"
ulimit -l unlimited
export MC_RDMA_SAME_HOST=1
# shellcheck source=tests/lib/guest.sh
. "$(dirname "$readme")/tests/lib/guest.sh"

# owner NICS - an engine with 16 MiB; sets $owner and $where
owner() {
	rm -f in owner.out
	mkfifo in
	ENGINE_ACTOR_RDMA=$1 "$build/tests/integ/engine_actor" serve 127.0.0.1 $((16 << 20)) <in >owner.out 2>owner.log &
	owner=$!
	exec 9>in
	wait_until "the owner does not start" test -s owner.out
	read -r _ where <owner.out
}

# drive NICS CLIENTS SIZE SECONDS - write, read back and compare; fails if any byte is wrong or any call fails.
# Prints for each client its rate and the transfers that took another path.
drive() {
	# shellcheck disable=SC2086  # several arguments
	ENGINE_ACTOR_RDMA=$1 timeout 60 "$build/tests/integ/engine_actor" drive 127.0.0.1 ours "$2" $where \
		$((16 << 20)) "$3" "$4" 2>>drive.log
}

owner_end() {
	exec 9>&-
	wait "$owner" || fail "the owner ended with status $?"
}

# drives ... - the same, and no transfer took another path
drives() {
	drive "$@" >out || fail "transfers failed: $(cat out)"
	all_over_rdma <out
}

# all_over_rdma - the output of drive: no transfer took another path
all_over_rdma() {
	while read -r rate others _; do
		[ "$rate" -gt 0 ] && [ "$others" -eq 0 ] || fail "$rate bytes/s, $others transfers over other paths"
	done
}

one_nic() {
	owner ${kind}0
	drives ${kind}1 1 4096 2
	drives ${kind}1 1 1048576 2
	drives ${kind}1 2 100003 2
	owner_end
}

four_nics() {
	owner ${kind}0,${kind}1,${kind}2,${kind}3
	drives ${kind}3,${kind}2,${kind}1,${kind}0 2 1048576 3
	owner_end
}

# A port of the client goes down twice; then the cable of an owner's NIC is pulled.
links() {
	owner ${kind}0,${kind}1
	drive ${kind}2,${kind}3 1 262144 9 >out &
	local driver=$!
	for _ in 1 2; do
		sleep 1
		ip link set nic2 down
		sleep 1
		ip link set nic2 up
	done
	ip link set port1 down
	sleep 1
	ip link set port1 up
	wait "$driver" || fail "transfers failed while a link was down: $(cat out)"
	all_over_rdma <out
	grep -q 'a NIC is down' drive.log || fail "the loss of a NIC was not noticed"
	owner_end
}

# fault NAME OWNER-NICS NICS COMMAND... - run the command while bytes move; no transfer may fail or be wrong.  Prints how
# long the longest group of 8 transfers of 64 KiB took, which is the time until the bytes flow again.
fault() {
	local name=$1 rate others longest
	owner "$2"
	drive "$3" 1 65536 5 >out &
	local driver=$!
	shift 3
	sleep 3
	"$@"
	wait "$driver" || fail "transfers failed: $name: $(cat out)"
	read -r rate others longest <out
	echo "fault $name lost 0 wrong 0 other-path $others longest-ms $longest rate $rate"
	owner_end
}

nic_down() {
	ip link set nic2 down
	sleep 1
	ip link set nic2 up
}

cable_pulled() {
	ip link set port1 down
	sleep 1
	ip link set port1 up
}

all_nics_down() {
	ip link set nic2 down
	ip link set nic3 down
	sleep 1
	ip link set nic2 up
	ip link set nic3 up
}

packets_lost() {
	tc qdisc add dev nic2 root netem loss 2%
	sleep 1
	tc qdisc del dev nic2 root
}

faults() {
	fault none ${kind}0,${kind}1 ${kind}2,${kind}3 true
	fault nic_down ${kind}0,${kind}1 ${kind}2,${kind}3 nic_down
	fault peer_cable_pulled ${kind}0,${kind}1 ${kind}2,${kind}3 cable_pulled
	fault all_nics_down ${kind}0,${kind}1 ${kind}2,${kind}3 all_nics_down
	fault packets_lost ${kind}0,${kind}1 ${kind}2,${kind}3 packets_lost
}

loss() {
	owner ${kind}0
	tc qdisc add dev nic1 root netem loss 1% delay 1ms
	# A busy machine may take the NIC as disconnected for a moment, and use TCP.
	drive ${kind}1 1 65536 3 >out || fail "transfers failed: $(cat out)"
	tc qdisc del dev nic1 root
	owner_end
}

# The owner is killed, and another process takes its address.
killed() {
	owner ${kind}0
	drive ${kind}1 1 65536 20 >out 2>&1 &
	local driver=$! begin=$SECONDS
	sleep 2
	kill -9 "$owner"
	if wait "$driver"; then fail "transfers to a dead owner succeed"; fi
	[ $((SECONDS - begin)) -lt 12 ] || fail "the end of the owner was noticed only after $((SECONDS - begin)) s"
	exec 9>&-
}

store_and_mounts() {
	"$build/master/mooncake_master" --rpc_port=50051 --metrics_port=9003 --journal_dir=none >master.log 2>&1 &
	wait_until "no master" bash -c 'exec 3<>/dev/tcp/127.0.0.1/50051'
	mkdir a b
	# the two commands of the README
	sed -n '/^## RDMA$/,/^## Use/p' "$readme" | grep -E '^(mooncake_client|mcfs) ' >commands
	[ "$(wc -l <commands)" -eq 2 ] || fail "no two commands in the README: $(cat commands)"
	sed -i -e "s|^mooncake_client |$build/node/mooncake_client --port=50099 |" -e "s|^mcfs |$build/mcfs/mcfs --port=0 |" \
		-e "s| \&\$| --global_segment_size=64mb \&|; s|mlx5_|$kind|; s|10.0.0.1|127.0.0.1|; s|/mnt/mooncake|$work/b|" commands
	# shellcheck source=/dev/null
	. ./commands >commands.log 2>&1
	"$build/mcfs/mcfs" -f --protocol=rdma --device_names=${kind}2 --global_segment_size=0 --port=0 127.0.0.1:50051 a \
		>a.log 2>&1 &
	local a=$!
	wait_until "no mount" mountpoint -q a
	wait_until "no mount" mountpoint -q b
	"$build/tools/mcctl" --master=127.0.0.1:50051 doctor >doctor.log || :
	grep -q "ok .*RDMA NIC ${kind}0 is active" doctor.log || fail "mcctl doctor does not name the NICs: $(cat doctor.log)"
	head -c 12000000 /dev/urandom >big
	cp big b/big
	cmp big a/big || fail "the bytes that b wrote differ on a"
	cmp big b/big || fail "the bytes that b wrote differ on b"
	grep -q '^mooncake_transfer_bytes_total{path="rdma",op="write"} [1-9]' b/.mcfs/metrics || fail "no write over RDMA"
	grep -q "^mooncake_transfer_nic_bytes_total{nic=\"${kind}1\"} [1-9]" b/.mcfs/metrics || fail "no bytes over ${kind}1"
	grep -q '^mooncake_transfer_bytes_total{path="rdma",op="read"} [1-9]' b/.mcfs/metrics || fail "no read over RDMA"
	umount a b
	wait "$a" || :
}

# A pool with security, which rdma_vm.sh has made in $RDMA_POOL: RDMA needs permission; a client of one tenant, with its
# valid credential and queue pairs, gets nothing of the other's segment on the same NIC; a revocation ends the access.
secure_node() { # secure_node NAME [OPTION...]
	exec "$build/node/mooncake_client" --credential="$pool/node-$1" --host=127.0.0.1 --port=0 \
		--master_server_address=127.0.0.1:50052 --global_segment_size=16mb --protocol=rdma --setup_timeout=60s \
		--device_names="${kind}0" "${@:2}"
}

thief() { # thief CREDENTIAL COMMAND...
	MC_CREDENTIAL=$pool/$1 "$build/tests/integ/rdma_thief" 127.0.0.1:50052 "${kind}1" "${@:2}" 2>>thief.log
}

secure_pool() {
	local pids=() n
	pool=$work/pool
	cp -r "$RDMA_POOL" "$pool"
	"$build/master/mooncake_master" --security=on --security_dir="$pool/security" --journal_dir="$pool/journal" \
		--enable_multi_tenants --rpc_address=127.0.0.1 --rpc_port=50052 --metrics_host=127.0.0.1 \
		--metrics_port=9004 >secure.log 2>&1 &
	pids+=($!)
	if (secure_node alice) >refused.log 2>&1; then fail "RDMA needs no permission"; fi
	grep -q 'RDMA has no encryption.*--rdma_with_security=allow' refused.log || fail "no reason"
	for n in alice bob; do
		(secure_node $n --rdma_with_security=allow) >"node-$n.log" 2>&1 &
		pids+=($!)
		wait_until "no node" grep -q ' is up node=' "node-$n.log"
	done
	grep -q 'bytes over RDMA are not encrypted' node-alice.log || fail "no warning"

	# put and get, by a mount of alice
	mkdir sa
	"$build/mcfs/mcfs" -f --credential="$pool/alice" --rdma_with_security=allow --protocol=rdma \
		--device_names="${kind}2" --global_segment_size=0 --port=0 127.0.0.1:50052 sa >mount.log 2>&1 &
	pids+=($!)
	wait_until "no mount" mountpoint -q sa
	head -c 4000000 /dev/urandom >secret
	cp secret sa/secret || fail "the mount does not store"
	dd if=sa/secret iflag=direct bs=1M status=none | cmp - secret || fail "the bytes that were written differ"
	grep -q '^mooncake_transfer_bytes_total{path="rdma",op="write"} [1-9]' sa/.mcfs/metrics || fail "no write over RDMA"
	grep -q '^mooncake_transfer_bytes_total{path="rdma",op="read"} [1-9]' sa/.mcfs/metrics || fail "no read over RDMA"

	# another tenant
	export MC_RDMA_WITH_SECURITY=allow
	thief bob tell >told || fail "bob does not reach his own segment: $(cat told)"
	# shellcheck disable=SC2046  # several words
	thief alice steal $(cat told) >stolen || fail "alice got in: $(cat stolen)"
	sed 's/^/thief: /' stolen
	thief bob check >told || fail "bob's bytes have changed"

	# a revocation
	thief late hold >held &
	local holder=$! begin
	wait_until "no read over RDMA" grep -q reads held
	begin=${EPOCHREALTIME/./}
	MC_CREDENTIAL=$pool/security/admin.credential "$build/tools/mcctl" --master=127.0.0.1:50052 credential revoke \
		"$(cat "$pool/serial")" >/dev/null
	wait_until "the owner does not end the queue pairs" \
		grep -q 'not admitted any more: its queue pairs are destroyed name=late' node-alice.log
	echo "thief: revoked, and cut off after $(((${EPOCHREALTIME/./} - begin) / 1000)) ms, with the time of mcctl"
	wait "$holder" || fail "the revoked client: $(cat held)"
	grep -q ends held || fail "the revoked client: $(cat held)"
	# the others go on
	cp secret sa/again || fail "the mount does not store any more"
	cmp secret sa/again || fail "the bytes that were written differ"
	umount sa
	kill "${pids[@]}" 2>/dev/null || :
	unset MC_RDMA_WITH_SECURITY
}

# A NIC fits none of the other kind, so the bytes take TCP.
mixed() {
	local rate others
	owner rxe0
	drive siw1 1 65536 2 >out || fail "transfers failed: $(cat out)"
	read -r rate others _ <out
	[ "$rate" -gt 0 ] && [ "$others" -gt 0 ] || fail "$rate bytes/s, $others transfers over other paths"
	grep -q "siw1 fits none of the peer's NICs" drive.log || fail "the log does not say why: $(cat drive.log)"
	owner_end
	owner siw1
	drive rxe0 1 65536 2 >out || fail "transfers failed: $(cat out)"
	read -r rate others _ <out
	[ "$rate" -gt 0 ] && [ "$others" -gt 0 ] || fail "$rate bytes/s, $others transfers over other paths"
	owner_end
}

# NICs that do not need the connection manager use it when both sides want it.
by_rdma_cm() {
	MC_RDMA_CM=1 owner rxe0,rxe1
	rdma resource show cm_id >cm_ids
	grep -q 'rxe1/1 .*LISTEN' cm_ids || fail "no listener: $(cat cm_ids)"
	MC_RDMA_CM=1 drives rxe3,rxe2 2 1048576 2
	owner_end
	owner rxe0
	MC_RDMA_CM=1 drives rxe1 1 65536 1
	owner_end
}

cases "$@"
