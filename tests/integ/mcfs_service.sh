#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The daemon as a service: few privileges, a log to syslog, options that SIGHUP reloads, a container
# that has only /dev/fuse; and the doctor's diagnosis of a mount.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_root
requires python3
m=$tmp/mnt
flags=(--global_segment_size=32MiB)

# ---- capabilities: sys_admin, dac_read_search, sys_ptrace, ipc_lock, net_bind_service and no others
start_standalone "$m" "${flags[@]}"
kept=$(((1 << 21) | (1 << 2) | (1 << 19) | (1 << 14) | (1 << 10)))
for set in CapEff CapPrm CapBnd; do
	for status in /proc/"$MCFS_PID"/task/*/status; do
		# the thread may have ended meanwhile
		has=$(awk -v set="$set:" '$1 == set { print $2 }' "$status" 2>/dev/null) || continue
		[ -n "$has" ] || continue
		has=$((16#$has))
		equal "$set of $status beyond what is kept" $((has & ~kept)) 0
	done
done
equal "new privileges" "$(awk '/^NoNewPrivs/ { print $2 }' "/proc/$MCFS_PID/status")" 1
echo text >"$m/f"
equal "a file" "$(cat "$m/f")" text
stop_pid "$MCFS_PID"
# a directory that root can enter by a capability only
mkdir "$tmp/theirs" "$tmp/theirs/mnt"
chown -R 65534 "$tmp/theirs"
chmod 700 "$tmp/theirs"
start_standalone "$tmp/theirs/mnt" "${flags[@]}"
echo text >"$tmp/theirs/mnt/f"
unmount "$tmp/theirs/mnt"
wait_for 15 gone "$MCFS_PID" || fail "mcfs does not end"
start_standalone "$m" "${flags[@]}" --nodrop_privileges
equal "privileges that are not dropped" "$(awk '/^CapEff/ { print $2 }' "/proc/$MCFS_PID/status")" \
	"$(awk '/^CapEff/ { print $2 }' /proc/self/status)"
stop_pid "$MCFS_PID"

# ---- reload
cat >"$tmp/conf.yaml" <<'Y'
timeout: 7s
log: info
Y
start_standalone "$m" "${flags[@]}" --config_path="$tmp/conf.yaml"
grep -q '^timeout = 7s' "$m/.mcfs/config" || fail "config: $(grep timeout "$m/.mcfs/config")"
echo one >"$m/f"
cat >"$tmp/conf.yaml" <<'Y'
timeout: 9s
log: info,mcfs=trace
immutable: true
Y
kill -HUP "$MCFS_PID"
wait_for 10 grep -q "configuration reloaded" "$tmp/mcfs-mnt.log" || fail "no reload"
grep -q '^timeout = 9s' "$m/.mcfs/config" || fail "config: $(grep timeout "$m/.mcfs/config")"
fails sh -c "echo two >'$m/f'"
wait_for 10 grep -q "trace mcfs: " "$tmp/mcfs-mnt.log" || fail "the log level did not change"
echo "timeout: soon" >"$tmp/conf.yaml"
kill -HUP "$MCFS_PID"
wait_for 10 grep -q "cannot reload the configuration" "$tmp/mcfs-mnt.log" || fail "an invalid option is accepted"
equal "a file after a reload" "$(cat "$m/f")" one
stop_pid "$MCFS_PID"

# ---- syslog; if the machine has none, the test provides one
cat >"$tmp/syslog.py" <<'PY'
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
print("ready", flush=True)
while True:
    print(s.recv(65536).decode(errors="replace"), flush=True)
PY
if [ ! -e /dev/log ]; then
	spawn syslog python3 "$tmp/syslog.py" /dev/log
	cleanup_fn rm -f /dev/log
	wait_for 10 grep -q ready "$tmp/syslog.log"
	rm "$tmp/mcfs-mnt.log"
	start_standalone "$m" "${flags[@]}" --syslog
	wait_for 10 grep -qE '^<30>.*mcfs.*: mcfs: mounted dir=' "$tmp/syslog.log" ||
		fail "syslog has: $(cat "$tmp/syslog.log")"
	fails grep -q "mounted dir" "$tmp/mcfs-mnt.log"
	stop_pid "$MCFS_PID"
fi

# ---- a container: its own namespaces, no privileges outside, and the device
if unshare -Urmp --fork --mount-proc true 2>/dev/null; then
	# The end of the container kills the daemon and all other processes at once: files that they
	# leave belong to the container.
	# shellcheck disable=SC2016
	TMPDIR=$tmp timeout 60 unshare -Urmp --fork --mount-proc bash -c '
		"$1" --standalone --global_segment_size=32MiB "$2" || exit 1
		echo inside >"$2/f" && [ "$(cat "$2/f")" = inside ] && mv "$2/f" "$2/g" || exit 2
		umount "$2"' sh "$top_builddir/mcfs/mcfs" "$m" </dev/null >"$tmp/container.out" 2>&1 ||
		fail "in a container: $(cat "$tmp/container.out")"
	no_daemon() { [[ $(processes_left) != *"/mcfs/mcfs "* ]]; }
	wait_for 10 no_daemon || fail "a daemon outlives its container: $(processes_left)"
fi

# ---- the doctor
start_master
ctl() { timeout 60 "$top_builddir/tools/mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" "$@"; }
start_mcfs "$MASTER" "$m" "${flags[@]}" --stall_timeout=0
for way in "$m/" "$(realpath --relative-to=. "$m")" "$m"; do
	ctl doctor "$way" >"$tmp/doctor" || fail "doctor $way: $(cat "$tmp/doctor")"
done
grep -q "the mount $m serves" "$tmp/doctor" || fail "doctor: $(cat "$tmp/doctor")"
grep -q "passthrough" "$tmp/doctor"
grep -q "huge pages" "$tmp/doctor"
(ulimit -l 64; ctl doctor) >"$tmp/doctor" || :
grep -q "only 64 KiB may be locked" "$tmp/doctor" || fail "doctor: $(cat "$tmp/doctor")"
stop_still "$MCFS_PID"
if ctl doctor "$m" >"$tmp/doctor"; then fail "doctor reports no problem for a stopped mount"; fi
grep -q "the mount $m does not answer" "$tmp/doctor" || fail "doctor: $(cat "$tmp/doctor")"
kill -CONT "$MCFS_PID"
kill_pid "$MCFS_PID"
if ctl doctor "$m" >"$tmp/doctor"; then fail "doctor reports no problem for a dead mount"; fi
grep -q "the mount $m is dead" "$tmp/doctor" || fail "doctor: $(cat "$tmp/doctor")"
grep -q "umount -l" "$tmp/doctor" || fail "no advice: $(cat "$tmp/doctor")"
ctl doctor --json | python3 -c 'import json, sys; assert any("is dead" in f["text"] for f in json.load(sys.stdin))'
umount -l "$m"
if ctl doctor "$m" >"$tmp/doctor"; then fail "doctor reports no problem without a mount"; fi
grep -q "0 of the 1 directories are mounts" "$tmp/doctor" || fail "doctor: $(cat "$tmp/doctor")"
