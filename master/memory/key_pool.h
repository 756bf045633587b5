/* SPDX-License-Identifier: Apache-2.0
 * key_pool.h - blocks of 2 KiB for arenas of keys: one, two or four adjacent ones.
 *
 * A buddy allocator: the slab provides groups of four blocks, and a freed block is merged with its free
 * buddies of the group.  So memory that was split for short keys serves long ones later, in any arena. */
#ifndef MCM_KEY_POOL_H
#define MCM_KEY_POOL_H

#include <stdint.h>

#include "common/sys/lock.h"

#include "master/memory/slab.h"

#define MCM_KEYS_UNIT 8u
#define MCM_KEYS_SHIFT 19		/* 4 MiB */
#define MCM_BLOCK_SHIFT 8u
#define MCM_BLOCK (1u << MCM_BLOCK_SHIFT)	/* units */
#define MCM_BLOCK_ORDERS 3u

/* Its address must not change after initialisation. */
struct mcm_key_pool {
	struct mcm_slab units;
	/* uint16_t per block: of an allocated block, the number of its units in use; of a free one,
	 * a flag and its order.  Atomic, because freeing a block reads its buddy's entry, which
	 * another arena may be changing. */
	struct mcm_slab info;
	struct mc_mutex lock;		/* guards the rest; a leaf */
	uint32_t free[MCM_BLOCK_ORDERS];	/* first free block of each order, 0: none */
	uint64_t blocks, pooled;		/* blocks ever made; free ones among them */
};

void mcm_key_pool_init(struct mcm_key_pool *p);
void mcm_key_pool_done(struct mcm_key_pool *p);

/* Allocate 2^@order adjacent blocks without units in use; *@ret is the first.  -ENOMEM, -MC_ELIMIT. */
int mcm_key_pool_take(struct mcm_key_pool *p, unsigned order, uint32_t *ret);
/* Free one block, none of whose units is in use. */
void mcm_key_pool_free(struct mcm_key_pool *p, uint32_t block);

/* Number of units in use of an allocated block; the arena that owns the block changes it. */
static inline uint16_t *mcm_key_pool_used(const struct mcm_key_pool *p, uint32_t block)
{
	return mcm_slab_at(&p->info, block);
}

#endif
