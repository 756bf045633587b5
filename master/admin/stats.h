/* SPDX-License-Identifier: Apache-2.0
 * stats.h - sums over the master's state, for STATS and for metrics. */
#ifndef MCM_STATS_H
#define MCM_STATS_H

#include <stdint.h>
#include <stdio.h>

struct mcm;
struct mcp_stats_reply;

void mcm_stats(struct mcm *m, struct mcp_stats_reply *ret);
/* The same for a peer that is confined to @tenant (MCM_TENANT_NONE: one without objects): capacity and used bytes of
 * its segments, and its objects.  Where segments are of all tenants, used are the bytes that the tenant is charged
 * for.  The counters, which are of all tenants, are 0. */
void mcm_stats_tenant(struct mcm *m, uint32_t tenant, struct mcp_stats_reply *ret);
/* Bytes used on the disks that are reached over NVMe-oF, and bytes of these. */
void mcm_stats_nof(struct mcm *m, uint64_t *ret_used, uint64_t *ret_size);
/* The value of a counter of the registry; 0 if there is none. */
int64_t mcm_stats_counter(const char *name, const char *labels);

/* Let /metrics of this process have the master's series.  mcm_start() does it. */
void mcm_series_show(void);
/* Set the gauges that are computed from the state (a collector of the metrics registry). */
void mcm_stats_collect(void *arg);
/* The same for hit ratios, of other pool sizes too (admin_whatif.c). */
void mcm_stats_whatif(struct mcm *m);
/* Print gauges by segment in Prometheus text: segments come and go, so the registry does not have them. */
void mcm_stats_print_segments(struct mcm *m, FILE *to);

#endif
