/* SPDX-License-Identifier: Apache-2.0
 * slot.h - memory for bytes on their way in and out: slots of 1 MiB, as large as one FUSE request, out
 * of one huge-page range.  Slots are recycled hot, so that writing a new file touches no fresh page.
 *
 * Staged bytes are charged against a limit; a slot that only carries a request is not.  Contents of a
 * slot that was just taken are somebody's old bytes: whoever shows them to anybody clears them before. */
#ifndef MCFS_SLOT_H
#define MCFS_SLOT_H

#include <stddef.h>
#include <stdint.h>

#define MCFS_SLOT ((size_t)1 << 20)

struct mcfs_pool;

/* Room for @max_staged bytes of staging (rounded up to slots) and for @carriers slots that are not
 * charged.  Address space only: memory comes with use. */
int mcfs_pool_new(uint64_t max_staged, unsigned uncharged, struct mcfs_pool **ret);
void mcfs_pool_free(struct mcfs_pool *p);	/* NULL is fine; no slot may be out */

/* A slot, aligned to its size.  NULL when all are out. */
void *mcfs_slot_get(struct mcfs_pool *p);
void mcfs_slot_put(struct mcfs_pool *p, void *slot);	/* NULL is fine */

/* Account for @n more staged slots.  While puts are under way their memory is about to come back, so
 * this waits for it up to @deadline; -ENOSPC when nothing can come. */
int mcfs_pool_charge(struct mcfs_pool *p, size_t n, uint64_t deadline);
void mcfs_pool_uncharge(struct mcfs_pool *p, size_t n);
/* A put out of staged memory begins and ends. */
void mcfs_pool_put_begin(struct mcfs_pool *p);
void mcfs_pool_put_end(struct mcfs_pool *p);

uint64_t mcfs_pool_staged(struct mcfs_pool *p);		/* bytes charged */
uint64_t mcfs_pool_limit(const struct mcfs_pool *p);
/* A slot of zeros for all to read. */
const void *mcfs_pool_zeros(const struct mcfs_pool *p);

#endif
