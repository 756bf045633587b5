/* SPDX-License-Identifier: Apache-2.0
 * stats_summary.c - the line of figures that upstream's /metrics/summary and log have, with its words, so
 * that what reads upstream's reads ours. */
#include <config.h>

#include "master/admin/stats.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/metrics.h"
#include "master/mcm_i.h"

#define SAMPLE_MS 10000		/* rates are means over one to two of these */

/* What the line has rates of, in its order; single requests, batches, tasks. */
static const struct {
	const char *label, *name;
} singles[] = {
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
}, batches[] = {
	{ "PutStart", "put_start" },
	{ "PutEnd", "put_end" },
	{ "PutRevoke", "put_revoke" },
	{ "Get", "get_replica_list" },
	{ "ExistKey", "exist_key" },
	{ "QueryIp", "query_ip" },
	{ "Clear", "replica_clear" },
}, tasks[] = {
	{ "CreateMoveTask", "create_move_task" },
	{ "CreateCopyTask", "create_copy_task" },
	{ "QueryTask", "query_task" },
	{ "FetchTasks", "fetch_tasks" },
	{ "MarkTaskToComplete", "update_task" },
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
_Static_assert(2 * COUNT(singles) + 5 * COUNT(batches) + 2 * COUNT(tasks) == MCM_RATES,
	       "what is sampled");

static int64_t counter(const char *name)
{
	int64_t v = 0;

	(void)mc_metrics_lookup(name, "", &v);
	return v;
}

static int64_t part(const char *prefix, const char *name, const char *suffix)
{
	char full[96];

	snprintf(full, sizeof(full), "master_%s%s_%s_total", prefix, name, suffix);
	return counter(full);
}

/* All counters now, in the order in which the line is made. */
static void take(struct mcm_sample *s)
{
	int64_t *v = s->value;
	unsigned i;

	s->at_ns = mc_now_ns();
	for (i = 0; i < COUNT(singles); i++) {
		*v++ = part("", singles[i].name, "requests");
		*v++ = part("", singles[i].name, "failures");
	}
	for (i = 0; i < COUNT(batches); i++) {
		*v++ = part("batch_", batches[i].name, "requests");
		*v++ = part("batch_", batches[i].name, "failures");
		*v++ = part("batch_", batches[i].name, "partial_successes");
		*v++ = part("batch_", batches[i].name, "items");
		*v++ = part("batch_", batches[i].name, "failed_items");
	}
	for (i = 0; i < COUNT(tasks); i++) {
		*v++ = part("", tasks[i].name, "requests");
		*v++ = part("", tasks[i].name, "failures");
	}
}

void mcm_rates_init(struct mcm_rates *r)
{
	pthread_mutex_init(&r->lock, NULL);
	take(&r->old);
	r->recent = r->old;
}

void mcm_rates_done(struct mcm_rates *r)
{
	pthread_mutex_destroy(&r->lock);
}

void mcm_rates_tick(struct mcm_rates *r)
{
	uint64_t now = mc_now_ns();

	MC_LOCKED(&r->lock);
	if (now - r->recent.at_ns < SAMPLE_MS * MC_NS_PER_MS)
		return;
	r->old = r->recent;
	take(&r->recent);
}

/* ---- the line ---- */

struct line {
	char *at;
	size_t left;
	const int64_t *then, *now;	/* the next counters */
	double seconds;
};

__attribute__((format(printf, 2, 3)))
static void add(struct line *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(l->at, l->left, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if ((size_t)n >= l->left)
		n = l->left ? (int)l->left - 1 : 0;
	l->at += n;
	l->left -= (size_t)n;
}

static double rate(struct line *l)
{
	return (double)(*l->now++ - *l->then++) / l->seconds;
}

static const char *human(uint64_t bytes, char buf[32])
{
	static const char *const unit[] = { "B", "KB", "MB", "GB", "TB", "PB" };
	double v = (double)bytes;
	unsigned u = 0;

	for (; v >= 1024 && u + 1 < COUNT(unit); u++)
		v /= 1024;
	if (u)
		snprintf(buf, 32, "%.2f %s", v, unit[u]);
	else
		snprintf(buf, 32, "%" PRIu64 " B", bytes);
	return buf;
}

static void add_state(struct line *l, struct mcm *m)
{
	struct mcp_stats_reply st;
	char used[32], size[32];

	mcm_stats(m, &st);
	add(l, "Mem Storage: %s / %s", human(st.used, used), human(st.capacity, size));
	if (st.capacity)
		add(l, " (%.1f%%)", 100.0 * (double)st.used / (double)st.capacity);
	add(l, " | NVMe-oF SSD: 0 B / 0 B | SSD Storage: 0 B / 0 B | Keys: %" PRIu64
	    " (soft-pinned: %" PRId64 ") | Clients: %u", st.objects,
	    counter("master_soft_pin_key_count"), st.clients);
}

static void add_rates(struct line *l)
{
	unsigned i;

	add(l, " | Requests (Success/Total per sec): ");
	for (i = 0; i < COUNT(singles); i++) {
		double all = rate(l), failed = rate(l);

		add(l, "%s%s=%.2f/%.2f", i ? ", " : "", singles[i].label, all - failed, all);
	}
	add(l, " | Batch Requests (per sec, Req=Success/PartialSuccess/Total, Item=Success/Total): ");
	for (i = 0; i < COUNT(batches); i++) {
		double all = rate(l), failed = rate(l), some = rate(l);
		double items = rate(l), items_failed = rate(l);

		add(l, "%s:(Req=%.2f/%.2f/%.2f, Item=%.2f/%.2f), ", batches[i].label,
		    all - failed - some, some, all, items - items_failed, items);
	}
	for (i = 0; i < COUNT(tasks); i++) {
		double all = rate(l), failed = rate(l);

		add(l, "%s%s:(Req=%.2f/%.2f)", i ? ", " : "", tasks[i].label, all - failed, all);
	}
}

static void add_work(struct line *l)
{
	int64_t found = counter("master_successful_evictions_total");
	int64_t tried = counter("master_attempted_evictions_total");
	int64_t keys = counter("master_evicted_key_count");
	char size[32], staging[32];

	human((uint64_t)counter("master_evicted_size_bytes"), size);
	human((uint64_t)counter("master_put_start_discarded_staging_size"), staging);
	add(l, " | Eviction: Success/Attempts=%" PRId64 "/%" PRId64 ", AllocFail=%" PRId64
	    ", PartialAlloc=%" PRId64 ", keys=%" PRId64 ", size=%s", found, tried,
	    counter("master_put_start_alloc_failures_total"),
	    counter("master_put_start_partial_allocations_total"), keys, size);
	add(l, " | Mem Eviction: Success/Attempts=%" PRId64 "/%" PRId64 ", keys=%" PRId64 ", size=%s",
	    found, tried, keys, size);
	add(l, " | NoF Eviction: Success/Attempts=0/0, keys=0, size=0 B");
	add(l, " | Discard: Released/Total=%" PRId64 "/%" PRId64 ", StagingSize=%s",
	    counter("master_put_start_release_cnt"), counter("master_put_start_discard_cnt"),
	    staging);
	add(l, " | Promotion: in_flight=0, admitted=0, completed=0, failed=0, cancelled=0, expired=0, "
	    "bytes=0 B, rejected(freq/wm/cap)=0/0/0");
}

static int64_t checkpoints(const char *labels)
{
	int64_t v = 0;

	(void)mc_metrics_lookup("mooncake_master_checkpoints_total", labels, &v);
	return v;
}

void mcm_stats_summary(struct mcm *m, char *buf, size_t len)
{
	struct mcm_sample then, now;
	struct line l = { .at = buf, .left = len };

	take(&now);
	pthread_mutex_lock(&m->rates.lock);
	then = m->rates.old;
	pthread_mutex_unlock(&m->rates.lock);
	l.now = now.value;
	l.then = then.value;
	l.seconds = now.at_ns > then.at_ns ? (double)(now.at_ns - then.at_ns) / MC_NS_PER_SEC : 1;
	*buf = '\0';
	add_state(&l, m);
	add_rates(&l);
	add_work(&l);
	add(&l, " | Snapshots: Success=%" PRId64 ", Fail=%" PRId64, checkpoints("result=\"ok\""),
	    checkpoints("result=\"failed\""));
}
