#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The REST service and strangers: it listens on loopback, mounts no file without permission, and connections without a
# whole request shut no other client out.  Tokens and TLS.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
requires openssl
python_package
"$PYTHON" -c "import aiohttp" 2>/dev/null || skip "no aiohttp (apt-get install python3-aiohttp)"
start_master
cat >"$tmp/conf.json" <<J
{"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_addr": "$MASTER",
 "global_segment_size": "32mb"}
J
mkdir "$tmp/segments" "$tmp/data"
head -c 4M /dev/urandom >"$tmp/data/precious"

# service NAME [FLAG...] - sets PORT
service() {
	free_port PORT
	spawn "$1" bash -c 'ulimit -n "$0"; exec "$@"' "${FILES:-4096}" "$PYTHON" -m mooncake.mooncake_store_service \
		--config "$tmp/conf.json" --port "$PORT" "${@:2}"
	SERVICE=$SPAWNED
	started "$SERVICE" "$1" 20 connects "127.0.0.1:$PORT"
}
# doors MODE ARG... - run the test, then end the service
doors() {
	timeout 200 "$PYTHON" "$top_srcdir/tests/python/rest_doors.py" "$1" "$PORT" "${@:2}"
	stop_pid "$SERVICE"
}
# no_surprise NAME - the service has an answer for every request
no_surprise() {
	! grep -a -A20 "ERROR" "$tmp/$1.log" || fail "an unexpected error in the log of the service $1"
}

PORT='' SERVICE=''
service closed
doors closed "$tmp/data/precious"
no_surprise closed
service open --segment_dir="$tmp/none" --segment-dir "$tmp/segments" --max_mounted_size=64mb
doors open "$tmp/segments" "$tmp/data/precious"
FILES=256 service crowd
doors crowd
no_surprise crowd

# tokens and TLS
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$tmp/key" -out "$tmp/cert" \
	-subj /CN=rest -addext subjectAltName=IP:127.0.0.1 -days 2 2>/dev/null
chmod 600 "$tmp/key"
timeout 100 "$PYTHON" "$top_srcdir/tests/python/rest_tokens.py" "$tmp"
refuses() {
	fails timeout 20 "$PYTHON" -m mooncake.mooncake_store_service --config "$tmp/conf.json" --port "$PORT" "${@:2}"
	grep -q -- "$1" "$tmp/fails.out" || fail "$*: $(cat "$tmp/fails.out")"
}
refuses 'use a credential (MC_CREDENTIAL) and --http_tls_cert' --host 0.0.0.0
export MC_CREDENTIAL=$tmp/none
refuses 'use --http_tls_cert and --http_tls_key' --host 0.0.0.0 --allow_insecure
refuses 'needed together' --http_tls_cert="$tmp/cert"
