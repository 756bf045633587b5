/* SPDX-License-Identifier: Apache-2.0
 * evict_lists.h - what eviction policies have in common: lists of ranges, a list of soft-pinned ones, a
 * wheel of those under a promise lease, and the gathering of victims.
 *
 * A policy embeds struct mcm_lists, keeps lists of its own for plain objects, and says with requeue()
 * where a range goes that comes back from the wheel or is not soft-pinned any more.  All of it is
 * called under the segment's lock. */
#ifndef MCM_EVICT_LISTS_H
#define MCM_EVICT_LISTS_H

#include "master/space/evict_policy.h"

#define MCM_WHEEL 32u

/* Bits of node->flags.  They stay while the range is on no list. */
#define MCM_LIST_CLASS 0x1u	/* the policy's: of which of its lists a range is; listed ones are counted */
#define MCM_LIST_WHEEL 0x8u

struct mcm_lists {
	uint32_t soft;			/* list heads: nodes of no range */
	uint32_t wheel[MCM_WHEEL];
	uint32_t turn;			/* oldest slot of the wheel that may hold something */
	uint32_t waiting;		/* ranges on the wheel */
	unsigned shift;			/* log2 ticks of a slot */
	uint64_t granules[2];		/* of the ranges on any list, by class */
	uint64_t count[2];
	/* A range on no list goes to the policy's list of plain objects. */
	void (*requeue)(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range);
};

/* -ENOMEM */
int mcm_lists_init(struct mcm_lists *l, struct mcm_alloc *a, uint32_t lease_ticks,
		   void (*requeue)(struct mcm_lists *l, const struct mcm_evict_view *v,
				   uint32_t range));
/* An empty list.  -ENOMEM. */
int mcm_list_new(struct mcm_alloc *a, uint32_t *ret_head);
void mcm_list_tail(struct mcm_lists *l, struct mcm_alloc *a, uint32_t head, uint32_t id);
void mcm_list_front(struct mcm_lists *l, struct mcm_alloc *a, uint32_t head, uint32_t id);
void mcm_lists_del(struct mcm_lists *l, struct mcm_alloc *a, uint32_t id);

/* A range that is on no list: soft-pinned ones to their list, others to requeue(). */
void mcm_lists_insert(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range);

/* ---- gathering victims ---- */

struct mcm_selection {
	struct mcm_victim *out;
	unsigned n, max;
	uint64_t got, want;		/* bytes */
	int steps;			/* ranges that may still be moved in this call */
	int chances;			/* touched ones that may still be passed over */
	bool keep_recent;			/* MCM_EVICT_KEEP_RECENT */
};

/* Begin: what became plain since the last time is requeued.  When @level allows to break promises, the
 * oldest are the first victims: what is plain still is new then. */
struct mcm_selection mcm_selection_begin(struct mcm_lists *l, const struct mcm_evict_view *v,
					 unsigned level, uint64_t want, struct mcm_victim *ret,
					 unsigned max);
bool mcm_selection_full(const struct mcm_selection *h);
/* The first range of a list that nobody holds; those before it that are pinned or promised leave the
 * list.  0: the list is empty, the harvest full, or what comes next has to settle. */
uint32_t mcm_selection_next(struct mcm_selection *h, struct mcm_lists *l,
			    const struct mcm_evict_view *v, uint32_t head);
/* Take what mcm_selection_next() gave as a victim. */
void mcm_selection_take(struct mcm_selection *h, struct mcm_lists *l, const struct mcm_evict_view *v,
			uint32_t id);
/* After the plain ones: the soft-pinned ones, when @level allows.  Returns the number of victims. */
unsigned mcm_selection_end(struct mcm_selection *h, struct mcm_lists *l,
			   const struct mcm_evict_view *v, unsigned level, bool *ret_more);

#endif
