/* SPDX-License-Identifier: Apache-2.0
 * table.c - resizing of hash tables in small steps. */
#include <config.h>

#include "master/table.h"

#include <stdlib.h>

/* Buckets of the smaller size moved per step: a resize has ended long before the next can be due. */
#define STEP_BUCKETS 8
#define MIN_BITS 3
#define MAX_BITS 28

void mcm_table_done(struct mcm_table *t)
{
	free(t->bucket);
	free(t->old);
	*t = (struct mcm_table){ 0 };
}

static void resize_begin(struct mcm_table *t, unsigned bits)
{
	uint32_t *heads = NULL;

	if (bits) {
		heads = calloc((size_t)1 << bits, sizeof(*heads));
		if (!heads)
			return;	/* longer chains until memory comes back */
	}
	t->old = t->bucket;
	t->old_bits = t->bits;
	__atomic_store_n(&t->bucket, heads, __ATOMIC_RELAXED);
	__atomic_store_n(&t->bits, (uint8_t)bits, __ATOMIC_RELAXED);
	t->moved = 0;
	t->resizing = true;
}

static void relink(struct mcm_table *t, const struct mcm_table_type *type,
		   const struct mcm_slab *slab, uint32_t id)
{
	while (id) {
		char *e = mcm_slab_at(slab, id);
		uint32_t *link = (uint32_t *)(e + type->link), next = *link;
		uint32_t pos = mcm_table_pos(type, *(uint32_t *)(e + type->hash));
		uint32_t *head = mcm_table_head(t, pos);

		mcm_table_set(link, *head);
		*head = id;
		id = next;
	}
}

/* Load the elements of the next chains, all at the same time. */
static void load_ahead(struct mcm_table *t, const struct mcm_table_type *type,
		       const struct mcm_slab *slab)
{
	uint32_t id[STEP_BUCKETS];
	uint64_t pos = t->moved;
	unsigned n, i, depth;

	for (n = 0; n < STEP_BUCKETS && pos < MCM_TABLE_END; n++) {
		id[n] = *mcm_table_head(t, (uint32_t)pos);
		pos = mcm_table_chain_end(t, (uint32_t)pos);
	}
	for (depth = 0; depth <= 1u << type->load; depth++) {
		for (i = 0; i < n; i++) {
			if (depth && id[i])
				id[i] = *mcm_table_link(type, slab, id[i]);
			if (id[i])
				__builtin_prefetch(mcm_table_link(type, slab, id[i]), 1);
		}
	}
}

static void resize_step(struct mcm_table *t, const struct mcm_table_type *type,
			const struct mcm_slab *slab)
{
	unsigned coarse = t->old_bits < t->bits ? t->old_bits : t->bits;
	uint64_t span = MCM_TABLE_END >> coarse, pos, end;
	unsigned n;

	load_ahead(t, type, slab);
	for (n = 0; n < STEP_BUCKETS && t->moved < MCM_TABLE_END; n++) {
		uint32_t chain = 0;

		/* Collect the chains of one coarse bucket first: @one may be both source and target. */
		pos = t->moved;
		end = pos + span;
		while (pos < end) {
			uint32_t *head = mcm_table_head(t, (uint32_t)pos), id = *head, *last;

			pos = mcm_table_chain_end(t, (uint32_t)pos);
			*head = 0;
			if (!id)
				continue;
			for (last = mcm_table_link(type, slab, id); *last;)
				last = mcm_table_link(type, slab, *last);
			mcm_table_set(last, chain);
			chain = id;
		}
		t->moved = end;
		relink(t, type, slab, chain);
	}
	if (t->moved == MCM_TABLE_END) {
		free(t->old);
		t->old = NULL;
		t->resizing = false;
	}
}

void mcm_table_step(struct mcm_table *t, const struct mcm_table_type *type,
		    const struct mcm_slab *slab)
{
	if (t->resizing) {
		resize_step(t, type, slab);
		return;
	}
	if (t->count >> type->load > 1u << t->bits && t->bits < MAX_BITS - type->shift)
		resize_begin(t, t->bits ? t->bits + 1u : MIN_BITS);
	else if (t->bits > MIN_BITS && t->count < (1u << type->load << t->bits) / 8)
		resize_begin(t, t->bits - 1u);
	else if (t->bits == MIN_BITS && !t->count)
		resize_begin(t, 0);
}
