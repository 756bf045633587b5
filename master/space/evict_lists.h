/* SPDX-License-Identifier: Apache-2.0
 * evict_lists.h - common part of the eviction policies: lists of ranges, a list of soft-pinned
 * ones, a wheel of those under a promise lease, and the selection of victims.
 *
 * A policy embeds struct mcm_lists and has lists of its own for plain objects, that is, those
 * without soft pin and lease.  Its requeue() puts a range on one of them that leaves the wheel, is no
 * longer recent, or whose soft pin has ended.  All functions are called under the segment's lock.
 *
 * While leases protect recent objects (MCM_EVICT_KEEP_RECENT), those are on a list of their own, in the order of their
 * puts, until they are not recent any more.  So a search never passes over them one by one. */
#ifndef MCM_EVICT_LISTS_H
#define MCM_EVICT_LISTS_H

#include "master/space/evict_policy.h"

#define MCM_WHEEL 32u

/* Bits of mcm_range.policy, which has four.  They stay while the range is on no list. */
#define MCM_LIST_CLASS 0x1u	/* the policy's: one of its two classes, which the lists count */
#define MCM_LIST_RECENT 0x2u
#define MCM_LIST_SOFT 0x4u
#define MCM_LIST_WHEEL 0x8u

struct mcm_lists {
	uint32_t soft;			/* list heads: range records without a range */
	uint32_t wheel[MCM_WHEEL];
	uint32_t turn;			/* oldest slot of the wheel that may have ranges */
	uint32_t waiting;		/* ranges on the wheel */
	uint32_t softs;			/* ranges on the list of soft-pinned ones */
	uint32_t soft_end;		/* no soft pin of them ends before this tick */
	uint32_t soft_seen, soft_next;	/* a walk over them: ranges seen, and the first end of these */
	uint32_t recent;		/* list head: recent ones */
	uint32_t recents;		/* ranges on that list */
	bool keep_recent;		/* as of the last search */
	unsigned shift;			/* log2 of the ticks per slot */
	uint64_t granules[2];		/* granules of the listed ranges, by class */
	uint64_t count[2];
	/* Put a range that is on no list on the policy's list of plain objects.  @newest: its object is the newest
	 * one there, which has just ceased to be recent. */
	void (*requeue)(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool newest);
};

/* -ENOMEM */
int mcm_lists_init(struct mcm_lists *l, struct mcm_alloc *a, uint32_t lease_ticks,
		   void (*requeue)(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool newest));
/* An empty list.  -ENOMEM. */
int mcm_list_new(struct mcm_alloc *a, uint32_t *ret_head);
void mcm_list_tail(struct mcm_lists *l, struct mcm_alloc *a, uint32_t head, uint32_t id);
void mcm_list_front(struct mcm_lists *l, struct mcm_alloc *a, uint32_t head, uint32_t id);
void mcm_lists_del(struct mcm_lists *l, struct mcm_alloc *a, uint32_t id);

/* Put a range that is on no list on the list of soft-pinned ones, or on that of recent ones if it is @fresh and leases
 * protect those, or pass it to requeue(). */
void mcm_lists_insert(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool fresh);

/* For mcm_evict_ops.retry. */
uint32_t mcm_lists_retry(const void *lists, const struct mcm_evict_view *v, unsigned level);

/* ---- selection of victims ---- */

struct mcm_selection {
	struct mcm_victim *out;
	unsigned n, max;
	uint64_t got, want;		/* bytes */
	int steps;			/* ranges that this call may still move */
	int chances;			/* touched ranges that this call may still skip */
	bool keep_recent;			/* MCM_EVICT_KEEP_RECENT */
};

/* Begin a selection: ranges whose lease or soft pin has ended, or that are not recent any more, are requeued.  If
 * @level allows leased objects, they are the first victims, those whose leases end first at the front: the plain
 * objects that are left are recent then. */
struct mcm_selection mcm_selection_begin(struct mcm_lists *l, const struct mcm_evict_view *v,
					 unsigned level, uint64_t want, struct mcm_victim *ret,
					 unsigned max);
bool mcm_selection_full(const struct mcm_selection *h);
/* The first range of a list whose object is neither pinned, leased, soft-pinned nor recent and protected; those before
 * it are taken off the list.  0: the list is empty, or the selection is full. */
uint32_t mcm_selection_next(struct mcm_selection *h, struct mcm_lists *l,
			    const struct mcm_evict_view *v, uint32_t head);
/* Make the range that mcm_selection_next() returned a victim. */
void mcm_selection_take(struct mcm_selection *h, struct mcm_lists *l, const struct mcm_evict_view *v,
			uint32_t id);
/* End: add recent and soft-pinned ranges after the plain ones, when @level allows it.  Returns the number of
 * victims. */
unsigned mcm_selection_end(struct mcm_selection *h, struct mcm_lists *l,
			   const struct mcm_evict_view *v, unsigned level, bool *ret_more);

#endif
