/* SPDX-License-Identifier: Apache-2.0
 * keys.c - an arena of short strings.  A freed run serves strings of its own length first, and is
 * split for shorter ones before the arena grows. */
#include <config.h>

#include "master/keys.h"

#include <string.h>

#define SHARE 256u		/* units, 2 KiB, that an arena takes from a common slab */

static uint32_t units_of(uint32_t len)
{
	return (len + MCM_KEYS_UNIT - 1) / MCM_KEYS_UNIT;
}

void mcm_keys_slab_init(struct mcm_slab *s)
{
	mcm_slab_init(s, MCM_KEYS_UNIT, MCM_KEYS_SHIFT);
}

void mcm_keys_init_in(struct mcm_keys *k, struct mcm_slab *slab)
{
	memset(k, 0, sizeof(*k));
	k->slab = slab;
}

void mcm_keys_init(struct mcm_keys *k)
{
	mcm_keys_init_in(k, &k->own);
	mcm_keys_slab_init(&k->own);
}

void mcm_keys_done(struct mcm_keys *k)
{
	if (k->slab == &k->own)
		mcm_slab_done(&k->own);
}

static void run_push(struct mcm_keys *k, uint32_t ref, uint32_t units)
{
	memcpy(mcm_keys_of(k, ref), &k->free[units], sizeof(ref));
	k->free[units] = ref;
	k->some[units / 64] |= 1ull << units % 64;
}

static uint32_t run_pop(struct mcm_keys *k, uint32_t units)
{
	uint32_t ref = k->free[units];

	memcpy(&k->free[units], mcm_keys_of(k, ref), sizeof(ref));
	if (!k->free[units])
		k->some[units / 64] &= ~(1ull << units % 64);
	return ref;
}

/* The shortest free run of at least @units, 0 when there is none. */
static uint32_t run_find(const struct mcm_keys *k, uint32_t units)
{
	unsigned word = units / 64;
	uint64_t bits = k->some[word] & ~0ull << units % 64;

	while (!bits) {
		if (++word > MCM_KEYS_CLASSES / 64)
			return 0;
		bits = k->some[word];
	}
	return word * 64 + (unsigned)__builtin_ctzll(bits);
}

/* Never used units.  What is left of the last share of a common slab serves shorter strings. */
static int units_take(struct mcm_keys *k, uint32_t units, uint32_t *ret)
{
	uint32_t share = k->slab == &k->own || units > SHARE ? units : SHARE;
	int r;

	if (k->fresh_end - k->fresh < units) {
		r = mcm_slab_take(k->slab, share, ret);
		if (r < 0 || share == units)
			return r;
		if (k->fresh != k->fresh_end)
			run_push(k, k->fresh, k->fresh_end - k->fresh);
		k->fresh = *ret;
		k->fresh_end = *ret + share;
	}
	*ret = k->fresh;
	k->fresh += units;
	return 0;
}

int mcm_keys_add(struct mcm_keys *k, const void *p, uint32_t len, uint32_t *ret_ref)
{
	uint32_t units = units_of(len), found = run_find(k, units), ref;
	int r;

	if (found) {
		ref = run_pop(k, found);
		if (found > units)
			run_push(k, ref + units, found - units);
	} else {
		r = units_take(k, units, &ref);
		if (r < 0)
			return r;
	}
	memcpy(mcm_keys_of(k, ref), p, len);
	*ret_ref = ref;
	return 0;
}

void mcm_keys_del(struct mcm_keys *k, uint32_t ref, uint32_t len)
{
	run_push(k, ref, units_of(len));
}
