/* SPDX-License-Identifier: Apache-2.0
 * mcbench_stats.h - measurements of one kind of operation.  Any number of threads may add at the same
 * time; readers see the current value of each counter. */
#ifndef MCBENCH_STATS_H
#define MCBENCH_STATS_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "common/metrics.h"

#define MCBENCH_ERRORS_MAX 16

struct mcbench_stats {
	const char *name;
	struct mc_hist ns;			/* duration of each call; a call handles a batch */
	uint64_t items, bytes;
	uint64_t failed;			/* items */
	int code[MCBENCH_ERRORS_MAX];		/* kinds of failures, 0: free */
	uint64_t count[MCBENCH_ERRORS_MAX];
};

void mcbench_stats_call(struct mcbench_stats *s, uint64_t ns);
void mcbench_stats_items(struct mcbench_stats *s, uint64_t items, uint64_t bytes);
/* @err is a result of the store; kinds beyond the first 16 count as the last one. */
void mcbench_stats_error(struct mcbench_stats *s, int err, uint64_t items);

/* Sum of the time in calls, over all threads. */
uint64_t mcbench_stats_busy_ns(const struct mcbench_stats *s);
/* Rate per time in calls, for @threads threads; 0: no calls. */
double mcbench_stats_items_rate(const struct mcbench_stats *s, unsigned threads);
double mcbench_stats_bytes_rate(const struct mcbench_stats *s, unsigned threads);

/* A table: the head, then one row per call. */
void mcbench_stats_head(FILE *to);
void mcbench_stats_row(const struct mcbench_stats *s, unsigned threads, FILE *to);
/* Indented lines "get: 3 x no space in the pool"; nothing without errors. */
void mcbench_stats_errors(const struct mcbench_stats *s, FILE *to);
json_t *mcbench_stats_json(const struct mcbench_stats *s, unsigned threads);

/* "12.3 us" into @buf; returns @buf. */
const char *mcbench_time_text(uint64_t ns, char *buf, size_t len);

#endif
