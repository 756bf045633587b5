#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Metadata over HTTP: our server with nodes, with curl, with a file and with damaged files; and a server with
# upstream's rules.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/integ/meta_functions.sh"
requires curl python3
program=$top_builddir/tools/mooncake_http_metadata_server

server_start() {
	spawn server "$program" --host 127.0.0.1 --port "$PORT" "${FLAGS[@]}"
	SERVER_PID=$SPAWNED
	started "$SERVER_PID" server 20 answers
}
http() {
	curl -s --noproxy '*' --max-time 10 "$@"
}
answers() {
	[ "$(http "http://127.0.0.1:$PORT/health")" = OK ]
}
# print the status of a request; its body is in $tmp/body
status() {
	http -o "$tmp/body" -w '%{http_code}' "$@"
}
# expect_http STATUS BODY CURL-ARGUMENT...
expect_http() {
	local wanted=$1 text=$2
	shift 2
	equal "$*" "$(status "$@")" "$wanted"
	[ -z "$text" ] || equal "body of $*" "$(cat "$tmp/body")" "$text"
}

PORT=''
free_port PORT
FLAGS=()
CONN=http://127.0.0.1:$PORT/metadata
server_start
check_all

# descriptors do not pass through a proxy that the environment names for other programs, unless the user wants that
nothing=''
free_port nothing
for proxy in http_proxy ALL_PROXY; do
	node_start direct "$CONN" "$proxy=http://127.0.0.1:$nothing" no_proxy=
	expect direct 'publish proxied/k 1' ok
	expect direct 'unpublish proxied/k' ok
	node_end direct
done
node_start proxied "$CONN" "http_proxy=http://127.0.0.1:$nothing" no_proxy= MC_METADATA_USE_PROXY=1 NODE_MS=3000
expect_error proxied 'get proxied/k' -111 "$nothing"
node_end proxied

# upstream's rules, with curl
base="$CONN?key="
expect_http 404 'metadata not found' "${base}k"
expect_http 200 'metadata updated' -X PUT -d one "${base}k"
expect_http 200 one "${base}k"
expect_http 200 'metadata updated' -X PUT -d two "${base}k"
expect_http 200 two "${base}%20k%20"
expect_http 200 'metadata updated' -X PUT "${base}empty" -H 'Content-Length: 0'
expect_http 200 '' "${base}empty"
expect_http 200 'metadata deleted' -X DELETE "${base}k"
expect_http 404 'metadata not found' -X DELETE "${base}k"
expect_http 200 'metadata updated' -X PUT -d a "${base}mooncake/rpc_meta/n"
expect_http 200 'metadata unchanged' -X PUT -d a "${base}mooncake/rpc_meta/n"
expect_http 400 'Duplicate rpc_meta key not allowed' -X PUT -d b "${base}mooncake/rpc_meta/n"
expect_http 200 a "${base}mooncake/rpc_meta/n"
expect_http 200 '' -X DELETE "${base}mooncake/rpc_meta/n"
expect_http 200 'metadata updated' -X PUT -d b "${base}mooncake/rpc_meta/n"
http -D "$tmp/headers" -o /dev/null "${base}mooncake/rpc_meta/n"
grep -qi '^content-type: application/json' "$tmp/headers"
for bad in "$CONN" "$CONN?key" "${base}" "${base}%20%09" "${base}$(printf '%05000d' 0)"; do
	expect_http 400 '' "$bad"
	expect_http 400 '' -X PUT -d x "$bad"
	expect_http 400 '' -X DELETE "$bad"
done
for ttl in 0 -1 x 1x 99999999999 18446744073709551617 ''; do
	expect_http 400 'ttl is a number of seconds' -X PUT -d x "${base}t&ttl=$ttl"
done
expect_http 404 '' "${base}t"
expect_http 405 '' -X POST -d x "${base}k"
expect_http 404 '' "http://127.0.0.1:$PORT/nowhere"
http "http://127.0.0.1:$PORT/metrics" | found '^mooncake_metadata_requests_total{method="put"} [1-9]'
# a key that is too long, and one of the maximum length
head -c $((64 * 1024 * 1024 + 1)) /dev/zero >"$tmp/large"
expect_http 413 '' -X PUT -T "$tmp/large" "${base}large"
truncate -s -1 "$tmp/large"
expect_http 200 '' -X PUT -T "$tmp/large" "${base}large"
http "${base}large" | cmp - "$tmp/large"
stop_pid "$SERVER_PID"

# no more than the memory limit
FLAGS=(--max-size 1mb)
server_start
expect_http 507 '' -X PUT -T "$tmp/large" "${base}large"
rm "$tmp/large"
expect_http 200 '' -X PUT -d x "${base}small"
stop_pid "$SERVER_PID"

# with a file: a server killed at any time has all texts that it has confirmed
FLAGS=(--persist "$tmp/file")
server_start
for i in 1 2 3; do
	expect_http 200 '' -X PUT -d "$i" "${base}mooncake/ram/$i"
done
expect_http 200 '' -X DELETE "${base}mooncake/ram/2"
expect_http 200 '' -X PUT -d new "${base}mooncake/ram/3"
expect_http 200 '' -X PUT -d ttl "${base}mooncake/ram/ttl&ttl=20"
kill_pid "$SERVER_PID"
server_start
expect_http 200 1 "${base}mooncake/ram/1"
expect_http 404 '' "${base}mooncake/ram/2"
expect_http 200 new "${base}mooncake/ram/3"
expect_http 200 ttl "${base}mooncake/ram/ttl"
lapsed() {
	[ "$(status "${base}mooncake/ram/ttl")" = 404 ]
}
wait_for 60 lapsed
# only one server may use the file
spare=''
free_port spare
fails timeout 20 "$program" --host 127.0.0.1 --port "$spare" --persist "$tmp/file"
grep -q 'another metadata server uses' "$tmp/fails.out"
# the file does not grow without limit
for ((i = 0; i < 60; i++)); do
	head -c 100000 /dev/zero | tr '\0' "$((i % 10))" >"$tmp/text"
	expect_http 200 '' -X PUT -T "$tmp/text" "${base}mooncake/ram/big"
done
[ "$(stat -c %s "$tmp/file")" -lt 1600000 ] || fail "the file has $(stat -c %s "$tmp/file") bytes"
kill_pid "$SERVER_PID"
server_start
http "${base}mooncake/ram/big" | cmp - "$tmp/text"
stop_pid "$SERVER_PID"

# torn at its end: the rest is there; damaged elsewhere, or not a metadata file: an error, and the file is unchanged
cp "$tmp/file" "$tmp/whole"
truncate -s -7 "$tmp/file"
server_start
# the previous version of the text
expect_http 200 '' "${base}mooncake/ram/big"
equal 'torn' "$(head -c 3 "$tmp/body")" 888
expect_http 200 1 "${base}mooncake/ram/1"
grep -q 'torn record' "$tmp/server.log"
stop_pid "$SERVER_PID"
refuses_file() {
	cp "$tmp/file" "$tmp/copy"
	fails timeout 20 "$program" --host 127.0.0.1 --port "$spare" --persist "$tmp/file"
	grep -q "$1" "$tmp/fails.out" || fail "no '$1' in: $(cat "$tmp/fails.out")"
	cmp "$tmp/file" "$tmp/copy"
}
cp "$tmp/whole" "$tmp/file"
printf X | dd of="$tmp/file" bs=1 seek=40 conv=notrunc status=none
refuses_file 'is damaged at byte'
echo 'my diary' >"$tmp/file"
refuses_file 'is not a metadata file'
fails timeout 20 "$program" --host 127.0.0.1 --port "$spare" --persist "$tmp/none/file"
grep -q "cannot open $tmp/none/file" "$tmp/fails.out"
fails timeout 20 "$program" --host 127.0.0.1 --port "$spare" --log-level loud
grep -q 'log_level=loud' "$tmp/fails.out"
fails timeout 20 "$program" --host 127.0.0.1 --port "$spare" extra
: >"$tmp/file"
server_start
expect_http 200 '' -X PUT -d x "${base}k"
kill_pid "$SERVER_PID"

# upstream's Python server: texts do not expire, and an address is written once, also by the same node
cat >"$tmp/upstream.py" <<'END'
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse
kept = {}
class Handler(BaseHTTPRequestHandler):
    def say(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def handle_all(self):
        key = parse_qs(urlparse(self.path).query).get("key", [""])[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not key:
            return self.say(400, b"no key")
        if self.command == "PUT":
            if "rpc_meta" in key and key in kept:
                return self.say(400, b"Duplicate rpc_meta key not allowed")
            kept[key] = body
            return self.say(200, b"metadata updated")
        if key not in kept:
            return self.say(404, b"metadata not found")
        if self.command == "GET":
            return self.say(200, kept[key])
        del kept[key]
        self.say(200, b"metadata deleted")
    do_GET = do_PUT = do_DELETE = handle_all
    def log_message(self, *args):
        pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
END
spawn upstream python3 "$tmp/upstream.py" "$PORT"
started "$SPAWNED" upstream 20 connects "127.0.0.1:$PORT"
live=''
free_port live
spawn daemon python3 -m http.server --bind 127.0.0.1 "$live"
daemon=$SPAWNED
started "$daemon" daemon 20 connects "127.0.0.1:$live"
node_start one "$CONN" MC_METADATA_TTL_SEC=3
expect one "rpc n 127.0.0.1 $live" ok
expect one 'publish mooncake/ram/n 1' ok
# refreshing does not fail, and no other node gets the name while this one lives
node_start two "$CONN"
expect_error two 'rpc n 127.0.0.1 9' -17 "127.0.0.1:$live"
expect_http 200 '' -X DELETE "${base}mooncake/ram/n"
wait_for 10 says one 'get mooncake/ram/n' 1
fails grep -q warn "$tmp/one.log"
# the record of a dead node stays on this server, and its successor replaces it
node_kill one
kill_pid "$daemon"
expect two 'rpc n 127.0.0.1 9' ok
expect two 'rpc_get n' '127.0.0.1 9'
expect two 'rpc_unpublish n' ok
node_end two
