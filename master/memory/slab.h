/* SPDX-License-Identifier: Apache-2.0
 * slab.h - numbered elements of one size that never move.
 *
 * Numbers are 32 bits wide, half the price of a pointer in every link of the index.  Elements lie in
 * chunks of one size that stay mapped until the end, so that a number can be turned into an address
 * without a lock and an element may be looked at by somebody who does not own it (the evictor).  Handing
 * numbers out again is the user's business: each user keeps its own free list inside the elements. */
#ifndef MCM_SLAB_H
#define MCM_SLAB_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCM_SLAB_FEW 4u

/* Must stay where it was initialised. */
struct mcm_slab {
	/* constant after init */
	size_t elem;			/* bytes of an element */
	unsigned shift;			/* log2 of the elements of a chunk */
	/* atomic, changed under lock: the chunks' addresses, NULL: not mapped yet.  A longer array stands
	 * behind a pointer to the one before, which stays for those who are reading it. */
	char **chunk;
	char *few[MCM_SLAB_FEW];
	uint32_t chunks;		/* room in the array */
	/* guarded by lock */
	uint64_t next;
	bool large;			/* huge pages are asked for behind the first chunk's first */
	pthread_mutex_t lock;
};

/* @shift: log2 of the elements of a chunk, of which only what is used costs memory: some MiB are good. */
void mcm_slab_init(struct mcm_slab *s, size_t elem, unsigned shift);
void mcm_slab_done(struct mcm_slab *s);

/* @count consecutive numbers, never given out before, their elements zero and adjacent in memory;
 * *ret_first is never 0.  @count is at most a chunk's.  -ENOMEM, -MC_ELIMIT. */
int mcm_slab_take(struct mcm_slab *s, uint32_t count, uint32_t *ret_first);

/* Memory for element @id of a slab that numbers nothing itself: its elements belong to those of another
 * one.  Zero at first.  -ENOMEM. */
int mcm_slab_cover(struct mcm_slab *s, uint32_t id);

/* As mcm_slab_at(), for callers who know what they gave to mcm_slab_init(): then it is a load and an
 * addition.  @id was given out, or is 0, whose element nobody may touch. */
static inline void *mcm_slab_get(const struct mcm_slab *s, uint32_t id, size_t elem, unsigned shift)
{
	char *const *chunk = __atomic_load_n(&s->chunk, __ATOMIC_ACQUIRE);

	/* As a number: for 0 there may be no chunk yet. */
	return (void *)((uintptr_t)__atomic_load_n(&chunk[id >> shift], __ATOMIC_RELAXED) +
			(id & ((1u << shift) - 1)) * elem);
}

static inline void *mcm_slab_at(const struct mcm_slab *s, uint32_t id)
{
	return mcm_slab_get(s, id, s->elem, s->shift);
}

#endif
