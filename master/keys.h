/* SPDX-License-Identifier: Apache-2.0
 * keys.h - bytes of keys, packed: steps of 8 bytes, no header, a 32-bit reference.  A stored string
 * never moves.  One arena per lock: no locking here; reading a string needs none.
 *
 * Arenas may take their memory, a few KiB at a time, from one slab: together they fill pages that are
 * too large for each of them. */
#ifndef MCM_KEYS_H
#define MCM_KEYS_H

#include <stdint.h>

#include "master/slab.h"
#include "proto/msg.h"

#define MCM_KEYS_UNIT 8u
#define MCM_KEYS_SHIFT 19		/* 4 MiB */
#define MCM_KEYS_MAX (MCP_KEY_MAX + MCM_KEYS_UNIT)	/* bytes */
#define MCM_KEYS_CLASSES (MCM_KEYS_MAX / MCM_KEYS_UNIT)

struct mcm_keys {
	struct mcm_slab *slab;				/* of units; &own or a common one */
	uint32_t fresh, fresh_end;			/* units taken from it and never used */
	uint64_t some[MCM_KEYS_CLASSES / 64 + 1];	/* which of free[] are not empty */
	uint32_t free[MCM_KEYS_CLASSES + 1];		/* by units; a free run's first word is the next */
	struct mcm_slab own;
};

/* A slab for mcm_keys_init_in(), to be ended by mcm_slab_done(). */
void mcm_keys_slab_init(struct mcm_slab *s);

/* An arena with a slab of its own; it must not be moved. */
void mcm_keys_init(struct mcm_keys *k);
/* An arena in a slab that others use too and that outlives it. */
void mcm_keys_init_in(struct mcm_keys *k, struct mcm_slab *slab);
void mcm_keys_done(struct mcm_keys *k);

/* Store @len bytes (1..MCM_KEYS_MAX).  -ENOMEM. */
int mcm_keys_add(struct mcm_keys *k, const void *p, uint32_t len, uint32_t *ret_ref);
void mcm_keys_del(struct mcm_keys *k, uint32_t ref, uint32_t len);

static inline char *mcm_keys_of(const struct mcm_keys *k, uint32_t ref)
{
	return mcm_slab_get(k->slab, ref, MCM_KEYS_UNIT, MCM_KEYS_SHIFT);
}

static inline const char *mcm_keys_at(const struct mcm_keys *k, uint32_t ref)
{
	return mcm_keys_of(k, ref);
}

/* Load what the next string of @len bytes will most likely be written to. */
static inline void mcm_keys_warm(const struct mcm_keys *k, uint32_t len)
{
	uint32_t units = (len + MCM_KEYS_UNIT - 1) / MCM_KEYS_UNIT, ref = k->fresh;
	const char *p;

	if (units <= MCM_KEYS_CLASSES && k->free[units])
		ref = k->free[units];
	if (!len || (ref == k->fresh && k->fresh == k->fresh_end))
		return;
	p = mcm_keys_of(k, ref);
	__builtin_prefetch(p, 1);
	__builtin_prefetch(p + len - 1, 1);
}

#endif
