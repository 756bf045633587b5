/* SPDX-License-Identifier: Apache-2.0
 * slot.h - pool of memory slots of 1 MiB for file data, as large as one FUSE request, in one huge-page range.
 * Slots are reused in LIFO order, so that writing a new file touches no fresh page.
 *
 * Staged bytes are charged against a limit; a slot that only holds a request is not charged. A new
 * slot contains bytes of its last user: clear them before a program can see them. */
#ifndef MCFS_SLOT_H
#define MCFS_SLOT_H

#include <stddef.h>
#include <stdint.h>

#define MCFS_SLOT ((size_t)1 << 20)

struct mcfs_pool;

/* A pool for @max_staged bytes of staging (rounded up to slots) and @uncharged slots that are not
 * charged. Reserves addresses only; memory is allocated on first use. */
int mcfs_pool_new(uint64_t max_staged, unsigned uncharged, struct mcfs_pool **ret);
void mcfs_pool_free(struct mcfs_pool *p);	/* NULL is fine; all slots must have been returned */

/* A slot, aligned to its size. NULL: none is free. */
void *mcfs_slot_get(struct mcfs_pool *p);
void mcfs_slot_put(struct mcfs_pool *p, void *slot);	/* NULL is fine */

/* Charge @n more staged slots. Waits up to @deadline while puts are running, because they will
 * release memory; -ENOSPC if no put is running. */
int mcfs_pool_charge(struct mcfs_pool *p, size_t n, uint64_t deadline);
void mcfs_pool_uncharge(struct mcfs_pool *p, size_t n);
/* A put from staged memory begins and ends. */
void mcfs_pool_put_begin(struct mcfs_pool *p);
void mcfs_pool_put_end(struct mcfs_pool *p);

uint64_t mcfs_pool_staged(struct mcfs_pool *p);		/* bytes charged */
uint64_t mcfs_pool_limit(const struct mcfs_pool *p);
/* A read-only slot of zeros, shared by all. */
const void *mcfs_pool_zeros(const struct mcfs_pool *p);

#endif
