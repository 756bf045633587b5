/* SPDX-License-Identifier: Apache-2.0
 * metric.c - MC_TE_METRIC: a log line every few seconds with the bytes that the engine moved and the
 * times of its batches.  Nothing is measured without the variable. */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/thread.h"
#include "common/env.h"
#include "engine/te/te_i.h"

#define LOG "te.metric"

struct mce_te_metric {
	struct mce_te *te;
	uint64_t every_ms;
	struct mc_stop stop;
	struct mc_thread thread;
	struct mc_hist batches;		/* times in ns; several threads add */
	/* used only by the thread */
	struct mc_hist last;		/* state at the last line */
	struct mce_path_stats paths[MCE_PATHS];
	uint64_t last_ns;
};

void mce_te_metric_batch(struct mce_te_metric *m, uint64_t began_ns)
{
	if (m)
		mc_hist_add(&m->batches, mc_now_ns() - began_ns);
}

static void metric_add_peer(const struct mce_peer *p, void *arg)
{
	struct mce_path_stats stats[MCE_PATHS], *sum = arg;

	mce_peer_paths(p, stats);
	for (unsigned i = 0; i < MCE_PATHS; i++) {
		sum[i].requests += stats[i].requests;
		sum[i].errors += stats[i].errors;
		sum[i].bytes += stats[i].bytes;
	}
}

/* A sum shrinks when a peer is freed. */
static uint64_t metric_since(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/* Other threads add meanwhile: compute the count from the copied buckets, so that both are consistent. */
static void hist_since(struct mc_hist *now, const struct mc_hist *live, struct mc_hist *last)
{
	struct mc_hist copy = { .count = 0 };

	memset(now, 0, sizeof(*now));
	for (unsigned i = 0; i < MC_HIST_BUCKETS; i++) {
		copy.bucket[i] = __atomic_load_n(&live->bucket[i], __ATOMIC_RELAXED);
		now->bucket[i] = copy.bucket[i] - last->bucket[i];
		now->count += now->bucket[i];
	}
	now->max = __atomic_load_n(&live->max, __ATOMIC_RELAXED);
	*last = copy;
}

static double hist_us(const struct mc_hist *h, double q)
{
	return (double)mc_hist_quantile(h, q) / 1000;
}

static void metric_log(struct mce_te_metric *m)
{
	struct mce_path_stats now[MCE_PATHS] = { { .bytes = 0 } };
	uint64_t at = mc_now_ns(), bytes = 0, requests = 0, errors = 0, n;
	double seconds = (double)(at - m->last_ns) / 1e9;
	char by_path[200] = "";
	struct mc_hist h;
	size_t len = 0;

	mce_peers_each(m->te->engine, metric_add_peer, now);
	for (unsigned i = 0; i < MCE_PATHS; i++) {
		n = metric_since(now[i].bytes, m->paths[i].bytes);
		bytes += n;
		requests += metric_since(now[i].requests, m->paths[i].requests);
		errors += metric_since(now[i].errors, m->paths[i].errors);
		if (n && len < sizeof(by_path))
			len += (size_t)snprintf(by_path + len, sizeof(by_path) - len, " %s_MBps=%.1f",
						mce_path_name((enum mce_path)i), (double)n / seconds / 1e6);
	}
	hist_since(&h, &m->batches, &m->last);
	memcpy(m->paths, now, sizeof(now));
	m->last_ns = at;
	/* No line for an idle engine. */
	if (!requests && !errors && !h.count)
		return;
	mc_info(LOG, "segment=%s seconds=%.1f throughput_MBps=%.1f%s requests=%llu failed=%llu "
		"batches=%llu batch_us_p50=%.1f batch_us_p90=%.1f batch_us_p99=%.1f batch_us_p999=%.1f",
		m->te->name, seconds, (double)bytes / seconds / 1e6, by_path,
		(unsigned long long)requests, (unsigned long long)errors, (unsigned long long)h.count,
		hist_us(&h, 0.5), hist_us(&h, 0.9), hist_us(&h, 0.99), hist_us(&h, 0.999));
}

static void *metric_main(void *arg)
{
	struct mce_te_metric *m = arg;

	while (!mc_stop_wait(&m->stop, m->every_ms))
		metric_log(m);
	/* the last, shorter interval */
	metric_log(m);
	return NULL;
}

int mce_te_metric_open(struct mce_te *te, struct mce_te_metric **ret)
{
	struct mce_te_metric *m;
	int r;

	if (!mc_env_on("MC_TE_METRIC"))
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return mc_fail(-ENOMEM, "no memory for metrics");
	m->te = te;
	m->every_ms =
		(uint64_t)mc_env_int("MC_TE_METRIC_INTERVAL_SECONDS", 5, 1, 86400) * 1000;
	m->last_ns = mc_now_ns();
	r = mc_stop_start(&m->stop, &m->thread, "mce-te-metric", metric_main, m);
	if (r < 0) {
		free(m);
		return r;
	}
	*ret = m;
	return 0;
}

void mce_te_metric_close(struct mce_te_metric *m)
{
	if (!m)
		return;
	mc_stop_join(&m->stop, m->thread);
	free(m);
}

/* ---- the log ----------------------------------------------------------------------------------- */

/* The level that corresponds to upstream's name @name. */
static const char *log_level_name(const char *name)
{
	static const char *const names[] = { "err", "warn", "info", "debug", "trace" };
	int level = name ? mc_log_parse_level(name) : MC_LOG_WARN;

	if (level >= 0)
		return names[level];
	mc_warn(LOG, "unknown log level, using WARNING: MC_LOG_LEVEL=%s", name);
	return "warn";
}

static void log_once(void)
{
	const char *level = mc_env_str("MC_LOG_LEVEL"), *dir = mc_env_str("MC_LOG_DIR");
	bool metric = mc_env_on("MC_TE_METRIC");
	struct mc_log_conf conf = { .dir = dir, .max_file_size = 1ull << 30, .max_files = 8 };
	char levels[64];
	int r;

	/* Without these variables the program's own log settings stay. */
	if (!level && !dir && !metric)
		return;
	snprintf(levels, sizeof(levels), "%s%s", log_level_name(level), metric ? "," LOG "=info" : "");
	conf.levels = levels;
	r = mc_log_open(&conf);
	if (r == 0 || !dir)
		return;
	mc_warn(LOG, "cannot open MC_LOG_DIR, logging to stderr: %s", mc_err_detail(r));
	conf.dir = NULL;
	(void)mc_log_open(&conf);
}

void mce_te_log_open(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, log_once);
}
