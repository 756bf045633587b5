/* SPDX-License-Identifier: Apache-2.0
 * stats.h - sums over the master's state, for STATS, metrics and the log. */
#ifndef MCM_STATS_H
#define MCM_STATS_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

struct mcm;
struct mcp_stats_reply;

void mcm_stats(struct mcm *m, struct mcp_stats_reply *ret);

/* Set the gauges that are computed from the state (a collector of the metrics registry). */
void mcm_stats_collect(void *arg);
/* Gauges by segment, in Prometheus text: they come and go, so the registry does not have them. */
void mcm_stats_print_segments(struct mcm *m, FILE *to);
/* Series of upstream's that nothing counts here, and by tenant (stats_series.c). */
void mcm_stats_print_series(FILE *to);
void mcm_stats_print_tenants(struct mcm *m, FILE *to);

/* ---- the line of /metrics/summary and the log (stats_summary.c) ---- */

#define MCM_SUMMARY_MAX 4096	/* its length, and the NUL */
#define MCM_RATES 75		/* counters that it has rates of */

struct mcm_sample {
	uint64_t at_ns;
	int64_t value[MCM_RATES];
};

/* Rates are measured from the older sample on. */
struct mcm_rates {
	pthread_mutex_t lock;		/* guards both; a leaf */
	struct mcm_sample old, recent;
};

void mcm_rates_init(struct mcm_rates *r);
void mcm_rates_done(struct mcm_rates *r);
/* Now and then: take a new sample when it is time. */
void mcm_rates_tick(struct mcm_rates *r);

/* The state now and the mean rates of the last 10 to 20 s, in upstream's words. */
void mcm_stats_summary(struct mcm *m, char *buf, size_t len);

#endif
