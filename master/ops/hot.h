/* SPDX-License-Identifier: Apache-2.0
 * hot.h - objects that are read so often that another copy is worth its space
 * (--dynamic_replication_mode).
 *
 * Each shard has a small table of counters.  A read increments the counter of its object; an object
 * without one claims a counter whose window is over, or decays the coldest one.  An object whose
 * count reaches the threshold within its window is a candidate; the tasks' thread checks candidates
 * and makes tasks for them (MCP_TASK_REPLICATE). */
#ifndef MCM_HOT_H
#define MCM_HOT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

#define MCM_HOT_ENTRIES 64u	/* per shard; 16384 in all, like upstream */
#define MCM_HOT_QUEUE 4096u	/* waiting candidates; further ones are dropped and found again */
#define MCM_HOT_REST_MS 30000u	/* pause of the counter after a copy was requested; upstream's value */

struct mcm;
struct mcm_shard;

/* Guarded by its shard's lock. */
struct mcm_hot_entry {
	uint32_t slot;			/* 0: the entry is free */
	uint32_t count;
	uint32_t since, rest;		/* ticks: begin of the window; end of the pause */
};

struct mcm_hot_candidate {
	uint32_t slot;
	uint64_t generation;
};

struct mcm_hot {
	/* constant; NULL: off */
	struct mcm_hot_entry *entries;	/* MCM_HOT_ENTRIES of each shard */
	bool enforce;			/* false: only count and log */
	uint32_t window;		/* ticks */
	uint32_t threshold;		/* reads in a window */
	unsigned copies_max;
	/* guarded by lock, a leaf */
	struct mc_mutex lock;
	struct mcm_hot_candidate *queue;
	unsigned head, count;
};

/* Initialise from the options.  -ENOMEM. */
int mcm_hot_init(struct mcm *m);
void mcm_hot_done(struct mcm_hot *h);
/* 0, or -EINVAL with a detail. */
struct mcm_conf;
int mcm_hot_check(const struct mcm_conf *conf);

static inline bool mcm_hot_on(const struct mcm_hot *h)
{
	return h->entries;
}

/* A read of a live object that has memory; its shard is locked. */
void mcm_hot_read(struct mcm *m, const struct mcm_shard *sh, uint32_t slot);
/* The tasks' thread: check the candidates. */
void mcm_hot_tick(struct mcm *m);

#endif
