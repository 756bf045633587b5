#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Invalid input from clients and operators: each gets a clear error, changes nothing, and does not
# delay others. (Segments that overlap or share a name, fenced clients, sizes of 2^63 on the wire
# and 10,000s of connections are in the unit tests test_master_segment, _liveness, _put and _crowd.)
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl jq
master=$top_builddir/master/mooncake_master
ctl() { "$top_builddir/tools/mcctl" --master="$MASTER" "$@"; }

# ---- options: one line that names the option, status 1
refuses() {
	fails timeout 20 "$master" "$@"
	grep -q "$what" "$tmp/fails.out" || fail "$*: no $what in: $(cat "$tmp/fails.out")"
}
what=eviction_ratio
for v in nan NaN inf -inf -0.1 1.1 1e400 '' x 0,5; do
	refuses --eviction_ratio="$v"
done
what=rpc_port
for v in -1 65536 99999999999999999999 9223372036854775808 1.5 '' abc; do
	refuses --rpc_port="$v"
done
what=max_total_pending_tasks
refuses --max_total_pending_tasks=-1
refuses --max_total_pending_tasks=18446744073709551616
what=default_kv_lease_ttl
for v in -5 5x 9223372036854775808 1e30 ''; do
	refuses --default_kv_lease_ttl="$v"
done
# same as JSON and YAML, with wrong types; files that are no config files
for pair in 'eviction_ratio NaN' 'eviction_ratio []' 'eviction_ratio "x"' 'eviction_ratio 2' \
	'rpc_port -1' 'rpc_port 1e99' 'rpc_port [1,2]' 'rpc_port true' 'enable_metric_reporting 7' \
	'client_live_ttl_sec -3'; do
	printf '{"%s": %s}\n' "${pair%% *}" "${pair#* }" >"$tmp/bad.json"
	what="bad.json"
	refuses --config_path="$tmp/bad.json"
	printf '%s: %s\n' "${pair%% *}" "${pair#* }" >"$tmp/bad.yaml"
	what="bad.yaml"
	refuses --config_path="$tmp/bad.yaml"
done
# a map or a list, empty or not, instead of a single value
for value in '{}' '{"x": 1}' '{"x": {"y": []}}' '[]' '[1]' '["a", "b"]'; do
	for key in eviction_ratio rpc_port rpc_address enable_metric_reporting client_live_ttl_sec log_dir \
		eviction_policy kv_events_tenant_id; do
		what="$key: expected one value, found a "
		printf '{"%s": %s}\n' "$key" "$value" >"$tmp/bad.json"
		refuses --config_path="$tmp/bad.json"
		printf '%s: %s\n' "$key" "$value" >"$tmp/bad.yaml"
		refuses --config_path="$tmp/bad.yaml"
		what="expected one value, found a "
		printf '%s:\n  %s:\n    %s\n' "${key%%_*}" "${key#*_}" "$value" >"$tmp/bad.yaml"
		refuses --config_path="$tmp/bad.yaml"
	done
	# an empty list is the default of this key
	[ "$value" != '[]' ] || continue
	what='pod_name is not built into this version'
	printf '{"pod_name": %s}\n' "$value" >"$tmp/bad.json"
	refuses --config_path="$tmp/bad.json"
done
head -c 3000 /dev/urandom >"$tmp/random.json"
what=random.json
refuses --config_path="$tmp/random.json"
head -c 100000 /dev/zero | tr '\0' '[' >"$tmp/deep.json"
what=deep.json
refuses --config_path="$tmp/deep.json"

# ---- a running master
printf 'version: 1\ntenants:\n  - {name: default, quota: 12MB}\n  - {name: blue, quota: 1MB}\n' >"$tmp/policy.yaml"
start_master --enable_multi_tenants --tenant_quota_connector_uri="$tmp/policy.yaml" --rpc_thread_num=1
base=http://$MASTER_HTTP
mkfifo "$tmp/stays"
exec 9<>"$tmp/stays"
spawn owner bash -c "exec '$top_builddir/tests/fault/client_actor' $MASTER 20000 own 16 <'$tmp/stays'"
has_segment() { [ -n "$(curl -sf "$base/get_all_segments")" ]; }
wait_for 20 has_segment
a=$(printf 'a%.0s' $(seq 200))
for i in $(seq 30); do
	ctl put "$a-$i!" "$0"
