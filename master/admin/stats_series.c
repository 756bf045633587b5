/* SPDX-License-Identifier: Apache-2.0
 * stats_series.c - series of /metrics that are not in the registry.
 *
 * Dashboards and alerts made for upstream must find every series that they use.  Series of parts
 * that this version does not have are 0; some are other names of existing counters.
 * tests/integ/master_metrics.sh compares the result with upstream's list. */
#include <config.h>

#include "master/admin/stats_series.h"

#include <inttypes.h>
#include <string.h>

#include "master/admin/stats.h"
#include "master/mcm_i.h"

struct zero {
	const char *name, *type;
};

struct alias {
	const char *name, *type, *of, *labels;
};

#define PAIR(what) \
	{ "master_" what "_requests_total", "counter" }, \
	{ "master_" what "_failures_total", "counter" },
#define BATCH(what) \
	PAIR("batch_" what) \
	{ "master_batch_" what "_partial_successes_total", "counter" }, \
	{ "master_batch_" what "_items_total", "counter" }, \
	{ "master_batch_" what "_failed_items_total", "counter" },
#define COUNTER(name) { name, "counter" },
#define GAUGE(name) { name, "gauge" },

/* NoF disks are served as other disks.  There are no managed weights and no queue of departed clients.
 * Clients use LIST and SEGMENTS where upstream's use requests of their own. */
static const struct zero zeros[] = {
	PAIR("mount_nof_segment")
	PAIR("unmount_nof_segment")
	PAIR("remount_nof_segment")
	COUNTER("master_successful_evictions_nof")
	COUNTER("master_attempted_evictions_nof")
	COUNTER("master_evicted_key_count_nof")
	COUNTER("master_evicted_size_bytes_nof")
	COUNTER("master_nof_heartbeat_success_total")
	COUNTER("master_nof_heartbeat_failure_total")
	COUNTER("master_nof_heartbeat_timeout_total")
	COUNTER("master_nof_segments_unmounted_by_heartbeat_total")
	PAIR("evict_disk_replica")
	COUNTER("master_promotion_expired_total")
	COUNTER("master_promotion_rejected_watermark_total")
	COUNTER("master_promotion_candidate_recorded_total")
	COUNTER("master_promotion_candidate_admitted_total")
	COUNTER("master_promotion_candidate_admission_rejected_total")
	COUNTER("master_promotion_candidate_expired_evaluated_total")
	COUNTER("master_promotion_candidate_expired_unevaluated_total")
	COUNTER("master_promotion_candidate_dropped_limit_total")
	COUNTER("master_promotion_execution_gave_up_total")
	PAIR("get_replica_list_by_regex")
	BATCH("query_ip")
	GAUGE("master_dfs_allocated_bytes")
	GAUGE("master_dfs_file_count")
	GAUGE("master_dfs_total_capacity_bytes")
	GAUGE("master_weight_active_leases")
	GAUGE("master_weight_oldest_operation_age_ms")
	GAUGE("master_weight_pending_operations")
	GAUGE("master_weight_revision_residency")
	GAUGE("master_weight_revisions")
	COUNTER("master_weight_reconciliation_failures_total")
	GAUGE("master_client_offboarding_queue_depth")
	COUNTER("master_client_offboarding_retries_total")
	COUNTER("master_client_offboarding_alerts_total")
	GAUGE("mooncake_jemalloc_enabled")
	GAUGE("ha_snapshot_enabled")
	GAUGE("ha_oplog_last_sequence_id")
	GAUGE("ha_oplog_applied_sequence_id")
	GAUGE("ha_oplog_standby_lag")
	GAUGE("ha_oplog_pending_entries")
	GAUGE("ha_pending_mutation_queue_size")
	GAUGE("ha_standby_state")
	COUNTER("ha_state_transitions_total")
	COUNTER("ha_oplog_skipped_entries_total")
	COUNTER("ha_oplog_checksum_failures_total")
	COUNTER("ha_oplog_gap_resolve_attempts_total")
	COUNTER("ha_oplog_gap_resolve_success_total")
	COUNTER("ha_oplog_etcd_write_failures_total")
	COUNTER("ha_oplog_etcd_write_retries_total")
	COUNTER("ha_oplog_watch_disconnections_total")
	COUNTER("ha_oplog_applied_entries_total")
	COUNTER("ha_oplog_dropped_put_end_total")
	COUNTER("ha_oplog_batch_commits_total")
	COUNTER("ha_oplog_sync_batch_commits_total")
	COUNTER("ha_batch_record_durable_batches_total")
	COUNTER("ha_batch_record_durable_entries_total")
	COUNTER("ha_batch_record_retry_total")
	GAUGE("ha_batch_record_committed_queue_depth")
	GAUGE("ha_batch_record_callback_queue_depth")
	GAUGE("ha_batch_record_last_batch_id")
	GAUGE("ha_batch_record_durable_sequence")
};

/* Objects are evicted only from memory, and a checkpoint is a snapshot. */
static const struct alias aliases[] = {
	{ "master_successful_evictions_mem", "counter", "master_successful_evictions_total", "" },
	{ "master_attempted_evictions_mem", "counter", "master_attempted_evictions_total", "" },
	{ "master_evicted_key_count_mem", "counter", "master_evicted_key_count", "" },
	{ "master_evicted_size_bytes_mem", "counter", "master_evicted_size_bytes", "" },
	{ "master_snapshot_success", "counter", "mooncake_master_checkpoints_total",
	  "result=\"ok\"" },
	{ "master_snapshot_fail", "counter", "mooncake_master_checkpoints_total",
	  "result=\"failed\"" },
};

