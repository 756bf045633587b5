/* SPDX-License-Identifier: Apache-2.0
 * restore.c - conversion between an object in the index and its record. */
#include <config.h>

#include "master/object/restore.h"

#include "common/cleanup.h"
#include "master/mcm_i.h"
#include "master/object/observe.h"

/* The segment's lock is needed because a range ends where its neighbour begins, and the neighbour may change. */
struct mcm_extent_record mcm_extent_record_of(const struct mcm *m, struct mcm_extent p)
{
	struct mcm_segment *s = mcm_segment(&m->segments, p.segment);
	const struct mcm_range *n = mcm_range(&s->alloc, p.range);

	MC_LOCKED(&s->lock);
	return (struct mcm_extent_record){ mcm_range_at(n), mcm_range_granules(&s->alloc, n), p.segment };
}

void mcm_object_describe(const struct mcm *m, uint32_t slot, struct mcm_object_record *ret)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent extent[MCM_REPLICA_MAX];
	uint64_t end;
	unsigned i;

	ret->key = mcm_shard_key(&m->index, slot);
	ret->key_len = o->key_len;
	ret->crc = o->crc;
	ret->generation = o->generation;
	ret->size = mcm_object_size(o);
	ret->mtime_ms = mcm_object_mtime(o);
	ret->flags = o->flags & (MCM_OBJ_KIND | MCM_OBJ_HARD | MCM_OBJ_SOFT);
	ret->reads = mcm_load_relaxed(&o->marks) & MCM_MARKS_OF_READS;
	if (o->ext && mcm_ext(&m->index, o->ext)->adopted)
		ret->reads |= MCM_RECORD_ADOPTED;
	ret->traits = 0;
	ret->age = 0;
	ret->soft_until_ms = 0;
	if (o->flags & MCM_OBJ_SOFT) {
		end = (uint64_t)mcm_load_relaxed(&mcm_ext(&m->index, o->ext)->soft_until) << MCM_TICK_SHIFT;
		ret->soft_until_ms = mc_wall_ns() / MC_NS_PER_MS + end - mcm_now_ms(m);
	}
	ret->data_type = mcm_object_type(o);
	ret->group = mcm_group_of(m, o);
	mcm_attrs_get(&m->index, slot, &ret->attrs);
	ret->copies = (uint8_t)mcm_object_extents(&m->index, o, extent);
	for (i = 0; i < ret->copies; i++)
		ret->extent[i] = mcm_extent_record_of(m, extent[i]);
}

/* Convert to ticks of this master's clock; 0 for a soft pin that has expired. */
static uint32_t soft_tick(const struct mcm *m, const struct mcm_object_record *r)
{
	uint64_t wall = mc_wall_ns() / MC_NS_PER_MS, left;

	if (r->soft_until_ms <= wall)
		return 0;
	left = r->soft_until_ms - wall;
	/* If the wall clock was set back, no pin lasts longer than the maximum. */
	if (left > m->conf.max_kv_soft_pin_ttl)
		left = m->conf.max_kv_soft_pin_ttl;
	return mcm_tick_after(mcm_now_ms(m) + left);
}

int mcm_object_restore(struct mcm *m, uint32_t slot, const struct mcm_object_record *r)
{
	struct mcm_object *o = mcm_object(&m->index, slot);
	uint32_t ext = 0, group = 0;
	int e;

	if (r->group.len) {
		e = mcm_group_get(m, r->group, &group);
		if (e < 0)
			return e;
	}
	e = r->attrs.set || r->attrs.xattrs.len ?
		mcm_attrs_set(&m->index, mcm_index_shard(&m->index, o->hash), slot, &r->attrs) : 0;
	if (e == 0 && (r->copies > 1 || r->flags & MCM_OBJ_SOFT || group || r->reads & MCM_RECORD_ADOPTED))
		e = mcm_ext_new(&m->index, &ext);
	if (e < 0) {
		mcm_group_unref(m, group);
		return e;
	}
	if (ext) {
		mcm_store_relaxed(&mcm_ext(&m->index, ext)->soft_until, soft_tick(m, r));
		mcm_ext(&m->index, ext)->adopted = r->reads & MCM_RECORD_ADOPTED;
		mcm_store_relaxed(&o->ext, ext);
	}
	mcm_object_set(o, r->size, r->crc, r->generation, r->mtime_ms, r->flags);
	mcm_object_set_type(o, r->data_type);
	e = observe_cover(m, slot);
	if (e < 0) {
		mcm_group_unref(m, group);
		return e;
	}
	/* So that eviction does not begin with the objects that are in use. */
	__atomic_fetch_or(&o->marks, r->reads & MCM_MARKS_OF_READS, __ATOMIC_RELAXED);
	observe_restored(m, slot, r->traits, r->age);
	if (group)
		mcm_group_join(m, group, slot);
	mcm_group_unref(m, group);
	return 0;
}
