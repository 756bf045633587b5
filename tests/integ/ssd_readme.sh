#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The two commands of the README's section "Add an SSD".
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires_fuse
requires curl
free_port rpc
free_port http
MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
mkdir "$tmp/mnt"
# The block, with this test's programs, directories and ports.
awk '/^## / { on = /Add an SSD/ } on && /^```/ { block = !block; next } on && block' "$top_srcdir/README.md" >"$tmp/commands"
[ "$(wc -l <"$tmp/commands")" -eq 2 ] || fail "not two commands: $(cat "$tmp/commands")"
sed -i "s|^mooncake_master|$top_builddir/master/mooncake_master --rpc_port=$rpc --metrics_port=$http|
	s|^mcfs|$top_builddir/mcfs/mcfs|; s|/data/mooncake|$ssd|; s|127.0.0.1:50051|$MASTER|; s|/mnt/mooncake|$tmp/mnt|" "$tmp/commands"
cleanup_fn end_all
end_all() {
	unmount_any "$tmp/mnt"
	pkill -TERM -f "mooncake_master --rpc_port=$rpc " || :
}
bash -e "$tmp/commands" >"$tmp/commands.log" 2>&1 || fail "the commands fail: $(cat "$tmp/commands.log")"
is_mounted "$tmp/mnt" || fail "not mounted"
for ((i = 0; i < 120; i++)); do
	head -c 1000000 /dev/urandom >"$tmp/file.$i"
	cp "$tmp/file.$i" "$tmp/mnt/file.$i"
done
wait_for 20 offload_idle
for ((i = 0; i < 120; i++)); do
	cmp "$tmp/file.$i" "$tmp/mnt/file.$i" || fail "file.$i differs"
done
[ "$(xattr get mooncake.tier "$tmp/mnt/file.0")" = disk ] || fail "file.0 is in $(xattr get mooncake.tier "$tmp/mnt/file.0")"
