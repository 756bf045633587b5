#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A store of snapshots in a directory, and on a real S3 server.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/s3.sh"

tool() {
	timeout 120 "$top_builddir/tests/integ/blob_tool" "$where" "$@"
}

# tells TEXT - the last error message has the text
tells() {
	grep -qi -- "$1" "$tmp/fails.out" || fail "no '$1' in: $(cat "$tmp/fails.out")"
}

names() {
	tool list "$1" | tr '\n' ' '
}

# race WAS - eight processes swap at once: one succeeds
race() {
	local n pids=() won=0
	[ "$1" != - ] || tool delete a/s
	for n in {1..8}; do
		tool swap a/s "$1" "racer $n" 2>>"$tmp/race" &
		pids+=($!)
	done
	for n in "${pids[@]}"; do
		wait "$n" && won=$((won + 1))
	done
	equal "winners of a race from $1" "$won" 1
}

check() {
	local name size
	for size in 0 1 100000 20971520; do
		head -c "$size" /dev/urandom >"$tmp/in"
		tool put "a/b-1/c_$size.bin" "$tmp/in"
		tool get "a/b-1/c_$size.bin" "$tmp/out"
		cmp "$tmp/in" "$tmp/out"
	done
	echo new >"$tmp/in"
	tool put a/b-1/c_1.bin "$tmp/in"
	tool get a/b-1/c_1.bin "$tmp/out"
	cmp "$tmp/in" "$tmp/out"
	# ascending order of the bytes; any prefix
	tool put a/b-1.x "$tmp/in"
	equal "names" "$(names a/)" \
		"a/b-1.x a/b-1/c_0.bin a/b-1/c_1.bin a/b-1/c_100000.bin a/b-1/c_20971520.bin "
	equal "names" "$(names a/b-1/c_1)" "a/b-1/c_1.bin a/b-1/c_100000.bin "
	equal "no names" "$(names b/)$(names a/b-2)$(names a/b-1.x/)" ""
	fails tool get a/b-1/c "$tmp/out"
	fails tool get a/b-1 "$tmp/out"
	tool delete a/b-1
	tool delete a/b-1/c_1.bin
	tool delete a/b-1/c_1.bin
	fails tool get a/b-1/c_1.bin "$tmp/out"
	tells '^blob_tool: -2 '
	equal "names" "$(tool list a/ | wc -l)" 4
	# of several processes that swap at the same time one succeeds
	tool swap a/s - one
	tool swap a/s - one
	fails tool swap a/s - two
	tells '^blob_tool: -17 '
	fails tool swap a/s other two
	race one
	race -
	tool delete a/s
	fails tool swap a/s one two
	tells '^blob_tool: -17 '
	# more than one page
	tool fill many/ 1100
	equal "names" "$(tool list many/)" "$(seq -f 'many/%04g' 0 1099)"
	for name in /a a/../b a//b 'a b' a/ '' ./a .. "a'" 'a?b' 'a%2f' 'a~' "$(printf 'a%.0s' {1..513})"; do
		fails tool put "$name" "$tmp/in"
		tells 'invalid name'
	done
	fails tool list /a
	fails tool list a/../
}

# ---- a directory
where=local:$tmp/dir
check
# A writer that is killed before the file has its name leaves the old one, and no file after the next start.
echo old >"$tmp/in"
tool put k/x "$tmp/in"
echo other >"$tmp/in"
MC_FAULTS=blob.rename=kill tool put k/x "$tmp/in" && fail "it was not killed"
MC_FAULTS=blob.rename=kill tool put k2/x "$tmp/in" && fail "it was not killed"
# the second one has removed the file of the first
equal "unfinished files" "$(find "$tmp/dir" -name '~*' | wc -l)" 1
equal "names" "$(names k)" "k/x "
equal "unfinished files" "$(find "$tmp/dir" -name '~*' | wc -l)" 0
[ ! -e "$tmp/dir/k2" ] || fail "an empty directory is left"
tool get k/x "$tmp/out"
equal "content" "$(cat "$tmp/out")" old
# The file of a writer that lives stays.
MC_FAULTS=blob.rename=stop spawn writer "$top_builddir/tests/integ/blob_tool" "$where" put k/x "$tmp/in"
writer=$SPAWNED
wait_for 20 stands_still "$writer"
equal "content" "$(tool get k/x "$tmp/out" && cat "$tmp/out")" old
kill -CONT "$writer"
wait "$writer"
equal "content" "$(tool get k/x "$tmp/out" && cat "$tmp/out")" other
# Errors of the disk leave the old one, too.
for point in blob.write blob.rename; do
	MC_FAULTS=$point=error:ENOSPC fails tool put k/x "$tmp/out"
	tells "cannot write $tmp/dir/k/x: No space left"
done
equal "content" "$(tool get k/x "$tmp/out" && cat "$tmp/out")" other
# Two writers of one name, and a delete of the last name in the directory: the file has the bytes of one put.
head -c 100000 /dev/zero >"$tmp/zero"
for i in {1..20}; do
	tool put r/s/x "$tmp/zero" &
	first=$!
	tool put r/s/x "$tmp/in" &
	tool delete r/s/y
	wait "$first"
	wait "$!"
	tool get r/s/x "$tmp/out"
	cmp -s "$tmp/out" "$tmp/zero" || cmp "$tmp/out" "$tmp/in"
	tool put r/t/x "$tmp/in" &
	tool delete r/s/x
	wait "$!"
	tool delete r/t/x
