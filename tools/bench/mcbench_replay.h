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
	uint64_t requests;		/* completed */
	uint64_t whole;			/* requests whose blocks were all found */
	uint64_t blocks;		/* blocks looked up */
	uint64_t present;		/* blocks for which exist returned true */
	uint64_t prefix;		/* present blocks without an absent one before them: usable by an engine */
	uint64_t gone;			/* evicted between exist and get */
	uint64_t raced;			/* put by another thread at the same time */
	uint64_t wrong_blocks, wrong_bytes;
	uint64_t late_ns;		/* longest delay behind the schedule */
};

struct mcbench_replay {
	struct mcbench *b;
	struct mcbench_trace trace;
	struct mcbench_counts n;
	struct mcbench_stats lookup, get, put;
	uint64_t next;			/* next request to take; atomic */
	uint64_t begun_ns, ended_ns;
	struct mc_stop stop;
	unsigned running;		/* running workers; atomic */
	unsigned blamed;		/* wrong blocks reported; atomic */
	int failed;			/* first error that ended a worker, negative; atomic */
};

/* One thread: takes requests until none is left or r->stop is set. */
void *mcbench_replay_worker(void *arg);

/* Prefix of the names of all objects of this run. */
void mcbench_replay_prefix(const struct mcbench_conf *conf, char *buf, size_t len);

void mcbench_replay_progress(const struct mcbench_replay *r);
int mcbench_replay_report(const struct mcbench_replay *r);	/* exit status */

#endif
