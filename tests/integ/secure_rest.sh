#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bytes at rest of a pool with --security=on: no 16 bytes of a marked value, nor its key, nor anything secret, on a disk,
# in a shared directory, in a store of objects, in the journal and in snapshots; a restart and a rotation of the secret
# keep them; damage, another secret and a pool without security give errors and misses, never other bytes.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires jq python3
disk=$(mktemp -d "${SSD_DIR:-/var/tmp}/mc-rest.XXXXXX")
cleanup_fn rm -rf "$disk"
mkdir "$disk/shared"
dir=$tmp/security
KEY=key-of-the-marked-value
mcctl() { "$top_builddir/tools/mcctl" --master="$MASTER" --metrics_port="${MASTER_HTTP##*:}" --timeout=5 "$@"; }
master_bin=$top_builddir/master/mooncake_master
"$master_bin" --init_security --security_dir="$dir" >/dev/null
export MC_CREDENTIAL=$dir/admin.credential
export MOONCAKE_SNAPSHOT_LOCAL_PATH=$tmp/snapshots
free_port rpc
free_port http
MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
secure=(--security=on --security_dir="$dir" --default_kv_lease_ttl=0 --enable_offload --client_ttl=2 --enable_snapshot
	--enable_snapshot_restore --snapshot_object_store_type=local)
start_secure() { # start_secure JOURNAL [FLAG...]
	local journal=$1
	shift
	spawn master "$master_bin" --rpc_address=127.0.0.1 --rpc_port="${MASTER##*:}" --metrics_host=127.0.0.1 \
		--metrics_port="${MASTER_HTTP##*:}" --journal_dir="$journal" "${secure[@]}" "$@"
	MASTER_PID=$SPAWNED
	started "$MASTER_PID" mooncake_master 20 mcctl df
}
node() { # node NAME FLAG... - sets NODE_PID
	MC_CREDENTIAL='' spawn "$1" "$top_builddir/node/mooncake_client" --credential="${CREDENTIAL:-$tmp/node}" --host=127.0.0.1 \
		--master_server_address="$MASTER" --port=0 --global_segment_size=8MiB "${@:2}"
	NODE_PID=$SPAWNED
}
# states MEDIUM - of its segments
states() { mcctl --json df | jq -r "[.segments[] | select(.medium == \"$1\") | .state] | join(\" \")"; }
in_service() { [ "$(states "$1")" = ok ]; }
copied() { mcctl stat "$1" | found -E "^tier: .*$2"; }
same() { mcctl get "$1" - | cmp -s - "$tmp/value"; }
# only_at TIER KEY - a read may have brought it back to memory
only_at() {
	mcctl evict "$(mcctl --json df | jq -r '.segments[] | select(.medium == "memory" and .state == "ok") | .name')"
	mcctl stat "$2" | found -E "^tier: *$1$"
}
# to_rest KEY TIER - the value is only there
to_rest() {
	wait_for 20 mcctl put "$1" "$tmp/value"
	mcctl offload "$1"
	wait_for 20 copied "$1" "$2"
	wait_for 20 only_at "$2" "$1"
	same "$1" || fail "$1 does not come back from the $2"
}
# No place may have these; python3 reads files of any bytes.
cat >"$tmp/search.py" <<'PY'
import os, re, sys
value, key, secret_dir = open(sys.argv[1], 'rb').read(), sys.argv[2].encode(), sys.argv[3]
secrets = [bytes.fromhex(w) for f in os.listdir(secret_dir) for w in re.findall(r'[0-9a-f]{64}', open(f'{secret_dir}/{f}').read())]
# Each 16 bytes of the value have one of these: it repeats the same 12.
wanted = [value[i:i + 4] + value[i + 4:i + 12] for i in range(12)] + [key] + secrets + [s.hex().encode() for s in secrets]
bad, files = [], 0
for place in sys.argv[4:]:
    for top, _, names in os.walk(place):
        for name in names:
            data = open(os.path.join(top, name), 'rb').read()
            files += 1
            bad += [f'{top}/{name}: {w!r} at {data.find(w)}' for w in wanted if w in data]
