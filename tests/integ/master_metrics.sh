#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Metrics for dashboards made for upstream: each of its series with its type (upstream_metrics.txt),
# the words of /metrics/summary in their order, and correct counters.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl
mcctl=$top_builddir/tools/mcctl
printf 'version: 1\ntenants:\n  - name: default\n    quota: 8MB\n' >"$tmp/policy.yaml"
start_master --enable_multi_tenants --tenant_quota_connector_uri="$tmp/policy.yaml" --journal_dir="$tmp/journal"
mkfifo "$tmp/stays"
exec 9<>"$tmp/stays"
spawn owner bash -c "exec '$top_builddir/tests/fault/client_actor' $MASTER 20000 own 32 <'$tmp/stays'"
has_segment() { [ -n "$(curl -sf "http://$MASTER_HTTP/get_all_segments")" ]; }
wait_for 20 has_segment
segment=$(curl -sf "http://$MASTER_HTTP/get_all_segments")

count() { metric "$MASTER_HTTP" "$@"; }
gone_up() { # gone_up NAME BEFORE - and is more than before
	local now
	now=$(count "$1")
	[ "$now" -gt "$2" ] || fail "$1 is $now after a request, $2 before"
}
for name in master_put_start master_put_end master_remove master_get_replica_list master_remove_all \
	master_mount_segment master_unmount_segment; do
	declare "before_$name=$(count "${name}_requests_total")"
done
failures=$(count master_remove_failures_total)
unmount_failures=$(count master_unmount_segment_failures_total)
"$mcctl" --master="$MASTER" put one "$0"
"$mcctl" --master="$MASTER" get one >"$tmp/copy"
cmp "$tmp/copy" "$0"
fails "$mcctl" --master="$MASTER" rm none
"$mcctl" --master="$MASTER" rm one
for name in master_put_start master_put_end master_remove master_get_replica_list; do
	before=before_$name
	gone_up "${name}_requests_total" "${!before}"
done
gone_up master_remove_failures_total "$failures"
gone_up master_mount_segment_requests_total 0
equal "unmounts that failed" "$(count master_unmount_segment_failures_total)" "$unmount_failures"
curl -sf -X POST "http://$MASTER_HTTP/api/v1/snapshot" >"$tmp/answer"
gone_up master_snapshot_success 1

# a put that exceeds the quota is counted for its tenant
head -c 9000000 /dev/zero >"$tmp/large"
fails "$mcctl" --master="$MASTER" put large "$tmp/large"
equal rejects "$(count mooncake_tenant_quota_reject_total 'tenant_id="default",reason="quota_exceeded"')" 1

# every series of the list has its type and at least one value, and occurs once
curl -sf "http://$MASTER_HTTP/metrics" >"$tmp/metrics"
missing=0
while read -r name type; do
	case $name in '#'*) continue ;; esac
	grep -q "^# TYPE $name $type\$" "$tmp/metrics" || {
		echo "no series $name of type $type"
		missing=1
	}
	value='[0-9]'
	[ "$type" = histogram ] && value='_count [0-9]'
	grep -qE "^$name({.*})?[ _]$value|^$name$value" "$tmp/metrics" || {
		echo "no value of $name"
		missing=1
	}
done <"$top_srcdir/tests/integ/upstream_metrics.txt"
equal "series of upstream's that are missing" "$missing" 0
equal "TYPE lines that are there twice" "$(grep '^# TYPE' "$tmp/metrics" | sort | uniq -d)" ''
equal "values that are there twice" "$(sed -n 's/ [^ ]*$//p' "$tmp/metrics" | grep -v '^#' | sort | uniq -d)" ''
grep -q "^segment_allocated_bytes{segment=\"$segment\"} " "$tmp/metrics"

# the summary, word for word
curl -sf "http://$MASTER_HTTP/metrics/summary" | sed -E 's/[0-9.]+ (B|KB|MB|GB)/N B/g; s/ \([0-9.]+%\)//; s/[0-9.]+/N/g' \
	>"$tmp/summary"
cat >"$tmp/expected" <<'END'
role=leader, state=serving, service_ready=true, master={Mem Storage: N B / N B | NVMe-oF SSD: N B / N B | SSD Storage: N B / N B | Keys: N (soft-pinned: N) | Clients: N | Requests (Success/Total per sec): PutStart=N/N, PutEnd=N/N, PutRevoke=N/N, Get=N/N, Exist=N/N, Del=N/N, DelAll=N/N, Ping=N/N, CopyStart=N/N, CopyEnd=N/N, CopyRevoke=N/N, MoveStart=N/N, MoveEnd=N/N, MoveRevoke=N/N, EvictDiskReplica=N/N | Batch Requests (per sec, Req=Success/PartialSuccess/Total, Item=Success/Total): PutStart:(Req=N/N/N, Item=N/N), PutEnd:(Req=N/N/N, Item=N/N), PutRevoke:(Req=N/N/N, Item=N/N), Get:(Req=N/N/N, Item=N/N), ExistKey:(Req=N/N/N, Item=N/N), QueryIp:(Req=N/N/N, Item=N/N), Clear:(Req=N/N/N, Item=N/N), CreateMoveTask:(Req=N/N), CreateCopyTask:(Req=N/N), QueryTask:(Req=N/N), FetchTasks:(Req=N/N), MarkTaskToComplete:(Req=N/N) | Eviction: Success/Attempts=N/N, AllocFail=N, PartialAlloc=N, keys=N, size=N B | Mem Eviction: Success/Attempts=N/N, keys=N, size=N B | NoF Eviction: Success/Attempts=N/N, keys=N, size=N B | Discard: Released/Total=N/N, StagingSize=N B | Promotion: in_flight=N, admitted=N, completed=N, failed=N, cancelled=N, expired=N, bytes=N B, rejected(freq/wm/cap)=N/N/N | Snapshots: Success=N, Fail=N}, ha={HA Metrics Summary: last_seq=N, applied_seq=N, lag=N, pending=N, mutation_queue=N, batch_commits=N, sync_commits=N, skipped=N, checksum_fail=N, etcd_fail=N, watch_disconn=N, state=N}
END
diff "$tmp/expected" "$tmp/summary"
curl -sf "http://$MASTER_HTTP/metrics/summary" | found 'PutStart=[0-9.]*[1-9]' || fail "the rate of puts is 0"
