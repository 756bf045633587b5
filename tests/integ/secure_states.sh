#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A secure pool with default settings in each simple state: empty, one object of one byte, directories only, full, all
# objects leased, all owners gone.  In each one: the master is killed and started again, the tenant's objects have
# their bytes or are missing, another tenant sees nothing, a new put ends.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires jq curl
requires_fuse
dir=$tmp/security
mcctl() { timeout 30 "$top_builddir/tools/mcctl" --master="$MASTER" --timeout="${LIMIT:-10}" "$@"; }
as() { # as TENANT COMMAND...
	MC_CREDENTIAL=$tmp/$1-client mcctl "${@:2}"
}
"$top_builddir/master/mooncake_master" --security_dir="$dir" --init_security >"$tmp/init" || fail "no secret"
export MC_CREDENTIAL=$dir/admin.credential
free_port rpc
free_port http
MASTER=127.0.0.1:$rpc MASTER_HTTP=127.0.0.1:$http
secure=(--security=on --security_dir="$dir" --journal_dir="$tmp/journal" --enable_multi_tenants)
restart_master "${secure[@]}"
for tenant in alice bob; do
	for role in client node; do
		mcctl credential create "$tmp/$tenant-$role" --role=$role --name=$tenant-$role --tenant=$tenant >/dev/null
	done
done
mcctl quota alice 1GB >/dev/null
mcctl quota bob 1GB >/dev/null
free_port data
node() { # node CREDENTIAL - at the same data port; sets NODE_PID
	MC_CREDENTIAL=$tmp/$1 spawn "node-$1" "$top_builddir/node/mooncake_client" --host=127.0.0.1:$data \
		--master_server_address="$MASTER" --port=0 --global_segment_size=16MiB
	NODE_PID=$SPAWNED
}
segments() { [ "$(mcctl --json df | jq '.segments | length')" = "$1" ]; }
keys() { as alice ls | sort; }

# same_after_restart STATE - kill the master and start it again: the same keys, each with its bytes or none, and nothing
# of them for the other tenant
same_after_restart() {
	local before key got=0
	before=$(keys)
	kill_pid "$MASTER_PID"
	restart_master "${secure[@]}"
	wait_for 20 segments "$SEGMENTS" || fail "$1: segments after the restart: $(mcctl df)"
	equal "$1: keys after a restart" "$(keys)" "$before"
	equal "$1: the other tenant's keys" "$(as bob ls)" ""
	for key in $before; do
		[ "${key%/}" = "$key" ] || continue
		[ "$got" -gt 0 ] || fails as bob get "$key" "$tmp/got-bob"
		if as alice get "$key" "$tmp/got" >"$tmp/out" 2>&1; then
			cmp "$tmp/got" "$tmp/src/$key" || fail "$1: other bytes in $key"
			got=$((got + 1))
		fi
	done
	GOT=$got
}
put() { # put KEY - a file of src
	as alice put "$1" "$tmp/src/$1" >"$tmp/put.out" 2>&1
}
mkdir "$tmp/src"
for n in one $(seq -f m%g 24); do
	head -c 1048576 /dev/urandom >"$tmp/src/$n"
done
printf x >"$tmp/src/one"

# ---- no owner was ever there; nothing ----
SEGMENTS=0
same_after_restart "no segment"
LIMIT=2 fails put one
node alice-node
wait_for 20 segments 1
SEGMENTS=1
same_after_restart "empty"
fails as alice get one "$tmp/got"

# ---- one object of one byte, put twice ----
put one || fail "one byte: $(cat "$tmp/put.out")"
as alice put one "$tmp/src/m1" || fail "one byte: a second put"
as alice get one - | cmp - "$tmp/src/one" || fail "a second put without --upsert has changed the object"
same_after_restart "one byte"
equal "one byte: objects with bytes" "$GOT" 1
as alice rm one >/dev/null

# ---- directories only ----
mkdir "$tmp/mnt"
# It reaches the node over TCP only.
MC_STORE_MEMCPY=0 MC_CREDENTIAL=$tmp/alice-client start_mcfs "$MASTER" "$tmp/mnt" --global_segment_size=0
mkdir -p "$tmp/mnt/a/b/c"
same_after_restart "directories only"
found_dirs() { [ -d "$tmp/mnt/a/b/c" ]; }
wait_for 10 found_dirs || fail "the directories are gone after a restart"
cp "$tmp/src/m1" "$tmp/mnt/m1"
cmp "$tmp/src/m1" "$tmp/mnt/m1"
rm "$tmp/mnt/m1"

# ---- full, and all objects leased ----
# Each get renews the lease of its object, so the puts find nothing to evict until the first leases end.
for n in $(seq 24); do
	put "m$n" || fail "full: put of m$n: $(cat "$tmp/put.out")"
done
same_after_restart "full"
[ "$GOT" -gt 0 ] || fail "full: no object has bytes"
for key in $(keys); do
	as alice get "$key" /dev/null >"$tmp/out" 2>&1 || :
done
as alice rm one >"$tmp/out" 2>&1 || :
put one || fail "all leased: $(cat "$tmp/put.out")"
for key in $(keys); do
	as alice get "$key" /dev/null >"$tmp/out" 2>&1 || :
done
same_after_restart "all leased"
as alice get one - | cmp - "$tmp/src/one"
as alice put again "$tmp/src/m1" || fail "all leased, after a restart of the master"

# ---- all owners gone; with the master's restart, and a new owner ----
kill_pid "$NODE_PID"
LIMIT=2 fails as alice get again "$tmp/got"
kill_pid "$MASTER_PID"
restart_master "${secure[@]}"
LIMIT=2 fails as alice get again "$tmp/got"
fails as bob get again "$tmp/got"
# The mount has a ticket for the node's old name, which the new one refuses.
mcctl credential create "$tmp/alice-node2" --role=node --name=alice-node2 --tenant=alice >/dev/null
node alice-node2
put_again() { as alice put --upsert again "$tmp/src/m2"; }
wait_for 30 put_again || fail "no put after a new owner came: $(tail -n 5 "$tmp/node-alice-node2.log")"
as alice get again - | cmp - "$tmp/src/m2"
cmp "$tmp/src/m2" "$tmp/mnt/again"
cp "$tmp/src/m3" "$tmp/mnt/m3"
cmp "$tmp/src/m3" "$tmp/mnt/m3"
exit 0
