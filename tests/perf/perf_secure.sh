#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The cost of security: calls at a pool without and at one with it, in turn; and the time of exists of keys that another
# tenant has, against that of keys which do not exist.  Then the transfers over TCP with the ciphers of OpenSSL.
. "${top_srcdir:-.}/tests/lib/functions.sh"
dir=$tmp/security
mcctl() { "$top_builddir/tools/mcctl" --timeout=10 "$@"; }

# pool NAME FLAG... - a master and a node; sets MASTER
pool() {
	local name=$1
	shift
	free_port rpc
	free_port http
	MASTER=127.0.0.1:$rpc
	spawn "master-$name" "$top_builddir/master/mooncake_master" --rpc_address=127.0.0.1 --rpc_port="$rpc" \
		--metrics_host=127.0.0.1 --metrics_port="$http" --default_kv_lease_ttl=0 "$@"
	started "$SPAWNED" mooncake_master 20 mcctl --master="$MASTER" df
}

node() { # node NAME FLAG...
	local name=$1
	shift
	spawn "node-$name" env ${LIBRARIES+LD_LIBRARY_PATH="$LIBRARIES"} "$top_builddir/node/mooncake_client" --host=127.0.0.1 --master_server_address="$MASTER" --port=0 \
		--global_segment_size=512MiB "$@"
}

capacity() { [ "$(mcctl --master="$MASTER" --json df | grep -o '"capacity": *[0-9]*' | grep -o '[0-9]*$' | head -n 1)" -gt 0 ]; }
pool plain --journal_dir="$tmp/journal-plain"
node plain
wait_for 20 capacity
plain=$MASTER
"$top_builddir/master/mooncake_master" --init_security --security_dir="$dir" >"$tmp/out"
export MC_CREDENTIAL=$dir/admin.credential
pool secure --security=on --security_dir="$dir" --journal_dir="$tmp/journal" --enable_multi_tenants
# A library with that name and without its functions.
mkdir "$tmp/lib"
ln -s "$(ldconfig -p | awk '$1 == "libm.so.6" { print $NF; exit }')" "$tmp/lib/libIPSec_MB.so.1"
for tenant in ours theirs openssl; do
	mcctl --master="$MASTER" quota $tenant 500MB >"$tmp/out"
	for role in node client; do
		mcctl --master="$MASTER" credential create "$tmp/$role-$tenant" --role=$role --name="$role-$tenant" \
			--tenant=$tenant >"$tmp/out"
	done
	[ $tenant != openssl ] || LIBRARIES=$tmp/lib
	node $tenant --credential="$tmp/node-$tenant" --encrypt=control
done
wait_for 20 capacity
secure=$MASTER
unset MC_CREDENTIAL
"$top_builddir/tests/perf/perf_secure" "$plain" "$secure" "$tmp/client-ours"
LD_LIBRARY_PATH=$tmp/lib "$top_builddir/tests/perf/perf_secure" tcp "$plain" "$secure" "$tmp/client-openssl" |
	sed 's/over TCP/over TCP, OpenSSL/'
n=100000
[ "${PERF_QUICK-}" = 1 ] && n=100
"$top_builddir/tests/perf/perf_secure" time "$secure" "$tmp/client-ours" "$tmp/client-theirs" $n
