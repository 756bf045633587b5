#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcctl stores, shows, lists, renames and removes objects, keeps their bytes, and reports the result
# by its exit status.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/integ/mcctl_functions.sh"
start_pool 64MiB

head -c 3000000 /dev/urandom >"$tmp/big"
printf 'hello\n' >"$tmp/small"
: >"$tmp/empty"

# bytes survive: from files and pipes, to files and pipes
for f in big small empty; do
	ctl put "data/$f" "$tmp/$f"
	ctl get "data/$f" "$tmp/out"
	cmp "$tmp/$f" "$tmp/out"
	ctl get "data/$f" | cmp - "$tmp/$f"
done
ctl put piped <"$tmp/big"
ctl get piped - | cmp - "$tmp/big"

# an existing key keeps its value unless --upsert is given
ctl put data/small "$tmp/big" 2>"$tmp/said"
grep -q 'data/small already exists and was not changed' "$tmp/said" || fail "no message about the value that was kept"
ctl get data/small | cmp - "$tmp/small"
status 1 ctl put --excl data/small "$tmp/big"
ctl put --upsert data/small "$tmp/big"
ctl get data/small | cmp - "$tmp/big"
equal "existed" "$(ctl --json put data/small "$tmp/small" | jq -c '[.existed, .size]')" '[true,6]'

# get replaces a file after the new one is complete, and changes nothing when the key does not exist
printf old >"$tmp/out"
status 1 ctl get no/such/key "$tmp/out"
equal "file of a failed get" "$(cat "$tmp/out")" old
equal "left-over files" "$(find "$tmp" -name 'out.*')" ""
chmod 600 "$tmp/out"
ctl get data/big "$tmp/out"
equal "mode of a replaced file" "$(stat -c %a "$tmp/out")" 600
status 3 ctl get data/big "$tmp/no/such/directory"
# a signal ends get, and leaves neither a temporary file nor a changed one
get_stopped() { grep -q '^State:.*T' "/proc/$SPAWNED/status"; }
for signal in INT TERM HUP; do
	printf old >"$tmp/out"
	# bash lets children in the background ignore SIGINT
	spawn get env --default-signal=INT MC_FAULTS=mcctl.get.write=stop "$top_builddir/tools/mcctl" --master="$MASTER" \
		get data/big "$tmp/out"
	wait_for 20 get_stopped
	[ -n "$(find "$tmp" -name 'out.*')" ] || fail "there is no temporary file to remove"
	kill -"$signal" "$SPAWNED"
	kill -CONT "$SPAWNED"
	got=0
	wait "$SPAWNED" || got=$?
	equal "status after SIG$signal" "$got" $((128 + $(kill -l "$signal")))
	equal "files left by SIG$signal" "$(find "$tmp" -name 'out.*')" ""
	equal "file after SIG$signal" "$(cat "$tmp/out")" old
done
status 3 ctl put key "$tmp/no/such/file"

# stat
ctl stat data/big | found '^size: *3000000 (2.9 MiB)$' || fail "stat has no size"
equal "stat --json" "$(ctl --json stat data/big data/empty | jq -c 'map([.key, .size, .kind, .replicas])')" \
	'[["data/big",3000000,"object",1],["data/empty",0,"object",0]]'
status 1 ctl stat data/big nothing >/dev/null
equal "error in JSON" "$(ctl --json stat nothing 2>/dev/null | jq -c 'map([.key, .code])')" '[["nothing",-704]]'

# ls: one level, all levels, one object, sorted or not
ctl put data/deep/x "$tmp/small"
equal "ls" "$(ctl ls)" $'data/\npiped'
equal "ls data" "$(ctl ls data)" $'big\ndeep/\nempty\nsmall'
equal "ls data/" "$(ctl ls data/)" $'big\ndeep/\nempty\nsmall'
equal "ls -R dat" "$(ctl ls -R dat)" $'data/big\ndata/deep/x\ndata/empty\ndata/small'
equal "ls -R -U" "$(ctl ls -R -U | sort)" "$(ctl ls -R)"
equal "ls of an object" "$(ctl ls piped)" piped
equal "ls -0" "$(ctl ls -0 data/deep | tr '\0' '|')" 'x|'
equal "ls -l" "$(ctl ls -l data | awk '$NF == "big" { print $1 }')" 3000000
equal "ls --json" "$(ctl --json ls data | jq -c 'map([.key, .kind, .size])')" \
	'[["data/big","object",3000000],["data/deep/","directory",null],["data/empty","object",0],["data/small","object",3000000]]'
