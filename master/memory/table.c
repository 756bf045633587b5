/* SPDX-License-Identifier: Apache-2.0
 * table.c - resizing of hash tables in small steps. */
#include <config.h>

#include "master/memory/table.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "common/cleanup.h"

/* Buckets of the smaller size moved per step: a resize ends long before the next one can be due. */
#define STEP_BUCKETS 16
#define MIN_BITS 3
#define MAX_BITS (MCM_TABLE_LEVELS - 1)
#define HUGE (2u << 20)

/* ---- memory of buckets ---- */

static uint32_t *heads_map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (bytes >= HUGE)
		(void)madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

static size_t level_bytes(const struct mcm_table_mem *mem, unsigned bits)
{
	return (sizeof(uint32_t) * mem->tables) << bits;
}

void mcm_table_mem_init(struct mcm_table_mem *mem, unsigned tables)
{
	*mem = (struct mcm_table_mem){ .tables = tables };
	mc_mutex_init(&mem->lock);
}

void mcm_table_mem_done(struct mcm_table_mem *mem)
{
	for (unsigned bits = 0; bits < MCM_TABLE_LEVELS; bits++)
		if (mem->level[bits].base)
			munmap(mem->level[bits].base, level_bytes(mem, bits));
	mc_mutex_destroy(&mem->lock);
}

uint64_t mcm_table_mem_bytes(struct mcm_table_mem *mem)
{
	uint64_t bytes = 0;

	MC_LOCKED(&mem->lock);
	for (unsigned bits = 0; bits < MCM_TABLE_LEVELS; bits++)
		bytes += mem->level[bits].users ? level_bytes(mem, bits) : 0;
	return bytes;
}

static uint32_t *level_get(struct mcm_table_mem *mem, unsigned nth, unsigned bits)
{
	MC_LOCKED(&mem->lock);
	if (!mem->level[bits].base)
		__atomic_store_n(&mem->level[bits].base, heads_map(level_bytes(mem, bits)), __ATOMIC_RELAXED);
	if (!mem->level[bits].base)
		return NULL;
	mem->level[bits].users++;
	return mem->level[bits].base + ((size_t)nth << bits);
}

static void level_put(struct mcm_table_mem *mem, unsigned bits)
{
	MC_LOCKED(&mem->lock);
	/* The addresses stay mapped for threads that prefetch without the lock (mcm_table_peek()). */
	if (--mem->level[bits].users == 0)
		(void)madvise(mem->level[bits].base, level_bytes(mem, bits), MADV_DONTNEED);
}

/* All zero; NULL: no memory. */
static uint32_t *heads_get(const struct mcm_table *t, unsigned bits)
{
	size_t bytes = sizeof(uint32_t) << bits;

	if (t->mem)
		return level_get(t->mem, t->nth, bits);
	return bytes >= HUGE ? heads_map(bytes) : calloc(1, bytes);
}

/* @heads with the number of bits that it was allocated with. */
static void heads_put(const struct mcm_table *t, uint32_t *heads, unsigned bits)
{
	size_t bytes = sizeof(uint32_t) << bits;

	if (!heads)
		return;
	if (t->mem)
		level_put(t->mem, bits);
	else if (bytes >= HUGE)
		munmap(heads, bytes);
	else
		free(heads);
}

void mcm_table_init_in(struct mcm_table *t, struct mcm_table_mem *mem, unsigned nth)
{
	*t = (struct mcm_table){ .mem = mem, .nth = nth };
}

void mcm_table_done(struct mcm_table *t)
{
	heads_put(t, t->bucket, t->bits);
	heads_put(t, t->old, t->old_bits);
	*t = (struct mcm_table){ 0 };
}

/* ---- resizing ---- */

