#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Engines beside a mount: the ioctls from Python on any descriptor, buffers handed over at the socket, the
# segments as files, pins that end with their descriptor; what is wrong fails for the caller only.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3
lane=
free_port lane
start_standalone "$tmp/mnt" --global_segment_size=64MiB --port="$lane" --socket="$tmp/sock" --segment_kind=memfd
m=$tmp/mnt
head -c 300000 /dev/urandom >"$tmp/data"
cp "$tmp/data" "$m/obj"
mkdir "$m/dir"

feature() {
	awk -v name="$1" '$1 == name { print $2 }' "$m/.mcfs/features"
}
# From 3.17 on libfuse has calls for all that the kernel is asked for; and what it can give, is given.
by=hook
[ "$(printf '%s\n' 3.17 "$(feature libfuse)" | sort -V | head -n 1)" != 3.17 ] || by=libfuse
equal "who negotiates" "$(feature negotiated_by)" "$by"
if [ "$(id -u)" -eq 0 ] && zgrep -qs '^CONFIG_FUSE_PASSTHROUGH=y' /proc/config.gz; then
	equal passthrough "$(feature passthrough)" yes
	equal "shared mappings" "$(feature shared_mmap)" yes
fi
# a descriptor for each thread, with the hook too
[ "$(find "/proc/$MCFS_PID/fd" -lname /dev/fuse | wc -l)" -gt 1 ] || fail "all threads share one descriptor"

MNT=$m DATA=$tmp/data PORT=$lane SOCK=$tmp/sock timeout 60 python3 "$top_srcdir/tests/integ/mcfs_lanes.py" ||
	fail "the ioctls"

# All that the program held is gone with it.
nothing_held() {
	python3 - "$m" <<-'END'
	import fcntl, os, struct, sys
	buf = bytearray(184)
	fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x80b84d01, buf)
	sys.exit(struct.unpack_from("3Q", buf, 24) != (0, 0, 0))
	END
}
wait_for 10 nothing_held
equal "the file afterwards" "$(cksum <"$m/obj")" "$(cksum <"$tmp/data")"
equal "names" "$(ls "$m/.mcfs/segments" | tr '\n' ' ')" "0 1 "

# What the rings have no operation for is asked of the master, which is in the daemon's process here.
TMPDIR=$tmp timeout 60 "$top_builddir/tests/integ/node_fallback" cold "127.0.0.1:$lane" || fail "cold calls"

equal "mode of the segment" "$(stat -c %a "$m/.mcfs/segments/0")" 400
fails cat "$m/.mcfs/segments/2"
fails sh -c "echo x >'$m/.mcfs/segments/0'"
unmount "$m"
wait_for 15 gone "$MCFS_PID"
[ ! -e "$tmp/sock" ] || fail "the socket's file is left"
