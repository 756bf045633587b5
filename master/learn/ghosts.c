/* SPDX-License-Identifier: Apache-2.0
 * ghosts.c - table of keys that the pool does not have.
 *
 * First word of an entry: hash, last use.  Second word: hash of the key before it, traits, a mark that the entry is
 * in use. */
#include <config.h>

#include "master/learn/ghosts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/err.h"

#define IN_USE 1u

int mcm_ghosts_init(struct mcm_ghosts *g)
{
	void *mem;

	if (posix_memalign(&mem, MCM_GHOSTS_BYTES, MCM_GHOSTS_BYTES))
		return mc_fail(-ENOMEM, "no memory for the history of evicted keys");
	/* Each access is a miss in the table of pages otherwise. */
	(void)madvise(mem, MCM_GHOSTS_BYTES, MADV_HUGEPAGE);
	g->entry = memset(mem, 0, MCM_GHOSTS_BYTES);
	return 0;
}

void mcm_ghosts_done(struct mcm_ghosts *g)
{
	free(g->entry);
}

static uint64_t *bucket_of(const struct mcm_ghosts *g, uint32_t hash)
{
	return g->entry + 2 * MCM_GHOSTS_WAYS * (uint64_t)(hash * 0x9e3779b1u >> (32 - MCM_GHOSTS_BITS));
}

static uint64_t ghost_load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void ghost_store(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

void mcm_ghosts_prefetch(const struct mcm_ghosts *g, uint32_t hash)
{
	__builtin_prefetch(bucket_of(g, hash));
}

static uint64_t *entry_of(const struct mcm_ghosts *g, uint32_t hash)
{
	uint64_t *b = bucket_of(g, hash);

	for (unsigned i = 0; i < MCM_GHOSTS_WAYS; i++, b += 2)
		if (ghost_load(b) >> 32 == hash && ghost_load(b + 1) & IN_USE)
			return b;
	return NULL;
}

static void entry_read(const uint64_t *e, struct mcm_ghost *ret)
{
	uint64_t second = ghost_load(e + 1);

	*ret = (struct mcm_ghost){ (uint32_t)ghost_load(e), (uint32_t)(second >> 32), (uint16_t)(second >> 16) };
}

bool mcm_ghosts_find(const struct mcm_ghosts *g, uint32_t hash, struct mcm_ghost *ret)
{
	const uint64_t *e = entry_of(g, hash);

	if (e)
		entry_read(e, ret);
	return e;
}

bool mcm_ghosts_take(struct mcm_ghosts *g, uint32_t hash, struct mcm_ghost *ret)
{
	uint64_t *e = entry_of(g, hash);

	if (!e)
		return false;
	entry_read(e, ret);
	ghost_store(e + 1, 0);
	return true;
}

/* The key's own entry, else a free one, else the oldest. */
static uint64_t *entry_for(const struct mcm_ghosts *g, uint32_t hash, uint32_t now)
{
	uint64_t *b = bucket_of(g, hash), *to = b, most = 0;

	for (unsigned i = 0; i < MCM_GHOSTS_WAYS; i++, b += 2) {
		uint64_t first = ghost_load(b), age = UINT64_MAX;

		if (ghost_load(b + 1) & IN_USE) {
			if (first >> 32 == hash)
				return b;
			age = now - (uint32_t)first;
		}
		if (age > most) {
			most = age;
			to = b;
		}
	}
	return to;
}

void mcm_ghosts_add(struct mcm_ghosts *g, uint32_t hash, const struct mcm_ghost *e, uint32_t now)
{
	uint64_t *to = entry_for(g, hash, now);

	ghost_store(to, (uint64_t)hash << 32 | e->last);
	ghost_store(to + 1, (uint64_t)e->before << 32 | (uint64_t)e->traits << 16 | IN_USE);
}
