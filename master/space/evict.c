/* SPDX-License-Identifier: Apache-2.0
 * evict.c - evictor: removal of victims, eviction inside a put, background eviction down to the watermark. */
#include <config.h>

#include "master/space/evict.h"

#include <errno.h>

#include "common/err.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "proto/rpc_server.h"

#define BATCH 32
#define PREFETCH_MIN 4		/* victims */
#define AHEAD_SHARE 4096	/* 1/4096 of the evictable bytes is evicted ahead of need */
#define SWEEP_BATCH 64
/* Rounds of the background evictor on one segment before it continues with the next one. */
#define BACKGROUND_ROUNDS 256
#define RUN_TRIES 64
#define AWAIT_MS 250	/* a segment whose objects wait for a disk is searched again after this time */
#define TINY 64		/* the object that needs space is that many times larger than the average one */

MC_COUNTER(evicted_keys, "master_evicted_key_count", "", "Objects evicted")
MC_COUNTER(evicted_bytes, "master_evicted_size_bytes", "", "Bytes evicted")
MC_COUNTER(attempts, "master_attempted_evictions_total", "", "Searches for objects to evict")
MC_COUNTER(successes, "master_successful_evictions_total", "", "Searches that found objects to evict")
MC_COUNTER(broken, "mooncake_master_promises_broken_total", "",
	   "Objects evicted under a promise lease, because no other was left")
MC_COUNTER(inline_evictions, "mooncake_master_inline_evictions_total", "", "Puts that had to evict objects")

void mcm_evict_relist(struct mcm *m, struct mcm_segment *s, uint32_t range, uint32_t slot)
{
	struct mcm_evict_view v = mcm_evict_view_of(m, s);
	struct mcm_range *n;

	mc_mutex_lock(&s->lock);
	if (mcm_segment_state(s) != MCM_SEG_NONE) {
		n = mcm_range(&s->alloc, range);
		if (n->flags & MCM_RANGE_USED && n->owner == slot &&
		    n->flags & MCM_RANGE_EVICTABLE && !(n->flags & MCM_RANGE_LISTED)) {
			if (m->offload.keep && mcm_offload_keeps(m, s, mcm_object(&m->index, slot)))
				mcm_offload_await_locked(m, s, slot, range);
			else
				mcm_segment_list(&m->segments, s, &v, range, false);
		}
	}
	mc_mutex_unlock(&s->lock);
}

/* shard locked: whether the victim may still be evicted */
static bool victim_evictable(const struct mcm *m, const struct mcm_object *o, const struct mcm_victim *v,
			     unsigned level)
{
	uint32_t now = mcm_now_tick(m);

	if (!(o->flags & MCM_OBJ_LIVE) || o->generation != v->generation || o->pins)
		return false;
	if (!(level & MCM_EVICT_LEASED) && o->lease > now)
		return false;
	return level & MCM_EVICT_SOFT || !mcm_evict_soft(&m->index, o, now);
}

static uint64_t victim_evict(struct mcm *m, struct mcm_segment *s, const struct mcm_victim *v,
			     unsigned level)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, v->slot);
	struct mcm_object *o = mcm_object(&m->index, v->slot);
	uint64_t bytes = mcm_object_size(o);
	struct mcm_extent extent = { v->range, s->index };
	bool leased = o->lease > mcm_now_tick(m);
	/* It has no other copy, and might have had one on a higher rank. */
	bool last = m->offload.on && (mcm_segment_is(s, MCP_TRAIT_PUTS) || mcm_load_relaxed(&s->offloads)) &&
		    !(o->ext && mcm_ext(&m->index, o->ext)->copies);
	uint32_t hash = o->hash;
	uint32_t group = 0;
	bool done = victim_evictable(m, o, v, level) && !(last && mcm_offload_keeps(m, s, o)) &&
		mcm_group_may_evict_copy(m, o, level, &group) && mcm_object_remove_copy(m, sh, v->slot, extent);

	/* As long as a live object (perhaps renamed) has the range, the segment exists; without one
	 * even the range may be gone. */
	if (!done && o->flags & MCM_OBJ_LIVE && mcm_object_has(&m->index, o, extent))
		mcm_evict_relist(m, s, v->range, v->slot);
	mc_mutex_unlock(&sh->lock);
	if (group)
		(void)mcm_group_evict(m, group);
	if (!done)
		return 0;
	s->evict->evicted(m->segments.evict_shared, v, hash);
	if (leased)
		mc_metric_add(&broken, 1);
	if (last)
		mcm_offload_lost(m, s, bytes);
	mc_metric_add(&evicted_keys, 1);
	mc_metric_add(&evicted_bytes, (int64_t)bytes);
	return mcm_alloc_round(mcm_object_reserve(bytes)) << MCM_GRANULE_SHIFT;
}

