/* SPDX-License-Identifier: Apache-2.0
 * keys.h - arena of key bytes: units of 8 bytes, no header, a 32-bit reference.
 *
 * A stored string never moves.  The owner of an arena locks it; reading a string needs no lock.
 * Arenas may share a pool, from which they take a few KiB at a time: together they fill large
 * pages, and memory that one arena frees serves the others. */
#ifndef MCM_KEYS_H
#define MCM_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "master/memory/key_pool.h"
#include "proto/msg.h"

#define MCM_KEYS_MAX (MCP_KEY_MAX + MCM_KEYS_UNIT)	/* bytes; less than four blocks */

struct mcm_keys {
	struct mcm_key_pool *pool;		/* &own or a shared pool */
	uint32_t fresh, fresh_end;		/* units of the current block that were never used */
	uint64_t nonempty[MCM_BLOCK / 64 + 1];	/* bitmap of the non-empty lists in free[] */
	uint32_t free[MCM_BLOCK + 1];		/* first free run of each length in units (keys.c) */
	struct mcm_key_pool own;
};

/* An arena with a pool of its own; its address must not change. */
void mcm_keys_init(struct mcm_keys *k);
/* An arena in a shared pool that outlives it. */
void mcm_keys_init_in(struct mcm_keys *k, struct mcm_key_pool *pool);
void mcm_keys_done(struct mcm_keys *k);

/* Store @len bytes (1..MCM_KEYS_MAX).  -ENOMEM. */
int mcm_keys_add(struct mcm_keys *k, const void *p, uint32_t len, uint32_t *ret_ref);
void mcm_keys_del(struct mcm_keys *k, uint32_t ref, uint32_t len);

static inline char *mcm_keys_of(const struct mcm_keys *k, uint32_t ref)
{
	return mcm_slab_get(&k->pool->units, ref, MCM_KEYS_UNIT, MCM_KEYS_SHIFT);
}

static inline const char *mcm_keys_at(const struct mcm_keys *k, uint32_t ref)
{
	return mcm_keys_of(k, ref);
}

/* Prefetch the memory to which the next string of @len bytes will probably be written. */
static inline void mcm_keys_prefetch(const struct mcm_keys *k, uint32_t len)
{
	uint32_t units = (len + MCM_KEYS_UNIT - 1) / MCM_KEYS_UNIT, ref = k->fresh;
	const char *p;

	if (units <= MCM_BLOCK && k->free[units])
		ref = k->free[units];
	if (!len || (ref == k->fresh && k->fresh == k->fresh_end))
		return;
	p = mcm_keys_of(k, ref);
	__builtin_prefetch(p, 1);
	__builtin_prefetch(p + len - 1, 1);
}

#endif
