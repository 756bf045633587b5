#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# HTTP of a master with --security=on, and of a daemon with a credential: without a certificate on the loopback only,
# tokens, TLS, and the rules of mcctl about them.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl openssl
mcctl=$top_builddir/tools/mcctl
export no_proxy='*'
unset MC_ALLOW_INSECURE MC_CREDENTIAL SSL_CERT_FILE

for pool in pool other; do
	"$top_builddir/master/mooncake_master" --security_dir="$tmp/$pool" --cluster_id=pool --init_security >"$tmp/init.out"
done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$tmp/key" -out "$tmp/cert" \
	-subj /CN=master -addext subjectAltName=IP:127.0.0.1 -days 2 2>/dev/null
chmod 600 "$tmp/key"
cp "$tmp/key" "$tmp/open.key"
chmod 640 "$tmp/open.key"
tls=(--http_tls_cert="$tmp/cert" --http_tls_key="$tmp/key")
free_port META
free_port DAEMON
secure=(--security=on --security_dir="$tmp/pool" --cluster_id=pool --enable_http_metadata_server
	--http_metadata_server_port="$META")

# status URL [CURL-ARGUMENT...] - 000: no answer in HTTP
status() {
	curl -s --noproxy '*' --max-time 10 -o "$tmp/body" -w '%{http_code}' --cacert "$tmp/cert" "$@" || :
}
# ctl TEXT ARG... - mcctl says that
ctl() {
	timeout 20 "$mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" "${@:2}" >"$tmp/ctl.out" 2>&1 || :
	grep -q -- "$1" "$tmp/ctl.out" || fail "mcctl ${*:2}: no '$1' in: $(cat "$tmp/ctl.out")"
}
# refuses TEXT FLAG... - the master does not start
refuses() {
	fails timeout 20 "$top_builddir/master/mooncake_master" --rpc_port="${MASTER##*:}" --metrics_port="${MASTER_HTTP##*:}" \
		"${secure[@]}" "${@:2}"
	grep -q -- "$1" "$tmp/fails.out" || fail "$*: $(cat "$tmp/fails.out")"
}

# ---- the loopback, without a certificate

start_master "${secure[@]}" --http_metadata_server_host=127.0.0.1 --audit_log="$tmp/audit"
http=http://$MASTER_HTTP
equal health "$(status "$http/health")" 200
for path in /metrics /role /get_all_keys /no/such/path; do
	equal "$path" "$(status "$http$path")" 401
done
equal remove_all "$(status -X POST "$http/api/v1/remove_all")" 401
equal 'the metadata server, health' "$(status "http://127.0.0.1:$META/health")" 200
equal 'the metadata server' "$(status -X PUT -d x "http://127.0.0.1:$META/metadata?key=k")" 401
ctl 'name its file in MC_CREDENTIAL' snapshot
MC_CREDENTIAL=$tmp/other/admin.credential ctl 'does not accept the credential' snapshot
MC_CREDENTIAL=$tmp/none ctl 'cannot read .*/none' snapshot
MC_CREDENTIAL=$tmp/pool/admin.credential ctl 'checkpoint written' snapshot
grep -q 'refused a request: ' "$tmp/master.log" || fail "the log has no reason of a 401"
# at_once TEXT - the client fails without retries, which last 5 s
at_once() {
	fails timeout 3 "$mcctl" --master="$MASTER" df
	grep -q -- "$1" "$tmp/fails.out" || fail "mcctl df: no '$1' in: $(cat "$tmp/fails.out")"
}
at_once 'asks for a credential, and there is none: .*MC_CREDENTIAL'
stop_pid "$MASTER_PID"
# audited EVENT PATTERN
audited() {
	grep "\"event\":\"$1\".*\"peer\":\"127.0.0.1:[0-9]*\",\"channel\":\"http\".*$2" "$tmp/audit" >/dev/null ||
		fail "the audit log has no $1 with $2: $(cat "$tmp/audit")"
}
audited refused '"call":"GET /role","subject":"a request has no token"'
audited refused '"call":"PUT /metadata"'
audited call '"call":"POST /api/v1/snapshot'

# ---- a credential at a master without security

start_master --cluster_id=pool --journal_dir=none
MC_CREDENTIAL=$tmp/pool/admin.credential at_once 'it has no security (start the master with --security=on, or remove the credential'
grep -q 'the peer has a credential, and this server no security' "$tmp/master.log" || fail "no line about it"
stop_pid "$MASTER_PID"

# ---- refused starts

refuses 'metrics_host=0.0.0.0: every host .* --http_tls_cert and --http_tls_key' --metrics_host=0.0.0.0 --allow_insecure
refuses 'http_metadata_server_host=0.0.0.0: ' --http_metadata_server_host=0.0.0.0
refuses 'needed together' --http_tls_cert="$tmp/cert"
refuses 'chmod 600' --http_tls_cert="$tmp/cert" --http_tls_key="$tmp/open.key"

# ---- TLS

spawn master "$top_builddir/master/mooncake_master" --rpc_port="${MASTER##*:}" --metrics_port="${MASTER_HTTP##*:}" \
	--metrics_host=0.0.0.0 "${secure[@]}" "${tls[@]}"
MASTER_PID=$SPAWNED
serves_tls() {
	[ "$(status "https://$MASTER_HTTP/health")" = 200 ]
}
started "$MASTER_PID" master 20 serves_tls
equal 'without TLS' "$(status "$http/health")" 000
equal metrics "$(status "https://$MASTER_HTTP/metrics")" 401
equal 'the metadata server' "$(status "https://127.0.0.1:$META/metadata?key=k")" 401
export MC_CREDENTIAL=$tmp/pool/admin.credential
ctl 'SSL_CERT_FILE can name the file' snapshot
SSL_CERT_FILE=$tmp/cert ctl 'checkpoint written' snapshot
stop_pid "$MASTER_PID"

# ---- a daemon with a credential, which asks for tokens before it has reached a master

# daemon FLAG... - start it; only /health is open
daemon() {
	spawn daemon "$top_builddir/node/mooncake_client" --lazy --master_server_address="$MASTER" --host=127.0.0.1 --port=0 \
		--socket="$tmp/daemon.sock" --enable_http_server --http_port="$DAEMON" "$@"
	started "$SPAWNED" daemon 20 connects "127.0.0.1:$DAEMON"
}
daemon
equal 'health of the daemon' "$(status "http://127.0.0.1:$DAEMON/health")" 503
equal 'metrics of the daemon' "$(status "http://127.0.0.1:$DAEMON/metrics")" 401
end_pid "$SPAWNED"
daemon "${tls[@]}"
equal 'metrics of the daemon, TLS' "$(status "https://127.0.0.1:$DAEMON/metrics")" 401
equal 'metrics of the daemon without TLS' "$(status "http://127.0.0.1:$DAEMON/metrics")" 000
end_pid "$SPAWNED"
