/* SPDX-License-Identifier: Apache-2.0
 * evict_lists.c - lists of ranges, wheel of leases, selection of victims.
 *
 * Ranges of objects under a promise lease are on a timing wheel, sorted roughly by the end of their
 * lease, so that the lease that ends first is found without a search.  Ranges of pinned objects are
 * on no list until they are unpinned.  Each read of an object moves its range a bounded number of
 * times, which makes eviction O(1) in the long run. */
#include <config.h>

#include "master/space/evict_lists.h"

#include "master/object/object.h"

#include "master/space/candidates.h"

#define STEPS 256		/* ranges moved per call, at most */
#define STEPS_TURN 128		/* part of STEPS for leases that have ended, so that each call also finds victims */
#define RECENT_MOST 16		/* recent ranges released per call, when even these may be evicted */
#define RECENT_STEPS 32
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
		   void (*requeue)(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool newest))
{
	unsigned i;
	int r;

	l->requeue = requeue;
	while ((lease_ticks >> l->shift) + 2 > MCM_WHEEL)
		l->shift++;
	r = mcm_list_new(a, &l->soft);
	if (r == 0)
		r = mcm_list_new(a, &l->recent);
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
		/* A walk over them may have seen it: rather see one twice than miss one. */
		l->soft_seen -= l->soft_seen > 0;
	}
	if (n->policy & MCM_LIST_WHEEL) {
		n->policy &= ~MCM_LIST_WHEEL;
		l->waiting--;
	}
	if (n->policy & MCM_LIST_RECENT) {
		n->policy &= ~MCM_LIST_RECENT;
		l->recents--;
	}
}

static uint32_t list_first(const struct mcm_alloc *a, uint32_t head)
{
	uint32_t id = mcm_range(a, head)->list_next;

	return id == head ? 0 : id;
}

static void recent_insert(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t prev, uint32_t id)
{
	list_insert(l, v->a, prev, id, mcm_range(v->a, prev)->list_next);
	mcm_range(v->a, id)->policy |= MCM_LIST_RECENT;
	l->recents++;
}

/* Add a range that was found on another list, in the order of generations as far as a few steps tell. */
static void recent_add(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t id)
{
	uint64_t generation = mcm_load_relaxed(&mcm_evict_owner(v, id)->generation);
	uint32_t prev = mcm_range(v->a, l->recent)->list_prev, next;

	if (prev != l->recent && mcm_load_relaxed(&mcm_evict_owner(v, prev)->generation) > generation) {
		next = mcm_range(v->a, l->recent)->list_next;
		for (unsigned i = 0; i < RECENT_STEPS && next != l->recent &&
		     mcm_load_relaxed(&mcm_evict_owner(v, next)->generation) < generation; i++)
			next = mcm_range(v->a, next)->list_next;
		prev = mcm_range(v->a, next)->list_prev;
	}
	recent_insert(l, v, prev, id);
}

static uint32_t soft_until(const struct mcm_evict_view *v, uint32_t id)
{
	uint32_t ext = mcm_load_relaxed(&mcm_evict_owner(v, id)->ext);

	return ext ? mcm_load_relaxed(&mcm_ext(v->ix, ext)->soft_until) : 0;
}

static void soft_add(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t id)
{
	uint32_t until = soft_until(v, id);

	mcm_list_tail(l, v->a, l->soft, id);
	mcm_range(v->a, id)->policy |= MCM_LIST_SOFT;
	if (!l->softs++ || until < l->soft_end)
		l->soft_end = until;
	/* A walk that has begun will not meet it. */
	if (l->soft_seen && until < l->soft_next)
		l->soft_next = until;
}

void mcm_lists_insert(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool fresh)
{
	if (mcm_evict_soft(v->ix, mcm_evict_owner(v, range), v->now))
		soft_add(l, v, range);
	else if (fresh && l->keep_recent)
		recent_insert(l, v, mcm_range(v->a, l->recent)->list_prev, range);
	else
		l->requeue(l, v, range, fresh);
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
				mcm_lists_insert(l, v, id, false);
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
		l->requeue(l, v, id, false);
	}
}

/* Requeue objects that are not recent any more, and at levels that evict recent ones the oldest of these too. */
static void recents_release(struct mcm_lists *l, const struct mcm_evict_view *v, unsigned level, int *steps)
{
	unsigned most = level & MCM_EVICT_KEEP_RECENT ? 0 : level & MCM_EVICT_LEASED ? RECENT_MOST : STEPS_TURN, n;
	uint32_t id;

	for (n = 0; n < STEPS_TURN && (id = list_first(v->a, l->recent)); n++) {
		if (n >= most && mcm_evict_recent(v, mcm_evict_owner(v, id)))
			return;
		--*steps;
		mcm_lists_del(l, v->a, id);
		l->requeue(l, v, id, true);
	}
}

