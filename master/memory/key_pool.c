/* SPDX-License-Identifier: Apache-2.0
 * key_pool.c - see the header. */
#include <config.h>

#include "master/memory/key_pool.h"

#include "common/cleanup.h"
#include "common/err.h"

#define FOUR (1u << (MCM_BLOCK_ORDERS - 1))
#define INFO_SHIFT 14			/* 32 KiB, about 32 MiB of keys */
#define HERE 0x8000u			/* and the order */
/* Runs keep a bit of a unit's number (keys.c). */
#define UNITS_MAX (1ull << 31)

/* In the first unit of those that are here. */
struct link {
	uint32_t next, prev;		/* blocks, 0: none */
};

void mcm_key_pool_init(struct mcm_key_pool *p)
{
	*p = (struct mcm_key_pool){ 0 };
	mcm_slab_init(&p->units, MCM_KEYS_UNIT, MCM_KEYS_SHIFT);
	mcm_slab_init(&p->info, sizeof(uint16_t), INFO_SHIFT);
	pthread_mutex_init(&p->lock, NULL);
}

void mcm_key_pool_done(struct mcm_key_pool *p)
{
	pthread_mutex_destroy(&p->lock);
	mcm_slab_done(&p->info);
	mcm_slab_done(&p->units);
}

static struct link *link_of(const struct mcm_key_pool *p, uint32_t block)
{
	return mcm_slab_get(&p->units, block << MCM_BLOCK_SHIFT, MCM_KEYS_UNIT, MCM_KEYS_SHIFT);
}

static void set_info(const struct mcm_key_pool *p, uint32_t block, unsigned v)
{
	__atomic_store_n(mcm_key_pool_used(p, block), (uint16_t)v, __ATOMIC_RELAXED);
}

static unsigned info_of(const struct mcm_key_pool *p, uint32_t block)
{
	return __atomic_load_n(mcm_key_pool_used(p, block), __ATOMIC_RELAXED);
}

static void push(struct mcm_key_pool *p, uint32_t block, unsigned order)
{
	uint32_t first = p->free[order];

	*link_of(p, block) = (struct link){ .next = first };
	if (first)
		link_of(p, first)->prev = block;
	p->free[order] = block;
	set_info(p, block, HERE | order);
}

static void pull(struct mcm_key_pool *p, uint32_t block, unsigned order)
{
	struct link l = *link_of(p, block);

	if (l.prev)
		link_of(p, l.prev)->next = l.next;
	else
		p->free[order] = l.next;
	if (l.next)
		link_of(p, l.next)->prev = l.prev;
	set_info(p, block, 0);
}

/* Four more.  Of the very first ones, one lacks the unit that is called 0. */
static int grow(struct mcm_key_pool *p)
{
	uint32_t unit, units = (FOUR << MCM_BLOCK_SHIFT) - !p->blocks, block;
	int r;

	if (p->blocks << MCM_BLOCK_SHIFT >= UNITS_MAX)
		return mc_fail(-MC_ELIMIT, "more than %llu bytes of keys", UNITS_MAX * MCM_KEYS_UNIT);
	r = mcm_slab_cover(&p->info, (uint32_t)p->blocks);
	if (r == 0)
		r = mcm_slab_take(&p->units, units, &unit);
	if (r < 0)
		return r;
	block = unit >> MCM_BLOCK_SHIFT;
	if (!p->blocks) {
		set_info(p, 0, 1);
		push(p, 1, 0);
		push(p, 2, 1);
	} else {
		push(p, block, MCM_BLOCK_ORDERS - 1);
	}
	p->here += FOUR - !p->blocks;
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
		r = grow(p);
		if (r < 0)
			return r;
	}
	block = p->free[have];
	pull(p, block, have);
	while (have > order) {
		have--;
		push(p, block + (1u << have), have);
	}
	p->here -= 1u << order;
	*ret = block;
	return 0;
}

void mcm_key_pool_give(struct mcm_key_pool *p, uint32_t block)
{
	unsigned order = 0;

	MC_LOCKED(&p->lock);
	p->here++;
	set_info(p, block, 0);
	for (; order < MCM_BLOCK_ORDERS - 1; order++) {
		uint32_t other = block ^ 1u << order;

		if (info_of(p, other) != (HERE | order))
			break;
		pull(p, other, order);
		block &= ~(1u << order);
	}
	push(p, block, order);
}
