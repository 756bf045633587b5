#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcctl tenants and mcctl quota: the output, setting and removing quotas, also in the policy file,
# and error messages.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl jq
start_master
ctl() { "$top_builddir/tools/mcctl" --master="$MASTER" "$@"; }

# status WANTED TEXT COMMAND... - the command fails with that status and a message with TEXT
status() {
	local got=0 wanted=$1 text=$2
	shift 2
	"$@" >"$tmp/status.out" 2>&1 || got=$?
	equal "status of $*" "$got" "$wanted"
	grep -q -e "$text" "$tmp/status.out" || fail "$* says $(cat "$tmp/status.out")"
}
# field TENANT NAME - a field of its entry in the list
field() { ctl tenants --json | jq -r --arg t "$1" ".[] | select(.name == \$t) | .$2"; }

# a master without tenant support
status 1 'enable_multi_tenants' ctl tenants
status 1 'enable_multi_tenants' ctl quota blue
status 1 'enable_multi_tenants' ctl quota blue 10MB
stop_pid "$MASTER_PID"

printf 'version: 1\ntenants:\n  - name: blue\n    quota: 10MB\n' >"$tmp/policy.yaml"
restart_master --enable_multi_tenants --default_kv_lease_ttl=0 --tenant_quota_connector_uri="$tmp/policy.yaml"

# invalid command lines
status 2 'too few' ctl quota
status 2 'too many' ctl quota blue 1 2
status 2 'too many' ctl tenants blue
status 2 'not a size' ctl quota blue 5x
status 2 'not a size' ctl quota blue ''
status 2 'not a size' ctl quota blue 9223372036854775808
status 2 'name is empty' ctl quota ''
status 1 'tenant not registered' ctl quota red
grep -q 'mcctl tenants' "$tmp/status.out"
status 1 'tenant not registered' ctl quota red 0
status 3 'invalid' ctl quota _red 5MB
equal "blue, after what was refused" "$(field blue requested)" 10485760

# no process contributes memory yet, so there is no capacity to share
equal "blue alone" "$(ctl quota blue --json | jq -c '[.name,.requested,.charged,.objects,.explicit_policy]')" \
	'["blue",10485760,0,0,true]'
mkfifo "$tmp/owner.stays"
exec 7<>"$tmp/owner.stays"
spawn owner bash -c "exec '$top_builddir/tests/fault/client_actor' $MASTER 20000 own 64 <'$tmp/owner.stays'"
segment_is_there() { [ "$(ctl df --json | jq '.pool.segments')" = 1 ]; }
wait_for 20 segment_is_there

# set, shown, and stored in the file
head -c 300000 /dev/urandom >"$tmp/data"
status 1 'tenant not registered' ctl put k "$tmp/data"
ctl quota default 1mb >"$tmp/out"
grep -q '^default .* 1 MiB .* 0  ok$' "$tmp/out" || fail "quota: $(cat "$tmp/out")"
grep -q 'default' "$tmp/policy.yaml"
ctl put k "$tmp/data"
# the value is readable although the lease time is 0
ctl get k "$tmp/read"
cmp "$tmp/read" "$tmp/data"
equal "use" "$(field default charged),$(field default objects)" "300000,1"
ctl tenants >"$tmp/out"
grep -q '^TENANT .*EFFECTIVE' "$tmp/out"
grep -q '^default .*  29%  *1  ok$' "$tmp/out" || fail "tenants: $(cat "$tmp/out")"
equal "names, sorted" "$(ctl tenants --json | jq -c 'map(.name)')" '["blue","default"]'
equal "what set says" "$(ctl quota red 2000000 --json | jq -c '[.name,.requested,.state]')" '["red",2000000,"ok"]'

# the sum of all quotas exceeds the capacity
ctl quota red 1tb --json | jq -e '.requested == 1099511627776 and .effective < 67108864' >/dev/null

# a tenant that has objects cannot be removed; an empty one can
status 1 'tenant not empty' ctl quota default 0
grep -q 'remove its objects first' "$tmp/status.out"
equal "default stays" "$(field default requested)" 1048576
ctl quota default 1000 | found 'over quota$'
status 1 'quota exceeded' ctl put k2 "$tmp/data"
ctl rm -f k
equal "red, taken out" "$(ctl quota red 0 --json | jq -c '[.name,.requested,.explicit_policy,.state]')" \
	'["red",0,false,"no quota"]'
ctl quota default 0 | found '^default .* no quota$'
status 1 'tenant not registered' ctl put k "$tmp/data"
equal "the file" "$(grep -c 'name:' "$tmp/policy.yaml")" 1
