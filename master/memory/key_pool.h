/* SPDX-License-Identifier: Apache-2.0
 * key_pool.h - blocks of 2 KiB that arenas of keys take and give back: one, two or four adjacent ones.
 *
 * Blocks come from a slab in fours.  One that comes back is joined with its neighbours of the four when these are
 * here, so that what was cut up for short keys serves long ones later, whoever's they are. */
#ifndef MCM_KEY_POOL_H
#define MCM_KEY_POOL_H

#include <pthread.h>
#include <stdint.h>

#include "master/memory/slab.h"

#define MCM_KEYS_UNIT 8u
#define MCM_KEYS_SHIFT 19		/* 4 MiB */
#define MCM_BLOCK_SHIFT 8u
#define MCM_BLOCK (1u << MCM_BLOCK_SHIFT)	/* units */
#define MCM_BLOCK_ORDERS 3u

/* Must stay where it was initialised. */
struct mcm_key_pool {
	struct mcm_slab units;
	/* By block, uint16_t.  Who has it: how many of its units are in use.  Here: that it is, and its order.  Atomic,
	 * because whoever asks about a neighbour may find somebody else's. */
	struct mcm_slab info;
	pthread_mutex_t lock;		/* guards the rest; a leaf */
	uint32_t free[MCM_BLOCK_ORDERS];	/* first blocks of those that are here, 0: none */
	uint64_t blocks, pooled;		/* ever made; of them here */
};

void mcm_key_pool_init(struct mcm_key_pool *p);
void mcm_key_pool_done(struct mcm_key_pool *p);

/* 2^@order adjacent blocks, none of their units in use; *@ret is the first.  -ENOMEM, -MC_ELIMIT. */
int mcm_key_pool_take(struct mcm_key_pool *p, unsigned order, uint32_t *ret);
/* One block, none of whose units is in use any more. */
void mcm_key_pool_free(struct mcm_key_pool *p, uint32_t block);

/* How many units of a block that was taken are in use: changed by who has it. */
static inline uint16_t *mcm_key_pool_used(const struct mcm_key_pool *p, uint32_t block)
{
	return mcm_slab_at(&p->info, block);
}

#endif
