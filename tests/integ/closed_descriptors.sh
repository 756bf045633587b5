#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program that starts without standard input, output or error does not use these descriptors for
# its own files.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl

# closed PROGRAM [ARG]... - run it with descriptors 0 to 2 closed
cat >"$tmp/closed" <<'EOF'
#!/bin/sh
exec "$@" <&- >&- 2>&-
EOF
chmod +x "$tmp/closed"
# descriptors PID - targets of its descriptors 0, 1 and 2
descriptors() {
	readlink "/proc/$1/fd/0" "/proc/$1/fd/1" "/proc/$1/fd/2" | tr '\n' ' '
}
# output that was requested and cannot be written is a failure
for p in master/mooncake_master mcfs/mcfs tools/mcctl tools/mcbench node/mooncake_client tools/transfer_engine_bench \
	tools/mooncake_http_metadata_server; do
	for flag in --version --help --print_config; do
		! "$top_builddir/$p" "$flag" >&- 2>"$tmp/why" || fail "$p $flag succeeded without standard output"
		grep -q 'standard output' "$tmp/why" || fail "$p $flag: $(cat "$tmp/why")"
		! "$top_builddir/$p" "$flag" >/dev/full 2>"$tmp/why" || fail "$p $flag succeeded on a full disk"
	done
done
nulls='/dev/null /dev/null /dev/null '

# the metadata server's file is valid after a restart, with no other output in it
PORT=''
free_port PORT
url="http://127.0.0.1:$PORT/metadata?key=k"
answers() {
	[ "$(curl -s --noproxy '*' --max-time 10 "http://127.0.0.1:$PORT/health")" = OK ]
}
server() {
	spawn server "$tmp/closed" "$top_builddir/tools/mooncake_http_metadata_server" --host 127.0.0.1 \
		--port "$PORT" --persist "$tmp/file"
	started "$SPAWNED" server 20 answers
}
server
equal 'of the metadata server' "$(descriptors "$SPAWNED")" "$nulls"
curl -sf --noproxy '*' --max-time 10 -X PUT -d value "$url" >/dev/null
end_pid "$SPAWNED"
server
equal 'the value' "$(curl -sf --noproxy '*' --max-time 10 "$url")" value
end_pid "$SPAWNED"

# a master's journal
master() {
	spawn master "$tmp/closed" "$top_builddir/master/mooncake_master" --rpc_address=127.0.0.1 \
		--rpc_port="${MASTER##*:}" --metrics_host=127.0.0.1 --metrics_port="${MASTER_HTTP##*:}" \
		--journal_dir="$tmp/journal"
	MASTER_PID=$SPAWNED
	started "$MASTER_PID" master 20 master_serves "$MASTER_HTTP"
}
rpc='' http=''
free_port rpc
free_port http
MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
master
equal 'of the master' "$(descriptors "$MASTER_PID")" "$nulls"
kill_pid "$MASTER_PID"
master
equal 'damaged records' "$(metric "$MASTER_HTTP" mooncake_master_journal_damaged_total)" 0
end_pid "$MASTER_PID"
