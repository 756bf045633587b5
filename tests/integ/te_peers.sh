#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A transfer engine of a process with a credential proves no identity: other hosts connect only if MC_UPSTREAM_PEERS names
# their network.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_netns
two_nodes
bench=$top_builddir/tools/transfer_engine_bench

# target [OPTION...] - an engine on node B; sets SEGMENT
target() {
	rm -f "$tmp/target.log"
	NS=$NS_B spawn target env MC_CREDENTIAL=/nowhere "$bench" "$@" --mode=target --local_server_name="$ADDR_B" \
		--metadata_server=P2PHANDSHAKE --buffer_size=1MiB
	TARGET_PID=$SPAWNED
	started "$TARGET_PID" target 20 grep -q 'Target is ready' "$tmp/target.log"
	SEGMENT=$(sed -n 's/^Target is ready, segment //p' "$tmp/target.log")
}
write() { # write NAMESPACE ADDRESS
	in_ns "$1" timeout 30 "$bench" --metadata_server=P2PHANDSHAKE --local_server_name="$2" --segment_id="$SEGMENT" \
		--buffer_size=1MiB --block_size=4096 --batch_size=4 --duration=0.2s --threads=1 --operation=write
}

target
fails write "$NS_A" "$ADDR_A"
grep -q 'its host is not in MC_UPSTREAM_PEERS' "$tmp/target.log" || fail "no reason in the log"
write "$NS_B" "$ADDR_B" >"$tmp/out" 2>&1 || fail "a process of this host is refused: $(cat "$tmp/out")"
end_pid "$TARGET_PID"
target --upstream_peers="${ADDR_A%.*}.0/24"
write "$NS_A" "$ADDR_A" >"$tmp/out" 2>&1 || fail "a named host is refused: $(cat "$tmp/out")"
grep -q 'without a credential' "$tmp/target.log" || fail "no warning"
end_pid "$TARGET_PID"
NS=$NS_B fails env MC_CREDENTIAL=/nowhere MC_UPSTREAM_PEERS=10.0.0.0/33 "$bench" --mode=target \
	--local_server_name=127.0.0.1 --metadata_server=P2PHANDSHAKE --buffer_size=1MiB
grep -q 'MC_UPSTREAM_PEERS=10.0.0.0/33' "$tmp/fails.out" || fail "$(cat "$tmp/fails.out")"
exit 0