static void resize_begin(struct mcm_table *t, unsigned bits)
{
	uint32_t *heads = NULL;

	if (bits) {
		heads = heads_get(t, bits);
		if (!heads)
			return;	/* until memory is available, chains get longer */
	}
	t->old = t->bucket;
	t->old_bits = t->bits;
	__atomic_store_n(&t->bucket, heads, __ATOMIC_RELAXED);
	__atomic_store_n(&t->bits, (uint8_t)bits, __ATOMIC_RELAXED);
	t->moved = 0;
	t->resizing = true;
}

static void chain_relink(struct mcm_table *t, const struct mcm_table_type *type,
			 const struct mcm_slab *slab, uint32_t id)
{
	while (id) {
		char *e = mcm_slab_at(slab, id);
		uint32_t *link = (uint32_t *)(e + type->link), next = *link;
		uint32_t pos = mcm_table_pos(type, *(uint32_t *)(e + type->hash));
		uint32_t *head = mcm_table_head(t, pos);

		mcm_table_set(link, *head);
		mcm_table_set(head, id);
		id = next;
	}
}

/* Prefetch the elements of the next chains, all at the same time: their first elements, or
 * (@behind) the others. */
static void chains_prefetch(struct mcm_table *t, const struct mcm_table_type *type,
			    const struct mcm_slab *slab, bool behind)
{
	unsigned n, i, depth, deepest = behind ? type->load / 4u + 2 : 0;
	uint32_t id[STEP_BUCKETS];
	uint64_t pos = t->moved;

	for (n = 0; n < STEP_BUCKETS && pos < MCM_TABLE_END; n++) {
		id[n] = *mcm_table_head(t, (uint32_t)pos);
		pos = mcm_table_chain_end(t, (uint32_t)pos);
	}
	for (depth = behind; depth <= deepest; depth++) {
		for (i = 0; i < n; i++) {
			if (depth && id[i])
				id[i] = *mcm_table_link(type, slab, id[i]);
			if (id[i])
				__builtin_prefetch(mcm_table_link(type, slab, id[i]), 1);
		}
	}
}

static void resize_step(struct mcm_table *t, const struct mcm_table_type *type, const struct mcm_slab *slab)
{
	unsigned coarse = t->old_bits < t->bits ? t->old_bits : t->bits;
	uint64_t span = MCM_TABLE_END >> coarse, pos, end;
	unsigned n;

	chains_prefetch(t, type, slab, true);
	for (n = 0; n < STEP_BUCKETS && t->moved < MCM_TABLE_END; n++) {
		uint32_t chain = 0;

		/* Collect the chains of one coarse bucket first: @one may be both source and target. */
		pos = t->moved;
		end = pos + span;
		while (pos < end) {
			uint32_t *head = mcm_table_head(t, (uint32_t)pos), id = *head, *last;

			pos = mcm_table_chain_end(t, (uint32_t)pos);
			mcm_table_set(head, 0);
			if (!id)
				continue;
			for (last = mcm_table_link(type, slab, id); *last;)
				last = mcm_table_link(type, slab, *last);
			mcm_table_set(last, chain);
			chain = id;
		}
		t->moved = end;
		chain_relink(t, type, slab, chain);
	}
	if (t->moved == MCM_TABLE_END) {
		heads_put(t, t->old, t->old_bits);
		t->old = NULL;
		t->resizing = false;
		return;
	}
	/* They will be loaded before the next step. */
	chains_prefetch(t, type, slab, false);
}

void mcm_table_step(struct mcm_table *t, const struct mcm_table_type *type, const struct mcm_slab *slab)
{
	uint64_t load = (uint64_t)type->load << t->bits;

	if (t->resizing) {
		resize_step(t, type, slab);
		return;
	}
	if (4ull * t->count > load && t->bits < MAX_BITS - type->shift)
		resize_begin(t, t->bits ? t->bits + 1u : MIN_BITS);
	else if (t->bits > MIN_BITS && t->bits > type->keep && 32ull * t->count < load)
		resize_begin(t, t->bits - 1u);
	else if (t->bits == MIN_BITS && !t->count && !type->keep)
		resize_begin(t, 0);
}