/* The same for all of them, if one may have ended.  @steps limits a call; the next one continues. */
static void soft_pins_walk(struct mcm_lists *l, const struct mcm_evict_view *v, int *steps)
{
	uint32_t id, until, seen;

	while (l->softs && l->soft_end <= v->now) {
		if (l->soft_seen >= l->softs) {
			l->soft_end = l->soft_next;
			l->soft_seen = 0;
			return;
		}
		if (*steps <= 0)
			return;
		--*steps;
		id = list_first(v->a, l->soft);
		until = soft_until(v, id);
		seen = l->soft_seen;
		mcm_lists_del(l, v->a, id);
		l->soft_seen = seen;
		if (!mcm_evict_soft(v->ix, mcm_evict_owner(v, id), v->now)) {
			l->requeue(l, v, id, false);
			continue;
		}
		soft_add(l, v, id);
		l->soft_next = l->soft_seen++ && l->soft_next < until ? l->soft_next : until;
	}
}

/* ---- when a search may find something ---- */

/* The end of the first slot of the wheel that has ranges. */
static uint32_t wheel_end(const struct mcm_lists *l, const struct mcm_evict_view *v)
{
	for (uint32_t i = 0; i < MCM_WHEEL && l->waiting; i++)
		if (list_first(v->a, l->wheel[(l->turn + i) % MCM_WHEEL]))
			return (l->turn + i + 1) << l->shift;
	return MCM_TICK_NEVER;
}

/* The object is recent by the clock until then; by its generation maybe longer, which further puts decide. */
static uint32_t recent_end(const struct mcm_evict_view *v, const struct mcm_object *o)
{
	uint32_t age = v->wall_ms - mcm_load_relaxed(&o->mtime_lo);

	return v->now + mcm_tick(age < v->recent_ms ? v->recent_ms - age : MCM_RECENT_MIN_MS);
}

uint32_t mcm_lists_retry(const void *lists, const struct mcm_evict_view *v, unsigned level)
{
	const struct mcm_lists *l = lists;
	uint32_t tick = level & MCM_EVICT_LEASED ? MCM_TICK_NEVER : wheel_end(l, v), id, end;

	if (!(level & MCM_EVICT_SOFT) && l->softs && l->soft_end < tick)
		tick = l->soft_end;
	if (level & MCM_EVICT_KEEP_RECENT && (id = list_first(v->a, l->recent))) {
		end = recent_end(v, mcm_evict_owner(v, id));
		tick = end < tick ? end : tick;
	}
	return tick > v->now ? tick : v->now + 1;
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

/* Take a range that this level does not evict off the policy's list.  False: the level evicts it. */
static bool lists_set_aside(const struct mcm_selection *h, struct mcm_lists *l, const struct mcm_evict_view *v,
			    uint32_t head, uint32_t id)
{
	const struct mcm_object *o = mcm_evict_owner(v, id);
	bool soft = head != l->soft && mcm_evict_soft(v->ix, o, v->now);

	if (!soft && !(h->keep_recent && mcm_evict_recent(v, o)))
		return false;
	mcm_lists_del(l, v->a, id);
	if (soft)
		soft_add(l, v, id);
	else
		recent_add(l, v, id);
	return true;
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
			if (!(h->keep_recent || mcm_load_relaxed(&o->flags) & MCM_OBJ_SOFT) ||
			    !lists_set_aside(h, l, v, head, id))
				return id;
			break;
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
				soft_add(l, v, id);
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
	int turn = STEPS_TURN;

	wheel_turn(l, v, &turn);
	h.steps -= STEPS_TURN - (turn > 0 ? turn : 0);
	soft_pins_expire(l, v);
	l->keep_recent = level & (MCM_EVICT_KEEP_RECENT | MCM_EVICT_LEASED);
	recents_release(l, v, level, &h.steps);
	if (level & MCM_EVICT_LEASED)
		select_from_wheel(&h, l, v, level & MCM_EVICT_SOFT);
	return h;
}

unsigned mcm_selection_end(struct mcm_selection *h, struct mcm_lists *l,
			   const struct mcm_evict_view *v, unsigned level, bool *ret_more)
{
	uint64_t plain;
	uint32_t id;

	/* Leased objects that were met on the policy's lists are on the wheel now. */
	if (level & MCM_EVICT_LEASED)
		select_from_wheel(h, l, v, level & MCM_EVICT_SOFT);
	while (!(level & MCM_EVICT_KEEP_RECENT) && (id = mcm_selection_next(h, l, v, l->recent)))
		mcm_selection_take(h, l, v, id);
	if (level & MCM_EVICT_LEASED)
		select_from_wheel(h, l, v, level & MCM_EVICT_SOFT);
	while (level & MCM_EVICT_SOFT && (id = mcm_selection_next(h, l, v, l->soft))) {
		if (mcm_evict_touched(v, id) && h->chances-- > 0) {
			mcm_evict_untouch(v, id);
			mcm_lists_del(l, v->a, id);
			soft_add(l, v, id);
		} else {
			mcm_selection_take(h, l, v, id);
		}
	}
	plain = l->count[0] + l->count[1] - l->softs;
	if (!h->n && !(level & MCM_EVICT_SOFT))
		soft_pins_walk(l, v, &h->steps);
	/* Also when the wheel has not been turned to the end: leases that have ended may be behind renewed ones. */
	*ret_more = h->steps <= 0 || (l->waiting && l->turn < v->now >> l->shift) ||
		plain != l->count[0] + l->count[1] - l->softs;
	return h->n;
}