print(files)
sys.exit('\n'.join(bad[:5]) if bad else 0)
PY
# hidden DIR... - files have none of it, and there are some
hidden() {
	local n
	n=$(python3 "$tmp/search.py" "$tmp/value" "$KEY" "$dir" "$@" 2>&1) || fail "not encrypted: $n"
	[ "$n" -gt 0 ] || fail "no file in $*"
}
flip() { # flip FILE OFFSET
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	# shellcheck disable=SC2059
	printf "\\$(printf %o $((byte ^ 64)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
refused() { # refused TEXT COMMAND...
	fails timeout 20 "${@:2}"
	grep -q "$1" "$tmp/fails.out" || fail "wanted '$1': $(cat "$tmp/fails.out")"
}
on_disk=(--enable_offload --ssd_offload_path="$disk")
yes markedZvalue | tr -d '\n' | head -c 300000 >"$tmp/value" || :

echo "a disk"
start_secure "$tmp/journal"
mcctl credential create "$tmp/node" --role=node --name=node --tenant=default >/dev/null
node disk "${on_disk[@]}" --ssd_offload_size=64MB
wait_for 20 in_service disk
to_rest $KEY disk
mcctl snapshot create >/dev/null
hidden "$disk" "$tmp/journal" "$tmp/snapshots"
# A copy in plain text would be found.
mkdir "$tmp/plain"
cp "$tmp/value" "$tmp/plain"
fails python3 "$tmp/search.py" "$tmp/value" "$KEY" "$dir" "$tmp/plain"

echo "kills, and a rotation of the secret"
# The node wraps its key again while it runs: the number of the secret is in the header (tiers/ssd/file.c).
wrapped_with() { [ "$(od -An -tu4 -j176 -N4 "$(find "$disk" -name '*.ssd' | head -n 1)" | tr -d ' ')" = "$1" ]; }
wrapped_with 1 || fail "the header of the disk has no key with secret 1"
"$master_bin" --rotate_security --security_dir="$dir" >/dev/null
wait_for 20 wrapped_with 2
kill_pid "$NODE_PID"
kill_pid "$MASTER_PID"
start_secure "$tmp/journal"
node disk "${on_disk[@]}"
wait_for 20 same $KEY
wait_for 20 copied $KEY disk
hidden "$disk" "$tmp/journal" "$tmp/snapshots"
"$master_bin" --check_journal="$tmp/journal" --security=on --security_dir="$dir" >"$tmp/check" || fail "$(cat "$tmp/check")"
grep -q '^objects [1-9]' "$tmp/check" || fail "$(cat "$tmp/check")"
# The wrap of the disk's key, and the journal, are under the new secret now: the old one can go.
rm "$tmp/node"
mcctl credential create "$tmp/node" --role=node --name=node --tenant=default >/dev/null
mcctl credential create "$tmp/admin" --role=admin --name=admin '--tenant=*' >/dev/null
kill_pid "$NODE_PID"
kill_pid "$MASTER_PID"
"$master_bin" --rotate_security --security_dir="$dir" >/dev/null
export MC_CREDENTIAL=$tmp/admin
start_secure "$tmp/journal"
node disk "${on_disk[@]}"
wait_for 20 same $KEY

echo "a node of another tenant in the same directory"
kill_pid "$NODE_PID"
mcctl credential create "$tmp/other-node" --role=node --name=node '--tenant=*' >/dev/null
# stranger LOG FLAG... - sets STRANGER
stranger() {
	CREDENTIAL=$tmp/other-node node "$@"
	STRANGER=$NODE_PID
}
before=$(head -c 4096 "$disk/mooncake-0.ssd" | cksum)
stranger stranger "${on_disk[@]}" --ssd_offload_size=64MB
wait_for 20 test -s "$disk/mooncake-1.ssd"
[ "$(head -c 4096 "$disk/mooncake-0.ssd" | cksum)" = "$before" ] || fail "it wrote to the other tenant's file"
node disk "${on_disk[@]}"
wait_for 20 same $KEY
kill_pid "$STRANGER"
kill_pid "$NODE_PID"
# A header as versions before this one wrote it: the keys tell.
forget_tenant() { dd if=/dev/zero of="$1" bs=1 seek=276 count=20 conv=notrunc status=none; }
forget_tenant "$disk/mooncake-0.ssd"
stranger stranger2 "${on_disk[@]}" --ssd_offload_size=64MB
wait_for 20 grep -q 'leaves it alone, and takes another file' "$tmp/stranger2.log"
has_other() { readlink "/proc/$STRANGER"/fd/* | found -F mooncake-1.ssd; }
wait_for 20 has_other
node disk "${on_disk[@]}"
wait_for 20 same $KEY
kill_pid "$STRANGER"
rm "$disk/mooncake-1.ssd"

echo "damage on the disk"
wait_for 20 only_at disk $KEY
python3 - "$disk/mooncake-0.ssd" <<'PY'
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
at, end = 1 << 20, os.fstat(fd).st_size
while at < end:
    try:
        at = os.lseek(fd, at, os.SEEK_DATA)
    except OSError:
        break
    os.pwrite(fd, bytes([os.pread(fd, 1, at + 100)[0] ^ 64]), at + 100)
    at += 1 << 16
PY
fails mcctl get $KEY -
same $KEY && fail "the damaged value came back"

echo "objects in a store"
kill_pid "$NODE_PID"
node store --s3_segment="$disk/store" --s3_segment_size=64MiB
wait_for 20 in_service shared
head -c 300000 /dev/zero | tr '\0' x >"$tmp/other"
wait_for 20 mcctl put other "$tmp/other"
mcctl offload other
wait_for 20 copied other shared
to_rest $KEY-2 shared
hidden "$disk/store"
kill_pid "$NODE_PID"
node store --s3_segment="$disk/store" --s3_segment_size=64MiB
wait_for 20 same $KEY-2
wait_for 20 only_at shared $KEY-2
wait_for 20 only_at shared other
# never_others WHAT - both are right, or not there
never_others() {
	mcctl get $KEY-2 - >"$tmp/got" 2>/dev/null && ! cmp -s "$tmp/got" "$tmp/value" && fail "$1: other bytes came back"
	mcctl get other - >"$tmp/got" 2>/dev/null && ! cmp -s "$tmp/got" "$tmp/other" && fail "$1: other bytes came back"
	return 0
}
mapfile -t parts < <(find "$disk/store" -name '*.0' -size +200k | sort)
[ ${#parts[@]} -ge 2 ] || fail "only ${#parts[@]} parts"
for part in "${parts[@]}"; do
	cp "$part" "$part.was"
done
for part in "${parts[@]}"; do
	cp "${parts[0]}.was" "$part"
done
never_others "a part at the place of another one"
for part in "${parts[@]}"; do
	cp "$part.was" "$part"
	flip "$part" 150000
done
never_others "a changed part"
fails mcctl get $KEY-2 -
fails mcctl get other -
kill_pid "$NODE_PID"

echo "a shared directory"
node shared --root_fs_dir="$disk/shared" --global_file_segment_size=64MiB
wait_for 20 in_service shared
to_rest $KEY-3 shared
hidden "$disk/shared" "$tmp/journal" "$tmp/snapshots"
kill_pid "$NODE_PID"
# Only an owner has its key: another process adopts the file; not one of another tenant, also if the header is old.
file=$(find "$disk/shared" -name '*.data')
another_file() { [ "$(find "$disk/shared" -name '*.data' | wc -l)" -eq 2 ]; }
for name in new old; do
	[ $name = new ] || forget_tenant "$file"
	stranger stranger-$name --root_fs_dir="$disk/shared" --global_file_segment_size=64MiB
	wait_for 20 another_file
	[ $name = new ] || grep -q 'leaves it alone, and takes another file' "$tmp/stranger-old.log" || fail "it was not left"
	kill_pid "$STRANGER"
	find "$disk/shared" -name '*.data' ! -path "$file" -delete
done
node shared2 --root_fs_dir="$disk/shared" --global_file_segment_size=64MiB
wait_for 20 same $KEY-3
kill_pid "$NODE_PID"

echo "a snapshot instead of the journal"
mcctl snapshot create >/dev/null
hidden "$tmp/snapshots"
kill_pid "$MASTER_PID"
manifest=$(ls -t "$tmp"/snapshots/*/*/*/manifest.json | head -n 1)
cp "$manifest" "$tmp/manifest"
sed -i 's/"last": false/"last": true/' "$manifest"
start_secure "$tmp/forged"
grep -q 'it was changed, or is of another pool' "$tmp/master.log" || fail "a changed manifest was not refused"
kill_pid "$MASTER_PID"
cp "$tmp/manifest" "$manifest"
start_secure "$tmp/restored"
node shared3 --root_fs_dir="$disk/shared" --global_file_segment_size=64MiB
wait_for 20 same $KEY-3
kill_pid "$NODE_PID"

echo "another secret: no start with the journal, and disks that are dropped"
kill_pid "$MASTER_PID"
mkdir "$tmp/away"
mv "$dir" "$tmp/away/security"
"$master_bin" --init_security --security_dir="$dir" >/dev/null
# and one with the numbers of the first pool's
cp -r "$dir" "$tmp/rotated"
"$master_bin" --rotate_security --security_dir="$tmp/rotated" >/dev/null
"$master_bin" --rotate_security --security_dir="$tmp/rotated" >/dev/null
at_master=(--rpc_address=127.0.0.1 --rpc_port="${MASTER##*:}" --metrics_host=127.0.0.1 --metrics_port="${MASTER_HTTP##*:}")
refused 'encrypted with the secret of another pool' "$master_bin" "${at_master[@]}" --journal_dir="$tmp/journal" "${secure[@]}" \
	--security_dir="$tmp/rotated"
refused 'made with secret 3 of the pool, which is not accepted' "$master_bin" "${at_master[@]}" --journal_dir="$tmp/journal" \
	"${secure[@]}"
refused 'start the master with --security=on' "$master_bin" "${at_master[@]}" --journal_dir="$tmp/journal"
refused 'start the master with --security=on' "$master_bin" --check_journal="$tmp/journal"
export MC_CREDENTIAL=$dir/admin.credential MOONCAKE_SNAPSHOT_LOCAL_PATH=$tmp/snapshots2
start_secure "$tmp/journal2"
rm "$tmp/node"
mcctl credential create "$tmp/node" --role=node --name=node --tenant=default >/dev/null
node dropped "${on_disk[@]}"
wait_for 20 in_service disk
grep -q 'is encrypted for another pool or tenant, or with secret 3.*: its objects are dropped' "$tmp/dropped.log" ||
	fail "$(cat "$tmp/dropped.log")"
fails mcctl get $KEY -
to_rest $KEY disk
kill_pid "$NODE_PID"
kill_pid "$MASTER_PID"

echo "without security an encrypted disk is refused, and with security a plain one"
MC_CREDENTIAL='' spawn plain "$master_bin" "${at_master[@]}" --enable_offload --journal_dir="$tmp/journal3"
MASTER_PID=$SPAWNED
started "$MASTER_PID" mooncake_master 20 env MC_CREDENTIAL='' "$top_builddir/tools/mcctl" --master="$MASTER" df
insecure=(env MC_CREDENTIAL='' "$top_builddir/node/mooncake_client" --host=127.0.0.1 --port=0 --master_server_address="$MASTER"
	--global_segment_size=8MiB)
refused 'is encrypted, because its pool has --security=on' "${insecure[@]}" "${on_disk[@]}"
refused 'is encrypted, because its pool has --security=on' "${insecure[@]}" --s3_segment="$disk/store" --s3_segment_size=64MiB
rm "$disk/mooncake-0.ssd"
spawn insecure "${insecure[@]}" "${on_disk[@]}" --ssd_offload_size=64MB
NODE_PID=$SPAWNED
MC_CREDENTIAL='' wait_for 20 in_service disk
kill_pid "$NODE_PID"
kill_pid "$MASTER_PID"
start_secure "$tmp/journal2"
refused 'has objects that are not encrypted' env MC_CREDENTIAL='' "$top_builddir/node/mooncake_client" --credential="$tmp/node" \
	--host=127.0.0.1 --port=0 --master_server_address="$MASTER" "${on_disk[@]}"
exit 0
