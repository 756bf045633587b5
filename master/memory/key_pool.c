/* SPDX-License-Identifier: Apache-2.0
 * key_pool.c - buddy allocator of blocks. */
#include <config.h>

#include "master/memory/key_pool.h"

#include "common/cleanup.h"
#include "common/err.h"

#define FOUR (1u << (MCM_BLOCK_ORDERS - 1))
#define INFO_SHIFT 14			/* 32 KiB, about 32 MiB of keys */
#define POOLED 0x8000u			/* info of a free block; the low bits are its order */
/* keys.c uses the top bit of a unit's number in its free runs. */
#define UNITS_MAX (1ull << 31)

/* In the first unit of a free block. */
struct link {
	uint32_t next, prev;		/* blocks, 0: none */
};

void mcm_key_pool_init(struct mcm_key_pool *p)
{
	*p = (struct mcm_key_pool){ 0 };
	mcm_slab_init(&p->units, MCM_KEYS_UNIT, MCM_KEYS_SHIFT);
	mcm_slab_init(&p->info, sizeof(uint16_t), INFO_SHIFT);
	mc_mutex_init(&p->lock);
}

void mcm_key_pool_done(struct mcm_key_pool *p)
{
	mc_mutex_destroy(&p->lock);
	mcm_slab_done(&p->info);
	mcm_slab_done(&p->units);
}

static struct link *block_link(const struct mcm_key_pool *p, uint32_t block)
{
	return mcm_slab_get(&p->units, block << MCM_BLOCK_SHIFT, MCM_KEYS_UNIT, MCM_KEYS_SHIFT);
}

static void block_set_info(const struct mcm_key_pool *p, uint32_t block, unsigned v)
{
	__atomic_store_n(mcm_key_pool_used(p, block), (uint16_t)v, __ATOMIC_RELAXED);
}

static unsigned block_info(const struct mcm_key_pool *p, uint32_t block)
{
	return __atomic_load_n(mcm_key_pool_used(p, block), __ATOMIC_RELAXED);
}

static void block_push(struct mcm_key_pool *p, uint32_t block, unsigned order)
{
	uint32_t first = p->free[order];

	*block_link(p, block) = (struct link){ .next = first };
	if (first)
		block_link(p, first)->prev = block;
	p->free[order] = block;
	block_set_info(p, block, POOLED | order);
}

static void block_unlink(struct mcm_key_pool *p, uint32_t block, unsigned order)
{
	struct link l = *block_link(p, block);

	if (l.prev)
		block_link(p, l.prev)->next = l.next;
	else
		p->free[order] = l.next;
	if (l.next)
		block_link(p, l.next)->prev = l.prev;
	block_set_info(p, block, 0);
}

/* Add four blocks.  The very first four lack unit 0, whose number means "none". */
static int pool_grow(struct mcm_key_pool *p)
{
	uint32_t unit, units = (FOUR << MCM_BLOCK_SHIFT) - !p->blocks, block;
	int r;

	if (p->blocks << MCM_BLOCK_SHIFT >= UNITS_MAX)
		return mc_fail(-MC_ELIMIT, "limit of %llu bytes of keys reached", UNITS_MAX * MCM_KEYS_UNIT);
	r = mcm_slab_cover(&p->info, (uint32_t)p->blocks);
	if (r == 0)
		r = mcm_slab_take(&p->units, units, &unit);
	if (r < 0)
		return r;
	block = unit >> MCM_BLOCK_SHIFT;
	if (!p->blocks) {
		block_set_info(p, 0, 1);
		block_push(p, 1, 0);
		block_push(p, 2, 1);
	} else {
		block_push(p, block, MCM_BLOCK_ORDERS - 1);
	}
	p->pooled += FOUR - !p->blocks;
	p->blocks += FOUR;
	return 0;
}

int mcm_key_pool_take(struct mcm_key_pool *p, unsigned order, uint32_t *ret)
{
	unsigned have;
	uint32_t block;
	int r;

	MC_LOCKED(&p->lock);
	for (;;) {
		for (have = order; have < MCM_BLOCK_ORDERS && !p->free[have]; have++)
			;
		if (have < MCM_BLOCK_ORDERS)
			break;
		r = pool_grow(p);
		if (r < 0)
			return r;
	}
	block = p->free[have];
	block_unlink(p, block, have);
	while (have > order) {
		have--;
		block_push(p, block + (1u << have), have);
	}
	p->pooled -= 1u << order;
	*ret = block;
	return 0;
}

void mcm_key_pool_free(struct mcm_key_pool *p, uint32_t block)
{
	unsigned order = 0;

	MC_LOCKED(&p->lock);
	p->pooled++;
	block_set_info(p, block, 0);
	for (; order < MCM_BLOCK_ORDERS - 1; order++) {
		uint32_t buddy = block ^ 1u << order;

		if (block_info(p, buddy) != (POOLED | order))
			break;
		block_unlink(p, buddy, order);
		block &= ~(1u << order);
	}
	block_push(p, block, order);
}
