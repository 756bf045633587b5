/* SPDX-License-Identifier: Apache-2.0
 * stats_series.h - series of /metrics that the registry does not have, in Prometheus text. */
#ifndef MCM_STATS_SERIES_H
#define MCM_STATS_SERIES_H

#include <stdio.h>

struct mcm;

/* Upstream's series of parts that this version does not have, and upstream's names of existing series. */
void mcm_stats_print_series(FILE *to);
/* Version and memory of this process. */
void mcm_stats_print_process(FILE *to);
/* Figures by tenant. */
void mcm_stats_print_tenants(struct mcm *m, FILE *to);

#endif