/* Prefetch the memory that removing these victims will access, so that the cache misses overlap.
 * Victims mostly have the same directory: prefetch that of the first one. */
static void victims_prefetch(struct mcm *m, const struct mcm_victim *v, unsigned n)
{
	uint32_t hash[BATCH];
	struct mcm_object *o;
	struct mcm_shard *sh;
	unsigned i;

	for (i = 0; i < n; i++) {
		hash[i] = mcm_load_relaxed(&mcm_object(&m->index, v[i].slot)->hash);
		mcm_learn_prefetch(&m->learn, hash[i]);
	}
	mcm_index_prefetch(&m->index, hash, n, NULL);
	sh = mcm_index_lock_slot(&m->index, v[0].slot);
	o = mcm_object(&m->index, v[0].slot);
	/* The directory exists as long as the object does. */
	if (o->flags & MCM_OBJ_LIVE && o->generation == v[0].generation)
		mcm_names_prefetch_remove(&m->names, o->dir, hash, n);
	mc_mutex_unlock(&sh->lock);
}

uint64_t mcm_evict_victims(struct mcm *m, struct mcm_segment *s, const struct mcm_victim *v,
			   unsigned n, unsigned level)
{
	uint64_t freed = 0;
	unsigned i;

	if (n >= PREFETCH_MIN && n <= MCM_PREFETCH_MAX)
		victims_prefetch(m, v, n);
	for (i = 0; i < n; i++)
		freed += victim_evict(m, s, &v[i], level);
	return freed;
}

/* Shard locked: remove the copies in memory of an object that has another one on a disk. */
static void object_leave_memory(struct mcm *m, struct mcm_shard *sh, uint32_t slot)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, mcm_object(&m->index, slot), p), i;

	for (i = 0; i < n; i++)
		if (mcm_extents_in_memory(m, &p[i], 1))
			(void)mcm_object_remove_copy(m, sh, slot, p[i]);
}

/* @group: NULL when the object's group is being evicted already; else the group that the caller
 * passes to mcm_group_evict(), 0: none.  @whole: from disks too. */
