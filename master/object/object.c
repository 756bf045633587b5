/* SPDX-License-Identifier: Apache-2.0
 * object.c - an object from its commit until its memory is free.
 *
 * The last reader and an evictor share no lock: the evictor marks the object as parked and then checks its
 * pins; the reader drops its pin and then checks the mark.  So one of the two puts the range back on its list.
 * Only readers clear the mark, because evictors of different segments share no lock either. */
#include <config.h>

#include "master/object/object.h"

#include "common/err.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "master/index/attrs.h"
#include "master/mcm_i.h"
#include "master/object/observe.h"
#include "proto/codec.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

MC_GAUGE(soft_pins, "master_soft_pin_key_count", "", "Objects put with a soft pin")
MC_GAUGE(zombies, "mooncake_master_zombies", "", "Removed or replaced objects that readers still hold")

static uint64_t range_bytes(const struct mcm_segment *s, uint32_t range)
{
	return mcm_range_granules(&s->alloc, mcm_range(&s->alloc, range)) << MCM_GRANULE_SHIFT;
}

static struct mcm_evict_view evict_view(const struct mcm *m, struct mcm_segment *s, uint32_t now)
{
	return (struct mcm_evict_view){ &m->index, &s->alloc, now, 0, 0, 0 };
}

static bool object_evictable(const struct mcm_object *o)
{
	return !(o->flags & MCM_OBJ_HARD) && (o->flags & MCM_OBJ_KIND) == MCP_KIND_OBJECT;
}

/* Note on which media the object has copies: it gets one in segment @s, or (NULL) has lost one. */
static void object_media(const struct mcm *m, struct mcm_object *o, const struct mcm_segment *s)
{
	uint8_t flags = o->flags;
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n, memory;

	if (s) {
		flags |= mcm_object_copy_flag(mcm_segment_is(s, MCP_TRAIT_PUTS));
	} else {
		n = mcm_object_extents(&m->index, o, p);
		memory = mcm_extents_in_memory(m, p, n);
		flags &= (uint8_t)~MCM_OBJ_COPIES;
		flags |= (memory ? mcm_object_copy_flag(true) : 0) | (memory < n ? mcm_object_copy_flag(false) : 0);
	}
	if (flags != o->flags)
		mcm_store_relaxed(&o->flags, flags);
}

/* @fresh: the object was just put, and this is the copy from which it is offloaded.  A copy on a lower rank is the one
 * from which it goes further down. */
static bool object_attach(struct mcm *m, uint32_t slot, struct mcm_extent p, uint32_t now, bool fresh)
{
	struct mcm_segment *s = mcm_segment(&m->segments, p.segment);
	struct mcm_evict_view v = evict_view(m, s, now);
	struct mcm_range *n;
	bool there;

	mc_mutex_lock(&s->lock);
	there = mcm_segment_state(s) != MCP_SEG_UNMOUNTING;
	if (there) {
		n = mcm_range(&s->alloc, p.range);
		n->owner = slot;
		if (object_evictable(mcm_object(&m->index, slot))) {
			n->flags |= MCM_RANGE_EVICTABLE;
			if (!(fresh || mcm_segment_is(s, MCP_TRAIT_COPIES)) ||
			    !mcm_offload_put_locked(m, s, slot, p.range))
				mcm_segment_list(&m->segments, s, &v, p.range, true);
			mcm_store_relaxed(&s->evictable, s->evictable + range_bytes(s, p.range));
		}
		mcm_store_relaxed(&s->objects, s->objects + 1);
	} else {
		mcm_segment_free_locked(s, s->evict, &m->index, p.range);
	}
	mc_mutex_unlock(&s->lock);
	if (there)
		object_media(m, mcm_object(&m->index, slot), s);
	return there;
}

bool mcm_object_attach(struct mcm *m, uint32_t slot, struct mcm_extent p)
{
	return object_attach(m, slot, p, mcm_now_tick(m), false);
}