static void print_head(FILE *to, const char *name, const char *type, const char *help)
{
	fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void mcm_stats_print_series(FILE *to)
{
	unsigned i;

	for (i = 0; i < sizeof(zeros) / sizeof(zeros[0]); i++) {
		print_head(to, zeros[i].name, zeros[i].type, "Always 0: this version does not have the feature");
		fprintf(to, "%s 0\n", zeros[i].name);
	}
	for (i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
		print_head(to, aliases[i].name, aliases[i].type, "Upstream's name of another series");
		fprintf(to, "%s %" PRId64 "\n", aliases[i].name,
			mcm_stats_counter(aliases[i].of, aliases[i].labels));
	}
}

/* ---- the process ---- */

/* Lines of /proc/self/status. */
static const struct {
	const char *line, *name, *help;
} memory_series[] = {
	{ "VmRSS", "rss", "Memory in RAM" },
	{ "VmHWM", "rss_peak", "Most memory in RAM so far" },
	{ "RssAnon", "rss_anon", "Memory in RAM that is not of a file" },
	{ "RssFile", "rss_file", "Memory in RAM that is of files" },
	{ "RssShmem", "rss_shmem", "Shared memory in RAM" },
	{ "VmSize", "vsize", "Size of the address space" },
	{ "VmSwap", "swap", "Memory in swap space" },
};

void mcm_stats_print_process(FILE *to)
{
	char line[128], name[64], word[32];
	unsigned long long kib;
	FILE *status = fopen("/proc/self/status", "re");

	print_head(to, "mooncake_build_info", "gauge", "Version of the master");
	fprintf(to, "mooncake_build_info{display_version=\"%s (%s)\",version=\"%s\"} 1\n", PACKAGE_VERSION,
		PACKAGE_NAME, PACKAGE_VERSION);
	while (status && fgets(line, sizeof(line), status)) {
		if (sscanf(line, "%31[^:]: %llu", word, &kib) != 2)
			continue;
		for (unsigned i = 0; i < sizeof(memory_series) / sizeof(memory_series[0]); i++) {
			if (strcmp(word, memory_series[i].line))
				continue;
			snprintf(name, sizeof(name), "mooncake_process_%s_bytes", memory_series[i].name);
			print_head(to, name, "gauge", memory_series[i].help);
			fprintf(to, "%s %llu\n", name, kib * 1024);
		}
	}
	if (status)
		fclose(status);
}

/* ---- tenants ---- */

#define TENANT_SERIES 8

static const struct {
	const char *name, *type, *help, *labels;
} tenant_series[TENANT_SERIES] = {
	{ "mooncake_tenant_quota_requested_bytes", "gauge", "Quota in the policy", "" },
	{ "mooncake_tenant_quota_effective_bytes", "gauge",
	  "Quota in force: the tenant's share of the mounted memory", "" },
	{ "mooncake_tenant_quota_charged_bytes", "gauge", "Bytes in use", "" },
	{ "mooncake_tenant_quota_admission_closed", "gauge",
	  "1: the tenant is not in the policy, and may only read and remove", "" },
	{ "mooncake_tenant_quota_over_quota", "gauge",
	  "1: the tenant uses more than its quota in force", "" },
	{ "mooncake_tenant_quota_explicit_policy", "gauge", "1: the tenant is in the policy", "" },
	{ "mooncake_tenant_quota_reject_total", "counter", "Puts that exceeded the quota",
	  ",reason=\"quota_exceeded\"" },
	{ "mooncake_tenant_evict_bytes_total", "counter",
	  "Bytes evicted because of the tenant's quota or share", "" },
};

/* Names are UTF-8 without control characters (tenant.c). */
static void print_label(FILE *to, struct mcp_bytes name)
{
	const char *p = name.data;

	for (uint32_t i = 0; i < name.len; i++) {
		if (p[i] == '"' || p[i] == '\\')
			putc('\\', to);
		putc(p[i], to);
	}
}

static void print_sum(FILE *to, const char *name, const char *help, unsigned __int128 sum)
{
	print_head(to, name, "gauge", help);
	fprintf(to, "%s %.0Lf\n", name, (long double)sum);
}

void mcm_stats_print_tenants(struct mcm *m, FILE *to)
{
	unsigned __int128 requested = 0, effective = 0;
	struct mcp_tenant t;

	if (!m->tenants.on)
		return;
	for (unsigned k = 0; k < TENANT_SERIES; k++) {
		print_head(to, tenant_series[k].name, tenant_series[k].type, tenant_series[k].help);
		for (unsigned i = 0; mcm_tenant_describe(m, i, &t); i++) {
			struct mcm_tenant_counts c = mcm_tenant_counts(m, i);
			const uint64_t value[TENANT_SERIES] = {
				t.requested, t.effective, t.charged, t.admission_closed,
				t.charged > t.effective, t.explicit_policy, c.rejected, c.evicted_bytes,
			};

			fprintf(to, "%s{tenant_id=\"", tenant_series[k].name);
			print_label(to, t.name);
			fprintf(to, "\"%s} %" PRIu64 "\n", tenant_series[k].labels, value[k]);
		}
	}
	for (unsigned i = 0; mcm_tenant_describe(m, i, &t); i++) {
		requested += t.requested;
		effective += t.effective;
	}
	print_sum(to, "mooncake_tenant_quota_allocatable_capacity_bytes",
		  "Bytes of all mounted segments", mcm_load_relaxed(&m->segments.capacity));
	print_sum(to, "mooncake_tenant_quota_requested_bytes_sum",
		  "Sum of the tenants' quotas in the policy", requested);
	print_sum(to, "mooncake_tenant_quota_effective_bytes_sum",
		  "Sum of the tenants' quotas in force", effective);
}
