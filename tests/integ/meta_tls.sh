#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real etcd and a real redis with TLS, certificates of clients, users and passwords: good ones work, and each
# mistake is one error with advice.  Secrets come from a file, and a password on the command line is noticed.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
requires etcd redis-server redis-cli openssl curl base64
{ redis-server --port 0 --tls-port 1 2>&1 || :; } | found 'tls-cert-file\|tls-key-file' || skip 'this redis was built without TLS'

# ---- certificates and credentials

# authority NAME
authority() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$tmp/$1.key" \
		-out "$tmp/$1.pem" -subj "/CN=$1" -days 2 2>/dev/null
	chmod 600 "$tmp/$1.key"
}
# certificate NAME AUTHORITY SUBJECT_ALT_NAME DAYS.  No CommonName: etcd's gateway refuses one in a client's.
certificate() {
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$tmp/$1.key" -out "$tmp/$1.csr" \
		-subj "/O=$1" 2>/dev/null
	openssl x509 -req -in "$tmp/$1.csr" -CA "$tmp/$2.pem" -CAkey "$tmp/$2.key" -CAcreateserial -days "$4" \
		-out "$tmp/$1.pem" -extfile <(echo "subjectAltName=$3") 2>/dev/null
	chmod 600 "$tmp/$1.key"
}
# credentials NAME LINE... - the file $tmp/NAME
credentials() {
	local name=$1
	shift
	printf '%s\n' '# a comment' "$@" >"$tmp/$name"
	chmod 600 "$tmp/$name"
}
authority ca
authority other
certificate server ca IP:127.0.0.1,DNS:localhost 1
certificate old ca IP:127.0.0.1 -1
certificate named ca DNS:elsewhere.example 1
certificate client ca DNS:client 1
certificate stranger other DNS:stranger 1
certificate late ca DNS:late -1
ca="ca $tmp/ca.pem"
own=("cert $tmp/client.pem" "key $tmp/client.key")
user=('user alice' 'password s3cret@/%')
credentials right "$ca" "${own[@]}" "${user[@]}"
credentials wrong_ca "ca $tmp/other.pem" "${own[@]}" "${user[@]}"
credentials no_ca "${own[@]}" "${user[@]}"
credentials no_cert "$ca" "${user[@]}"
credentials wrong_cert "$ca" "cert $tmp/stranger.pem" "key $tmp/stranger.key" "${user[@]}"
credentials late_cert "$ca" "cert $tmp/late.pem" "key $tmp/late.key" "${user[@]}"
credentials wrong_password "$ca" "${own[@]}" 'user alice' 'password wrong'
credentials anonymous "$ca" "${own[@]}"
credentials no_tls "${user[@]}"

# ---- servers: one with a good certificate, one with an old one, one with one for another name, one without TLS

declare -A ETCD=() REDIS=()
etcd_start() {
	local name=$1 scheme=$2 peer=''
	shift 2
	free_port "ETCD[$name]"
	free_port peer
	spawn "etcd-$name" etcd --name n --data-dir "$tmp/etcd-$name" --listen-client-urls "$scheme://127.0.0.1:${ETCD[$name]}" \
		--advertise-client-urls "$scheme://127.0.0.1:${ETCD[$name]}" --listen-peer-urls "http://127.0.0.1:$peer" \
		--initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "n=http://127.0.0.1:$peer" \
		--log-level error "$@"
}
etcd_tls() {
	etcd_start "$1" https --cert-file "$tmp/$2.pem" --key-file "$tmp/$2.key" --client-cert-auth \
		--trusted-ca-file "$tmp/ca.pem"
}
redis_start() {
	spawn "redis-$1" redis-server --bind 127.0.0.1 --save '' --appendonly no --dir "$tmp" --user alice on \
		'>s3cret@/%' '~*' '+@all' --user default off "${@:2}"
}
redis_tls() {
	free_port "REDIS[$1]"
	redis_start "$1" --port 0 --tls-port "${REDIS[$1]}" --tls-cert-file "$tmp/$2.pem" --tls-key-file "$tmp/$2.key" \
		--tls-ca-cert-file "$tmp/ca.pem"
}
etcd_tls good server
etcd_tls old old
etcd_tls named named
etcd_start plain http
redis_tls good server
redis_tls old old
redis_tls named named
free_port 'REDIS[plain]'
redis_start plain --port "${REDIS[plain]}"
# etcd_do CALL JSON
etcd_do() {
	curl -sf --noproxy '*' --max-time 10 --cacert "$tmp/ca.pem" --cert "$tmp/client.pem" --key "$tmp/client.key" \
		"https://127.0.0.1:${ETCD[good]}/$1" -d "$2" >/dev/null
}
for port in "${ETCD[@]}" "${REDIS[@]}"; do
	wait_for 20 connects "127.0.0.1:$port"
