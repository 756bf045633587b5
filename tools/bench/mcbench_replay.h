/* SPDX-License-Identifier: Apache-2.0
 * mcbench_replay.h - replay of a trace: counters, workers, report. */
#ifndef MCBENCH_REPLAY_H
#define MCBENCH_REPLAY_H

#include <jansson.h>

#include "common/sys/thread.h"
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
	struct mcbench_trace trace;	/* borrowed */
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

/* Read the trace that the command line names.  Returns an exit status; an error has been reported. */
int mcbench_replay_load(const struct mcbench *b, struct mcbench_trace *ret);
/* A replay of @trace, which must exist as long as the replay.  free() it.  NULL: out of memory, has been reported. */
struct mcbench_replay *mcbench_replay_new(struct mcbench *b, const struct mcbench_trace *trace);
/* Run it on b->store, once.  Returns an exit status; it prints only errors. */
int mcbench_replay_run(struct mcbench_replay *r);

void mcbench_replay_progress(const struct mcbench_replay *r);

/* ---- results (mcbench_report.c) ---- */

int mcbench_replay_report(const struct mcbench_replay *r);	/* prints all results; exit status */
int mcbench_replay_status(const struct mcbench_replay *r);	/* exit status */
void mcbench_replay_print_trace(const struct mcbench_replay *r);
json_t *mcbench_replay_json(const struct mcbench_replay *r);	/* NULL: out of memory */
double mcbench_replay_seconds(const struct mcbench_replay *r);
uint64_t mcbench_replay_failures(const struct mcbench_replay *r);
/* Share of the blocks in the whole trace that a pool of unlimited size would hit, in percent. */
double mcbench_replay_endless(const struct mcbench_replay *r);
double mcbench_percent(uint64_t part, uint64_t whole);

#endif
