#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A secure pool as README has it: master, two nodes, a mount, programs that need only MC_CREDENTIAL; roles, tenants,
# rotation of the secret and revocation while clients work, and a restart.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires jq openssl
dir=$tmp/security
master() { "$top_builddir/master/mooncake_master" --security_dir="$dir" "$@"; }
mcctl() { "$top_builddir/tools/mcctl" --master="$MASTER" --timeout=5 "$@"; }
as() { # as NAME COMMAND...
	MC_CREDENTIAL=$tmp/$1 mcctl "${@:2}"
}
master --init_security >"$tmp/init" || fail "no secret"
export MC_CREDENTIAL=$dir/admin.credential
start_secure() {
	MASTER_SECURE=(--security=on --security_dir="$dir" --journal_dir="$tmp/journal" --default_kv_lease_ttl=0 --enable_multi_tenants)
	spawn master "$top_builddir/master/mooncake_master" --rpc_address=127.0.0.1 --rpc_port="${MASTER##*:}" \
		--metrics_host=127.0.0.1 --metrics_port="${MASTER_HTTP##*:}" "${MASTER_SECURE[@]}" "$@"
	MASTER_PID=$SPAWNED
	started "$MASTER_PID" mooncake_master 20 mcctl df
}
free_port rpc
free_port http
MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
start_secure
for tenant in alice bob default; do
	mcctl quota "$tenant" 16MB >/dev/null
	mcctl credential create "$tmp/node-$tenant" --role=node --name="node-$tenant" --tenant=$tenant >/dev/null
	mcctl credential create "$tmp/$tenant" --role=client --name="$tenant" --tenant=$tenant >/dev/null
done
mcctl credential create "$tmp/reader" --role=reader --name=reader --tenant=alice >/dev/null
node() { # node TENANT [NAME]; with NAME it reaches others over TCP only
	MC_CREDENTIAL='' spawn "node-${2-$1}" env ${2+MC_STORE_MEMCPY=0} "$top_builddir/node/mooncake_client" --credential="$tmp/node-$1" --host=127.0.0.1 \
		--master_server_address="$MASTER" --port=0 --global_segment_size=16MiB
}
node alice
MC_ENCRYPT=control node bob
segments() { [ "$(mcctl --json df | jq '.segments | length')" = "$1" ]; }
wait_for 20 segments 2
echo of-alice >"$tmp/a"
echo of-bob >"$tmp/b"

# ---- tenants and roles ----
as alice put key "$tmp/a"
as bob put key "$tmp/b"
as alice get key - | cmp - "$tmp/a"
as reader get key - | cmp - "$tmp/a"
as bob get key - | cmp - "$tmp/b"
as bob put only-bobs "$tmp/b"
[ "$(as alice ls)" = key ] || fail "alice sees $(as alice ls)"
fails as alice stat only-bobs
fails as reader put key2 "$tmp/a"
fails as reader rm key
fails as alice quota bob 0
fails as alice credential list
# Each object is in a segment of its tenant.
[ "$(mcctl --json df | jq -c '[.segments[].objects] | sort')" = '[1,2]' ] || fail "segments: $(mcctl df)"
# No segment takes objects of a tenant without one, however much room others have.
fails env MC_CREDENTIAL="$tmp/default" "$top_builddir/tools/mcctl" --master="$MASTER" --timeout=1 put key "$tmp/a"
node default tcp
wait_for 20 segments 3
as default put key "$tmp/a"

# ---- data ports: each range needs a capability of its own, for each direction ----
tcp() { MC_STORE_MEMCPY=0 as "$@"; }
head -c 3000001 /dev/urandom >"$tmp/big"
tcp alice put big "$tmp/big"
tcp alice get big - | cmp - "$tmp/big"
tcp reader get big - | cmp - "$tmp/big"
# The client knows the address and the key of the segment, and its connection is admitted.
MC_FAULTS=client.capability=error:EACCES fails tcp alice get key -
MC_FAULTS=client.capability=error:EACCES fails tcp alice put key2 "$tmp/a"
MC_FAULTS=client.capability=error:EACCES as alice get key - | cmp - "$tmp/a"
# An owner that refuses an open object's capabilities twice gets new ones.
MC_FAULTS=client.capability=error:EACCES@1,client.capability=error:EACCES@2 tcp alice get key - | cmp - "$tmp/a"
# Owners need them too, for copies.
place() { mcctl --json df | jq -r '.segments[].name' | sort; }
place >"$tmp/places"
tcp default put big "$tmp/big"
node default
wait_for 20 segments 4
mcctl copy big "$(place | comm -13 "$tmp/places" -)" >"$tmp/out"
copied() { mcctl --json stat big | jq -e '[.. | .replicas? // empty | length] == [2]' >/dev/null; }
wait_for 20 copied

