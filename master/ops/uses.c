/* SPDX-License-Identifier: Apache-2.0
 * uses.c - uses of keys, for learning. */
#include <config.h>

#include "master/ops/uses.h"

#include "master/mcm_i.h"

/* Bytes of a segment that the object occupies; another thread may be changing the object. */
static uint64_t object_bytes(const struct mcm *m, uint32_t slot)
{
	return mcm_alloc_round(mcm_object_reserve(mcm_object_size(mcm_object(&m->index, slot)))) << MCM_GRANULE_SHIFT;
}

/* Does it have bytes that the policy may evict? */
static bool object_counts(const struct mcm_object *o)
{
	return o->range && (o->flags & MCM_OBJ_KIND) == MCP_KIND_OBJECT;
}

/* The share of the memory that objects use when the pool is full, on average. */
static double share_used(const struct mcm *m)
{
	double high = m->conf.eviction_high_watermark_ratio, low = high - m->conf.eviction_ratio;

	return high >= 1 ? 1 : (high + (low > 0 ? low : 0)) / 2;
}

static void pool_size(struct mcm *m)
{
	uint64_t memory = mcm_load_relaxed(&m->segments.capacity), disk = mcm_load_relaxed(&m->segments.disk_capacity);
	double share = share_used(m);

	mcm_learn_pool(&m->learn, (uint64_t)((double)memory * share), (uint64_t)((double)disk * share));
}

void mcm_uses_asked(struct mcm *m, struct mcm_asked *keys, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (keys[i].slot && mcm_learn_samples(&m->learn, keys[i].hash))
			keys[i].size = object_bytes(m, keys[i].slot);
	pool_size(m);
	mcm_learn_asked(&m->learn, keys, n);
}

void mcm_uses_puts(struct mcm *m, struct mcm_asked *keys, unsigned n)
{
	pool_size(m);
	mcm_learn_puts(&m->learn, keys, n);
}

void mcm_uses_read(struct mcm *m, uint32_t slot)
{
	mcm_learn_read(&m->learn, &(struct mcm_asked){
		mcm_object(&m->index, slot)->hash, slot, object_bytes(m, slot),
	});
}

void mcm_uses_put(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	if (object_counts(o))
		mcm_learn_put(&m->learn, &(struct mcm_asked){ o->hash, slot, object_bytes(m, slot) });
}

void mcm_uses_left_memory(struct mcm *m, uint32_t slot)
{
	uint32_t before = mcm_learn_left(&m->learn, slot);
	const struct mcm_object *o = mcm_object(&m->index, before);

	if (before && mcm_load_relaxed(&o->range))
		mcm_leaves_add(&m->learn, mcm_load_relaxed(&o->segment), before);
}

void mcm_uses_gone(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	mcm_uses_left_memory(m, slot);
	mcm_learn_gone(&m->learn, slot, object_counts(o) ? o->hash : 0);
}