done
wait_for 20 etcd_do v3/maintenance/status '{}'
etcd_do v3/auth/user/add '{"name":"root","password":"r00t"}'
etcd_do v3/auth/user/add '{"name":"alice","password":"s3cret@/%"}'
etcd_do v3/auth/role/add '{"name":"root"}'
etcd_do v3/auth/user/grant '{"user":"root","role":"root"}'
etcd_do v3/auth/user/grant '{"user":"alice","role":"root"}'
etcd_do v3/auth/enable '{}'

# ---- calls

# works CONN FILE
works() {
	node_start n "$1" MC_STORE_CREDENTIALS="$tmp/$2" NODE_MS=20000
	expect n 'publish mooncake/ram/x {"a":1}' ok
	expect n 'get mooncake/ram/x' '{"a":1}'
	node_end n
}
# complains CONN FILE TEXT - a call fails, and the error has the text
complains() {
	local said
	node_start n "$1" MC_STORE_CREDENTIALS="$tmp/$2" NODE_MS="${LIMIT:-5000}"
	said=$(ask n 'get mooncake/ram/x')
	[[ "$said" == -* ]] && grep -q -- "$3" <<<"$said" || fail "$1 with $2: no '$3' in: $said"
	node_end n
}
# refuses CONN FILE TEXT - the connection string cannot be used with the file
refuses() {
	fails env MC_STORE_CREDENTIALS="$tmp/$2" "$top_builddir/tests/integ/meta_node" "$1" </dev/null
	grep -q -- "$3" "$tmp/fails.out" || fail "$1, $2: no '$3' in: $(cat "$tmp/fails.out")"
}
# mistakes SERVER-ARRAY SCHEME - for both kinds; each error has advice
mistakes() {
	local -n at=$1
	local conn=$2
	works "$conn${at[good]}" right
	complains "$conn${at[good]}" wrong_ca 'must be the ca in .*wrong_ca'
	complains "$conn${at[good]}" no_ca 'must be the ca in .*no_ca'
	complains "$conn${at[old]}" right 'certificate has expired.*renew the server'
	complains "$conn${at[named]}" right 'use a name or an address that is in the server'
	complains "$conn${at[good]}" no_cert 'name cert and key in .*no_cert'
	complains "$conn${at[good]}" wrong_cert 'refuses the client.s certificate .*stranger.pem'
	complains "$conn${at[good]}" late_cert 'client.s certificate .*late.pem'
	# without TLS, redis waits for more
	LIMIT=1500 complains "$conn${at[plain]}" right 'does the server speak TLS'
	complains "$conn${at[good]}" wrong_password 'authentication failed\|WRONGPASS'
	complains "$conn${at[good]}" anonymous 'user name is empty\|NOAUTH'
}
mistakes ETCD etcd://https://127.0.0.1:
mistakes REDIS rediss://127.0.0.1:

# without TLS in the address
works "etcd://127.0.0.1:${ETCD[good]}" right
complains "etcd://127.0.0.1:${ETCD[good]}" no_tls 'does the server want TLS? Then write https://'
refuses "etcd://http://127.0.0.1:${ETCD[good]}" right 'write https://'
complains "redis://127.0.0.1:${REDIS[good]}" no_tls 'write rediss://'
refuses "redis://127.0.0.1:${REDIS[good]}" right 'write rediss://'
works "redis://127.0.0.1:${REDIS[plain]}" no_tls

