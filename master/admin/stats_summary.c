/* SPDX-License-Identifier: Apache-2.0
 * stats_summary.c - upstream's line of figures, with its words and numbers, for programs that parse it. */
#include <config.h>

#include "master/admin/stats_summary.h"

#include <inttypes.h>

#include "common/cleanup.h"
#include "master/admin/stats.h"
#include "master/mcm_i.h"

#define SAMPLE_MS 10000		/* rates are means over one to two of these */

/* The operations in the order of the line: single requests, batches, tasks.  An operation's
 * counters are master_NAME_requests_total and so on. */
static const struct {
	const char *label, *name;
} ops[MCM_SUMMARY_OPS] = {
	{ "PutStart", "put_start" },
	{ "PutEnd", "put_end" },
	{ "PutRevoke", "put_revoke" },
	{ "Get", "get_replica_list" },
	{ "Exist", "exist_key" },
	{ "Del", "remove" },
	{ "DelAll", "remove_all" },
	{ "Ping", "ping" },
	{ "CopyStart", "copy_start" },
	{ "CopyEnd", "copy_end" },
	{ "CopyRevoke", "copy_revoke" },
	{ "MoveStart", "move_start" },
	{ "MoveEnd", "move_end" },
	{ "MoveRevoke", "move_revoke" },
	{ "EvictDiskReplica", "evict_disk_replica" },
#define FIRST_BATCH 15
	{ "PutStart", "batch_put_start" },
	{ "PutEnd", "batch_put_end" },
	{ "PutRevoke", "batch_put_revoke" },
	{ "Get", "batch_get_replica_list" },
	{ "ExistKey", "batch_exist_key" },
	{ "QueryIp", "batch_query_ip" },
	{ "Clear", "batch_replica_clear" },
#define FIRST_TASK 22
	{ "CreateMoveTask", "create_move_task" },
	{ "CreateCopyTask", "create_copy_task" },
	{ "QueryTask", "query_task" },
	{ "FetchTasks", "fetch_tasks" },
	{ "MarkTaskToComplete", "update_task" },
};

enum count { REQUESTS, FAILURES, PARTIAL, ITEMS, FAILED_ITEMS, COUNTS };

/* A counter that an operation does not have is 0. */
static void sample_take(struct mcm_sample *s)
{
	static const char *const suffix[COUNTS] = {
		"requests", "failures", "partial_successes", "items", "failed_items",
	};
	char name[96];

	s->at_ns = mc_now_ns();
	for (unsigned i = 0; i < MCM_SUMMARY_OPS; i++) {
		for (unsigned k = 0; k < COUNTS; k++) {
			snprintf(name, sizeof(name), "master_%s_%s_total", ops[i].name, suffix[k]);
			s->count[i][k] = mcm_stats_counter(name, "");
		}
	}
}

void mcm_rates_init(struct mcm_rates *r)
{
	mc_mutex_init(&r->lock);
	sample_take(&r->old);
	r->recent = r->old;
}

void mcm_rates_done(struct mcm_rates *r)
{
	mc_mutex_destroy(&r->lock);
}

void mcm_rates_tick(struct mcm_rates *r)
{
	MC_LOCKED(&r->lock);
	if (mc_now_ns() - r->recent.at_ns < SAMPLE_MS * MC_NS_PER_MS)
		return;
	r->old = r->recent;
	sample_take(&r->recent);
}

static void print_rates(struct mcm_rates *rates, FILE *to)
{
	struct mcm_sample then, now;
	double seconds;

	sample_take(&now);
	mc_mutex_lock(&rates->lock);
	then = rates->old;
	mc_mutex_unlock(&rates->lock);
	seconds = now.at_ns > then.at_ns ? (double)(now.at_ns - then.at_ns) / MC_NS_PER_SEC : 1;
	fputs(" | Requests (Success/Total per sec): ", to);
	for (unsigned i = 0; i < MCM_SUMMARY_OPS; i++) {
		double r[COUNTS], good;

		for (unsigned k = 0; k < COUNTS; k++)
			r[k] = (double)(now.count[i][k] - then.count[i][k]) / seconds;
		good = r[REQUESTS] - r[FAILURES] - r[PARTIAL];
		if (i == FIRST_BATCH)
			fputs(" | Batch Requests (per sec, Req=Success/PartialSuccess/Total, "
			      "Item=Success/Total): ", to);
		else if (i)
			fputs(", ", to);
		if (i < FIRST_BATCH)
			fprintf(to, "%s=%.2f/%.2f", ops[i].label, good, r[REQUESTS]);
		else if (i < FIRST_TASK)
			fprintf(to, "%s:(Req=%.2f/%.2f/%.2f, Item=%.2f/%.2f)", ops[i].label, good,
				r[PARTIAL], r[REQUESTS], r[ITEMS] - r[FAILED_ITEMS], r[ITEMS]);
		else
			fprintf(to, "%s:(Req=%.2f/%.2f)", ops[i].label, good, r[REQUESTS]);
	}
}