static bool object_evict(struct mcm *m, const struct mcm_victim *v, unsigned level, bool whole, uint32_t *group,
			 uint64_t *freed)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, v->slot);
	struct mcm_object *o = mcm_object(&m->index, v->slot);
	bool leased = o->lease > mcm_now_tick(m), done;
	struct mcm_extent p[MCM_REPLICA_MAX];
	uint64_t bytes = mcm_object_size(o);
	unsigned copies = mcm_extents_in_memory(m, p, mcm_object_extents(&m->index, o, p));
	uint32_t hash = o->hash;
	/* The object limit drops objects from disks as well: a copy there would not keep them. */
	bool kept = !whole && mcm_offload_keeps_any(m, o);
	const struct mcm_segment *lost = NULL;

	/* A member without bytes does not follow its group: evicting it frees none. */
	done = victim_evictable(m, o, v, level) && !kept && (o->range || group) && !(o->flags & MCM_OBJ_HARD) &&
		(o->flags & MCM_OBJ_KIND) == MCP_KIND_OBJECT &&
		(!group || mcm_group_may_evict(m, o, level, group));
	/* Without memory there is nothing to free. */
	if (!whole && mcm_object_is_below(o) && !copies)
		done = false;
	if (done && !whole && mcm_object_is_below(o)) {
		object_leave_memory(m, sh, v->slot);
	} else if (done) {
		if (m->offload.on && !whole && o->range)
			lost = mcm_segment(&m->segments, o->segment);
		mcm_object_remove(m, sh, v->slot, MCM_GONE_EVICTED);
	} else if (group && o->flags & MCM_OBJ_LIVE) {
		mcm_object_relist(m, v->slot, kept);
	}
	mc_mutex_unlock(&sh->lock);
	if (!done)
		return false;
	if (lost)
		mcm_offload_lost(m, lost, bytes);
	if (v->range)
		m->evict->evicted(m->segments.evict_shared, v, hash);
	if (leased)
		mc_metric_add(&broken, 1);
	mc_metric_add(&evicted_keys, 1);
	mc_metric_add(&evicted_bytes, (int64_t)bytes);
	*freed += bytes * copies;
	return true;
}

uint64_t mcm_evict_member(struct mcm *m, const struct mcm_victim *v, unsigned level)
{
	uint64_t freed = 0;

	(void)object_evict(m, v, level, false, NULL, &freed);
	return freed;
}

bool mcm_evict_object(struct mcm *m, const struct mcm_victim *v, unsigned level, bool whole, uint64_t *freed)
{
	uint32_t group = 0;
	bool done = object_evict(m, v, level, whole, &group, freed);

	if (group)
		*freed += mcm_group_evict(m, group);
	return done;
}

/* The lock of @s is held: do objects stay that this put could use? */
static bool room_awaits(const struct mcm *m, struct mcm_segment *s, unsigned level, struct mcm_slice *sl)
{
	bool awaits = level & MCM_EVICT_WAITING && mcm_offload_awaits(m, s) && mcm_offload_waiting_locked(s, true);

	if (awaits && sl)
		sl->awaits = true;
	return awaits;
}

/* A search at @level has found nothing. */
static void room_none(struct mcm *m, struct mcm_segment *s, const struct mcm_evict_view *v, unsigned level,
		      struct mcm_slice *sl)
{
	uint32_t retry = s->evict->retry(s->policy, v, level & ~MCM_EVICT_WAITING);

	if (room_awaits(m, s, level, sl) && retry > v->now + mcm_tick_after(AWAIT_MS))
		retry = v->now + mcm_tick_after(AWAIT_MS);
	else if (level & MCM_EVICT_WAITING && !mcm_offload_awaits(m, s) && mcm_offload_waiting_locked(s, false))
		return;		/* they are not listed yet; the caller lists them */
	mcm_candidates_leave(m->segments.candidates, s->index, level, retry);
}

/* One attempt of a put: allocate the range if there is space by now, else select victims for @want bytes. */
static int room_take_or_choose(struct mcm *m, struct mcm_segment *s, uint64_t len,
			       unsigned level, uint64_t want, struct mcm_victim *v,
			       unsigned *n, bool *more, struct mcm_slice *sl, uint32_t *ret_range)
{
	struct mcm_evict_view view;
	int r;

	*n = 0;
	*more = false;
	mc_mutex_lock(&s->lock);
	r = mcm_segment_take_locked(s, len, ret_range);
	if (r == -MC_ENOSPACE && want && mcm_segment_state(s) == MCP_SEG_OK) {
		mc_metric_add(&attempts, 1);
		view = mcm_evict_view_of(m, s);
		*n = s->evict->victims(s->policy, &view, level & ~MCM_EVICT_WAITING, want, v, BATCH, more);
		if (!*n && !*more && mcm_segment_is(s, MCP_TRAIT_PUTS))
			room_none(m, s, &view, level, sl);
	}
	mc_mutex_unlock(&s->lock);
	return r;
}

