#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Users at the master's unix socket: with --rpc_socket_uids each has its tenant and role, and others are refused.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl jq setpriv
master=$top_builddir/master/mooncake_master
mcctl=$top_builddir/tools/mcctl
socket=$tmp/master.sock

# refused TEXT FLAG... - the master does not start and says TEXT
refused() {
	local text=$1
	shift
	fails timeout 20 "$master" --journal_dir=none "$@"
	grep -q -e "$text" "$tmp/fails.out" || fail "$* says $(cat "$tmp/fails.out")"
}
refused 'there is no rpc_socket' --rpc_socket_uids=1000
refused '"1000:alice:king"' --rpc_socket="$socket" --rpc_socket_uids=1,1000:alice:king
refused 'concerns all tenants' --rpc_socket="$socket" --rpc_socket_uids=1000:alice:admin

[ "$(id -u)" -eq 0 ] || skip "only root can become another user"
chmod 755 "$tmp"
as() { # as UID COMMAND [ARG...] - mcctl by that user over the socket
	local uid=$1
	shift
	timeout 20 setpriv --reuid="$uid" --regid="$uid" --clear-groups "$mcctl" --master="unix:$socket" "$@"
}
setpriv --reuid=4001 --regid=4001 --clear-groups test -x "$mcctl" || skip "others cannot read the build directory"
# status WANTED COMMAND... - the command ends with that status
status() {
	local got=0 wanted=$1
	shift
	"$@" >"$tmp/status.out" 2>&1 </dev/null || got=$?
	[ "$got" = "$wanted" ] || fail "status $got of $*: $(cat "$tmp/status.out")"
}
denied() {
	status 3 "$@"
	grep -qi -e 'permission denied' -e 'does not admit this user' "$tmp/status.out" || fail "$* says $(cat "$tmp/status.out")"
}
# with FLAG... - a master with a socket that every user may open, and a node
with() {
	start_master --rpc_socket="$socket" --journal_dir=none --default_kv_lease_ttl=0 "$@"
	chmod 666 "$socket"
	spawn node "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host=127.0.0.1 --port=0 \
		--global_segment_size=16MiB --segment_kind=memfd
	NODE_PID=$SPAWNED
	mounted() { [ "$("$mcctl" --master="$MASTER" --json df | jq .pool.capacity)" -gt 0 ]; }
	wait_for 20 mounted
}
end() {
	stop_pid "$NODE_PID"
	stop_pid "$MASTER_PID"
}

printf 'version: 1\ntenants:\n  - name: alice\n    quota: 4MB\n  - name: bob\n    quota: 4MB\n' >"$tmp/policy.yaml"
tenants=(--enable_multi_tenants --tenant_quota_connector_uri="$tmp/policy.yaml")
with "${tenants[@]}" --rpc_socket_uids=4001:alice,4002:alice:reader,4003::admin,4004:bob
as 4001 put k "$tmp/policy.yaml"
equal "the keys of a user's tenant" "$(as 4001 ls)" k
as 4001 get k - | cmp - "$tmp/policy.yaml"
equal "the tenants of a user" "$(as 4001 tenants --json | jq -r '.[].name')" alice
denied as 4001 quota alice 1MB
equal "the keys, by a reader" "$(as 4002 ls)" k
as 4002 get k - | cmp - "$tmp/policy.yaml"
denied as 4002 put new "$tmp/policy.yaml"
denied as 4002 rm k
equal "the keys, by a user of another tenant" "$(as 4004 ls)" ''
status 1 as 4004 get k -
denied as 4004 quota alice
[ "$(as 4003 tenants --json | jq length)" -ge 2 ] || fail "an administrator does not see all tenants"
as 4003 quota alice 2MB >/dev/null
[ "$(as 0 tenants --json | jq length)" -ge 2 ] || fail "root does not see all tenants"
denied as 4005 ls
as 4001 rm k
end

# another list after a restart: every user reads
with "${tenants[@]}" --rpc_socket_uids='*::reader'
as 4001 ls
[ "$(as 4005 tenants --json | jq length)" -ge 2 ] || fail "the star does not let a user in"
denied as 4001 quota alice 1MB
end

# a master without tenants
with --rpc_socket_uids=4001:alice,4002:default
denied as 4001 ls
as 4002 put k "$tmp/policy.yaml"
equal "the keys of the default tenant" "$(as 4002 ls)" k
end

# without the option every user that may open the socket has all rights
with
as 4005 put k "$tmp/policy.yaml"
as 4005 rm k
end