/* ---- state ---- */

static const char *bytes_text(uint64_t bytes, char buf[32])
{
	static const char *const unit[] = { "B", "KB", "MB", "GB", "TB", "PB" };
	double v = (double)bytes;
	unsigned u = 0;

	for (; v >= 1024 && u + 1 < sizeof(unit) / sizeof(unit[0]); u++)
		v /= 1024;
	if (u)
		snprintf(buf, 32, "%.2f %s", v, unit[u]);
	else
		snprintf(buf, 32, "%" PRIu64 " B", bytes);
	return buf;
}

static void print_state(struct mcm *m, FILE *to)
{
	struct mcp_stats_reply st;
	char used[32], size[32];
	uint64_t nof_used, nof_size;

	mcm_stats(m, &st);
	mcm_stats_nof(m, &nof_used, &nof_size);
	fprintf(to, "Mem Storage: %s / %s", bytes_text(st.used, used), bytes_text(st.capacity, size));
	if (st.capacity)
		fprintf(to, " (%.1f%%)", 100.0 * (double)st.used / (double)st.capacity);
	fprintf(to, " | NVMe-oF SSD: %s / %s", bytes_text(nof_used, used), bytes_text(nof_size, size));
	/* Segments may have changed in between. */
	nof_used = nof_used < st.disk_used ? nof_used : st.disk_used;
	nof_size = nof_size < st.disk_capacity ? nof_size : st.disk_capacity;
	fprintf(to, " | SSD Storage: %s / %s | Keys: %" PRIu64 " (soft-pinned: %" PRId64 ") | Clients: %u",
		bytes_text(st.disk_used - nof_used, used), bytes_text(st.disk_capacity - nof_size, size), st.objects,
		mcm_stats_counter("master_soft_pin_key_count", ""), st.clients);
}

static void print_work(FILE *to)
{
	int64_t found = mcm_stats_counter("master_successful_evictions_total", "");
	int64_t tried = mcm_stats_counter("master_attempted_evictions_total", "");
	int64_t keys = mcm_stats_counter("master_evicted_key_count", "");
	char size[32], staging[32];

	bytes_text((uint64_t)mcm_stats_counter("master_evicted_size_bytes", ""), size);
	bytes_text((uint64_t)mcm_stats_counter("master_put_start_discarded_staging_size", ""), staging);
	fprintf(to, " | Eviction: Success/Attempts=%" PRId64 "/%" PRId64 ", AllocFail=%" PRId64
		", PartialAlloc=%" PRId64 ", keys=%" PRId64 ", size=%s", found, tried,
		mcm_stats_counter("master_put_start_alloc_failures_total", ""),
		mcm_stats_counter("master_put_start_partial_allocations_total", ""), keys, size);
	fprintf(to, " | Mem Eviction: Success/Attempts=%" PRId64 "/%" PRId64 ", keys=%" PRId64 ", size=%s"
		" | NoF Eviction: Success/Attempts=0/0, keys=0, size=0 B", found, tried, keys, size);
	fprintf(to, " | Discard: Released/Total=%" PRId64 "/%" PRId64 ", StagingSize=%s"
		" | Promotion: in_flight=0, admitted=0, completed=0, failed=0, cancelled=0, expired=0, "
		"bytes=0 B, rejected(freq/wm/cap)=0/0/0",
		mcm_stats_counter("master_put_start_release_cnt", ""),
		mcm_stats_counter("master_put_start_discard_cnt", ""), staging);
	fprintf(to, " | Snapshots: Success=%" PRId64 ", Fail=%" PRId64,
		mcm_stats_counter("mooncake_master_checkpoints_total", "result=\"ok\""),
		mcm_stats_counter("mooncake_master_checkpoints_total", "result=\"failed\""));
}

void mcm_stats_print_summary(struct mcm *m, FILE *to)
{
	print_state(m, to);
	print_rates(&m->rates, to);
	print_work(to);
}
