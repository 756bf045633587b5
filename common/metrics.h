/* SPDX-License-Identifier: Apache-2.0
 * metrics.h - counters, gauges and histograms of this process, output in Prometheus format.
 *
 * Metrics are static objects that register themselves with MC_COUNTER/MC_GAUGE/MC_HISTOGRAM at file
 * scope (a constructor links them).  Updating is one relaxed atomic operation, from any thread. */
#ifndef MC_METRICS_H
#define MC_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum mc_metric_type { MC_COUNTER_TYPE, MC_GAUGE_TYPE, MC_HISTOGRAM_TYPE };

/* Log-linear buckets: 8 per power of two, from 1 to 2^40; values are in any unit (ns, bytes). */
#define MC_HIST_SUB 8
#define MC_HIST_BUCKETS (41 * MC_HIST_SUB)

struct mc_hist {
	uint64_t count, sum, max;
	uint64_t bucket[MC_HIST_BUCKETS];
};

struct mc_metric {
	const char *name;	/* Prometheus name, e.g. "mooncake_rpc_requests_total" */
	const char *labels;	/* "op=\"get\"" or "" */
	const char *help;
	enum mc_metric_type type;
	int64_t value;
	struct mc_hist *hist;
	double scale;		/* factor of the output: 1e-9 shows ns as seconds */
	struct mc_metric *next;
};

void mc_metric_register(struct mc_metric *m);

#define MC_METRIC_DEFINE(var, name, labels, help, type, hist, scale) \
	static struct mc_metric var = { name, labels, help, type, 0, hist, scale, NULL }; \
	__attribute__((constructor)) static void var##_register(void) { mc_metric_register(&var); }
#define MC_COUNTER(var, name, labels, help) \
	MC_METRIC_DEFINE(var, name, labels, help, MC_COUNTER_TYPE, NULL, 1)
#define MC_GAUGE(var, name, labels, help) \
	MC_METRIC_DEFINE(var, name, labels, help, MC_GAUGE_TYPE, NULL, 1)
#define MC_HISTOGRAM(var, name, labels, help, scale) \
	static struct mc_hist var##_hist; \
	MC_METRIC_DEFINE(var, name, labels, help, MC_HISTOGRAM_TYPE, &var##_hist, scale)

static inline void mc_metric_add(struct mc_metric *m, int64_t n)
{
	__atomic_fetch_add(&m->value, n, __ATOMIC_RELAXED);
}

static inline void mc_metric_set(struct mc_metric *m, int64_t v)
{
	__atomic_store_n(&m->value, v, __ATOMIC_RELAXED);
}

static inline int64_t mc_metric_get(const struct mc_metric *m)
{
	return __atomic_load_n(&m->value, __ATOMIC_RELAXED);
}

/* Histograms can also be used without a registered metric. */
void mc_hist_add(struct mc_hist *h, uint64_t v);
/* The same value @n times. */
void mc_hist_add_many(struct mc_hist *h, uint64_t v, uint64_t n);
/* Value at quantile @q (0..1), interpolated inside its bucket; 0 when empty. */
uint64_t mc_hist_quantile(const struct mc_hist *h, double q);
#define mc_metric_observe(m, v) mc_hist_add((m)->hist, v)
#define mc_metric_observe_many(m, v, n) mc_hist_add_many((m)->hist, v, n)

/* A part of the program that may not run in this process: series whose names begin with one of its prefixes are printed
 * only while it is shown.  MC_METRIC_PART at file scope; hidden at first. */
struct mc_metric_part {
	const char *const *prefixes;	/* ends with NULL */
	bool shown;			/* atomic */
	struct mc_metric_part *next;
};
void mc_metric_part_register(struct mc_metric_part *p);
#define MC_METRIC_PART(var, ...) \
	static const char *const var##_prefixes[] = { __VA_ARGS__, NULL }; \
	static struct mc_metric_part var = { var##_prefixes, false, NULL }; \
	__attribute__((constructor)) static void var##_register(void) { mc_metric_part_register(&var); }

static inline void mc_metric_part_show(struct mc_metric_part *p)
{
	__atomic_store_n(&p->shown, true, __ATOMIC_RELAXED);
}

/* For gauges that are expensive to compute: @fn is called before each print, in the order of
 * registration, under a lock, so it must not print, add or remove collectors.  -ENOMEM.  After
 * _remove() has returned @fn does not run any more. */
int mc_metrics_collector(void (*fn)(void *arg), void *arg);
void mc_metrics_collector_remove(void (*fn)(void *arg), void *arg);

/* All metrics that are shown, in Prometheus text format 0.0.4, HELP and TYPE once per name. */
int mc_metrics_print(FILE *to);

/* Value of a counter or gauge by name and labels, for tests and summaries; -ENOENT when unknown.
 * Gauges of collectors have their value of the last print. */
int mc_metrics_lookup(const char *name, const char *labels, int64_t *ret);

#endif
