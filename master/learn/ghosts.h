/* SPDX-License-Identifier: Apache-2.0
 * ghosts.h - keys that the pool does not have: evicted ones, and those that a client asked for and may put now.
 *
 * A hash table of fixed size without a lock, four entries per bucket; a new entry replaces the oldest.  Threads that
 * write the same entry at once may mix two entries: that is one wrong guess of the eviction policy. */
#ifndef MCM_GHOSTS_H
#define MCM_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

#define MCM_GHOSTS_BITS 16u	/* log2 of the buckets */
#define MCM_GHOSTS_WAYS 4u
#define MCM_GHOSTS_BYTES (((size_t)MCM_GHOSTS_WAYS * 16) << MCM_GHOSTS_BITS)	/* 4 MiB */

struct mcm_ghost {
	uint32_t last;		/* last use, on the clock of learn.h */
	uint32_t before;	/* hash of the key before it, 0: none or unknown */
	uint16_t traits;	/* learn.h */
};

struct mcm_ghosts {
	uint64_t *entry;	/* two words each; atomic */
};

/* -ENOMEM */
int mcm_ghosts_init(struct mcm_ghosts *g);
void mcm_ghosts_done(struct mcm_ghosts *g);
bool mcm_ghosts_find(const struct mcm_ghosts *g, uint32_t hash, struct mcm_ghost *ret);
/* The same, and the entry is free afterwards. */
bool mcm_ghosts_take(struct mcm_ghosts *g, uint32_t hash, struct mcm_ghost *ret);
void mcm_ghosts_add(struct mcm_ghosts *g, uint32_t hash, const struct mcm_ghost *e, uint32_t now);
void mcm_ghosts_prefetch(const struct mcm_ghosts *g, uint32_t hash);

#endif
