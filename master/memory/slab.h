/* SPDX-License-Identifier: Apache-2.0
 * slab.h - numbered elements of one size that never move.
 *
 * Numbers have 32 bits, half of a pointer in every link of the index.  Chunks of elements stay
 * mapped until the end, so that a number is turned into an address without a lock, and a thread may
 * read an element that it does not own (the evictor does).  The slab does not reuse numbers: each
 * user keeps a free list inside the elements. */
#ifndef MCM_SLAB_H
#define MCM_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/sys/lock.h"

#define MCM_SLAB_FEW 4u

/* Its address must not change after initialisation. */
struct mcm_slab {
	/* constant after initialisation */
	size_t elem;			/* bytes per element */
	unsigned shift;			/* log2 of the elements per chunk */
	/* atomic, changed under lock: addresses of the chunks, NULL: not mapped yet.  A longer array has a
	 * pointer to the previous one in front of it: that one is kept for threads that still read it. */
	char **chunk;
	char *few[MCM_SLAB_FEW];
	uint32_t chunks;		/* capacity of the array */
	/* guarded by lock */
	uint64_t next;
	bool large;			/* the chunks use huge pages, but for the first 2 MiB */
	struct mc_mutex lock;
};

/* @shift: log2 of the elements per chunk; only used pages cost memory, so some MiB per chunk are fine. */
void mcm_slab_init(struct mcm_slab *s, size_t elem, unsigned shift);
void mcm_slab_done(struct mcm_slab *s);

/* @count consecutive numbers never returned before, whose elements are zero and adjacent in memory;
 * *ret_first is never 0.  @count: at most a chunk.  -ENOMEM, -MC_ELIMIT. */
int mcm_slab_take(struct mcm_slab *s, uint32_t count, uint32_t *ret_first);

/* Bytes of all elements that were ever returned. */
uint64_t mcm_slab_bytes(struct mcm_slab *s);

/* Memory for element @id of a slab whose elements are numbered by another slab.  Zero at first.
 * -ENOMEM. */
int mcm_slab_cover(struct mcm_slab *s, uint32_t id);

/* mcm_slab_at() with @elem and @shift as constants: a load and an addition.  @id was returned by
 * the slab, or is 0, whose element must not be accessed. */
static inline void *mcm_slab_get(const struct mcm_slab *s, uint32_t id, size_t elem, unsigned shift)
{
	char *const *chunk = __atomic_load_n(&s->chunk, __ATOMIC_ACQUIRE);

	/* Computed as a number, because the chunk of element 0 may not be mapped. */
	return (void *)((uintptr_t)__atomic_load_n(&chunk[id >> shift], __ATOMIC_RELAXED) +
			(id & ((1u << shift) - 1)) * elem);
}

static inline void *mcm_slab_at(const struct mcm_slab *s, uint32_t id)
{
	return mcm_slab_get(s, id, s->elem, s->shift);
}

#endif
