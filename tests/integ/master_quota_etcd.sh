#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The quota policy in a real etcd: upstream's key and text, changes on both sides, an invalid text, a key that goes away,
# etcd that is absent at the start or dies, and a failover.  The quotas never go away with the store.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/ha.sh"
requires etcd curl jq base64

key=mooncake-store/mooncake_cluster/tenant_quota_policy
ctl() { "$top_builddir/tools/mcctl" --master="$MASTER" "$@"; }
# etcd_do CALL JSON
etcd_do() { curl -sf --noproxy '*' --max-time 10 "http://$etcd/v3/kv/$1" -d "$2"; }
key64() { printf %s "$1" | base64 -w 0; }
stored() { etcd_do range "{\"key\":\"$(key64 "$key")\"}"; }
store() { etcd_do put "{\"key\":\"$(key64 "$key")\",\"value\":\"$(key64 "$1")\"}" >/dev/null; }
text() { stored | jq -r '.kvs[0].value' | base64 -d; }
# policy WANTED - names and quotas of the tenants in the policy, as "blue=1 red=2"
policy() {
	[ "$(ctl tenants --json | jq -r '[.[] | select(.explicit_policy) | "\(.name)=\(.requested)"] | sort | join(" ")')" = "$1" ]
}
says() { grep -q "$1" "$tmp/master.log"; }
# once TEXT - a line of the log, exactly one
once() { equal "lines about $1" "$(grep -c "$1" "$tmp/master.log")" 1; }
# refused TEXT - mcctl cannot set a quota, the log of the master has the reason
refused() {
	fails ctl quota yellow 4KiB
	grep -q "log has the reason" "$tmp/fails.out" || fail "mcctl quota says $(cat "$tmp/fails.out")"
	says "cannot store the tenant policy: .*$1"
}

# an address that the master needs, and one that it cannot use
fails timeout 20 "$top_builddir/master/mooncake_master" --enable_multi_tenants --tenant_quota_connector_type=etcd
grep -q 'needs tenant_quota_connector_uri' "$tmp/fails.out"
fails timeout 20 "$top_builddir/master/mooncake_master" --enable_multi_tenants --tenant_quota_connector_type=etcd \
	--tenant_quota_connector_uri=http:///

# no etcd at the start: the master serves, and refuses changes
start_etcd
etcd=${STORE_URL#etcd://}
kill -STOP "${STORE_PIDS[0]}"
options=(--enable_multi_tenants --tenant_quota_connector_type=etcd --journal_dir="$tmp/journal"
	--tenant_quota_connector_uri="$etcd")
start_master "${options[@]}"
once 'warn tenant: cannot read the tenant policy, keeping the old one: '
refused 'etcd does not answer'
policy '' || fail "a refused change is in force"
kill -CONT "${STORE_PIDS[0]}"
wait_for 20 says 'no tenant policy in etcd yet'
once 'etcd has answered again'

# a request writes upstream's key, without a lease, in the form that upstream reads
ctl quota blue 10MB >/dev/null
equal "the text" "$(text)" $'version: 1\ntenants:\n  - name: "blue"\n    quota: "10485760"'
equal "its lease" "$(stored | jq -r '.kvs[0].lease')" null
policy 'blue=10485760'

# upstream's text, from another program: at once, while the master serves
store $'version: 1\n\ntenants:\n  - name: "blue"\n    quota: 5242880\n  - name: "green"\n    quota: 1GB\n'
wait_for 10 policy 'blue=5242880 green=1073741824'
# a request that follows a change at once keeps both
store $'version: 1\ntenants: [{name: blue, quota: 1KB}, {name: red, quota: 2KB}]\n'
ctl quota yellow 3KiB >/dev/null
policy 'blue=1024 red=2048 yellow=3072' || fail "$(ctl tenants)"
text | found yellow

# an invalid text: the policy stays, one line, and requests do not overwrite it
store $'version: 1\ntenants: [{name: blue, quota: lots}]\n'
wait_for 10 says 'cannot use the tenant policy of etcd, keeping the old one: .*lots'
refused 'correct it first'
policy 'blue=1024 red=2048 yellow=3072' || fail "$(ctl tenants)"
text | found lots
# nothing in the policy
store $'version: 1\ntenants: []\n'
wait_for 10 policy ''
once 'cannot use the tenant policy'
ctl quota blue 1KiB >/dev/null

# the key goes away: the policy stays, and the next change writes it again
etcd_do deleterange "{\"key\":\"$(key64 "$key")\"}" >/dev/null
wait_for 10 says 'no tenant policy in etcd, keeping the old one'
policy 'blue=1024' || fail "$(ctl tenants)"
ctl quota red 2KiB >/dev/null
text | found red
policy 'blue=1024 red=2048'
ctl quota red 0 >/dev/null
ctl quota blue 0 >/dev/null
equal "a text without tenants" "$(text)" $'version: 1\ntenants: []'
ctl quota blue 1KiB >/dev/null

# etcd dies: the policy stays, also across a restart of the master; the changes of that time come into force later
kill -STOP "${STORE_PIDS[0]}"
down() { [ "$(grep -c 'cannot read the tenant policy, keeping' "$tmp/master.log")" -ge "$1" ]; }
wait_for 20 down 2
policy 'blue=1024' || fail "$(ctl tenants)"
kill_pid "$MASTER_PID"
cp "$tmp/master.log" "$tmp/first.log"
restart_master "${options[@]}"
policy 'blue=1024' || fail "$(ctl tenants)"
kill -CONT "${STORE_PIDS[0]}"
store $'version: 1\ntenants: [{name: blue, quota: 7KB}]\n'
wait_for 20 policy 'blue=7168'
stop_pid "$MASTER_PID"

# several masters: the one that takes over has the policy and follows the key
masters a b
more=(--enable_multi_tenants --tenant_quota_connector_type=etcd --tenant_quota_connector_uri="$etcd")
start_ha a "${more[@]}"
wait_for 20 leader >/dev/null
start_ha b "${more[@]}"
wait_for 20 in_sync a 1
MASTER=${RPC[a]}
policy 'blue=7168' || fail "$(ctl tenants)"
ctl quota red 2KiB >/dev/null
kill_pid "${PID[a]}"
b_leads() { [ "$(leader)" = b ]; }
wait_for 20 b_leads
MASTER=${RPC[b]}
policy 'blue=7168 red=2048' || fail "$(ctl tenants)"
store $'version: 1\ntenants: [{name: blue, quota: 1KB}]\n'
wait_for 10 policy 'blue=1024'
ctl quota green 1KiB >/dev/null
text | found green