/* The object releases a range: it is freed, or with @keep only removed from the eviction lists. */
static void object_detach(struct mcm *m, struct mcm_extent p, bool keep)
{
	struct mcm_segment *s = mcm_segment(&m->segments, p.segment);
	/* The time does not matter when a range leaves a list. */
	struct mcm_evict_view v = evict_view(m, s, 0);
	struct mcm_range *n;

	mc_mutex_lock(&s->lock);
	n = mcm_range(&s->alloc, p.range);
	if (n->flags & MCM_RANGE_EVICTABLE)
		mcm_store_relaxed(&s->evictable, s->evictable - range_bytes(s, p.range));
	if (n->flags & MCM_RANGE_LISTED)
		s->evict->remove(s->policy, &v, p.range);
	n->flags &= ~MCM_RANGE_EVICTABLE;
	mcm_store_relaxed(&s->objects, s->objects - 1);
	if (!keep)
		mcm_segment_free_locked(s, s->evict, &m->index, p.range);
	mc_mutex_unlock(&s->lock);
}

unsigned mcm_object_extents(const struct mcm_index *ix, const struct mcm_object *o,
			   struct mcm_extent ret[MCM_REPLICA_MAX])
{
	unsigned n = 0, i;

	if (!o->range)
		return 0;
	ret[n++] = (struct mcm_extent){ o->range, o->segment };
	if (o->ext) {
		const struct mcm_object_ext *e = mcm_ext(ix, o->ext);

		for (i = 0; i < e->copies; i++)
			ret[n++] = (struct mcm_extent){ e->range[i], e->segment[i] };
	}
	return n;
}

unsigned mcm_extents_in_memory(const struct mcm *m, const struct mcm_extent *p, unsigned n)
{
	unsigned copies = 0;

	for (unsigned i = 0; i < n; i++)
		copies += mcm_segment_is(mcm_segment(&m->segments, p[i].segment), MCP_TRAIT_PUTS);
	return copies;
}

bool mcm_object_below(const struct mcm *m, const struct mcm_object *o, const struct mcm_segment *s)
{
	uint8_t rank = mcm_load_relaxed(&s->rank);
	const struct mcm_object_ext *e;
	uint32_t ext;

	if (mcm_segment_is(s, MCP_TRAIT_PUTS))
		return mcm_object_is_below(o);
	if (mcm_load_relaxed(&mcm_segment(&m->segments, mcm_load_relaxed(&o->segment))->rank) > rank)
		return true;
	ext = mcm_load_relaxed(&o->ext);
	e = ext ? mcm_ext(&m->index, ext) : NULL;
	for (unsigned i = 0; e && i < mcm_load_relaxed(&e->copies) && i < MCM_REPLICA_MAX - 1; i++) {
		uint16_t number = mcm_load_relaxed(&e->segment[i]);

		if (mcm_load_relaxed(&mcm_segment(&m->segments, number)->rank) > rank)
			return true;
	}
	return false;
}

uint8_t mcm_object_media(const struct mcm *m, const struct mcm_object *o)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p);
	uint8_t media = 0;

	for (unsigned i = 0; i < n; i++)
		media |= (uint8_t)(1u << mcm_load_relaxed(&mcm_segment(&m->segments, p[i].segment)->medium));
	return media;
}

static bool extent_equal(struct mcm_extent a, struct mcm_extent b)
{
	return a.range == b.range && a.segment == b.segment;
}

/* Index of @extent in @p; @n when it is not there. */
static unsigned extent_index(const struct mcm_extent *p, unsigned n, struct mcm_extent extent)
{
	unsigned i;

	for (i = 0; i < n; i++)
		if (extent_equal(p[i], extent))
			break;
	return i;
}

bool mcm_object_has(const struct mcm_index *ix, const struct mcm_object *o, struct mcm_extent extent)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(ix, o, p);

	return extent_index(p, n, extent) < n;
}

/* A name (index/links.h) can be read while the shared object exists. */
static __attribute__((noinline)) bool object_has_bytes(const struct mcm *m, const struct mcm_object *o)
{
	const struct mcm_index *ix = &m->index;
	struct mcm_shard *sh = (struct mcm_shard *)&ix->shard[mcm_object_shard(o)];
	struct mcm_link_id id;
	uint32_t slot;

	if ((o->flags & MCM_OBJ_KIND) != MCP_KIND_SPECIAL)
		return true;
	slot = mcm_shard_find(ix, sh, o->hash, mcm_keys_at(&sh->keys, o->key), o->key_len);
	return !slot || !mcm_attrs_is_name(ix, slot, &id) || mcm_links_shared((struct mcm_links *)&ix->links, id);
}