/* Bytes to evict beyond @want: small objects are evicted in batches, so that the next puts find space and
 * the cache misses of the removals overlap.  Not at levels that evict soft-pinned or leased objects. */
static uint64_t room_ahead(const struct mcm_segment *s, uint64_t want, unsigned level)
{
	uint64_t ahead = mcm_load_relaxed(&s->evictable) / AHEAD_SHARE;

	return level & (MCM_EVICT_SOFT | MCM_EVICT_LEASED) || ahead < want ? 0 : ahead;
}

int mcm_make_room(struct mcm *m, struct mcm_segment *s, uint64_t len, unsigned level,
		  struct mcm_slice *sl, uint32_t *ret_range)
{
	uint64_t want = mcm_alloc_round(len) << MCM_GRANULE_SHIFT, freed = 0;
	bool waiting = level & MCM_EVICT_WAITING, some = false;
	unsigned plain = level & ~MCM_EVICT_WAITING;
	uint64_t ahead = room_ahead(s, want, plain);
	/* More rounds than the ranges need, because other puts may take the space that this one
	 * frees; but not without limit. */
	uint64_t rounds = mcm_load_relaxed(&s->objects) / 16 + 1024;
	struct mcm_victim v[BATCH];
	uint64_t before;
	unsigned n, tries;
	bool more = true;
	int r;

	/* A put that cannot succeed must not evict anything. */
	if (!mcm_segment_could_hold(s, want)) {
		if (!mcm_load_relaxed(&s->evictable))
			mcm_segment_unusable(&m->segments, s);
		return -MC_ENOSPACE;
	}
	mc_metric_add(&inline_evictions, 1);
	/* If the average object is tiny compared to this one, evicting in the policy's order would
	 * free bytes all over the segment, and a run of neighbours would have to be evicted
	 * nevertheless.  After a slice that ended in a run, continue with the run. */
	if (mcm_slice_continues(sl, s, plain) ||
	    want / TINY > mcm_load_relaxed(&s->used) / (mcm_load_relaxed(&s->objects) + 1))
		rounds = 0;
	some = !rounds;
	while (rounds--) {
		r = room_take_or_choose(m, s, len, level, freed < want ? want - freed + ahead : 0, v, &n,
					&more, sl, ret_range);
		if (r != -MC_ENOSPACE)
			return r;
		before = freed;
		if (n) {
			mc_metric_add(&successes, 1);
			some = true;
			freed += mcm_evict_victims(m, s, v, n, plain);
		} else if (!more && !(waiting && freed < want && mcm_offload_give_up(m, s, want - freed))) {
			break;
		}
		if (freed == before && mcm_slice_over(sl)) {
			sl->segment = 0;
			return MCP_AGAIN;
		}
	}
	/* Without anything to evict there is no run of neighbours either. */
	if (!some)
		return -MC_ENOSPACE;
	for (tries = 0; tries < RUN_TRIES; tries++) {
		r = mcm_evict_run(m, s, len, plain, sl, ret_range);
		if (r != -EAGAIN)
			break;
	}
	if (r == -MC_ENOSPACE && waiting) {
		mc_mutex_lock(&s->lock);
		(void)room_awaits(m, s, level, sl);
		mc_mutex_unlock(&s->lock);
	}
	return r == -EAGAIN ? -MC_ENOSPACE : r;
}

/* ---- background ---- */

static inline double segment_high(const struct mcm *m, const struct mcm_segment *s)
{
	uint8_t high = __atomic_load_n(&s->high, __ATOMIC_RELAXED);

	/* Above the whole segment: it is not evicted from. */
	if (!mcm_segment_may_evict(s, m->conf.enable_disk_eviction))
		return 2;
	return high ? high / 100.0 : m->conf.eviction_high_watermark_ratio;
}

