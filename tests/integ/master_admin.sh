#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The master's admin HTTP service: upstream's routes, statuses and JSON; a malformed request changes nothing.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl jq
start_master
base=http://$MASTER_HTTP

# ask STATUS METHOD PATH [BODY] - send a request; the answer is in $tmp/answer
ask() {
	local status got method=$2 path=$3
	status=$1
	shift 3
	got=$(curl -s --max-time 10 -X "$method" -H "$json" -o "$tmp/answer" -w '%{http_code}' "$@" "$base$path")
	equal "status of $method $path" "$got" "$status"
}
json='Content-Type: application/json'

is() {
	equal "$1" "$(jq -c "$1" "$tmp/answer")" "$2"
}

answers() {
	equal "the answer" "$(cat "$tmp/answer")" "$1"
}

ask 200 GET /health
answers '{"status":"ok","role":"leader","ha_state":"serving","service_ready":true,"leader_address":null,"view_version":null}'
ask 200 GET /role
answers leader
ask 200 GET /ha_status
answers serving
ask 200 GET /leader
answers '{"present":false,"leader_address":null,"view_version":null}'
ask 200 GET /get_all_keys
answers ''
ask 200 GET /get_all_segments
answers ''
ask 404 GET '/query_key?key=none'
answers '{"success":false,"error_code":-704,"error_message":"OBJECT_NOT_FOUND"}'
ask 404 GET /query_key
ask 400 GET /batch_query_keys
answers '{"success":false,"error":"No keys provided. Use ?keys=key1,key2,..."}'
ask 200 GET '/batch_query_keys?keys=,,'
is '.data|keys' '[""]'
ask 200 GET '/batch_query_keys?keys=a,b'
is .data.a '{"ok":false,"error":"OBJECT_NOT_FOUND","values":null,"disk_values":null,"local_disk_values":null,"nof_values":null}'
is '.data|keys' '["a","b"]'
ask 500 GET '/query_segment?segment=none'
answers 'Failed to query segment'
ask 400 GET /api/v1/segments/status
is .error_code -600
is .error_message '"Missing segment query parameter"'
ask 404 GET '/api/v1/segments/status?segment=none'
is .error_code -101

ask 400 POST /api/v1/drain_jobs -d '{'
is .error_code -600
jq -r .error_message "$tmp/answer" | found '^Invalid JSON body: '
for body in '{}' '[]' '{"segments":"x"}' '{"segments":[1]}' '{"segments":[""]}' \
	'{"segments":["a"],"max_concurrency":0}' '{"segments":["a"],"max_concurrency":1e99}' \
	'{"segments":["a"],"max_concurrency":9223372036854775808}' '{"segments":["a"],"max_concurrency":"4"}' \
	'{"segments":["a"],"target_segments":7}'; do
	ask 400 POST /api/v1/drain_jobs -d "$body"
	is .error_code -600
	is .success false
done
ask 404 POST /api/v1/drain_jobs -d '{"segments":["none"]}'
is .error_code -101
for id in '' '?job_id=' '?job_id=x' '?job_id=1-2x' '?job_id=-1-2' '?job_id=99999999999999999999-1'; do
	ask 400 GET "/api/v1/drain_jobs/query$id"
	is .error_message '"Missing or invalid job_id"'
	ask 400 POST "/api/v1/drain_jobs/cancel$id"
done
ask 404 GET '/api/v1/drain_jobs/query?job_id=1-2'
is .error_code -1402
ask 404 POST '/api/v1/drain_jobs/cancel?job_id=1-2'
ask 404 GET /api/v1/drain_jobs
ask 404 GET /api/v1/remove_all
ask 404 POST /health
ask 404 DELETE /metrics
ask 404 PATCH /api/v1/tenant_quotas
ask 404 GET /versions
head -c 4300000 /dev/zero | tr '\0' x >"$tmp/large"
ask 413 POST /api/v1/drain_jobs --data-binary "@$tmp/large"
# nested so deeply that a recursive decoder without a limit would overflow its stack
head -c 60000 /dev/zero | tr '\0' '[' >"$tmp/deep"
ask 400 POST /api/v1/drain_jobs --data-binary "@$tmp/deep"
ask 200 POST /api/v1/remove_all
answers '{"success":true,"removed_count":0}'
ask 200 GET /kv_events/status
is .enabled false
ask 409 GET /api/v1/tenant_quotas
is .error_code -1011