# a long text passes TLS in many records; the lease of a leader
node_start n "rediss://localhost:${REDIS[good]}" MC_STORE_CREDENTIALS="$tmp/right"
expect n 'long mooncake/ram/long 3000000' ok
expect n 'check mooncake/ram/long 3000000' same
node_end n
for conn in "rediss://127.0.0.1:${REDIS[good]}" "etcd://127.0.0.1:${ETCD[good]}"; do
	node_run seat env MC_STORE_CREDENTIALS="$tmp/right" "$top_builddir/tests/integ/seat_node" "$conn" c a:1 5000
	expect seat look 'term=0 leader= members='
	expect seat take term=1
	node_end seat
done

# a master takes the file for its lease and for the quota policy, clients find it through the store
start_master() {
	spawn master env -u MC_STORE_CREDENTIALS "$top_builddir/master/mooncake_master" --enable_ha \
		--ha_backend_type=redis --ha_backend_connstring="rediss://127.0.0.1:${REDIS[good]}" --cluster_id=m \
		--store_credentials="$tmp/right" --rpc_address=127.0.0.1 --rpc_port="$rpc" --metrics_host=127.0.0.1 \
		--metrics_port="$http" --journal_dir="$tmp/journal" --enable_multi_tenants \
		--tenant_quota_connector_type=etcd --tenant_quota_connector_uri="https://127.0.0.1:${ETCD[good]}"
}
ctl() {
	env MC_STORE_CREDENTIALS="$tmp/right" MC_STORE_CLUSTER_ID=m "$top_builddir/tools/mcctl" \
		--master="rediss://127.0.0.1:${REDIS[good]}" "$@"
}
rpc='' http=''
free_port rpc
free_port http
start_master
wait_for 20 master_serves "127.0.0.1:$http"
wait_for 10 ctl quota blue 4KiB
node_start n "etcd://127.0.0.1:${ETCD[good]}" MC_STORE_CREDENTIALS="$tmp/right"
said=$(ask n 'get mooncake-store/m/tenant_quota_policy')
[[ "$said" != -* ]] || fail "the policy is not in etcd: $said"
node_kill n

# ---- files that are refused, and a password on the command line

conn=rediss://127.0.0.1:${REDIS[good]}
credentials open "${user[@]}"
chmod 640 "$tmp/open"
refuses "$conn" open 'open must be a file that only its owner can read: chmod 600'
credentials open_key "$ca" "cert $tmp/client.pem" "key $tmp/open.key"
cp "$tmp/client.key" "$tmp/open.key"
chmod 644 "$tmp/open.key"
refuses "$conn" open_key 'open.key must be a file that only its owner can read'
refuses "$conn" absent 'cannot read .*absent: no such file'
credentials bad 'passwort s3cret'
refuses "$conn" bad 'bad, line 2: unknown word'
credentials bad "${user[@]}" "${user[@]}"
refuses "$conn" bad 'bad, line 4: the same word for the second time'
credentials bad 'user x'
refuses "$conn" bad 'a user needs a password'
credentials bad "$ca" "${own[0]}"
refuses "$conn" bad 'cert and key belong together, key is missing'
credentials bad 'password x'
refuses "etcd://127.0.0.1:${ETCD[good]}" bad 'a password without a user'
grep -q 'visible to every user' "$tmp/n.log" && fail 'a password of a file is taken for one of the command line'
credentials tls_only "$ca" "${own[@]}"
for conn in "rediss://alice:s3cret%40%2f%25@127.0.0.1:${REDIS[good]}" \
	"etcd://alice:s3cret%40%2f%25@127.0.0.1:${ETCD[good]}"; do
	rm "$tmp/n.log"
	works "$conn" tls_only
	equal 'lines about the command line' "$(grep -c 'visible to every user' "$tmp/n.log")" 1
done
grep -qr s3cret "$tmp"/*.log "$tmp/fails.out" && fail 'a password is in a log'
true
