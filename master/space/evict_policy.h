/* SPDX-License-Identifier: Apache-2.0
 * evict_policy.h - interface of an eviction policy, which chooses the ranges of a segment to evict:
 * a const table of functions.
 *
 * A policy orders the ranges whose owner is an evictable object; its lists use the list links of
 * the range records.  All functions but evicted() are called with the segment's lock held and take
 * no other lock: they read objects by relaxed loads.  A victim is a proposal, which the evictor
 * checks again under the victim's shard lock (evict.c). */
#ifndef MCM_EVICT_POLICY_H
#define MCM_EVICT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/memory/alloc.h"
#include "master/index/index.h"

/* Levels of eviction as flags; evict.h has the rule.  Without a flag: objects without soft pin and lease. */
#define MCM_EVICT_PLAIN 0u
#define MCM_EVICT_SOFT 1u	/* also soft-pinned objects */
#define MCM_EVICT_LEASED 2u	/* also leased objects; the lease that ends first comes first */
#define MCM_EVICT_KEEP_RECENT 4u	/* but no recent objects; of lists, none without a lease */
#define MCM_EVICT_KEEP_NEWEST 8u	/* with KEEP_RECENT, in runs: fewer objects count as recent */
#define MCM_EVICT_WAITING 16u	/* not for policies: also objects that wait to be copied to a disk (offload.h) */
#define MCM_RECENT_MIN_MS 100u
#define MCM_EVICT_FLAG_SETS 16

struct mcm_learn;

struct mcm_evict_view {
	const struct mcm_index *ix;
	struct mcm_alloc *a;
	uint32_t now;		/* tick */
	/* for selecting victims: objects are recent by generation or by the wall clock of their commit, ms */
	uint64_t recent_generation;
	uint32_t wall_ms, recent_ms;
};

struct mcm_victim {
	uint32_t slot;
	uint32_t range;
	uint64_t generation;	/* the object's, when it was selected */
	uint8_t policy;		/* mcm_range.policy, when it was selected */
};

struct mcm_evict_ops {
	const char *name;
	size_t state_size;	/* bytes of zeroed memory per segment */

	/* Memory of the policy that is common to all segments, such as a history of evicted keys;
	 * several threads use it at once, without a lock.  @learn: the master's model of reuse, which outlives it.
	 * NULL: no memory. */
	void *(*shared_new)(struct mcm_learn *learn);
	void (*shared_free)(void *shared);

	/* @shared outlives the state; @lease_ticks: length of the leases in use.  -ENOMEM. */
	int (*init)(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks);
	/* Put a range on a list: its owner was just committed (@fresh; the owner's hash is that of
	 * its key), or it is back after its readers have ended. */
	void (*insert)(void *state, const struct mcm_evict_view *v, uint32_t range, bool fresh);
	/* Take a listed range off its list: it is removed, or the evictor will remove it. */
	void (*remove)(void *state, const struct mcm_evict_view *v, uint32_t range);
	/* Select up to @max victims of together about @want bytes, best first, and take them off
	 * the lists; @level: MCM_EVICT_*.  The work per call is bounded: *ret_more says that
	 * another call may find victims although this one has found none. */
	unsigned (*victims)(void *state, const struct mcm_evict_view *v, unsigned level,
			    uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more);
	/* After victims() found none: the tick from which a call at this level may find some without another insert(),
	 * or MCM_TICK_NEVER.  An early answer costs a search, a late one an eviction in another order. */
	uint32_t (*retry)(const void *state, const struct mcm_evict_view *v, unsigned level);
	/* A victim was removed: the object of the key with this hash.  The segment's lock is not held. */
	void (*evicted)(void *shared, const struct mcm_victim *victim, uint32_t hash);
};

extern const struct mcm_evict_ops mcm_evict_lru, mcm_evict_fifo, mcm_evict_learn;

/* For policies without shared memory. */
void *mcm_evict_shared_none(struct mcm_learn *learn);
void mcm_evict_shared_free(void *shared);
void mcm_evict_ignore(void *shared, const struct mcm_victim *victim, uint32_t hash);

/* The table with a name; NULL: there is none. */
const struct mcm_evict_ops *mcm_evict_ops_find(const char *name);

/* ---- state of a range's object ---- */

enum mcm_owner_state { MCM_OWNER_COLD, MCM_OWNER_TOUCHED, MCM_OWNER_LEASED, MCM_OWNER_PINNED };

static inline struct mcm_object *mcm_evict_owner(const struct mcm_evict_view *v, uint32_t range)
{
	return mcm_object(v->ix, mcm_range(v->a, range)->owner);
}

static inline enum mcm_owner_state mcm_evict_owner_state(const struct mcm_evict_view *v,
					   const struct mcm_object *o)
{
	if (mcm_load_relaxed(&o->pins))
		return MCM_OWNER_PINNED;
	if (mcm_load_relaxed(&o->lease) > v->now)
		return MCM_OWNER_LEASED;
	return mcm_load_relaxed(&o->marks) & MCM_MARK_TOUCHED ? MCM_OWNER_TOUCHED : MCM_OWNER_COLD;
}

static inline bool mcm_evict_touched(const struct mcm_evict_view *v, uint32_t range)
{
	return mcm_load_relaxed(&mcm_evict_owner(v, range)->marks) & MCM_MARK_TOUCHED;
}

/* 0: not touched, 1: touched, 2: read more than once, since the marks were cleared. */
static inline unsigned mcm_evict_reads(const struct mcm_evict_view *v, uint32_t range)
{
	uint8_t marks = mcm_load_relaxed(&mcm_evict_owner(v, range)->marks);

	return marks & MCM_MARK_AGAIN ? 2 : marks & MCM_MARK_TOUCHED ? 1 : 0;
}

static inline void mcm_evict_untouch(const struct mcm_evict_view *v, uint32_t range)
{
	__atomic_fetch_and(&mcm_evict_owner(v, range)->marks,
			   (uint8_t)~(MCM_MARK_TOUCHED | MCM_MARK_READ | MCM_MARK_AGAIN),
			   __ATOMIC_RELAXED);
}

static inline bool mcm_evict_recent(const struct mcm_evict_view *v, const struct mcm_object *o)
{
	return mcm_load_relaxed(&o->generation) >= v->recent_generation ||
	       v->wall_ms - mcm_load_relaxed(&o->mtime_lo) < v->recent_ms;
}

/* Whether the object is soft-pinned now. */
static inline bool mcm_evict_soft(const struct mcm_index *ix, const struct mcm_object *o, uint32_t now)
{
	uint32_t ext = mcm_load_relaxed(&o->ext);

	return (mcm_load_relaxed(&o->flags) & MCM_OBJ_SOFT) && ext &&
	       mcm_load_relaxed(&mcm_ext(ix, ext)->soft_until) > now;
}

#endif
