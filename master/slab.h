/* SPDX-License-Identifier: Apache-2.0
 * slab.h - numbered elements of one size that never move.
 *
 * Numbers are 32 bits wide, half the price of a pointer in every link of the index.  Chunks double in
 * size and stay mapped until the end, so that a number can be turned into an address without a lock and
 * an element may be looked at by somebody who does not own it (the evictor).  Handing numbers out again
 * is the user's business: each user keeps its own free list inside the elements. */
#ifndef MCM_SLAB_H
#define MCM_SLAB_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define MCM_SLAB_CHUNKS 32

struct mcm_slab {
	/* constant after init */
	size_t elem;			/* bytes of an element */
	unsigned shift;			/* log2 of the elements of the first chunk */
	/* atomic: address that number 0 of the chunk's series would have, 0: not mapped yet */
	uintptr_t base[MCM_SLAB_CHUNKS];
	/* guarded by lock */
	uint64_t next;
	pthread_mutex_t lock;
};

/* @shift: log2 of the elements of the first chunk. */
void mcm_slab_init(struct mcm_slab *s, size_t elem, unsigned shift);
void mcm_slab_done(struct mcm_slab *s);

/* @count consecutive numbers, never given out before, their elements zero and adjacent in memory;
 * *ret_first is never 0.  @count is at most the first chunk's.  -ENOMEM, -MC_ELIMIT. */
int mcm_slab_take(struct mcm_slab *s, uint32_t count, uint32_t *ret_first);

/* Memory for element @id of a slab that numbers nothing itself: its elements belong to those of another
 * one.  Zero at first.  -ENOMEM. */
int mcm_slab_cover(struct mcm_slab *s, uint32_t id);

static inline void *mcm_slab_at(const struct mcm_slab *s, uint32_t id)
{
	uint64_t n = (uint64_t)id + (1ull << s->shift);
	unsigned chunk = 63 - (unsigned)__builtin_clzll(n) - s->shift;

	return (void *)(__atomic_load_n(&s->base[chunk], __ATOMIC_RELAXED) + n * s->elem);
}

#endif
