/* SPDX-License-Identifier: Apache-2.0
 * stats.h - sums over the master's state, for STATS, metrics and the log. */
#ifndef MCM_STATS_H
#define MCM_STATS_H

#include <stdint.h>
#include <stdio.h>

struct mcm;
struct mcp_stats_reply;

void mcm_stats(struct mcm *m, struct mcp_stats_reply *ret);

/* Set the gauges that are computed from the state (a collector of the metrics registry). */
void mcm_stats_collect(void *arg);
/* Gauges by segment, in Prometheus text: they come and go, so the registry does not have them. */
void mcm_stats_print_segments(struct mcm *m, FILE *to);
/* One line of the most important figures. */
void mcm_stats_summary(struct mcm *m, char *buf, size_t len);

#endif