# requests that a page of another site can make a browser send are refused, whatever the page sends
for type in '' 'Content-Type: text/plain' 'Content-Type: application/x-www-form-urlencoded' \
	'Content-Type: multipart/form-data; boundary=x' 'Content-Type: application/jsonx'; do
	json=$type ask 415 POST /api/v1/drain_jobs -d '{"segments":["none"]}'
	is .error_code -600
	json=$type ask 415 PUT '/api/v1/tenant_quotas?tenant_id=red' -d '{"requested_quota_bytes":5000000}'
done
json='content-type: Application/JSON; charset=utf-8' ask 404 POST /api/v1/drain_jobs -d '{"segments":["none"]}'
json='' ask 200 POST /api/v1/remove_all -d ''
for origin in http://evil.example null "http://evil.example:${MASTER_HTTP##*:}" http://127.0.0.1:1 ''; do
	ask 403 POST /api/v1/remove_all -H "Origin;" ${origin:+-H "Origin: $origin"}
	is .error_code -600
	ask 403 GET /get_all_keys -H "Origin;" ${origin:+-H "Origin: $origin"}
done
ask 200 POST /api/v1/remove_all -H "Origin: http://$MASTER_HTTP"
for host in evil.example "evil.example:${MASTER_HTTP##*:}" 127.0.0.1.evil.example localhost.evil.example '[::1' \
	evil.local.example; do
	ask 403 POST /api/v1/remove_all -H "Host: $host"
	is .error_code -600
	jq -r .error_message "$tmp/answer" | found -- --admin_names
	ask 403 GET /get_all_keys -H "Host: $host"
	# the answers for monitoring have no keys, and its targets often have names
	ask 200 GET /metrics -H "Host: $host"
	ask 200 GET /health -H "Host: $host"
done
for host in localhost LOCALHOST:9003 "[::1]:9003" 10.1.2.3 mooncake-master:9003 "$(uname -n)" \
	master.ns.svc.cluster.local:9003 master.ns.svc; do
	ask 200 GET /get_all_keys -H "Host: $host"
	ask 200 POST /api/v1/remove_all -H "Host: $host"
done

# with memory: the owner process of the client's fault tests contributes it
mkfifo "$tmp/stays"
exec 9<>"$tmp/stays"
spawn owner bash -c "exec '$top_builddir/tests/fault/client_actor' $MASTER 20000 own 32 <'$tmp/stays'"
owner=$SPAWNED
has_segment() { [ -n "$(curl -sf "$base/get_all_segments")" ]; }
wait_for 20 has_segment
segment=$(curl -sf "$base/get_all_segments")
"$top_builddir/tools/mcctl" --master="$MASTER" put "a,b" "$0"
"$top_builddir/tools/mcctl" --master="$MASTER" put "plain" "$0"
ask 200 GET '/query_key?key=plain'
is '.data[0].size_' "$(stat -c %s "$0")"
is '.data[0]|keys' '["buffer_address_","protocol_","size_","transport_endpoint_"]'
ask 200 GET '/batch_query_keys?keys=plain,none'
is .data.plain.ok true
is '.data.plain.values|length' 1
is .data.none.ok false
# a key may contain a NUL byte, a text may not
ask 404 GET '/query_key?key=plain%00zzz'
ask 200 GET '/batch_query_keys?keys=plain%00zzz,plain'
is '[.data[].ok]|sort' '[false,true]'
is .data.plain.ok true
ask 400 POST '/api/v1/remove_all?force=true&tenant_id=%00bob'
ask 400 GET "/query_segment?segment=$segment%00"
ask 200 GET '/query_key?key=plain'
ask 200 GET "/api/v1/segments/status?segment=$segment"
is '[.status,.status_name,.error_code]' '[1,"OK",0]'
curl -sf "$base/query_segment?segment=$segment" | found '^Capacity(bytes) : 33554432$'

