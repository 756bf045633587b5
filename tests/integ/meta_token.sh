#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The HTTP metadata server's token, its rule about addresses without one, and its limits, all from upstream's variables.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
requires curl openssl
program=$top_builddir/tools/mooncake_http_metadata_server
token='a token.with/all-kinds~of+characters=='

# server_start HOST VARIABLE=VALUE...
server_start() {
	spawn server env "${@:2}" "$program" --host "$1" --port "$PORT"
	SERVER_PID=$SPAWNED
	started "$SERVER_PID" server 20 answers
}
http() {
	curl -s --noproxy '*' --max-time 10 "$@"
}
answers() {
	[ "$(http "http://127.0.0.1:$PORT/health")" = OK ]
}
# expect_http STATUS CURL-ARGUMENT...
expect_http() {
	equal "${*:2}" "$(http -o "$tmp/body" -w '%{http_code}' "${@:2}")" "$1"
}
PORT=''
free_port PORT
CONN=http://127.0.0.1:$PORT/metadata
base="$CONN?key="

# without a token only on loopback addresses, unless the operator wants more
for host in 0.0.0.0 :: example.invalid; do
	fails timeout 20 "$program" --host "$host" --port "$PORT"
	grep -q "host=$host: every host.*MC_METADATA_HTTP_TOKEN.*--allow_insecure" "$tmp/fails.out" ||
		fail "$host: $(cat "$tmp/fails.out")"
done
# without options, as the guides start it: for this host, and one line says how to serve others
spawn server env -u MC_METADATA_HTTP_TOKEN -u MC_METADATA_HTTP_ALLOW_INSECURE "$program" --port "$PORT"
SERVER_PID=$SPAWNED
started "$SERVER_PID" server 20 answers
equal "lines of the log" "$(grep -c 'listening on 127.0.0.1 only.*MC_METADATA_HTTP_TOKEN' "$tmp/server.log")" 1
if curl -s --noproxy '*' --max-time 5 "http://$(hostname -I | cut -d' ' -f1):$PORT/health"; then
	fail "the server without a token serves other hosts"
fi
end_pid "$SERVER_PID"
for host in localhost 127.0.0.1; do
	server_start "$host" MC_METADATA_HTTP_TOKEN=
	expect_http 404 "${base}k"
	end_pid "$SERVER_PID"
done
server_start 0.0.0.0 MC_METADATA_HTTP_ALLOW_INSECURE=1
expect_http 404 "${base}k"
grep -q 'no security: every host' "$tmp/server.log"
end_pid "$SERVER_PID"

# with a token, /metadata needs it
server_start 0.0.0.0 MC_METADATA_HTTP_TOKEN="$token"
for header in '' 'Authorization: Bearer' 'Authorization: Bearer ' "Authorization: Bearer ${token}x" \
	"Authorization: Bearer ${token%?}" "Authorization: $token" "Authorization: Basic $token"; do
	for method in GET PUT DELETE; do
		expect_http 401 -X "$method" -H "$header" "${base}k"
		equal "body for '$header'" "$(cat "$tmp/body")" unauthorized
	done
done
expect_http 200 -H "Authorization: Bearer $token" -X PUT -d x "${base}k"
expect_http 200 -H "authorization: bearer $token" "${base}k"
equal text "$(cat "$tmp/body")" x
node_start with "$CONN" MC_METADATA_HTTP_TOKEN="$token"
expect with 'publish token/k 1' ok
expect with 'get token/k' 1
expect with 'unpublish token/k' ok
node_end with
node_start without "$CONN"
expect_error without 'get token/k' -13 401
node_end without
node_start other "$CONN" MC_METADATA_HTTP_TOKEN=other
expect_error other 'get token/k' -13 401
node_end other
grep -qF "$token" "$tmp"/*.log && fail "a log has the token"
end_pid "$SERVER_PID"
fails timeout 20 env MC_METADATA_HTTP_TOKEN=$'a\nb' "$program" --host 127.0.0.1 --port "$PORT"
grep -q 'MC_METADATA_HTTP_TOKEN has a control character' "$tmp/fails.out"

# the token in a file, on both sides: its last newline is not part of it
printf '%s\n' "$token" >"$tmp/token"
chmod 600 "$tmp/token"
server_start 127.0.0.1 MC_METADATA_HTTP_TOKEN_FILE="$tmp/token"
expect_http 401 "${base}k"
expect_http 404 -H "Authorization: Bearer $token" "${base}k"
node_start with "$CONN" MC_METADATA_HTTP_TOKEN_FILE="$tmp/token"
expect with 'publish token/k 1' ok
node_end with
end_pid "$SERVER_PID"
# refused_file TEXT VARIABLE=VALUE... - the server does not start
refused_file() {
	fails timeout 20 env "${@:2}" "$program" --host 127.0.0.1 --port "$PORT"
	grep -q "$1" "$tmp/fails.out" || fail "$*: $(cat "$tmp/fails.out")"
}
refused_file 'both set' MC_METADATA_HTTP_TOKEN_FILE="$tmp/token" MC_METADATA_HTTP_TOKEN=x
refused_file 'cannot read .*/none' MC_METADATA_HTTP_TOKEN_FILE="$tmp/none"
printf '\n' >"$tmp/empty"
chmod 600 "$tmp/empty"
refused_file 'is empty' MC_METADATA_HTTP_TOKEN_FILE="$tmp/empty"
chmod 640 "$tmp/token"
refused_file 'chmod 600' MC_METADATA_HTTP_TOKEN_FILE="$tmp/token"

# TLS with an authority of its own, which engines know from MC_STORE_CREDENTIALS
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$tmp/key" -out "$tmp/cert" \
	-subj /CN=meta -addext subjectAltName=IP:127.0.0.1 -days 2 2>/dev/null
chmod 600 "$tmp/key"
printf 'ca %s\n' "$tmp/cert" >"$tmp/credentials"
chmod 600 "$tmp/credentials"
spawn server env MC_METADATA_HTTP_TOKEN="$token" "$program" --host 127.0.0.1 --port "$PORT" --http_tls_cert "$tmp/cert" \
	--http_tls_key "$tmp/key"
SERVER_PID=$SPAWNED
answers_tls() {
	[ "$(http --cacert "$tmp/cert" "https://127.0.0.1:$PORT/health")" = OK ]
}
started "$SERVER_PID" server 20 answers_tls
node_start secure "https://127.0.0.1:$PORT/metadata" MC_METADATA_HTTP_TOKEN="$token" MC_STORE_CREDENTIALS="$tmp/credentials"
expect secure 'publish token/k 1' ok
node_end secure
node_start distrusts "https://127.0.0.1:$PORT/metadata" MC_METADATA_HTTP_TOKEN="$token"
expect_error distrusts 'get token/k' -5 'must be the ca in the file that MC_STORE_CREDENTIALS names'
node_end distrusts
end_pid "$SERVER_PID"

# limits
server_start 127.0.0.1 MC_METADATA_MAX_KEYS=2 MC_METADATA_MAX_BODY_BYTES=1000 MC_METADATA_MAX_TOTAL_BYTES=2000
head -c 1001 /dev/zero | tr '\0' x >"$tmp/long"
head -c 1000 "$tmp/long" >"$tmp/text"
expect_http 413 -X PUT --data-binary "@$tmp/long" "${base}a"
expect_http 200 -X PUT --data-binary "@$tmp/text" "${base}a"
expect_http 507 -X PUT --data-binary "@$tmp/text" "${base}b"
expect_http 200 -X PUT -d small "${base}b"
expect_http 507 -X PUT -d small "${base}c"
expect_http 200 -X PUT -d other "${base}b"
expect_http 200 -X DELETE "${base}b"
expect_http 200 -X PUT -d small "${base}c"
end_pid "$SERVER_PID"
fails timeout 20 env MC_METADATA_MAX_KEYS=many "$program" --host 127.0.0.1 --port "$PORT"
grep -q MC_METADATA_MAX_KEYS "$tmp/fails.out"