bool mcm_object_readable(const struct mcm *m, const struct mcm_object *o)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n, i;

	if (!o->range)
		return object_has_bytes(m, o);
	if (mcm_segment_readable(mcm_segment(&m->segments, o->segment)))
		return true;
	n = mcm_object_extents(&m->index, o, p);
	for (i = 0; i < n; i++)
		if (mcm_confirm_state(mcm_segment(&m->segments, p[i].segment), o, p[i].range) == MCP_SEG_OK)
			return true;
	return false;
}

int mcm_object_missing(const struct mcm *m, const struct mcm_object *o)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p), i;

	for (i = 0; i < n; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, p[i].segment);

		/* The owner may have returned since the caller looked. */
		if (__atomic_load_n(&s->awaited, __ATOMIC_ACQUIRE) ||
		    mcm_confirm_state(s, o, p[i].range) == MCP_SEG_OK)
			return mc_fail(-MC_ENOTREADY, "the master restarted, and the owner of the object has not "
				       "returned yet, or not compared it with its memory; try again");
	}
	return -MC_ENOOBJECT;
}

static void object_free(struct mcm *m, struct mcm_shard *sh, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&m->index, slot);
	uint32_t ext = o->ext;

	if (o->flags & MCM_OBJ_SOFT)
		mc_metric_add(&soft_pins, -1);
	mcm_shard_free(&m->index, sh, slot);
	if (ext)
		mcm_ext_free(&m->index, ext);
}

/* These ranges are free. */
static void object_freed(struct mcm *m, uint32_t slot, const struct mcm_extent *p, unsigned n)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	unsigned copies = mcm_extents_in_memory(m, p, n);

	observe_freed(m, mcp_bytes(mcm_shard_key(&m->index, slot), o->key_len), copies * mcm_object_size(o));
}

/* The object is in no table and directory: free its memory now, or let its last reader do that. */
static void object_retire(struct mcm *m, struct mcm_shard *sh, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p), i;
	bool held = o->pins != 0;

	observe_exit(m, slot);
	observe_leave(m, slot);
	for (i = 0; i < n; i++)
		object_detach(m, p[i], held);
	if (held) {
		/* It is no shared object any more, whose names can be read. */
		mcm_attrs_drop(&m->index, sh, slot);
		mcm_store_relaxed(&o->flags, o->flags | MCM_OBJ_ZOMBIE);
		mc_metric_add(&zombies, 1);
	} else {
		object_freed(m, slot, p, n);
		object_free(m, sh, slot);
	}
}

void mcm_object_unindex(struct mcm *m, struct mcm_shard *sh, uint32_t slot, enum mcm_gone_why why)
{
	observe_gone(m, slot, why);
	mcm_shard_unlink(&m->index, sh, slot);
	object_retire(m, sh, slot);
}

void mcm_object_remove(struct mcm *m, struct mcm_shard *sh, uint32_t slot, enum mcm_gone_why why)
{
	observe_gone(m, slot, why);
	mcm_names_remove(&m->names, slot);
	mcm_shard_unlink(&m->index, sh, slot);
	object_retire(m, sh, slot);
}

void mcm_object_renaming(struct mcm *m, uint32_t slot)
{
	observe_gone(m, slot, MCM_GONE_RENAMED);
}

void mcm_object_renamed(struct mcm *m, uint32_t slot, struct mcp_bytes from, struct mcm_journal_batch *batch)
{
	observe_renamed(m, slot, from, batch);
}

void mcm_object_changed(struct mcm *m, uint32_t slot, enum mcm_changed_what what)
{
	observe_changed(m, slot, what);
}

