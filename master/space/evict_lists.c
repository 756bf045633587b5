/* SPDX-License-Identifier: Apache-2.0
 * evict_lists.c - lists of ranges, wheel of leases, selection of victims.
 *
 * Ranges of objects under a promise lease are on a timing wheel, sorted roughly by the end of their
 * lease, so that the lease that ends first is found without a search.  Ranges of pinned objects are
 * on no list until they are unpinned.  Each read of an object moves its range a bounded number of
 * times, which makes eviction O(1) in the long run. */
#include <config.h>

#include "master/space/evict_lists.h"

#define STEPS 256		/* ranges moved per call, at most */
#define SECOND_CHANCES 32	/* per call; further touched ranges are evicted nevertheless */

int mcm_list_new(struct mcm_alloc *a, uint32_t *ret)
{
	struct mcm_range *n;
	int r;

	r = mcm_slab_take(&a->slab, 1, ret);
	if (r < 0)
		return r;
	n = mcm_range(a, *ret);
	n->list_prev = n->list_next = *ret;
	return 0;
}

int mcm_lists_init(struct mcm_lists *l, struct mcm_alloc *a, uint32_t lease_ticks,
		   void (*requeue)(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range))
{
	unsigned i;
	int r;

	l->requeue = requeue;
	while ((lease_ticks >> l->shift) + 2 > MCM_WHEEL)
		l->shift++;
	r = mcm_list_new(a, &l->soft);
	for (i = 0; r == 0 && i < MCM_WHEEL; i++)
		r = mcm_list_new(a, &l->wheel[i]);
	return r;
}

static void list_insert(struct mcm_lists *l, struct mcm_alloc *a, uint32_t prev, uint32_t id, uint32_t next)
{
	struct mcm_range *n = mcm_range(a, id);
	unsigned class = !!(n->policy & MCM_LIST_CLASS);

	n->list_prev = prev;
	n->list_next = next;
	mcm_range(a, prev)->list_next = id;
	mcm_range(a, next)->list_prev = id;
	n->flags |= MCM_RANGE_LISTED;
	l->granules[class] += mcm_range_granules(a, n);
	l->count[class]++;
}

void mcm_list_tail(struct mcm_lists *l, struct mcm_alloc *a, uint32_t head, uint32_t id)
{
	list_insert(l, a, mcm_range(a, head)->list_prev, id, head);
}

void mcm_list_front(struct mcm_lists *l, struct mcm_alloc *a, uint32_t head, uint32_t id)
{
	list_insert(l, a, head, id, mcm_range(a, head)->list_next);
}

void mcm_lists_del(struct mcm_lists *l, struct mcm_alloc *a, uint32_t id)
{
	struct mcm_range *n = mcm_range(a, id);
	unsigned class = !!(n->policy & MCM_LIST_CLASS);

	l->granules[class] -= mcm_range_granules(a, n);
	l->count[class]--;
	mcm_range(a, n->list_prev)->list_next = n->list_next;
	mcm_range(a, n->list_next)->list_prev = n->list_prev;
	n->list_prev = n->list_next = 0;
	n->flags &= ~MCM_RANGE_LISTED;
	if (n->policy & MCM_LIST_SOFT) {
		n->policy &= ~MCM_LIST_SOFT;
		l->softs--;
	}
	if (n->policy & MCM_LIST_WHEEL) {
		n->policy &= ~MCM_LIST_WHEEL;
		l->waiting--;
	}
}

static uint32_t list_first(const struct mcm_alloc *a, uint32_t head)
{
	uint32_t id = mcm_range(a, head)->list_next;

	return id == head ? 0 : id;
}

static void soft_add(struct mcm_lists *l, struct mcm_alloc *a, uint32_t id)
{
	mcm_list_tail(l, a, l->soft, id);
	mcm_range(a, id)->policy |= MCM_LIST_SOFT;
	l->softs++;
}

void mcm_lists_insert(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range)
{
	if (mcm_evict_soft(v->ix, mcm_evict_owner(v, range), v->now))
		soft_add(l, v->a, range);
	else
		l->requeue(l, v, range);
}

/* ---- the wheel ---- */

static void wheel_add(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, uint32_t lease)
{
	uint32_t slot = lease >> l->shift;

	if (!l->waiting)
		l->turn = v->now >> l->shift;
	if (slot < l->turn)
		slot = l->turn;
	if (slot - l->turn >= MCM_WHEEL)
		slot = l->turn + MCM_WHEEL - 1;
	mcm_list_tail(l, v->a, l->wheel[slot % MCM_WHEEL], range);
	mcm_range(v->a, range)->policy |= MCM_LIST_WHEEL;
	l->waiting++;
}

/* Put the ranges whose leases have ended back on their lists. */
static void wheel_turn(struct mcm_lists *l, const struct mcm_evict_view *v, int *steps)
{
	uint32_t now = v->now >> l->shift, id, lease;

	while (l->waiting && l->turn < now) {
		while ((id = list_first(v->a, l->wheel[l->turn % MCM_WHEEL]))) {
			if ((*steps)-- <= 0)
				return;
			lease = mcm_load_relaxed(&mcm_evict_owner(v, id)->lease);
			mcm_lists_del(l, v->a, id);
			if (lease > v->now && lease >> l->shift > l->turn)
				wheel_add(l, v, id, lease);
			else
				mcm_lists_insert(l, v, id);
		}
		l->turn++;
	}
}

