/* SPDX-License-Identifier: Apache-2.0
 * scratch.h - memory of one operation: taken from a pool, allocated front to back, freed as a
 * whole.  It grows to the size that operations need and keeps it (within bounds), so that a put
 * or get of a known size calls no allocator. */
#ifndef MCS_SCRATCH_H
#define MCS_SCRATCH_H

#include <stddef.h>

#include "common/sys/lock.h"

struct mcs_scratch;

struct mcs_scratch_pool {
	struct mc_mutex lock;
	struct mcs_scratch *free;	/* with the lock held */
	unsigned n_free;
};

void mcs_scratch_pool_init(struct mcs_scratch_pool *p);
void mcs_scratch_pool_done(struct mcs_scratch_pool *p);

/* NULL without memory. */
struct mcs_scratch *mcs_scratch_get(struct mcs_scratch_pool *p);
void mcs_scratch_put(struct mcs_scratch_pool *p, struct mcs_scratch *s);	/* NULL is fine */

/* Zeroed, aligned to 64 bytes, valid until mcs_scratch_put(); NULL without memory. */
void *mcs_scratch_alloc(struct mcs_scratch *s, size_t n, size_t size);
/* The same, not zeroed. */
void *mcs_scratch_raw(struct mcs_scratch *s, size_t n, size_t size);

#endif