bool mcm_evict_stays_below(const struct mcm *m, const struct mcm_segment *s, uint64_t more)
{
	return (double)(mcm_load_relaxed(&s->used) + more) <= segment_high(m, s) * (double)mcm_load_relaxed(&s->size);
}

static double segment_low(const struct mcm *m, const struct mcm_segment *s)
{
	uint8_t high = __atomic_load_n(&s->high, __ATOMIC_RELAXED), own = __atomic_load_n(&s->low, __ATOMIC_RELAXED);
	double low = segment_high(m, s) - m->conf.eviction_ratio;

	if (own && own < high)
		return own / 100.0;
	return low > 0 ? low : 0;
}

/* Bytes to evict until the used share of the segment is @ratio, if @more bytes were used by unfinished puts.
 * The share is taken of the bytes that eviction can free: a segment with many hard-pinned objects and
 * unfinished puts would otherwise lose everything else at once, even objects that were just put. */
static inline uint64_t segment_excess_with(const struct mcm_segment *s, uint64_t more, double ratio)
{
	uint64_t used = mcm_load_relaxed(&s->used), evictable = mcm_load_relaxed(&s->evictable);
	uint64_t fixed = (used > evictable ? used - evictable : 0) + more;
	uint64_t size = mcm_load_relaxed(&s->size), room = size > fixed ? size - fixed : 0;
	uint64_t goal = (uint64_t)((double)room * ratio);

	return evictable > goal ? evictable - goal : 0;
}

static uint64_t segment_excess(const struct mcm_segment *s, double ratio)
{
	return segment_excess_with(s, 0, ratio);
}

bool mcm_evict_begins_with(const struct mcm *m, const struct mcm_segment *s, uint64_t more)
{
	return segment_excess_with(s, more, segment_high(m, s));
}

void mcm_evict_kick(struct mcm *m, const struct mcm_segment *s)
{
	if (!segment_excess(s, segment_high(m, s)))
		return;
	/* Wake it once: the evictor clears the flag when it begins. */
	if (!__atomic_exchange_n(&m->evict_wanted, true, __ATOMIC_RELAXED))
		mc_stop_kick(&m->evictor_stop);
}

/* Evict until the segment is at its low watermark.  True: stopped before that. */
static bool segment_lower(struct mcm *m, struct mcm_segment *s, unsigned level)
{
	double low = segment_low(m, s);
	struct mcm_victim v[BATCH];
	unsigned rounds, n;
	bool more;

	for (rounds = 0; rounds < BACKGROUND_ROUNDS; rounds++) {
		struct mcm_evict_view view = mcm_evict_view_of(m, s);
		uint64_t want;

		mc_mutex_lock(&s->lock);
		want = segment_excess(s, low);
		n = 0;
		more = false;
		if (mcm_segment_state(s) == MCP_SEG_OK && want) {
			mc_metric_add(&attempts, 1);
			n = s->evict->victims(s->policy, &view, level, want, v, BATCH, &more);
		}
		mc_mutex_unlock(&s->lock);
		if (n) {
			mc_metric_add(&successes, 1);
			mcm_evict_victims(m, s, v, n, level);
		} else if (!more) {
			return false;
		}
	}
	return true;
}

/* Collect the committed ranges from the cursor on, and move the cursor behind them.  True: the end is reached. */
static bool segment_sweep_collect(struct mcm *m, struct mcm_segment *s, struct mcm_victim *v, unsigned *n)
{
	struct mcm_alloc *a = &s->alloc;
	uint32_t id = a->cursor;
	unsigned steps;

	*n = 0;
	for (steps = 0; id != a->end && steps < 4096 && *n < SWEEP_BATCH; steps++) {
		const struct mcm_range *range = mcm_range(a, id);
		const struct mcm_object *o = mcm_object(&m->index, range->owner);

		if (range->flags & MCM_RANGE_USED && range->owner &&
		    mcm_load_relaxed(&o->flags) & MCM_OBJ_LIVE)
			v[(*n)++] = (struct mcm_victim){
				range->owner, id, mcm_load_relaxed(&o->generation),
				range->policy
			};
		id = mcm_range_next(range);
	}
	a->cursor = id;
	return id == a->end;
}