done
tool delete k/x
[ ! -e "$tmp/dir/r" ] && [ ! -e "$tmp/dir/k" ] || fail "empty directories are left"
[ -d "$tmp/dir" ] || fail "the root is gone"
head -c $((64 * 1048576 + 1)) /dev/zero >"$tmp/dir/large"
fails tool get large "$tmp/out"
tells 'more than 67108864 bytes'
where=local:$tmp/none/dir
fails tool list ''
tells "cannot create the directory of snapshots, $tmp/none/dir: No such file"

# ---- S3
start_s3
where=s3
check
echo virtual >"$tmp/in"
MOONCAKE_S3_ENDPOINT=http://s3.localhost:$S3_PORT tool put host/x "$tmp/in"
equal "content" "$(tool get host/x "$tmp/out" && cat "$tmp/out")" virtual
equal "names" "$(MOONCAKE_S3_ENDPOINT=http://s3.localhost:$S3_PORT tool list h)" host/x
MOONCAKE_S3_ENDPOINT=s3.localhost:$S3_PORT MOONCAKE_AWS_USE_HTTPS=false tool get host/x "$tmp/out"
MOONCAKE_S3_ENDPOINT=http://localhost:$S3_PORT tool get host/x "$tmp/out"
# The older names, and the newer ones before them.
(
	unset "${!MOONCAKE_S3_@}"
	export MOONCAKE_AWS_S3_ENDPOINT=127.0.0.1:$S3_PORT MOONCAKE_AWS_USE_HTTPS=0 MOONCAKE_AWS_BUCKET_NAME=snapshots \
		MOONCAKE_AWS_REGION=us-east-1 MOONCAKE_AWS_ACCESS_KEY_ID=test-id MOONCAKE_AWS_SECRET_ACCESS_KEY=test-secret \
		MOONCAKE_AWS_USE_VIRTUAL_ADDRESSING=false
	tool get host/x "$tmp/out"
	MOONCAKE_AWS_BUCKET_NAME=none MOONCAKE_S3_BUCKET=snapshots tool get host/x "$tmp/out"
	# the bucket is in the host, and 127.0.0.1 has no subdomains
	MOONCAKE_S3_PATH_STYLE=0 fails tool get host/x "$tmp/out"
)
(
	unset "${!MOONCAKE_S3_@}"
	export MOONCAKE_OSS_ENDPOINT=http://127.0.0.1:$S3_PORT MOONCAKE_OSS_BUCKET=snapshots MOONCAKE_OSS_REGION=us-east-1 \
		MOONCAKE_OSS_ACCESS_KEY_ID=test-id MOONCAKE_OSS_ACCESS_KEY_SECRET=test-secret MOONCAKE_AWS_BUCKET_NAME=none
	tool get host/x "$tmp/out"
	MOONCAKE_OSS_PATH_STYLE=0 fails tool get host/x "$tmp/out"
	MOONCAKE_OSS_SECURITY_TOKEN=$'bad\ntoken' fails tool get host/x "$tmp/out"
	tells 'MOONCAKE_OSS_SECURITY_TOKEN has an invalid character'
)
MOONCAKE_S3_SECRET_ACCESS_KEY=wrong-secret fails tool put x "$tmp/in"
tells "^blob_tool: -13 S3 http://127.0.0.1:$S3_PORT, bucket snapshots: HTTP status 403 SignatureDoesNotMatch"
grep -q wrong-secret "$tmp/fails.out" && fail "the key is in the message"
MOONCAKE_S3_ACCESS_KEY_ID=nobody fails tool put x "$tmp/in"
# -2 would mean that the name does not exist; this server answers 404 with a code of its own
tells '^blob_tool: -\(13\|22\) .*bucket snapshots: HTTP status 40[34] [A-Za-z]'
MOONCAKE_S3_BUCKET=none fails tool put x "$tmp/in"
tells '^blob_tool: -22 .* NoSuchBucket .*create the bucket'
MOONCAKE_S3_BUCKET=none fails tool list x
tells NoSuchBucket
MOONCAKE_S3_BUCKET='' fails tool put x "$tmp/in"
tells 'MOONCAKE_S3_BUCKET, MOONCAKE_OSS_BUCKET or MOONCAKE_AWS_BUCKET_NAME'
MOONCAKE_S3_ACCESS_KEY_ID='' fails tool put x "$tmp/in"
tells 'MOONCAKE_S3_ACCESS_KEY_ID, MOONCAKE_OSS_ACCESS_KEY_ID or MOONCAKE_AWS_ACCESS_KEY_ID'
MOONCAKE_S3_SECRET_ACCESS_KEY='' fails tool put x "$tmp/in"
tells 'MOONCAKE_S3_SECRET_ACCESS_KEY, MOONCAKE_OSS_ACCESS_KEY_SECRET or MOONCAKE_AWS_SECRET_ACCESS_KEY'
for endpoint in ftp://h http://u:hidden@h http://h/path; do
	MOONCAKE_S3_ENDPOINT=$endpoint fails tool put x "$tmp/in"
	tells 'MOONCAKE_S3_ENDPOINT, MOONCAKE_OSS_ENDPOINT or MOONCAKE_AWS_S3_ENDPOINT is invalid'
	grep -q hidden "$tmp/fails.out" && fail "the password is in the message"
done
stop_still "$S3_PID"
MOONCAKE_AWS_CONNECT_TIMEOUT_MS=200 MOONCAKE_AWS_REQUEST_TIMEOUT_MS=200 fails timeout 20 \
	"$top_builddir/tests/integ/blob_tool" s3 get x "$tmp/out"
tells '^blob_tool: -110 S3 .*timed out'
kill -CONT "$S3_PID"
stop_pid "$S3_PID"
fails tool get x "$tmp/out"
tells "^blob_tool: -111 S3 http://127.0.0.1:$S3_PORT, bucket snapshots: .*connect"
restart_s3
tool get host/x "$tmp/out"
