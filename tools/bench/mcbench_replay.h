/* SPDX-License-Identifier: Apache-2.0
 * mcbench_replay.h - replay of a trace: counters, workers, report. */
#ifndef MCBENCH_REPLAY_H
#define MCBENCH_REPLAY_H

#include <pthread.h>

#include "common/thread.h"
#include "tools/bench/mcbench.h"
#include "tools/bench/mcbench_stats.h"
#include "tools/bench/mcbench_trace.h"

/* Everything here is counted by all workers at the same time (relaxed atomics). */
struct mcbench_counts {
	uint64_t requests;		/* done */
	uint64_t whole;			/* of which every block was there */
	uint64_t blocks;		/* asked for */
	uint64_t present;		/* of which exist said yes */
	uint64_t prefix;		/* of which no block before was absent: what an engine can use */
	uint64_t gone;			/* evicted between the answer and the get */
	uint64_t raced;			/* put by another thread meanwhile */
	uint64_t wrong_blocks, wrong_bytes;
	uint64_t late_ns;		/* longest delay behind the schedule */
};

struct mcbench_replay {
	struct mcbench *b;
	struct mcbench_trace trace;
	struct mcbench_counts n;
	struct mcbench_stats lookup, get, put;
	uint64_t next;			/* request to be taken; atomic */
	uint64_t begun_ns, ended_ns;
	struct mc_stop stop;
	unsigned running;		/* workers that have not ended; atomic */
	unsigned blamed;		/* wrong blocks told of; atomic */
	int failed;			/* first reason why a worker gave up, negative; atomic */
};

/* One thread: takes requests until none is left or r->stop is set. */
void *mcbench_replay_worker(void *arg);

/* Prefix of the names of all objects of this run. */
void mcbench_replay_prefix(const struct mcbench_conf *conf, char *buf, size_t len);

void mcbench_replay_progress(const struct mcbench_replay *r);
int mcbench_replay_report(const struct mcbench_replay *r);	/* exit status */

#endif
