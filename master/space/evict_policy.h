/* SPDX-License-Identifier: Apache-2.0
 * evict_policy.h - which of a segment's ranges should go next: an ops table per policy.
 *
 * A policy orders ranges (allocator nodes) whose owner is an evictable object; its lists run through
 * the nodes' list links.  Everything here is called with the segment's lock held and takes no other
 * lock: what it wants to know of an object it peeks at.  A victim is a proposal: the evictor looks at
 * it again under its shard's lock (evict.c). */
#ifndef MCM_EVICT_POLICY_H
#define MCM_EVICT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/memory/alloc.h"
#include "master/index/index.h"

/* What may be taken beside objects that nothing protects. */
#define MCM_EVICT_PLAIN 0u
#define MCM_EVICT_SOFT 1u	/* soft-pinned ones */
#define MCM_EVICT_LEASED 2u	/* those promised to a reader, first those whose promise ends first */
/* ... and what must not, beside what is pinned: what was put last.  While there are promises, old ones
 * are broken before what was put a moment ago goes unread. */
#define MCM_EVICT_KEEP_RECENT 4u
#define MCM_EVICT_KEEP_NEWEST 8u	/* with it, in runs: only a small part of the new counts as such */
#define MCM_RECENT_MIN_MS 100u
#define MCM_EVICT_LEVELS 16

struct mcm_evict_view {
	const struct mcm_index *ix;
	struct mcm_alloc *a;
	uint32_t now;		/* tick */
	/* for choosing victims: what is new, by generation and by the commit's time in ms */
	uint64_t recent_generation;
	uint32_t wall_ms, recent_ms;
};

struct mcm_victim {
	uint32_t slot;
	uint32_t range;
	uint64_t generation;	/* of the object when it was chosen */
	uint8_t policy;		/* its node's, when it was chosen */
};

struct mcm_evict_ops {
	const char *name;
	size_t state_size;	/* zeroed memory per segment */

	/* What the policy knows of the whole master, such as a history of evicted keys; used by several
	 * threads at once, under no common lock.  NULL: no memory. */
	void *(*shared_new)(void);
	void (*shared_free)(void *shared);

	/* @shared outlives the state; @lease_ticks: length of the leases that will be met.  -ENOMEM. */
	int (*init)(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks);
	/* A range is listed: its owner has just been committed (@fresh; the owner's hash is its key's), or
	 * it comes back after its readers have gone. */
	void (*insert)(void *state, const struct mcm_evict_view *v, uint32_t range, bool fresh);
	/* A listed range goes: removed, or its place is not wanted any more. */
	void (*remove)(void *state, const struct mcm_evict_view *v, uint32_t range);
	/* Choose up to @max victims of together about @want bytes, best first, and take them off the
	 * lists; @level: MCM_EVICT_*.  Does a bounded amount of work: *ret_more says that another call may find more
	 * although this one has found nothing. */
	unsigned (*victims)(void *state, const struct mcm_evict_view *v, unsigned level,
			    uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more);
	/* A victim has really gone, the object of the key with this hash.  The segment's lock is not
	 * held. */
	void (*evicted)(void *shared, const struct mcm_victim *victim, uint32_t hash);
};

extern const struct mcm_evict_ops mcm_evict_lru, mcm_evict_fifo, mcm_evict_s3fifo;

/* For policies that learn nothing. */
void *mcm_evict_shared_none(void);
void mcm_evict_shared_free(void *shared);
void mcm_evict_ignore(void *shared, const struct mcm_victim *victim, uint32_t hash);

/* The table of a name, NULL when there is none. */
const struct mcm_evict_ops *mcm_evict_ops_find(const char *name);

/* ---- what policies ask about objects ---- */

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

/* 0: not touched, 1: touched, 2: got more than once, since the marks were taken back. */
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

/* One read less. */
static inline void mcm_evict_unread(const struct mcm_evict_view *v, uint32_t range)
{
	if (mcm_evict_reads(v, range) < 2)
		mcm_evict_untouch(v, range);
	else
		__atomic_fetch_and(&mcm_evict_owner(v, range)->marks, (uint8_t)~MCM_MARK_AGAIN,
				   __ATOMIC_RELAXED);
}

static inline bool mcm_evict_recent(const struct mcm_evict_view *v, const struct mcm_object *o)
{
	return mcm_load_relaxed(&o->generation) >= v->recent_generation ||
	       v->wall_ms - mcm_load_relaxed(&o->mtime_lo) < v->recent_ms;
}

/* Is the object soft-pinned now? */
static inline bool mcm_evict_soft(const struct mcm_index *ix, const struct mcm_object *o,
				  uint32_t now)
{
	uint32_t ext = mcm_load_relaxed(&o->ext);

	return (mcm_load_relaxed(&o->flags) & MCM_OBJ_SOFT) && ext &&
	       mcm_load_relaxed(&mcm_ext(ix, ext)->soft_until) > now;
}

#endif
