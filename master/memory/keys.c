/* SPDX-License-Identifier: Apache-2.0
 * keys.c - arena of short strings.
 *
 * A freed run is reused for strings of its own length first, and is split for shorter ones before the
 * arena allocates another block.  Runs are not merged, but the units in use of each block are counted:
 * when the count is 0, the runs of the block are dropped and the block returns to the pool. */
#include <config.h>

#include "master/memory/keys.h"

#include <string.h>

#define ONE (1u << 31)		/* in a run's next: the run is one unit long and has no length field */

/* Header of a free run; a run of one unit has no room for @units. */
struct run {
	uint32_t next, prev, units;
};

static uint32_t units_of(uint32_t len)
{
	return (len + MCM_KEYS_UNIT - 1) / MCM_KEYS_UNIT;
}

void mcm_keys_init_in(struct mcm_keys *k, struct mcm_key_pool *pool)
{
	memset(k, 0, sizeof(*k));
	k->pool = pool;
}

void mcm_keys_init(struct mcm_keys *k)
{
	mcm_keys_init_in(k, &k->own);
	mcm_key_pool_init(&k->own);
}

void mcm_keys_done(struct mcm_keys *k)
{
	if (k->pool == &k->own)
		mcm_key_pool_done(&k->own);
}

/* ---- free runs, each within one block ---- */

static struct run *run_at(const struct mcm_keys *k, uint32_t ref)
{
	return (struct run *)(void *)mcm_keys_of(k, ref);
}

static void run_set_next(struct run *r, uint32_t next)
{
	r->next = (r->next & ONE) | next;
}

static void run_push(struct mcm_keys *k, uint32_t ref, uint32_t units)
{
	struct run *r = run_at(k, ref);
	uint32_t first = k->free[units];

	r->next = first | (units == 1 ? ONE : 0);
	r->prev = 0;
	if (units > 1)
		r->units = units;
	if (first)
		run_at(k, first)->prev = ref;
	k->free[units] = ref;
	k->nonempty[units / 64] |= 1ull << units % 64;
}

static void run_pull(struct mcm_keys *k, uint32_t ref, uint32_t units)
{
	struct run *r = run_at(k, ref);
	uint32_t next = r->next & ~ONE;

	if (next)
		run_at(k, next)->prev = r->prev;
	if (r->prev)
		run_set_next(run_at(k, r->prev), next);
	else
		k->free[units] = next;
	if (!k->free[units])
		k->nonempty[units / 64] &= ~(1ull << units % 64);
}

/* Length of the shortest non-empty list of runs with at least @units; 0: none. */
static uint32_t run_find(const struct mcm_keys *k, uint32_t units)
{
	unsigned word = units / 64;
	uint64_t bits = k->nonempty[word] & ~0ull << units % 64;

	while (!bits) {
		if (++word > MCM_BLOCK / 64)
			return 0;
		bits = k->nonempty[word];
	}
	return word * 64 + (unsigned)__builtin_ctzll(bits);
}

/* ---- blocks ---- */

static void block_count(struct mcm_keys *k, uint32_t ref, uint32_t more)
{
	uint16_t *used = mcm_key_pool_used(k->pool, ref >> MCM_BLOCK_SHIFT);

	__atomic_store_n(used, (uint16_t)(*used + more), __ATOMIC_RELAXED);
}

/* No unit of the block is in use: it consists of free runs and, if it is the current one, of units never used. */
static void block_reset(struct mcm_keys *k, uint32_t block)
{
	uint32_t ref = block << MCM_BLOCK_SHIFT, end = ref + MCM_BLOCK;
	bool current = k->fresh_end == end;

	for (uint32_t at = ref, units; at < (current ? k->fresh : end); at += units) {
		units = run_at(k, at)->next & ONE ? 1 : run_at(k, at)->units;
		run_pull(k, at, units);
	}
	if (current)
		k->fresh = ref;
	else
		mcm_key_pool_free(k->pool, block);
}

/* Free a part of a string that is within one block. */
static void part_del(struct mcm_keys *k, uint32_t ref, uint32_t units)
{
	uint32_t block = ref >> MCM_BLOCK_SHIFT;

	run_push(k, ref, units);
	block_count(k, ref, -units);
	if (!*mcm_key_pool_used(k->pool, block))
		block_reset(k, block);
}

/* A string longer than a block has blocks of its own; the rest of its last block is a free run. */
static int long_take(struct mcm_keys *k, uint32_t units, uint32_t *ret)
{
	unsigned order = units > 2 * MCM_BLOCK ? 2 : 1;
	uint32_t block, end, left;
	int r;

	r = mcm_key_pool_take(k->pool, order, &block);
	if (r < 0)
		return r;
	*ret = block << MCM_BLOCK_SHIFT;
	end = *ret + units;
	for (uint32_t ref = *ret; ref < end; ref += MCM_BLOCK)
		block_count(k, ref, end - ref < MCM_BLOCK ? end - ref : MCM_BLOCK);
	left = -end & (MCM_BLOCK - 1);
	if (left)
		run_push(k, end, left);
	for (uint32_t i = (units + MCM_BLOCK - 1) / MCM_BLOCK; i < 1u << order; i++)
		mcm_key_pool_free(k->pool, block + i);
	return 0;
}

/* Units never used before.  The rest of the previous block becomes a run for shorter strings. */
static int units_take(struct mcm_keys *k, uint32_t units, uint32_t *ret)
{
	uint32_t block;
	int r;

	if (k->fresh_end - k->fresh < units) {
		r = mcm_key_pool_take(k->pool, 0, &block);
		if (r < 0)
			return r;
		if (k->fresh != k->fresh_end)
			run_push(k, k->fresh, k->fresh_end - k->fresh);
		k->fresh = block << MCM_BLOCK_SHIFT;
		k->fresh_end = k->fresh + MCM_BLOCK;
	}
	*ret = k->fresh;
	k->fresh += units;
	return 0;
}

int mcm_keys_add(struct mcm_keys *k, const void *p, uint32_t len, uint32_t *ret_ref)
{
	uint32_t units = units_of(len), found = units > MCM_BLOCK ? 0 : run_find(k, units), ref;
	int r = 0;

	if (found) {
		ref = k->free[found];
		run_pull(k, ref, found);
		if (found > units)
			run_push(k, ref + units, found - units);
	} else if (units > MCM_BLOCK) {
		r = long_take(k, units, &ref);
	} else {
		r = units_take(k, units, &ref);
	}
	if (r < 0)
		return r;
	if (units <= MCM_BLOCK)
		block_count(k, ref, units);
	memcpy(mcm_keys_of(k, ref), p, len);
	*ret_ref = ref;
	return 0;
}

void mcm_keys_del(struct mcm_keys *k, uint32_t ref, uint32_t len)
{
	uint32_t end = ref + units_of(len), next;

	for (; ref < end; ref = next) {
		next = (ref | (MCM_BLOCK - 1)) + 1;
		if (next > end)
			next = end;
		part_del(k, ref, next - ref);
	}
}