done
state() {
	curl -sf "$base/get_all_keys" | sort
	curl -sf "$base/api/v1/tenant_quotas" | jq -c '.data|sort_by(.tenant_id)|map(del(.charged_bytes))'
	curl -sf "$base/get_segments_detail" | jq -c '.segments|map([.segment_name,.size_bytes,.status])'
}
state >"$tmp/before"
unchanged() { state | diff "$tmp/before" - || fail "the state changed: $*"; }

# patterns that would make a backtracking matcher run for ever: a result or an error soon, and other
# requests on the same thread are answered meanwhile
for pattern in '(a+)+$' '(a|aa)+$' '(a|a?)+$' '(.*)*b$' '((a*)*)*c$' '(?:a?){200}a{200}b'; do
	spawn bomb timeout 60 "$top_builddir/tools/mcctl" --master="$MASTER" rm -y --match="$pattern"
	bomb=$SPAWNED
	until ! alive "$bomb"; do
		timeout 10 "$top_builddir/tools/mcctl" --master="$MASTER" stat "$a-1!" >/dev/null ||
			fail "a stat is not answered while $pattern is matched"
	done
	wait "$bomb" || :
done
# invalid patterns, and one that is too long
for pattern in '(' '[z-a]' '*' 'a{99999}' '\C' "$(head -c 2000 /dev/zero | tr '\0' x)"; do
	fails timeout 20 "$top_builddir/tools/mcctl" --master="$MASTER" rm -y --match="$pattern"
done
unchanged patterns

# ask STATUS METHOD PATH [curl's options]
ask() {
	local status=$1 method=$2 path=$3 got
	shift 3
	got=$(curl -s --max-time 10 -X "$method" -o "$tmp/answer" -w '%{http_code}' -H 'Content-Type: application/json' "$@" \
		"$base$path")
	equal "status of $method $path $*" "$got" "$status"
	jq -e '.success == false and .error_code != 0' "$tmp/answer" >/dev/null ||
		fail "$method $path: $(head -c 300 "$tmp/answer")"
}
# invalid tenant names, invalid quotas
for tenant in '_own' 'a%01b' '%ff%fe' '%c0%80' '%ed%a0%80' "$(head -c 300 /dev/zero | tr '\0' t)"; do
	ask 400 PUT "/api/v1/tenant_quotas?tenant_id=$tenant" -d '{"requested_quota_bytes":1000}'
done
for body in '' '{' '[]' '7' '{}' '{"requested_quota_bytes":0}' '{"requested_quota_bytes":-1}' \
	'{"requested_quota_bytes":"1"}' '{"requested_quota_bytes":1.5}' '{"requested_quota_bytes":NaN}' \
	'{"requested_quota_bytes":null}' '{"requested_quota_bytes":[1]}' '{"requested_quota_bytes":1e30}' \
	'{"requested_quota_bytes":9223372036854775808}' '{"requested_quota_bytes":18446744073709551617}'; do
	ask 400 PUT '/api/v1/tenant_quotas?tenant_id=blue' -d "$body"
done
ask 404 GET '/api/v1/tenant_quotas?tenant_id=nobody'
ask 404 DELETE '/api/v1/tenant_quotas?tenant_id=nobody'
ask 409 DELETE '/api/v1/tenant_quotas?tenant_id=default'
unchanged quotas
# keys that are too long, objects that are too large
fails ctl put "$(head -c 5000 /dev/zero | tr '\0' k)" "$0"
truncate -s 64M "$tmp/large"
fails ctl put large "$tmp/large"
unchanged clients
alive "$MASTER_PID" || fail "the master has gone"
