#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The init script of mounts: it mounts, checks, reloads and unmounts the mounts of its table, one or
# all.  Starting twice does no harm, nor does the dead mount of a killed daemon.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_root
[ -r /lib/lsb/init-functions ] || skip "no LSB init functions"
requires_plain_program "$top_builddir/mcfs/mcfs"
start_master
a=$tmp/a b=$tmp/b
mkdir "$tmp/default" "$tmp/log"
echo "timeout: 7s" >"$tmp/conf.yaml"
cat >"$tmp/default/mcfs" <<SH
MCFS_OPTIONS="supervise,log_dir=$tmp/log"
STOP_SECONDS=30
SH
cat >"$tmp/mcfs.tab" <<SH
# MASTER DIR OPTIONS

$MASTER $a global_segment_size=16MiB,port=0,config_path=$tmp/conf.yaml
$MASTER	$b	global_segment_size=16MiB,port=0
SH
sed -e "s|@bindir@|$top_builddir/mcfs|g" -e "s|@sysconfdir@|$tmp|g" "$top_srcdir/init/mcfs.in" >"$tmp/init"
chmod +x "$tmp/init"
cleanup_fn unmount_any "$a"
cleanup_fn unmount_any "$b"
cleanup_fn "$tmp/init" stop
init() { timeout 120 "$tmp/init" "$@"; }
# status_is STATUS WORDS [DIR]
status_is() {
	local status=0
	init status ${3-} >"$tmp/status" || status=$?
	equal "status" "$status" "$1"
	grep -q -- "$2" "$tmp/status" || fail "status says $(cat "$tmp/status")"
}

status_is 3 "not mounted at $a"
init start </dev/null >"$tmp/start.out" 2>&1
is_mounted "$a" && is_mounted "$b" || fail "not mounted: $(cat "$tmp/start.out")"
status_is 0 "serves $b"
echo text >"$a/f"
equal "the same pool" "$(cat "$b/f")" text
daemons() { processes_left | awk '$2 ~ /mcfs$/ { print $1 }' | sort | tr '\n' ' '; }
before=$(daemons)
init start
equal "daemons after a second start" "$(daemons)" "$before"

# reload changes the options of a mount and keeps its daemon
grep -q '^timeout = 7s' "$a/.mcfs/config"
echo "timeout: 9s" >"$tmp/conf.yaml"
init reload "$a"
wait_for 20 grep -q '^timeout = 9s' "$a/.mcfs/config" || fail "not reloaded"
equal "daemons after reload" "$(daemons)" "$before"

# only one of them
init stop "$b"
is_mounted "$b" && fail "still mounted at $b"
is_mounted "$a" || fail "not mounted at $a any more"
status_is 3 "not mounted at $b" "$b"
status_is 0 "serves $a" "$a"
init restart
status_is 0 "serves $b"

# a daemon and its supervisor were killed: the mount is dead
for pid in $(daemons); do
	kill -KILL "$pid"
	wait_for 20 gone "$pid"
done
status_is 1 "does not answer"
init start
status_is 0 "serves $a"
# open files do not prevent the unmount
exec 3>"$a/open"
init stop
exec 3>&-
is_mounted "$a" && fail "still mounted at $a"
equal "daemons after stop" "$(daemons)" ""
init stop
fails init nonsense
cp "$tmp/mcfs.tab" "$tmp/tab"
echo "$MASTER $a -o ro what" >>"$tmp/mcfs.tab"
fails init status
grep -q "not \"MASTER DIR" "$tmp/fails.out" || fail "a bad line: $(cat "$tmp/fails.out")"
mv "$tmp/tab" "$tmp/mcfs.tab"
