/* SPDX-License-Identifier: Apache-2.0
 * stats_summary.h - the line of figures in /metrics/summary and in the log. */
#ifndef MCM_STATS_SUMMARY_H
#define MCM_STATS_SUMMARY_H

#include <stdint.h>
#include <stdio.h>

#include "common/sys/lock.h"

struct mcm;

#define MCM_SUMMARY_MAX 4096	/* the line's length with its NUL */
#define MCM_SUMMARY_OPS 27	/* operations that the line shows rates of */

/* Values of the counters of each operation, in the order of the line. */
struct mcm_sample {
	uint64_t at_ns;
	int64_t count[MCM_SUMMARY_OPS][5];
};

/* Rates are measured from the older sample on. */
struct mcm_rates {
	struct mc_mutex lock;		/* guards both; a leaf */
	struct mcm_sample old, recent;
};

void mcm_rates_init(struct mcm_rates *r);
void mcm_rates_done(struct mcm_rates *r);
/* For the monitor: take a new sample when it is due. */
void mcm_rates_tick(struct mcm_rates *r);

/* Print the current state and the mean rates of the last 10 to 20 s, in upstream's words. */
void mcm_stats_print_summary(struct mcm *m, FILE *to);

#endif