void mcm_object_set(struct mcm_object *o, uint64_t size, uint32_t crc, uint64_t generation,
		    uint64_t mtime_ms, uint8_t flags)
{
	o->size_lo = (uint32_t)size;
	o->size_hi = (uint16_t)(size >> 32);
	o->crc = crc;
	mcm_store_relaxed(&o->mtime_lo, (uint32_t)mtime_ms);
	mcm_store_relaxed(&o->mtime_hi, (uint16_t)(mtime_ms >> 32 & ((1u << MCM_LEASE_SHIFT) - 1)));
	mcm_store_relaxed(&o->generation, generation);
	mcm_store_relaxed(&o->flags, (uint8_t)((o->flags & MCM_OBJ_LIVE) | flags));
	if (flags & MCM_OBJ_SOFT)
		mc_metric_add(&soft_pins, 1);
}

/* Fill a new object, except for its ranges. */
ALWAYS_INLINE int object_fill(struct mcm *m, const struct mcm_commit *c, struct mcm_object *o)
{
	uint32_t ext = 0;
	int r;

	if (c->copies > 1 || c->flags & MCM_OBJ_SOFT || c->group || c->adopted) {
		r = mcm_ext_new(&m->index, &ext);
		if (r < 0)
			return r;
		mcm_store_relaxed(&mcm_ext(&m->index, ext)->soft_until, c->soft_until ? c->soft_until :
			 mcm_tick_after(c->now_ms + c->soft_ms));
		mcm_ext(&m->index, ext)->adopted = c->adopted;
		mcm_store_relaxed(&o->ext, ext);
	}
	mcm_object_set(o, c->size, c->crc, c->generation, c->wall_ms, c->flags);
	mcm_object_set_type(o, c->data_type);
	return 0;
}

/* Attach the ranges whose segments are still mounted. */
static unsigned object_attach_all(struct mcm *m, const struct mcm_commit *c, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_object_ext *e;
	unsigned i, n = 0;

	for (i = 0; i < c->copies; i++) {
		if (!object_attach(m, slot, c->extent[i], mcm_tick(c->now_ms), n == 0))
			continue;
		if (n++ == 0) {
			mcm_store_relaxed(&o->segment, c->extent[i].segment);
			mcm_store_relaxed(&o->range, c->extent[i].range);
			continue;
		}
		e = mcm_ext(&m->index, o->ext);
		e->range[e->copies] = c->extent[i].range;
		mcm_store_relaxed(&e->segment[e->copies], c->extent[i].segment);
		mcm_store_relaxed(&e->copies, (uint8_t)(e->copies + 1));
	}
	return n;
}

/* Make an object with everything but its ranges.  Inlined: names must not make a commit slower. */
ALWAYS_INLINE int object_new(struct mcm *m, struct mcm_shard *sh, const struct mcm_commit *c, uint32_t *ret)
{
	uint32_t slot;
	int r = mc_fault("master.commit");

	if (r == 0)
		r = mcm_shard_new(&m->index, sh, c->hash, c->key, c->len, &slot);
	if (r < 0)
		return r;
	r = object_fill(m, c, mcm_object(&m->index, slot));
	if (r == 0 && c->attrs)
		r = mcm_attrs_set(&m->index, sh, slot, c->attrs);
	if (r == 0)
		r = observe_cover(m, slot);
	if (r < 0)
		object_free(m, sh, slot);
	else
		*ret = slot;
	return r;
}

/* The object has its ranges: give it its name, in place of @old. */
static int object_name(struct mcm *m, struct mcm_shard *sh, const struct mcm_commit *c, uint32_t old, uint32_t slot)
{
	int r;

	if (old) {
		mcm_names_replace(&m->names, old, slot);
		mcm_object_unindex(m, sh, old, MCM_GONE_REPLACED);
	} else if (c->dir) {
		mcm_names_link_open(&m->names, slot, c->dir);
	} else {
		r = mcm_names_add(&m->names, slot);
		if (r < 0)
			return r;
	}
	/* The put set the time of a directory that may have had children before. */
	if (c->attrs && c->attrs->set & MCP_ATTR_MTIME)
		mcm_names_swap_changed(&m->names, slot, mcm_names_changed(&m->names, slot), 0);
	return 0;
}