status 1 ctl ls nothing
equal "empty list in JSON" "$(ctl --json ls -R nothing | jq -c .)" '[]'
ctl put data "$tmp/small"
equal "ls of an object beside a directory" "$(ctl ls data)" data
equal "ls --dir" "$(ctl ls --dir data)" $'big\ndeep/\nempty\nsmall'

# mv
ctl mv piped moved
status 1 ctl stat piped >/dev/null
ctl get moved | cmp - "$tmp/big"
status 1 ctl mv --noreplace moved data/big
status 1 ctl mv nothing anything
ctl mv moved data/empty
ctl get data/empty | cmp - "$tmp/big"

# keys with special bytes are printed in the form in which they must be typed
ctl put 'odd/%0Aline' "$tmp/small"
ctl put --raw 'odd/100%' "$tmp/small"
equal "odd keys" "$(ctl ls odd)" $'%0Aline\n100%'
equal "odd keys, raw" "$(ctl ls -R --raw odd | tr '\n' '|')" 'odd/|line|odd/100%|'
ctl ls -R odd | while read -r key; do
	ctl get "$key" | cmp - "$tmp/small"
done

# rm
ctl rm data/small data/deep/x
status 1 ctl stat data/small >/dev/null
status 1 ctl rm data/small
status 0 ctl rm -f data/small nothing
equal "message of rm -f" "$(cat "$tmp/stderr")" ""
equal "rm --json" "$(ctl --json rm data/big nothing 2>/dev/null | jq -c '[.removed, [.refused[].key]]')" '[1,["nothing"]]'

# df, health
ctl df | found -E '^pool +64 MiB ' || fail "df does not show the pool: $(ctl df)"
equal "df --json" "$(ctl --json df | jq -c '[.pool.capacity, .pool.segments, (.segments | length)]')" '[67108864,1,1]'
ctl health >/dev/null
equal "health" "$(ctl --json health | jq -c '[.status, .http.ok, .rpc.ok]')" '["healthy",true,true]'
other=
free_port other
status 1 ctl --metrics_port="$other" health >/dev/null
status 2 "$top_builddir/tools/mcctl" --master="127.0.0.1:$other" --metrics_port="$other" health >/dev/null

# a mistake changes nothing and is reported
status 2 ctl
status 2 ctl frobnicate
status 2 ctl ls a b
status 2 ctl mv a
status 2 ctl rm
status 2 ctl --nonsense ls
status 2 ctl ls --upsert
status 2 ctl stat ''
status 2 ctl ls -R --dir
status 2 ctl put --upsert --excl a "$tmp/small"
grep -q 'exclude each other' "$tmp/stderr" || fail "the reason is not reported"
status 3 "$top_builddir/tools/mcctl" --master="127.0.0.1:$other" --timeout=1s ls
grep -q 'is the master running' "$tmp/stderr" || fail "no advice: $(cat "$tmp/stderr")"
# also when it was stopped between two attempts until its timeout had passed
spawn refused "$top_builddir/tools/mcctl" --master="127.0.0.1:$other" --timeout=10s ls
naps() { grep -q nanosleep "/proc/$SPAWNED/wchan"; }
wait_for 30 naps
stop_still "$SPAWNED"
begun=$SECONDS
over() { [ $((SECONDS - begun)) -gt 10 ]; }
wait_for 60 over
kill -CONT "$SPAWNED"
wait "$SPAWNED" && fail "reported success although it reached no server"
grep -q 'connection refused' "$tmp/refused.log" || fail "no reason: $(cat "$tmp/refused.log")"
MOONCAKE_MASTER=$MASTER "$top_builddir/tools/mcctl" df >/dev/null