/* Remove the objects of an unmounted segment.  Ranges that readers pin or writers use are freed by those. */
static void segment_sweep(struct mcm *m, struct mcm_segment *s)
{
	struct mcm_victim v[SWEEP_BATCH];
	unsigned n, i;
	bool end;

	mc_mutex_lock(&s->run_lock);
	mc_mutex_lock(&s->lock);
	if (mcm_segment_state(s) == MCP_SEG_UNMOUNTING)
		s->alloc.cursor = s->alloc.first;
	mc_mutex_unlock(&s->lock);
	do {
		n = 0;
		end = true;
		mc_mutex_lock(&s->lock);
		if (mcm_segment_state(s) == MCP_SEG_UNMOUNTING)
			end = segment_sweep_collect(m, s, v, &n);
		mc_mutex_unlock(&s->lock);
		for (i = 0; i < n; i++) {
			struct mcm_shard *sh = mcm_index_lock_slot(&m->index, v[i].slot);
			struct mcm_object *o = mcm_object(&m->index, v[i].slot);

			if (o->flags & MCM_OBJ_LIVE && o->generation == v[i].generation)
				mcm_object_remove_copy(m, sh, v[i].slot,
						       (struct mcm_extent){ v[i].range, s->index });
			mc_mutex_unlock(&sh->lock);
		}
	} while (!end);
	mc_mutex_unlock(&s->run_lock);
	mcm_segments_reap(&m->segments, s);
}

/* Bytes to evict from the segments that are above their watermark. */
static uint64_t segments_excess(struct mcm *m, unsigned top)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < top; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, (uint16_t)i);

		if (mcm_segment_state(s) == MCP_SEG_OK && mcm_segment_is(s, MCP_TRAIT_PUTS) &&
		    segment_excess(s, segment_high(m, s)))
			sum += segment_excess(s, segment_low(m, s));
	}
	return sum;
}

bool mcm_evict_background(struct mcm *m)
{
	unsigned keep_recent = mcm_promise_leases_active(m) ? MCM_EVICT_KEEP_RECENT : 0;
	unsigned i, top;
	bool more = mcm_grace_release(m);
	/* The oldest objects have grace pins, so the newest ones would be evicted. */
	bool held = mcm_grace_pins_left(m);

	__atomic_store_n(&m->evict_wanted, false, __ATOMIC_RELAXED);
	mc_rwlock_rdlock(&m->segments.lock);
	top = m->segments.top;
	mc_rwlock_unlock(&m->segments.lock);
	if (mcm_tenants_over_quota(m))
		(void)mcm_tenants_trim(m, segments_excess(m, top), NULL);
	for (i = 0; i < top; i++) {
		struct mcm_segment *s = mcm_segment(&m->segments, (uint16_t)i);
		uint8_t state = mcm_segment_state(s);

		if (m->offload.keep)
			mcm_offload_release(m, s);
		if (state == MCP_SEG_UNMOUNTING) {
			segment_sweep(m, s);
		} else if (state == MCP_SEG_OK && !held && segment_excess(s, segment_high(m, s))) {
			if (segment_lower(m, s, keep_recent))
				more = true;
			else if (m->conf.allow_evict_soft_pinned_objects &&
				 segment_excess(s, segment_high(m, s)))
				more |= segment_lower(m, s, keep_recent | MCM_EVICT_SOFT);
		}
	}
	/* Last, because the evictions above may have begun that of a group. */
	return mcm_groups_background(m) || more;
}
