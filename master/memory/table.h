/* SPDX-License-Identifier: Apache-2.0
 * table.h - chained hash table of slab elements: one u32 link per element, one u32 per bucket.
 *
 * The hash's top bits select the bucket, so buckets in ascending order have the elements in the order
 * of their hashes, for any number of buckets.  A walk may therefore stop at any hash and continue
 * there later, after the table was resized: it meets each element that stays in the table exactly
 * once.  Each insert or remove does a small part of a resize.  No locks here; but links, bucket and
 * bits are written atomically, because threads that prefetch memory read them without the lock. */
#ifndef MCM_TABLE_H
#define MCM_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "master/memory/slab.h"

/* Layout of a table's elements. */
struct mcm_table_type {
	size_t link;		/* offset of the uint32_t link */
	size_t hash;		/* offset of the uint32_t hash */
	uint8_t shift;		/* number of top hash bits that are equal in one table */
	uint8_t load;		/* elements per four buckets at which it grows */
	/* Number of bits down to which it shrinks; for a table that fills and empties all the time.  0: it releases its
	 * memory when it is empty */
	uint8_t keep;
};

/* Memory for the buckets of tables that grow and shrink together: those of one size are adjacent
 * and fill large pages; a size that no table uses has no memory, but keeps its addresses. */
#define MCM_TABLE_LEVELS 29

struct mcm_table_mem {
	unsigned tables;		/* constant */
	/* guarded by lock, a leaf */
	struct mc_mutex lock;
	struct {
		uint32_t *base;		/* atomic; NULL: no table has had this size */
		unsigned users;
	} level[MCM_TABLE_LEVELS];
};

struct mcm_table {
	struct mcm_table_mem *mem;	/* constant; NULL: memory of its own */
	unsigned nth;			/* index among the tables of @mem */
	uint32_t *bucket;	/* 2^bits heads; NULL while bits is 0: the only chain is @one */
	uint32_t *old;		/* during a resize: 2^old_bits heads, else NULL */
	uint64_t moved;		/* positions below are in bucket[], the others in old[] */
	uint32_t count;
	uint32_t one;
	uint8_t bits, old_bits;
	bool resizing;
};

#define MCM_TABLE_END (1ull << 32)

void mcm_table_mem_init(struct mcm_table_mem *mem, unsigned tables);
void mcm_table_mem_done(struct mcm_table_mem *mem);	/* its tables are done */
uint64_t mcm_table_mem_bytes(struct mcm_table_mem *mem);	/* bytes of the table sizes in use */

/* For threads that prefetch without the lock, from a table with a struct mcm_table_mem: where the head of a chain
 * is or will be.  During a resize the head may still be 0.  NULL: not known. */
static inline const uint32_t *mcm_table_peek(const struct mcm_table *t, uint32_t pos)
{
	unsigned bits = __atomic_load_n(&t->bits, __ATOMIC_RELAXED);
	const uint32_t *base = __atomic_load_n(&t->mem->level[bits].base, __ATOMIC_RELAXED);

	if (!bits)
		return &t->one;
	return base ? base + ((size_t)t->nth << bits) + (pos >> (32 - bits)) : NULL;
}

/* A zeroed struct is an empty table with memory of its own. */
void mcm_table_init_in(struct mcm_table *t, struct mcm_table_mem *mem, unsigned nth);
void mcm_table_done(struct mcm_table *t);	/* frees the buckets, not the elements */

/* Begin a resize when one is due, or do a part of one; called by insert and remove. */
void mcm_table_step(struct mcm_table *t, const struct mcm_table_type *type, const struct mcm_slab *slab);

static inline uint32_t *mcm_table_link(const struct mcm_table_type *type,
				       const struct mcm_slab *slab, uint32_t id)
{
	return (uint32_t *)((char *)mcm_slab_at(slab, id) + type->link);
}

/* Position of an element in the order of a walk: 0 .. 2^32-1. */
static inline uint32_t mcm_table_pos(const struct mcm_table_type *type, uint32_t hash)
{
	return hash << type->shift;
}

static inline void mcm_table_set(uint32_t *link, uint32_t id)
{
	__atomic_store_n(link, id, __ATOMIC_RELAXED);
}

/* Head of the chain for @pos. */
static inline uint32_t *mcm_table_head(struct mcm_table *t, uint32_t pos)
{
	uint32_t *heads = t->bucket;
	unsigned bits = t->bits;

	if (__builtin_expect(t->resizing && pos >= t->moved, 0)) {
		heads = t->old;
		bits = t->old_bits;
	}
	return bits ? &heads[pos >> (32 - bits)] : &t->one;
}

/* End (exclusive) of the positions that share a chain with @pos. */
static inline uint64_t mcm_table_chain_end(const struct mcm_table *t, uint32_t pos)
{
	unsigned bits = t->resizing && pos >= t->moved ? t->old_bits : t->bits;

	return bits ? ((uint64_t)(pos >> (32 - bits)) + 1) << (32 - bits) : MCM_TABLE_END;
}

/* Insert element @id, whose hash is set. */
static inline void mcm_table_insert(struct mcm_table *t, const struct mcm_table_type *type,
				    const struct mcm_slab *slab, uint32_t id)
{
	char *e = mcm_slab_at(slab, id);
	uint32_t *head = mcm_table_head(t, mcm_table_pos(type, *(uint32_t *)(e + type->hash)));

	mcm_table_set((uint32_t *)(e + type->link), *head);
	mcm_table_set(head, id);
	t->count++;
	mcm_table_step(t, type, slab);
}

/* Remove element @id, which must be in the table. */
static inline void mcm_table_remove(struct mcm_table *t, const struct mcm_table_type *type,
				    const struct mcm_slab *slab, uint32_t id)
{
	char *e = mcm_slab_at(slab, id);
	uint32_t *at = mcm_table_head(t, mcm_table_pos(type, *(uint32_t *)(e + type->hash)));

	while (*at != id)
		at = mcm_table_link(type, slab, *at);
	mcm_table_set(at, *(uint32_t *)(e + type->link));
	t->count--;
	mcm_table_step(t, type, slab);
}

#endif