/* Soft pins end too; the list is roughly in the order of their ends. */
static void soft_pins_expire(struct mcm_lists *l, const struct mcm_evict_view *v)
{
	uint32_t id;
	int n;

	for (n = 0; n < 4 && (id = list_first(v->a, l->soft)); n++) {
		if (mcm_evict_soft(v->ix, mcm_evict_owner(v, id), v->now))
			return;
		mcm_lists_del(l, v->a, id);
		l->requeue(l, v, id);
	}
}

/* ---- victims ---- */

bool mcm_selection_full(const struct mcm_selection *h)
{
	return h->n == h->max || (h->n && h->got >= h->want) || h->steps <= 0;
}

void mcm_selection_take(struct mcm_selection *h, struct mcm_lists *l, const struct mcm_evict_view *v,
			uint32_t id)
{
	const struct mcm_range *n = mcm_range(v->a, id);
	const struct mcm_object *o = mcm_evict_owner(v, id);

	mcm_lists_del(l, v->a, id);
	h->out[h->n++] = (struct mcm_victim){
		n->owner, id, mcm_load_relaxed(&o->generation), n->policy
	};
	h->got += mcm_range_granules(v->a, n) << MCM_GRANULE_SHIFT;
}

uint32_t mcm_selection_next(struct mcm_selection *h, struct mcm_lists *l,
			    const struct mcm_evict_view *v, uint32_t head)
{
	enum mcm_owner_state state;
	uint32_t id;

	while (!mcm_selection_full(h) && (id = list_first(v->a, head))) {
		struct mcm_object *o = mcm_evict_owner(v, id);

		/* Prefetch the next range's object while this one is checked. */
		__builtin_prefetch(mcm_evict_owner(v, mcm_range(v->a, id)->list_next));
		state = mcm_evict_owner_state(v, o);
		if (h->keep_recent && state < MCM_OWNER_LEASED && mcm_evict_recent(v, o))
			return 0;
		h->steps--;
		switch (state) {
		case MCM_OWNER_PINNED:
			if (mcm_object_park(o))
				mcm_lists_del(l, v->a, id);
			break;
		case MCM_OWNER_LEASED:
			mcm_lists_del(l, v->a, id);
			wheel_add(l, v, id, mcm_load_relaxed(&o->lease));
			break;
		case MCM_OWNER_TOUCHED:
		case MCM_OWNER_COLD:
			return id;
		}
	}
	return 0;
}

/* Select ranges whose objects have a promise lease; the lease that ends first comes first. */
static void select_from_wheel(struct mcm_selection *h, struct mcm_lists *l,
			      const struct mcm_evict_view *v, bool soft_too)
{
	uint32_t i, id;

	for (i = 0; i < MCM_WHEEL && l->waiting; i++) {
		uint32_t slot = l->turn + i;

		while ((id = list_first(v->a, l->wheel[slot % MCM_WHEEL]))) {
			struct mcm_object *o = mcm_evict_owner(v, id);
			uint32_t lease = mcm_load_relaxed(&o->lease);

			if (mcm_selection_full(h))
				return;
			h->steps--;
			if (mcm_load_relaxed(&o->pins)) {
				if (mcm_object_park(o))
					mcm_lists_del(l, v->a, id);
			} else if (!soft_too && mcm_evict_soft(v->ix, o, v->now)) {
				mcm_lists_del(l, v->a, id);
				soft_add(l, v->a, id);
			} else if (lease >> l->shift > slot && slot + 1 < l->turn + MCM_WHEEL) {
				mcm_lists_del(l, v->a, id);
				wheel_add(l, v, id, lease);
			} else {
				mcm_selection_take(h, l, v, id);
			}
		}
	}
}

struct mcm_selection mcm_selection_begin(struct mcm_lists *l, const struct mcm_evict_view *v,
					 unsigned level, uint64_t want, struct mcm_victim *ret,
					 unsigned max)
{
	struct mcm_selection h = { .out = ret, .max = max, .want = want, .steps = STEPS,
				 .chances = SECOND_CHANCES, .keep_recent = level & MCM_EVICT_KEEP_RECENT };

	wheel_turn(l, v, &h.steps);
	soft_pins_expire(l, v);
	if (level & MCM_EVICT_LEASED)
		select_from_wheel(&h, l, v, level & MCM_EVICT_SOFT);
	return h;
}

unsigned mcm_selection_end(struct mcm_selection *h, struct mcm_lists *l,
			   const struct mcm_evict_view *v, unsigned level, bool *ret_more)
{
	uint32_t id;

	while (level & MCM_EVICT_SOFT && (id = mcm_selection_next(h, l, v, l->soft))) {
		if (mcm_evict_touched(v, id) && h->chances-- > 0) {
			mcm_evict_untouch(v, id);
			mcm_lists_del(l, v->a, id);
			soft_add(l, v->a, id);
		} else {
			mcm_selection_take(h, l, v, id);
		}
	}
	*ret_more = h->steps <= 0;
	return h->n;
}