# no other segment to move objects to: the drain waits, reports so, and can be cancelled
ask 200 POST /api/v1/drain_jobs -d "{\"segments\":[\"$segment\"]}"
is '[.success,.status,.error_code,.error_message]' '[true,"CREATED",0,""]'
job=$(jq -r .job_id "$tmp/answer")
ask 409 POST /api/v1/drain_jobs -d "{\"segments\":[\"$segment\"]}"
ask 200 GET "/api/v1/drain_jobs/query?job_id=$job"
is '[.type,.type_name,.status_name,.succeeded_units]' '[0,"DRAIN","RUNNING",0]'
is .segments "[\"$segment\"]"
ask 200 GET "/api/v1/segments/status?segment=$segment"
is .status_name '"DRAINING"'
ask 200 POST "/api/v1/drain_jobs/cancel?job_id=$job"
is .status '"CANCELED"'
ask 409 POST "/api/v1/drain_jobs/cancel?job_id=$job"
is .error_code -1010
ask 200 GET "/api/v1/segments/status?segment=$segment"
is .status_name '"OK"'
ask 200 POST '/api/v1/remove_all?force=true'
is .removed_count 2
ask 200 GET /get_all_keys
answers ''

# tenants
stop_pid "$MASTER_PID"
printf 'version: 1\ntenants:\n  - name: blue\n    quota: 10MB\n' >"$tmp/policy.yaml"
meta=''
free_port meta
restart_master --journal_dir=none --admin_names=cache.example,pool.example --enable_multi_tenants --tenant_quota_connector_uri="$tmp/policy.yaml" --client_ttl=1s \
	--enable_http_metadata_server --http_metadata_server_host=127.0.0.1 \
	--http_metadata_server_port="$meta" --enable_metadata_cleanup_on_timeout
ask 200 GET /api/v1/tenant_quotas
is '[.data[]|select(.tenant_id=="blue")|.requested_quota_bytes,.has_explicit_policy,.over_quota]' '[10485760,true,false]'
ask 200 GET '/api/v1/tenant_quotas?tenant_id=blue'
is .data.tenant_id '"blue"'
ask 404 GET '/api/v1/tenant_quotas?tenant_id=red'
is .error_code -704
for body in '{}' '{"requested_quota_bytes":0}' '{"requested_quota_bytes":-1}' '{"requested_quota_bytes":1e3}' \
	'{"requested_quota_bytes":9223372036854775808}' x; do
	ask 400 PUT '/api/v1/tenant_quotas?tenant_id=red' -d "$body"
done
ask 400 PUT /api/v1/tenant_quotas -d '{"requested_quota_bytes":5}'
ask 200 PUT '/api/v1/tenant_quotas?tenant_id=red' -d '{"requested_quota_bytes":5000000}'
is .data.requested_quota_bytes 5000000
ask 400 PUT '/api/v1/tenant_quotas?tenant_id=red%00x' -d '{"requested_quota_bytes":77}'
ask 400 DELETE '/api/v1/tenant_quotas?tenant_id=red%00x'
ask 200 GET '/api/v1/tenant_quotas?tenant_id=red'
is .data.requested_quota_bytes 5000000
ask 200 DELETE '/api/v1/tenant_quotas?tenant_id=red'
is .data null
ask 404 DELETE '/api/v1/tenant_quotas?tenant_id=red'

for host in cache.example pool.example:9003 POOL.example; do
	ask 200 GET /get_all_keys -H "Host: $host"
done
ask 403 GET /get_all_keys -H 'Host: ool.example'
ask 403 GET /get_all_keys -H 'Host: cache.example.evil.example'

# the engines' metadata, and deletion of the records of a silent owner
wait_for 20 has_segment
segment=$(curl -sf "$base/get_all_segments")
key="http://127.0.0.1:$meta/metadata?key=mooncake/ram/$segment"
equal "metadata" "$(curl -s -X PUT -d '{"a":1}' "$key")" 'metadata updated'
equal "metadata" "$(curl -s "$key")" '{"a":1}'
kill_pid "$owner"
forgotten() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$key")" = 404 ]; }
wait_for 20 forgotten
