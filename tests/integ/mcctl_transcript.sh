#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The guides' first lines start servers, and every command of mcctl has the status and the form of output that
# mcctl_transcript.txt shows: against a pool at the default ports, a dead master, and a cluster of masters.
# "mcctl_transcript.sh write" replaces the outputs in that file by the real ones.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ha.sh"
. "$top_srcdir/tests/lib/python.sh"
requires curl etcd
# In namespaces of its own, the default ports belong to this test, and mcctl sees no mounts of other tests.
if [ -z "${MCCTL_TRANSCRIPT_NS-}" ]; then
	unshare -mn true 2>/dev/null || skip "no mount or network namespace can be created"
	rmdir "$tmp"
	MCCTL_TRANSCRIPT_NS=1 exec unshare -mn bash "$0" "$@"
fi
while read -r _ where type _; do
	[ "$type" != fuse.mcfs ] || umount -l "$where" || :
done </proc/self/mounts
ip link set lo up
wanted=$top_srcdir/tests/integ/mcctl_transcript.txt

# ---- the guides' lines for the metadata server: without options, for this host only
serves_metadata() { [ "$(curl -s --noproxy '*' --max-time 5 -X PUT -d x 'http://127.0.0.1:8080/metadata?key=k')" = "metadata updated" ]; }
guide() { # guide NAME COMMAND...
	spawn "$@"
	wait_for 20 serves_metadata || fail "$1 does not serve: $(cat "$tmp/$1.log")"
	grep -q 'listening on 127.0.0.1 only.*MC_METADATA_HTTP_TOKEN' "$tmp/$1.log" || fail "no line says how to open it: $(cat "$tmp/$1.log")"
	stop_pid "$SPAWNED"
}
guide program "$top_builddir/tools/mooncake_http_metadata_server"
if find_python; then
	guide module env PYTHONPATH="$top_srcdir/python" MOONCAKE_BIN_DIR="$top_builddir/tools" "$PYTHON" -B \
		-m mooncake.http_metadata_server
fi

# ---- the programs as a user starts them
mkdir "$tmp/bin"
cat >"$tmp/bin/mcctl" <<SH
#!/bin/sh
exec "$(realpath "$top_builddir")/tools/mcctl" \$MCCTL_OPTIONS "\$@"
SH
chmod +x "$tmp/bin/mcctl"
PATH=$tmp/bin:$PATH
export MCCTL_OPTIONS='' A=127.0.0.1:15001 B=127.0.0.1:15002
printf 'twelve bytes' >"$tmp/file"

# Numbers, ids, times and widths differ from run to run.
shape() {
	sed -E -e '/^mcctl: the drain waits: /d' -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+Z?/DATE/g' -e 's/127\.0\.0\.1:[0-9]+/ADDRESS/g' \
		-e 's/127\.0\.0\.1/HOST/g' -e 's/-?[0-9]{5,}-+[0-9]{5,}/ID/g' -e "s|$tmp|TMP|g" -e 's/[0-9.]*[0-9] (B|[KMGT]iB)/SIZE/g' \
		-e 's/\b[0-9a-f]{8,}\b/HEX/g' -e 's/[0-9]+(\.[0-9]+)?/N/g' -e 's/ +/ /g' -e 's/ $//'
}

# transcript SECTION - run the commands of that section of the file, and print them with output and status
transcript() {
	local line status
	echo "## $1"
	sed -n "/^## $1\$/,/^## /s/^\\$ //p" "$wanted" >"$tmp/commands"
	while read -r line <&7; do
		echo "$ $line"
		status=0
		(cd "$tmp" && eval "$line") >"$tmp/output" 2>&1 </dev/null || status=$?
		shape <"$tmp/output"
		echo "= $status"
	done 7<"$tmp/commands"
}

nodes() { # nodes ADDRESS-OF-MASTERS
	local node
	for node in "$A" "$B"; do
		spawn "node-${node##*:}" "$top_builddir/node/mooncake_client" --host="$node" --port=$((${node##*:} + 1000)) \
			--master_server_address="$1" --global_segment_size=32MB
		NODES+=("$SPAWNED")
	done
	wait_for 20 eval '[ "$(mcctl df | grep -c " ok$")" = 2 ]' || fail "no nodes: $(cat "$tmp"/node-*.log)"
}

spawn master "$top_builddir/master/mooncake_master" --default_kv_lease_ttl=0 --journal_dir="$tmp/journal"
started "$SPAWNED" master 20 master_serves 127.0.0.1:9003
master=$SPAWNED NODES=()
nodes 127.0.0.1:50051
transcript pool >"$tmp/real"
for pid in "${NODES[@]}"; do
	end_pid "$pid"
done
stop_pid "$master"

MCCTL_OPTIONS=--timeout=100ms
transcript 'dead master' >>"$tmp/real"

start_etcd
masters a b
start_ha a --default_kv_lease_ttl=0
wait_for 20 leader >/dev/null
start_ha b --default_kv_lease_ttl=0
wait_for 20 in_sync a 1
MCCTL_OPTIONS=--master=$STORE_URL NODES=()
nodes "$STORE_URL"
transcript 'several masters' >>"$tmp/real"

if [ "${1-}" = write ]; then
	cp "$tmp/real" "$wanted"
fi
diff -u "$wanted" "$tmp/real" || fail "mcctl differs from tests/integ/mcctl_transcript.txt"

# each command of --help is in each section
commands=$(mcctl --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\).*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 25 ] || fail "commands: $commands"
for section in pool 'dead master' 'several masters'; do
	for command in $commands; do
		sed -n "/^## $section\$/,/^## /p" "$wanted" | found -E "^\\$ .*mcctl (-[^ ]* )*$command( |\$)" ||
			fail "$command is not in section $section"
	done
done