int mcm_object_commit(struct mcm *m, struct mcm_shard *sh, const struct mcm_commit *c, uint32_t old)
{
	uint32_t slot;
	unsigned i;
	int r;

	r = object_new(m, sh, c, &slot);
	if (r < 0)
		goto fail;
	observe_enter(m, slot);
	if (c->copies && !object_attach_all(m, c, slot)) {
		observe_exit(m, slot);
		observe_aborted(m, c->generation);
		object_free(m, sh, slot);
		observe_freed(m, mcp_bytes(c->key, c->len), c->charged);
		return mc_fail(-MC_EREPLICA_GONE, "the segment was unmounted during the put");
	}
	observe_join(m, slot, c);
	observe_changed(m, slot, MCM_CHANGED_VERSION);
	r = object_name(m, sh, c, old, slot);
	if (r < 0) {
		observe_gone(m, slot, MCM_GONE_UNDONE);
		object_retire(m, sh, slot);
		return r;
	}
	if (c->counted)
		mcm_shard_link_counted(&m->index, sh, slot);
	else
		mcm_shard_link(&m->index, sh, slot);
	observe_published(m, slot);
	return 0;
fail:
	if (c->copies)
		observe_aborted(m, c->generation);
	for (i = 0; i < c->copies; i++)
		mcm_extent_free(m, &c->extent[i]);
	observe_freed(m, mcp_bytes(c->key, c->len), c->charged);
	return r;
}

int mcm_object_add_name(struct mcm *m, struct mcm_shard *sh, const struct mcm_commit *c, uint32_t *ret_slot)
{
	int r = object_new(m, sh, c, ret_slot);

	if (r < 0)
		return r;
	observe_enter(m, *ret_slot);
	observe_join(m, *ret_slot, c);
	return 0;
}

void mcm_object_drop_name(struct mcm *m, struct mcm_shard *sh, uint32_t slot)
{
	observe_exit(m, slot);
	observe_leave(m, slot);
	object_free(m, sh, slot);
}

void mcm_object_publish_name(struct mcm *m, struct mcm_shard *sh, uint32_t slot, struct mcm_journal_batch *batch)
{
	mcm_journal_batch_object(m, batch, slot);
	mcm_shard_link_counted(&m->index, sh, slot);
	observe_published(m, slot);
}

/* Free the extension if it has nothing any more: most objects on disks have one copy. */
static void object_shrink(struct mcm *m, struct mcm_object *o)
{
	const struct mcm_object_ext *e = mcm_ext(&m->index, o->ext);
	uint32_t ext = o->ext;

	if (e->copies || e->group || e->more_pins || e->adopted || o->flags & MCM_OBJ_SOFT ||
	    mcm_load_relaxed(&o->marks) & MCM_MARK_RETIRING)
		return;
	mcm_store_relaxed(&o->ext, 0);
	mcm_ext_free(&m->index, ext);
}

bool mcm_object_remove_copy(struct mcm *m, struct mcm_shard *sh, uint32_t slot, struct mcm_extent extent)
{
	struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX], last;
	unsigned n = mcm_object_extents(&m->index, o, p), i = extent_index(p, n, extent);
	struct mcm_object_ext *e;

	if (i == n)
		return false;
	if (n == 1) {
		mcm_object_remove(m, sh, slot, MCM_GONE_EVICTED);
		return true;
	}
	/* Fill the gap with the last copy. */
	e = mcm_ext(&m->index, o->ext);
	if (mcm_object_copy_retiring(&m->index, o, extent))
		__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_RETIRING, __ATOMIC_RELAXED);
	last = p[n - 1];
	mcm_store_relaxed(&e->copies, (uint8_t)(e->copies - 1));
	if (i == 0) {
		mcm_store_relaxed(&o->range, last.range);
		mcm_store_relaxed(&o->segment, last.segment);
	} else if (i < n - 1) {
		e->range[i - 1] = last.range;
		mcm_store_relaxed(&e->segment[i - 1], last.segment);
	}
	object_media(m, o, NULL);
	observe_changed(m, slot, MCM_CHANGED_COPIES);
	observe_copy_gone(m, slot, extent);
	object_detach(m, extent, false);
	object_freed(m, slot, &extent, 1);
	object_shrink(m, o);
	return true;
}

