#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A store of snapshots in a directory, and on a real S3 server.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/s3.sh"

tool() {
	"$top_builddir/tests/integ/blob_tool" "$where" "$@"
}

check() {
	local name size
	for size in 0 1 100000 20000000; do
		head -c "$size" /dev/urandom >"$tmp/in"
		tool put "a/b-1/c_$size.bin" "$tmp/in"
		tool get "a/b-1/c_$size.bin" "$tmp/out"
		cmp "$tmp/in" "$tmp/out"
	done
	echo new >"$tmp/in"
	tool put a/b-1/c_1.bin "$tmp/in"
	tool get a/b-1/c_1.bin "$tmp/out"
	cmp "$tmp/in" "$tmp/out"
	equal "names" "$(tool list a/b-1/ | sort | tr '\n' ' ')" "a/b-1/c_0.bin a/b-1/c_1.bin a/b-1/c_100000.bin a/b-1/c_20000000.bin "
	equal "no names" "$(tool list b/)" ""
	tool delete a/b-1/c_1.bin
	tool delete a/b-1/c_1.bin
	fails tool get a/b-1/c_1.bin "$tmp/out"
	equal "names" "$(tool list a/ | wc -l)" 3
	# more than one page
	tool fill many/ 1100
	equal "names" "$(tool list many/ | sort -u | wc -l)" 1100
	for name in /a a/../b a//b 'a b' a/ ''; do
		fails tool put "$name" "$tmp/in"
		grep -q 'invalid name' "$tmp/fails.out" || fail "$name: $(cat "$tmp/fails.out")"
	done
}

where=local:$tmp/dir
check
# the writer is killed before the file has its name: the old one stays
echo old >"$tmp/in"
tool put x "$tmp/in"
echo other >"$tmp/in"
MC_FAULTS=blob.rename=kill tool put x "$tmp/in" && fail "it was not killed"
tool get x "$tmp/out"
equal "content" "$(cat "$tmp/out")" old
equal "names" "$(tool list "" | grep -c 'x$')" 1

start_s3
where=s3
check
MOONCAKE_S3_SECRET_ACCESS_KEY=wrong fails tool put x "$tmp/in"
grep -q 'bucket snapshots: HTTP status 403' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
! grep -q wrong "$tmp/fails.out"
MOONCAKE_S3_BUCKET=none fails tool put x "$tmp/in"
grep -q 'NoSuchBucket' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
MOONCAKE_S3_BUCKET='' fails tool put x "$tmp/in"
grep -q 'MOONCAKE_S3_BUCKET or MOONCAKE_AWS_BUCKET_NAME' "$tmp/fails.out"
kill -STOP "$S3_PID"
MOONCAKE_AWS_CONNECT_TIMEOUT_MS=200 MOONCAKE_AWS_REQUEST_TIMEOUT_MS=200 fails tool get x "$tmp/out"
grep -qi 'timed out\|no answer' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
kill -CONT "$S3_PID"
stop_pid "$S3_PID"
fails tool get x "$tmp/out"
grep -qi 'connect' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
