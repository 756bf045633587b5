#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All packets of a pool with security, in a network namespace of its own: neither the bytes of an object nor its key nor
# a token is in any TCP stream.  With --encrypt=control the bytes are, and without security bytes and key, so that the
# search is known to find them.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_netns
requires curl jq openssl python3
unset MC_ALLOW_INSECURE
NS=mcw-$$
ip netns add "$NS"
cleanup_fn ip netns del "$NS"
in_ns "$NS" ip link set lo up
wire() { in_ns "$NS" python3 "$top_srcdir/tests/integ/secure_wire.py" "$@"; }
# No process uses shared memory of another one.
export MC_STORE_MEMCPY=0
KEY=the-marked-key-of-$$ size=3000000
mkdir "$tmp/value"
python3 -c 'import os, sys; sys.stdout.buffer.write(os.urandom(16) * int(sys.argv[1]))' $((size / 16)) >"$tmp/value/$KEY"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
	-days 1 -keyout "$tmp/http.key" -out "$tmp/http.crt" 2>"$tmp/openssl.log" || fail "no certificate"
chmod 600 "$tmp/http.key"
library=$top_builddir/client/.libs/libmooncake_store.so
mcctl() { in_ns "$NS" "$top_builddir/tools/mcctl" --master="$MASTER" --timeout=5 "$@"; }
objects() { MC_CREDENTIAL=$client mcctl "$@"; }
segments() { [ "$(mcctl --json df | jq '.segments | length')" = "$1" ]; }
copied() { mcctl --json stat "$KEY" | jq -e '[.. | .replicas? // empty | length] == [2]'; }

# work SCHEME CURL_ARG... - put, upsert, copy to the other node, get, ranges, list; over RPC, TCP and HTTP
work() {
	local scheme=$1 to
	shift
	objects put "$KEY" "$tmp/value/$KEY"
	objects put --upsert "$KEY" "$tmp/value/$KEY"
	objects get "$KEY" - | cmp - "$tmp/value/$KEY" || fail "another value"
	to=$(mcctl --json df | jq -r '[.segments[] | select(.objects == 0).name] | first')
	mcctl copy "$KEY" "$to" >"$tmp/copy.log"
	wait_for 20 copied || fail "no copy: $(mcctl stat "$KEY")"
	# A sanitizer's library cannot be loaded by a plain python3.
	[ -n "${SANITIZER-}" ] || MC_CREDENTIAL=$client wire range "$library" "$MASTER" "$tmp/value/$KEY" || fail "ranges cannot be read"
	[ "$(objects ls)" = "$KEY" ] || fail "the list is $(objects ls)"
	in_ns "$NS" curl -sf --max-time 5 "$@" "$scheme://$MASTER_HTTP/get_all_keys" | found -F "$KEY" || fail "no keys over HTTP"
}

# pool NAME ENCRYPT WANTED - a pool whose packets show no more and no less than WANTED; ENCRYPT "": without security
pool() {
	local name=$1 encrypt=$2 number master=() admin node token='' pid capture
	mkdir "$tmp/$name"
	spawn "captured-$name" python3 "$top_srcdir/tests/integ/secure_wire.py" capture "$tmp/$name/frames"
	capture=$SPAWNED
	wait_for 10 grep -q ready "$tmp/captured-$name.log" || fail "no capture: $(cat "$tmp/captured-$name.log")"
	free_port number
	MASTER=127.0.0.1:$number
	free_port number
	MASTER_HTTP=127.0.0.1:$number
	if [ "$encrypt" ]; then
		"$top_builddir/master/mooncake_master" --init_security --security_dir="$tmp/$name/security" >"$tmp/out"
		export MC_CREDENTIAL=$tmp/$name/security/admin.credential MC_ENCRYPT=$encrypt
		master=(--security=on --audit_log=off --security_dir="$tmp/$name/security" --http_tls_cert="$tmp/http.crt"
			--http_tls_key="$tmp/http.key")
	fi
	spawn "master-$name" "$top_builddir/master/mooncake_master" --rpc_address=127.0.0.1 --rpc_port="${MASTER##*:}" \
		--metrics_host=127.0.0.1 --metrics_port="${MASTER_HTTP##*:}" --default_kv_lease_ttl=0 "${master[@]}"
	pids=("$SPAWNED")
	started "$SPAWNED" mooncake_master 20 mcctl df
	admin=${MC_CREDENTIAL-}
	for node in 1 2; do
		if [ "$encrypt" ]; then
			mcctl credential create "$tmp/$name/node$node" --role=node --name="node$node" >"$tmp/out"
			export MC_CREDENTIAL=$tmp/$name/node$node
		fi
		spawn "node-$name$node" "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port=0 \
			--master_server_address="$MASTER" --global_segment_size=16MiB
		pids+=("$SPAWNED")
		MC_CREDENTIAL=$admin
	done
	wait_for 20 segments 2 || fail "no nodes"
	if [ "$encrypt" ]; then
		token=$(mcctl credential token)
		mcctl credential create "$tmp/$name/client" --role=client --name=client >"$tmp/out"
		client=$tmp/$name/client
		work https --cacert "$tmp/http.crt" -H "Authorization: Bearer $token"
	else
		client=''
		work http
	fi
	for pid in "${pids[@]}"; do kill_pid "$pid"; done
	unset MC_CREDENTIAL MC_ENCRYPT
	stop_pid "$capture"
	wire search "$tmp/$name/frames" "$tmp/value/$KEY" "$KEY" ${token:+"${token##*.}"} >"$tmp/$name/found"
	# Two puts, a copy and a get.
	[ "$(head -n 1 "$tmp/$name/found")" -ge $((size * 4)) ] || fail "$name: only $(head -n 1 "$tmp/$name/found") bytes of TCP"
	equal "$name: plain text in $(tail -n 1 "$tmp/captured-$name.log") packets" "$(sed 1d "$tmp/$name/found" | tr '\n' ' ')" "$3"
	rm "$tmp/$name/frames"
}
pool all all ''
pool control control 'value '
pool off '' "value $KEY "
exit 0
