/* SPDX-License-Identifier: Apache-2.0
 * slot.c - the pool of 1 MiB slots. */
#include <config.h>
#include "mcfs/write/slot.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/thread.h"

#define HUGE_PAGE ((size_t)2 << 20)
/* free slots that keep their memory; further ones return it to the system */
#define WARM_SLOTS 256

struct mcfs_pool {
	/* constant after new */
	char *map;		/* the whole mapping */
	size_t map_len;
	char *base;		/* first slot, aligned to a huge page */
	char *zeros;
	uint32_t nslots;
	size_t max_charged;

	struct mc_mutex lock;
	struct mc_cond changed;	/* the charge or the number of puts decreased */
	uint32_t fresh;		/* slots from this index on were never used */
	uint32_t *warm, nwarm;	/* free slots with memory; last in, first out */
	uint32_t *cold, ncold;	/* free slots without memory */
	size_t charged;
	unsigned putting;
};

static int init_locks(struct mcfs_pool *p)
{
	int r;

	r = mc_mutex_init(&p->lock);
	if (r)
		return -r;
	return mc_cond_init(&p->changed);
}

int mcfs_pool_new(uint64_t max_staged, unsigned uncharged, struct mcfs_pool **ret)
{
	uint64_t staged = (max_staged + MCFS_SLOT - 1) / MCFS_SLOT;
	uint64_t slots = staged + uncharged + 1;	/* one more for the zeros */
	struct mcfs_pool *p;
	int r;

	if (slots > UINT32_MAX)
		return mc_fail(-EINVAL, "staging_max is too large");
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->map = MAP_FAILED;
	r = init_locks(p);
	if (r < 0)
		goto fail;
	p->nslots = (uint32_t)slots;
	p->max_charged = staged;
	p->warm = malloc(sizeof(*p->warm) * slots);
	p->cold = malloc(sizeof(*p->cold) * slots);
	r = -ENOMEM;
	if (!p->warm || !p->cold)
		goto fail;
	p->map_len = slots * MCFS_SLOT + HUGE_PAGE;
	p->map = mmap(NULL, p->map_len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->map == MAP_FAILED) {
		r = mc_fail(-errno, "cannot reserve address space for staging_max");
		goto fail;
	}
	p->base = p->map + (-(uintptr_t)p->map & (HUGE_PAGE - 1));
	/* Fails on kernels without huge pages, which only costs speed. */
	(void)madvise(p->base, slots * MCFS_SLOT, MADV_HUGEPAGE);
	p->zeros = p->base + (slots - 1) * MCFS_SLOT;
	p->nslots--;
	*ret = p;
	return 0;
fail:
	mcfs_pool_free(p);
	return r;
}

void mcfs_pool_free(struct mcfs_pool *p)
{
	if (!p)
		return;
	if (p->map != MAP_FAILED)
		munmap(p->map, p->map_len);
	free(p->warm);
	free(p->cold);
	mc_cond_destroy(&p->changed);
	mc_mutex_destroy(&p->lock);
	free(p);
}

void *mcfs_slot_get(struct mcfs_pool *p)
{
	uint32_t i;

	MC_LOCKED(&p->lock);
	if (p->nwarm)
		i = p->warm[--p->nwarm];
	else if (p->ncold)
		i = p->cold[--p->ncold];
	else if (p->fresh < p->nslots)
		i = p->fresh++;
	else
		return NULL;
	return p->base + (size_t)i * MCFS_SLOT;
}

void mcfs_slot_put(struct mcfs_pool *p, void *slot)
{
	uint32_t i;

	if (!slot)
		return;
	i = (uint32_t)((size_t)((char *)slot - p->base) / MCFS_SLOT);
	mc_mutex_lock(&p->lock);
	if (p->nwarm < WARM_SLOTS) {
		p->warm[p->nwarm++] = i;
		mc_mutex_unlock(&p->lock);
		return;
	}
	mc_mutex_unlock(&p->lock);
	/* No other thread has the slot yet, so no other user's bytes are lost. */
	(void)madvise(slot, MCFS_SLOT, MADV_DONTNEED);
	mc_mutex_lock(&p->lock);
	p->cold[p->ncold++] = i;
	mc_mutex_unlock(&p->lock);
}

int mcfs_pool_charge(struct mcfs_pool *p, size_t n, uint64_t deadline)
{
	MC_LOCKED(&p->lock);
	while (p->charged + n > p->max_charged) {
		if (n > p->max_charged || !p->putting ||
		    mc_cond_wait_until(&p->changed, &p->lock, deadline) == -ETIMEDOUT)
			return mc_fail(-ENOSPC, "staging_max is reached");
	}
	p->charged += n;
	return 0;
}

void mcfs_pool_uncharge(struct mcfs_pool *p, size_t n)
{
	if (!n)
		return;
	MC_LOCKED(&p->lock);
	p->charged -= n;
	mc_cond_broadcast(&p->changed);
}

void mcfs_pool_put_begin(struct mcfs_pool *p)
{
	MC_LOCKED(&p->lock);
	p->putting++;
}

void mcfs_pool_put_end(struct mcfs_pool *p)
{
	MC_LOCKED(&p->lock);
	p->putting--;
	/* Also if no memory was freed: waiters must notice that no put will free any. */
	mc_cond_broadcast(&p->changed);
}

uint64_t mcfs_pool_staged(struct mcfs_pool *p)
{
	MC_LOCKED(&p->lock);
	return (uint64_t)p->charged * MCFS_SLOT;
}

uint64_t mcfs_pool_limit(const struct mcfs_pool *p)
{
	return (uint64_t)p->max_charged * MCFS_SLOT;
}

const void *mcfs_pool_zeros(const struct mcfs_pool *p)
{
	return p->zeros;
}
