#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Engines next to a mount: ioctls from Python on any descriptor, buffers lent over the socket,
# segments as files, and pins that end with their descriptor.  An invalid call fails only for its
# caller.
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
# Since 3.17 libfuse itself can negotiate all features; each feature that the kernel offers must be enabled.
by=hook
[ "$(printf '%s\n' 3.17 "$(feature libfuse)" | sort -V | head -n 1)" != 3.17 ] || by=libfuse
equal "who negotiates" "$(feature negotiated_by)" "$by"
if [ "$(id -u)" -eq 0 ] && zgrep -qs '^CONFIG_FUSE_PASSTHROUGH=y' /proc/config.gz; then
	equal passthrough "$(feature passthrough)" yes
	equal "shared mappings" "$(feature shared_mmap)" yes
fi
# one descriptor per thread, also with the hook
[ "$(find "/proc/$MCFS_PID/fd" -lname /dev/fuse | wc -l)" -gt 1 ] || fail "all threads share one descriptor"

MNT=$m DATA=$tmp/data PORT=$lane SOCK=$tmp/sock timeout 60 python3 "$top_srcdir/tests/integ/mcfs_lanes.py" ||
	fail "the ioctls"

# The mount releases everything that the program held.
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

# Operations that the rings do not have are sent to the master, which runs in the daemon's process here.
TMPDIR=$tmp timeout 60 "$top_builddir/tests/integ/node_fallback" cold "127.0.0.1:$lane" || fail "cold calls"

equal "mode of the segment" "$(stat -c %a "$m/.mcfs/segments/0")" 400
fails cat "$m/.mcfs/segments/2"
fails sh -c "echo x >'$m/.mcfs/segments/0'"
unmount "$m"
wait_for 15 gone "$MCFS_PID"
[ ! -e "$tmp/sock" ] || fail "the socket's file is left"