static int object_extend(struct mcm *m, struct mcm_object *o)
{
	uint32_t ext;
	int r = mcm_ext_new(&m->index, &ext);

	if (r == 0)
		mcm_store_relaxed(&o->ext, ext);
	return r;
}

int mcm_object_add_copy(struct mcm *m, uint32_t slot, struct mcm_extent extent)
{
	struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_object_ext *e;
	int r = 0;

	if (!o->ext) {
		r = object_extend(m, o);
	} else if (mcm_ext(&m->index, o->ext)->copies == MCM_REPLICA_MAX - 1) {
		r = mc_fail(-MC_ELIMIT, "copy limit reached: the object has %u copies", MCM_REPLICA_MAX);
	}
	if (r < 0) {
		mcm_extent_free(m, &extent);
		return r;
	}
	if (!mcm_object_attach(m, slot, extent))
		return mc_fail(-MC_EREPLICA_GONE, "the segment was unmounted during the copy");
	e = mcm_ext(&m->index, o->ext);
	e->range[e->copies] = extent.range;
	mcm_store_relaxed(&e->segment[e->copies], extent.segment);
	mcm_store_relaxed(&e->copies, (uint8_t)(e->copies + 1));
	observe_copy_added(m, slot, extent);
	observe_changed(m, slot, MCM_CHANGED_COPIES);
	return 0;
}

bool mcm_object_copy_retiring(const struct mcm_index *ix, const struct mcm_object *o,
			      struct mcm_extent extent)
{
	return mcm_load_relaxed(&o->marks) & MCM_MARK_RETIRING && o->ext &&
	       mcm_ext(ix, o->ext)->copies && extent_equal(mcm_ext(ix, o->ext)->retiring, extent);
}

/* The object has no pin left. */
static void object_retire_copy_now(struct mcm *m, struct mcm_shard *sh, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&m->index, slot);

	__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_RETIRING, __ATOMIC_RELAXED);
	/* If the other copies were lost meanwhile, this one is the object and stays. */
	if (mcm_ext(&m->index, o->ext)->copies)
		mcm_object_remove_copy(m, sh, slot, mcm_ext(&m->index, o->ext)->retiring);
}

void mcm_object_retire_copy(struct mcm *m, struct mcm_shard *sh, uint32_t slot, struct mcm_extent extent)
{
	struct mcm_object *o = mcm_object(&m->index, slot);

	if (!o->ext || mcm_load_relaxed(&o->marks) & MCM_MARK_RETIRING || !mcm_object_has(&m->index, o, extent))
		return;
	mcm_ext(&m->index, o->ext)->retiring = extent;
	__atomic_fetch_or(&o->marks, MCM_MARK_RETIRING, __ATOMIC_RELAXED);
	if (!o->pins)
		object_retire_copy_now(m, sh, slot);
}

/* Its list depends on the soft pin: the evictor moves objects to the list of soft pins, but finds those that have lost
 * theirs early only at the end of that list. */
static void object_list_again(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p);

	for (unsigned i = 0; i < n; i++) {
		struct mcm_segment *s = mcm_segment(&m->segments, p[i].segment);
		struct mcm_evict_view v = mcm_evict_view_of(m, s);

		mc_mutex_lock(&s->lock);
		if (mcm_segment_state(s) != MCM_SEG_NONE &&
		    mcm_range(&s->alloc, p[i].range)->flags & MCM_RANGE_LISTED) {
			s->evict->remove(s->policy, &v, p[i].range);
			mcm_segment_list(&m->segments, s, &v, p[i].range, false);
		}
		mc_mutex_unlock(&s->lock);
	}
}

int mcm_object_soft_pin(struct mcm *m, uint32_t slot, uint64_t ttl_ms)
{
	struct mcm_object *o = mcm_object(&m->index, slot);
	bool was = o->flags & MCM_OBJ_SOFT;
	int r = 0;

	if (!was && !ttl_ms)
		return 0;
	if (!o->ext)
		r = object_extend(m, o);
	if (r < 0)
		return r;
	mcm_store_relaxed(&mcm_ext(&m->index, o->ext)->soft_until, ttl_ms ? mcm_tick_after(mcm_now_ms(m) + ttl_ms) : 0);
	if (was != (ttl_ms > 0)) {
		mcm_store_relaxed(&o->flags, (uint8_t)(o->flags ^ MCM_OBJ_SOFT));
		mc_metric_add(&soft_pins, was ? -1 : 1);
	}
	observe_changed(m, slot, MCM_CHANGED_PIN);
	/* An earlier end than that of the pin before. */
	if (was)
		object_list_again(m, slot);
	if (!ttl_ms)
		object_shrink(m, o);
	return 0;
}

