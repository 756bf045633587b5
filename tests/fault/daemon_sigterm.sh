#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# SIGTERM ends a daemon that still looks for its master within one second, and leaves nothing behind.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires python3
unless_sanitized "measures time"
closed='' silent=''
free_port closed
free_port silent
# a peer that accepts connections and never answers
spawn silent python3 -c 'if True:
	import socket, sys
	s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
	kept = []
	while True:
		kept.append(s.accept())' "$silent"
wait_for 10 connects "127.0.0.1:$silent" || fail "no silent peer"
m=$tmp/mnt
mkdir "$m"
cleanup_fn unmount_any "$m"

# looking PID - the process, or its child, has started its threads and waits for the master
looking() {
	local pid
	for pid in "$1" $(cat "/proc/$1/task/$1/children"); do
		[ "$(find "/proc/$pid/task" -maxdepth 1 -mindepth 1 | wc -l)" -le 1 ] || return 0
	done
	return 1
}
# ends SIGNAL NAME COMMAND... - the daemon looks for its master, receives the signal, and ends
ends() {
	local sig=$1 name=$2 pid began
	shift 2
	spawn "$name" "$@"
	pid=$SPAWNED
	wait_for 10 looking "$pid" || fail "$name does not start: $(cat "$tmp/$name.log")"
	case $name in
	client--lazy) wait_for 10 grep -q "is up" "$tmp/$name.log" ;;
	*--lazy) wait_for 10 is_mounted "$m" ;;
	esac || fail "$name does not start: $(cat "$tmp/$name.log")"
	began=${EPOCHREALTIME/./}
	kill -"$sig" "$pid"
	wait_for 10 gone "$pid" || fail "$name does not end after SIG$sig"
	[ $((${EPOCHREALTIME/./} - began)) -lt 1000000 ] ||
		fail "$name ended $(((${EPOCHREALTIME/./} - began) / 1000)) ms after SIG$sig"
	if grep -q "sanitizer\|died" "$tmp/$name.log"; then
		fail "$name: $(cat "$tmp/$name.log")"
	fi
	is_mounted "$m" && fail "$name left a mount"
	rm "$tmp/$name.log"
	return 0
}

for port in "$closed" "$silent"; do
	for lazy in '' --lazy; do
		flags=(--port=0 --global_segment_size=16MiB --setup_timeout=60s)
		for sig in TERM INT; do
			# shellcheck disable=SC2086  # $lazy is an option or nothing
			ends "$sig" "client$lazy" "$top_builddir/node/mooncake_client" \
				--master_server_address="127.0.0.1:$port" "${flags[@]}" --host=127.0.0.1 $lazy
			[ -r /dev/fuse ] && [ -w /dev/fuse ] && [ "$(id -u)" -eq 0 ] || continue
			# shellcheck disable=SC2086
			ends "$sig" "mcfs$lazy" "$top_builddir/mcfs/mcfs" -f "127.0.0.1:$port" "$m" "${flags[@]}" $lazy
			# shellcheck disable=SC2086
			ends "$sig" "supervised$lazy" "$top_builddir/mcfs/mcfs" -f --supervise "127.0.0.1:$port" "$m" \
				"${flags[@]}" $lazy
		done
	done
done
# A program waits for the master in a mount without one.
if [ -r /dev/fuse ] && [ -w /dev/fuse ] && [ "$(id -u)" -eq 0 ]; then
	spawn busy "$top_builddir/mcfs/mcfs" -f --lazy --timeout=30s "127.0.0.1:$silent" "$m" "${flags[@]}"
	pid=$SPAWNED
	wait_for 10 is_mounted "$m" || fail "not mounted"
	spawn reader cat "$m/file"
	asleep() { grep -q '^State:.*[SD]' "/proc/$SPAWNED/status" && grep -q 'cat' "/proc/$SPAWNED/comm"; }
	wait_for 10 asleep || fail "the reader does not wait: $(cat "$tmp/reader.log")"
	kill -TERM "$pid"
	wait_for 1 gone "$pid" || fail "a daemon with a waiting program does not end"
	wait_for 10 gone "$SPAWNED" || fail "the program still waits"
	is_mounted "$m" && fail "the mount is left"
fi

# Process 1 of a container: the kernel ignores signals that it does not handle.
if [ "$(id -u)" -eq 0 ] && unshare -pf true 2>/dev/null; then
	spawn container unshare -pf "$top_builddir/node/mooncake_client" --master_server_address="127.0.0.1:$closed" \
		"${flags[@]}"
	has_child() { first=$(cat "/proc/$SPAWNED/task/$SPAWNED/children") && [ -n "$first" ] && looking ${first% }; }
	wait_for 10 has_child || fail "no process in the container"
	kill -TERM "${first% }"
	wait_for 1 gone "${first% }" || fail "process 1 of a container does not end"
fi
exit 0
