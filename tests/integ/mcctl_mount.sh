#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The keys that mcctl prints and accepts are the paths of the files on a mount.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/integ/mcctl_functions.sh"
requires_fuse
requires find
start_master
start_mcfs "$MASTER" "$tmp/mnt" --global_segment_size=32MiB

i=0
for key in plain 'a/b/c' 'model@meta-llama%2FLlama-3' '100%' 'with space/x' $'\xc3\xa9/\xff' '%41' '-dash' '%2500'; do
	i=$((i + 1))
	echo "$i" | ctl put -- "$key"
	equal "$key on the mount" "$(cat "$tmp/mnt/$key")" "$i"
	mkdir -p "$(dirname "$tmp/mnt/by mount/$key")"
	echo "mount $i" >"$tmp/mnt/by mount/$key"
	equal "$key by mcctl" "$(ctl get -- "by mount/$key")" "mount $i"
done
# mkdir creates a key that ends in a slash
equal "all keys" "$(ctl ls -R -0 | grep -zv '/$' | sort -z | tr '\0' '\n')" \
	"$(find "$tmp/mnt" -type f -printf '%P\0' | sort -z | tr '\0' '\n')"
equal "one directory" "$(ctl ls 'by mount' | sort)" "$(cd "$tmp/mnt/by mount" && printf '%s\n' * | while read -r n; do
	[ -d "$n" ] && echo "$n/" || echo "$n"
done | sort)"

ctl mv plain moved/plain
equal "renamed" "$(cat "$tmp/mnt/moved/plain")" 1
mv "$tmp/mnt/moved/plain" "$tmp/mnt/plain"
equal "renamed back" "$(ctl get plain)" 1
ctl rm plain
[ ! -e "$tmp/mnt/plain" ] || fail "mcctl removed the key, but the mount still shows the file"
equal "df" "$(df -B1 --output=size "$tmp/mnt" | tail -n 1 | tr -d ' ')" "$(ctl --json df | jq .pool.capacity)"
# This node runs no master, so its metrics have no series of one: an alarm about them would be false.
cat "$tmp/mnt/.mcfs/metrics" >"$tmp/metrics"
grep -q '^mcfs_ops_total' "$tmp/metrics"
if grep '^[a-z]' "$tmp/metrics" | grep -vE '^(mcfs|mooncake)_' || grep mooncake_master_ "$tmp/metrics"; then
	fail "a node has series of a master"
fi
# the master has its own, but without --enable_ha none about standbys
curl -sf --max-time 5 -o "$tmp/metrics" "http://$MASTER_HTTP/metrics"
grep -q '^mooncake_master_evictable_bytes ' "$tmp/metrics"
! grep standbys_ "$tmp/metrics" || fail "a master without --enable_ha counts standbys"
stop_pid "$MCFS_PID" 30