uint32_t mcm_object_pins(const struct mcm *m, const struct mcm_object *o)
{
	return o->pins + (o->pins == MCM_PINS_FEW && o->ext ? mcm_ext(&m->index, o->ext)->more_pins : 0);
}

/* One connection may pin an object many times; that must not use up the counter for other connections. */
static int object_pin_more(struct mcm *m, struct mcm_object *o)
{
	struct mcm_object_ext *e;
	int r = o->ext ? 0 : object_extend(m, o);

	if (r < 0)
		return r;
	e = mcm_ext(&m->index, o->ext);
	if (e->more_pins == INT32_MAX)
		return mc_fail(-MC_ELIMIT, "pin limit reached: the object has %u more readers", e->more_pins);
	e->more_pins++;
	return 0;
}

int mcm_object_pin(struct mcm *m, struct mcm_object *o)
{
	int r = 0;

	if (o->pins < MCM_PINS_FEW)
		mcm_store_relaxed(&o->pins, (uint16_t)(o->pins + 1));
	else
		r = object_pin_more(m, o);
	if (r == 0)
		mcm_group_pin(m, o, 1);
	return r;
}

bool mcm_object_park(struct mcm_object *o)
{
	/* Do not clear the mark when no pin is left: it may be the mark of another segment's evictor, for which
	 * the last reader is checking now.  A mark too many costs the next reader one useless check. */
	__atomic_fetch_or(&o->marks, MCM_MARK_PARKED, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&o->pins, __ATOMIC_SEQ_CST) != 0;
}

void mcm_object_relist(struct mcm *m, uint32_t slot, bool kept)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = kept ? 0 : mcm_object_extents(&m->index, mcm_object(&m->index, slot), p), i;

	for (i = 0; i < n; i++)
		mcm_evict_relist(m, mcm_segment(&m->segments, p[i].segment), p[i].range, slot);
	observe_relist(m, slot);
}

/* The evictor took the object's ranges off its lists. */
static void object_unpark(struct mcm *m, uint32_t slot)
{
	__atomic_fetch_and(&mcm_object(&m->index, slot)->marks, (uint8_t)~MCM_MARK_PARKED, __ATOMIC_SEQ_CST);
	mcm_object_relist(m, slot, false);
}

/* The last reader has left.  Not inline: most unpins need none of its stack. */
static void __attribute__((noinline)) object_free_zombie(struct mcm *m, struct mcm_shard *sh, uint32_t slot)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, mcm_object(&m->index, slot), p), i;

	for (i = 0; i < n; i++)
		mcm_extent_free(m, &p[i]);
	object_freed(m, slot, p, n);
	object_free(m, sh, slot);
	mc_metric_add(&zombies, -1);
}

void mcm_object_unpin(struct mcm *m, uint32_t slot)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, slot);
	struct mcm_object *o = mcm_object(&m->index, slot);

	if (mcm_object_pins(m, o) > MCM_PINS_FEW)
		mcm_ext(&m->index, o->ext)->more_pins--;
	else
		__atomic_store_n(&o->pins, (uint16_t)(o->pins - 1), __ATOMIC_SEQ_CST);
	mcm_group_pin(m, o, -1);
	if (!o->pins && o->flags & MCM_OBJ_ZOMBIE) {
		object_free_zombie(m, sh, slot);
	} else if (!o->pins) {
		if (__atomic_load_n(&o->marks, __ATOMIC_SEQ_CST) & MCM_MARK_PARKED)
			object_unpark(m, slot);
		if (mcm_load_relaxed(&o->marks) & MCM_MARK_RETIRING)
			object_retire_copy_now(m, sh, slot);
	}
	mc_mutex_unlock(&sh->lock);
}
