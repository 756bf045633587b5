#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A store of snapshots on an S3 server with faults: signatures, retries, limits, pages and error messages.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires python3
free_port PORT
spawn server python3 "$top_srcdir/tests/integ/blob_faults.py" "$PORT"
started "$SPAWNED" "the S3 server" 20 connects "127.0.0.1:$PORT"
export MOONCAKE_S3_ENDPOINT=127.0.0.1:$PORT MOONCAKE_AWS_USE_HTTPS=no MOONCAKE_S3_BUCKET=bucket \
	MOONCAKE_S3_REGION=eu-x-1 MOONCAKE_S3_ACCESS_KEY_ID=test-id MOONCAKE_S3_SECRET_ACCESS_KEY=test-secret

tool() {
	timeout 60 "$top_builddir/tests/integ/blob_tool" s3 "$@"
}

# refused NUMBER TEXT ARG... - the tool fails with that error
refused() {
	local number=$1 text=$2
	shift 2
	fails tool "$@"
	grep -q -- "^blob_tool: $number S3 http://127.0.0.1:$PORT, bucket bucket: .*$text" "$tmp/fails.out" ||
		fail "$*: no '$number ... $text' in: $(cat "$tmp/fails.out")"
}

# attempts NAME N
attempts() {
	equal "attempts for $1" "$(grep -c " $1 " "$tmp/server.log")" "$2"
}

# Each method, with and without a session token.  A put of more than 1 MiB waits for "100 Continue".
head -c 3000000 /dev/zero >"$tmp/in"
tool put dir/x-1._ "$tmp/in"
tool get dir/x-1._ "$tmp/out"
equal "content" "$(cat "$tmp/out")" ok
tool delete dir/x-1._
export MOONCAKE_S3_SESSION_TOKEN=se+ssion/token=
tool put dir/t "$tmp/in"
tool get dir/t "$tmp/out"
unset MOONCAKE_S3_SESSION_TOKEN
equal "requests with a token" "$(grep -c ' signed token' "$tmp/server.log")" 2
# Pages in any order, with names of other programs and a token that must be encoded.
equal "names" "$(tool list pages/ | tr '\n' ' ')" "pages/a pages/b "
refused -5 'repeats a page' list loop
refused -5 'invalid answer' list promise
refused -5 'invalid answer' list damaged
# Three attempts for errors that may pass, one for others.
for name in twice-500 twice-503 twice-429 twice-cut; do
	tool get "$name" "$tmp/out"
	equal "content of $name" "$(cat "$tmp/out")" ok
	attempts "$name" 3
done
while read -r status code number n; do
	refused "$number" "HTTP status $status $code" put "always-$status-$code" "$tmp/out"
	attempts "always-$status-$code" "$n"
done <<'END'
500 InternalError -5 3
503 SlowDown -11 3
507 XMinioStorageFull -28 1
404 NoSuchKey -2 1
404 NoSuchBucket -22 1
403 AccessDenied -13 1
400 ExpiredToken -13 1
301 PermanentRedirect -22 1
END
tool delete always-404-NoSuchKey
tool swap plain - text
attempts plain 3
refused -22 'HTTP status 404 for' get always-404- "$tmp/out"
refused -90 'more than 67108864 bytes' get large "$tmp/out"
# Limits are of times without progress.
export MOONCAKE_AWS_REQUEST_TIMEOUT_MS=2000
tool get slow "$tmp/out"
equal "content" "$(cat "$tmp/out")" xxxxxxxx
MOONCAKE_AWS_REQUEST_TIMEOUT_MS=300 refused -110 'no progress in 300 ms' get silent "$tmp/out"
attempts silent 3
grep -vE ' signed ' "$tmp/server.log" && fail "signatures are wrong"
grep -q test-secret "$tmp"/*.log && fail "the secret key is in a log"
exit 0