# ---- a restart of the master: all continue with their credentials ----
certify() { # certify NAME URI
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$tmp/$1.key" -out "$tmp/$1.csr"
	openssl x509 -req -in "$tmp/$1.csr" -CA "$tmp/ca.crt" -CAkey "$tmp/ca.key" -CAcreateserial -days 1 \
		-extfile <(echo "subjectAltName=URI:$2") -out "$tmp/$1.crt"
	chmod 600 "$tmp/$1.key"
	printf '%s\n' "cert $tmp/$1.crt" "key_file $tmp/$1.key" "ca $tmp/ca.crt" "map $tmp/map" >"$tmp/by-$1"
	chmod 600 "$tmp/by-$1"
}
{
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=ca -days 1 -keyout "$tmp/ca.key" \
		-out "$tmp/ca.crt"
	certify master spiffe://p/master
	certify app spiffe://p/alice/app
	certify other spiffe://p/other
} >"$tmp/openssl.log" 2>&1 || fail "no certificates: $(cat "$tmp/openssl.log")"
printf '%s\n' 'spiffe://p/master master * masters' 'spiffe://p/alice/* client alice app' >"$tmp/map"
chmod 644 "$tmp/map"
kill_pid "$MASTER_PID"
start_secure --tls_cert="$tmp/master.crt" --tls_key="$tmp/master.key" --tls_ca="$tmp/ca.crt" --tls_map="$tmp/map"
wait_for 20 as alice get key - >/dev/null
as alice get key - | cmp - "$tmp/a"
# Owners have told the keys of their segments again.
tcp alice get big - | cmp - "$tmp/big"

# ---- TCP with and without encrypted objects: each process may choose ----
bench() { # bench TENANT ENCRYPT - puts and gets, which it compares
	MC_CREDENTIAL=$tmp/$1 MC_ENCRYPT=$2 "$top_builddir/tools/mcbench" --master="$MASTER" --force_tcp --threads=1 --batch=2 \
		--duration=50ms --sizes=64KiB --working_set=2MiB bench
}
for tenant in alice bob; do
	for encrypt in all control; do
		bench "$tenant" "$encrypt" >"$tmp/bench" 2>&1 || fail "$tenant, $encrypt: $(cat "$tmp/bench")"
	done
done
fails bench alice some
grep -q 'it must be all or control' "$tmp/fails.out" || fail "a wrong MC_ENCRYPT: $(cat "$tmp/fails.out")"

# ---- RDMA, which does not encrypt, needs permission, whether there are NICs or not ----
rdma_node() {
	MC_CREDENTIAL='' "$top_builddir/node/mooncake_client" --credential="$tmp/node-alice" --protocol=rdma --host=127.0.0.1 \
		--master_server_address="$MASTER" --port=0 --global_segment_size=16MiB "$@"
}
fails rdma_node
grep -q 'RDMA has no encryption.*--rdma_with_security=allow' "$tmp/fails.out" || fail "no reason: $(cat "$tmp/fails.out")"
fails rdma_node --rdma_with_security=perhaps
grep -q 'it must be allow or refuse' "$tmp/fails.out" || fail "a wrong value: $(cat "$tmp/fails.out")"
fails "$top_builddir/tools/transfer_engine_bench" --mode=target --local_server_name=127.0.0.1 --protocol=rdma
grep -q 'RDMA has no encryption' "$tmp/fails.out" || fail "a transfer engine: $(cat "$tmp/fails.out")"

# ---- certificates give identities too, also at data ports ----
as by-app put certified "$tmp/b"
tcp alice get certified - | cmp - "$tmp/b"
tcp by-app get big - | cmp - "$tmp/big"
as by-app rm certified
fails as by-app stat only-bobs
fails as by-app quota bob 0
fails as by-other ls

# ---- revocation and rotation while clients work ----
work() { # work NAME: puts and gets until $tmp/stop exists; failures are counted in $tmp/failed.NAME
	local n=0 bad=0
	while [ ! -e "$tmp/stop" ]; do
		n=$((n + 1))
		{ as "$1" put --upsert "w$n" "$tmp/a" && as "$1" get "w$n" - | cmp -s - "$tmp/a"; } >>"$tmp/work.$1" 2>&1 ||
			bad=$((bad + 1))
	done
	echo $bad >"$tmp/failed.$1"
}
work alice &
worker=$!
late=$(mcctl credential create "$tmp/late" --role=client --name=late --tenant=bob | sed 's/.*serial //')
as late get key - | cmp - "$tmp/b"
MC_CREDENTIAL=$tmp/late spawn watcher "$top_builddir/tools/mcctl" --master="$MASTER" watch
watcher=$SPAWNED
connected() { [ "$(mcctl --json credential list | jq '.credentials | length')" -gt 0 ] && alive "$watcher"; }
connected
mcctl credential revoke "$late" >/dev/null
fails as late get key -
cut() { grep -q 'credential is not valid any more name=late' "$tmp/master.log"; }
wait_for 5 cut
[ "$(mcctl --json credential list | jq -r '.credentials[] | select(.name == "late") | .state')" = revoked ] ||
	fail "the list does not say that the credential is revoked"
master --rotate_security >/dev/null
read_again() { grep -q "the secret was read again newest=$1" "$tmp/master.log"; }
wait_for 5 read_again 2
mcctl credential create "$tmp/new-admin" --role=admin --name=admin2 '--tenant=*' >/dev/null
as bob get key - | cmp - "$tmp/b"
touch "$tmp/stop"
wait "$worker"
[ "$(cat "$tmp/failed.alice")" = 0 ] || fail "$(cat "$tmp/failed.alice") calls failed: $(tail -n 5 "$tmp/work.alice")"
# The second rotation drops the first secret, and with it the credentials made under it.
master --rotate_security >/dev/null
wait_for 5 read_again 3
fails as bob get key -
MC_CREDENTIAL=$tmp/new-admin mcctl df >/dev/null
exit 0
