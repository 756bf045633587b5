/* SPDX-License-Identifier: Apache-2.0
 * hot.h - which objects are read so often that another copy of them is worth its room
 * (--dynamic_replication_mode).
 *
 * Each shard has a small table of recent readers' favourites: a read counts in its object's entry, and one
 * that finds none takes the place of an entry whose window is over, or wears a stranger's count down.  An
 * object whose count reaches the threshold within its window is a candidate; the tasks' thread looks at
 * candidates and makes tasks of them (MCP_TASK_REPLICATE). */
#ifndef MCM_HOT_H
#define MCM_HOT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define MCM_HOT_ENTRIES 64u	/* of a shard: in all 16384, upstream's order */
#define MCM_HOT_QUEUE 4096u	/* candidates that wait; further ones come again */
#define MCM_HOT_REST_MS 30000u	/* after a copy was asked for, upstream's */

struct mcm;
struct mcm_shard;

/* Guarded by its shard's lock. */
struct mcm_hot_entry {
	uint32_t slot;			/* 0: none */
	uint32_t count;
	uint32_t since, rest;		/* ticks: begin of the window; none counts before */
};

struct mcm_hot_candidate {
	uint32_t slot;
	uint64_t generation;
};

struct mcm_hot {
	/* constant; NULL: off */
	struct mcm_hot_entry *entries;	/* MCM_HOT_ENTRIES of each shard */
	bool enforce;			/* else what would be done is only counted and logged */
	uint32_t window;		/* ticks */
	uint32_t threshold;		/* reads in a window */
	unsigned copies_max;
	/* guarded by lock, a leaf */
	pthread_mutex_t lock;
	struct mcm_hot_candidate *queue;
	unsigned head, count;
};

/* What the options ask for.  -ENOMEM. */
int mcm_hot_init(struct mcm *m);
void mcm_hot_done(struct mcm_hot *h);
/* 0, or -EINVAL with a detail. */
struct mcm_conf;
int mcm_hot_check(const struct mcm_conf *conf);

static inline bool mcm_hot_on(const struct mcm_hot *h)
{
	return h->entries;
}

/* Shard's lock held: a read of this live object, which has memory. */
void mcm_hot_read(struct mcm *m, const struct mcm_shard *sh, uint32_t slot);
/* The tasks' thread: look at what has become hot. */
void mcm_hot_tick(struct mcm *m);

#endif
