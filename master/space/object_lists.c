/* SPDX-License-Identifier: Apache-2.0
 * object_lists.c - lists of objects that may become evictable. */
#include <config.h>

#include "master/space/object_lists.h"

#include "common/cleanup.h"
#include "master/mcm_i.h"

#define STEPS 256		/* objects moved per search, under the lists' lock */
#define SECOND_CHANCES 32	/* per search; after that, objects that were read are evicted too */
#define SOFT_PINS_CHECKED 4	/* soft-pinned objects checked for expiry per search */

/* Lists, by number. */
#define PLAIN 0u
#define SOFT 1u
#define WHEEL 2u
_Static_assert(MCM_OBJECT_LISTS == WHEEL + MCM_OBJECT_WHEEL, "each slot of the wheel is a list");

/* Link number of a list's head; larger than any slot. */
#define HEAD(list) (UINT32_MAX - (list))

void mcm_object_lists_init(struct mcm_object_lists *l)
{
	mc_mutex_init(&l->lock);
	for (unsigned i = 0; i < MCM_OBJECT_LISTS; i++)
		l->head[i].prev = l->head[i].next = HEAD(i);
}

void mcm_object_lists_done(struct mcm_object_lists *l)
{
	mc_mutex_destroy(&l->lock);
}

int mcm_object_lists_cover(struct mcm *m, uint32_t slot)
{
	return mcm_slab_cover(&m->object_links, slot);
}

/* ---- the lists; lock held ---- */

static struct mcm_object_link *link_of(const struct mcm *m, struct mcm_object_lists *l, uint32_t at)
{
	return at > HEAD(MCM_OBJECT_LISTS) ? &l->head[UINT32_MAX - at] : mcm_slab_at(&m->object_links, at);
}

static void link_after(const struct mcm *m, struct mcm_object_lists *l, uint32_t prev, uint32_t slot)
{
	struct mcm_object_link *e = link_of(m, l, slot), *p = link_of(m, l, prev);

	e->prev = prev;
	e->next = p->next;
	link_of(m, l, p->next)->prev = slot;
	p->next = slot;
}

static void link_last(const struct mcm *m, struct mcm_object_lists *l, unsigned list, uint32_t slot)
{
	link_after(m, l, l->head[list].prev, slot);
}

static void unlink_object(const struct mcm *m, struct mcm_object_lists *l, uint32_t slot)
{
	struct mcm_object_link *e = link_of(m, l, slot);

	if (!e->next)
		return;
	link_of(m, l, e->prev)->next = e->next;
	link_of(m, l, e->next)->prev = e->prev;
	e->prev = e->next = 0;
}

static void list_move(const struct mcm *m, struct mcm_object_lists *l, unsigned list, uint32_t slot)
{
	unlink_object(m, l, slot);
	link_last(m, l, list, slot);
}

static uint32_t list_first(const struct mcm_object_lists *l, unsigned list)
{
	return l->head[list].next == HEAD(list) ? 0 : l->head[list].next;
}

/* ---- the shard locked ---- */

void mcm_object_lists_add(struct mcm *m, struct mcm_object_lists *l, uint32_t slot)
{
	MC_LOCKED(&l->lock);
	if (!link_of(m, l, slot)->next)
		link_last(m, l, PLAIN, slot);
}

void mcm_object_lists_remove(struct mcm *m, struct mcm_object_lists *l, uint32_t slot)
{
	MC_LOCKED(&l->lock);
	unlink_object(m, l, slot);
}

void mcm_object_lists_front(struct mcm *m, struct mcm_object_lists *l, uint32_t slot)
{
	MC_LOCKED(&l->lock);
	if (l->head[PLAIN].prev != slot)
		return;
	unlink_object(m, l, slot);
	link_after(m, l, HEAD(PLAIN), slot);
}

/* ---- the wheel; lock held ---- */

static unsigned wheel_shift(const struct mcm *m)
{
	uint32_t ticks = mcm_tick_after(m->conf.default_kv_lease_ttl);
	unsigned shift = 0;

	while ((ticks >> shift) + 2 > MCM_OBJECT_WHEEL)
		shift++;
	return shift;
}

static void wheel_add(const struct mcm *m, struct mcm_object_lists *l, uint32_t slot, uint32_t lease)
{
	uint32_t at = lease >> wheel_shift(m);

	if (at < l->turn)
		at = l->turn;
	if (at - l->turn >= MCM_OBJECT_WHEEL)
		at = l->turn + MCM_OBJECT_WHEEL - 1;
	list_move(m, l, WHEEL + at % MCM_OBJECT_WHEEL, slot);
}

/* Move objects whose promise lease has expired to the plain list. */
static void wheel_turn(const struct mcm *m, struct mcm_object_lists *l, uint32_t now, int *steps)
{
	uint32_t to = now >> wheel_shift(m), left, slot, lease;

	for (left = MCM_OBJECT_WHEEL; l->turn < to && left; left--, l->turn++) {
		while ((slot = list_first(l, WHEEL + l->turn % MCM_OBJECT_WHEEL))) {
			if ((*steps)-- <= 0)
				return;
			lease = mcm_load_relaxed(&mcm_object(&m->index, slot)->lease);
			if (lease >> wheel_shift(m) > l->turn)
				wheel_add(m, l, slot, lease);
			else
				list_move(m, l, PLAIN, slot);
		}
	}
	if (l->turn < to)
		l->turn = to;
}

/* Move objects whose soft pin has expired to the plain list.  The list is roughly in the order of expiry. */
static void move_expired_soft_pins(const struct mcm *m, struct mcm_object_lists *l, uint32_t now)
{
	uint32_t slot;

	for (unsigned n = 0; n < SOFT_PINS_CHECKED && (slot = list_first(l, SOFT)); n++) {
		if (mcm_evict_soft(&m->index, mcm_object(&m->index, slot), now))
			return;
		list_move(m, l, PLAIN, slot);
	}
}

/* The same for soft pins anywhere in the list, which is walked until @steps are used up; the next call continues
 * there.  True: some have expired. */
static bool move_all_expired_soft_pins(const struct mcm *m, struct mcm_object_lists *l, uint32_t now, int steps)
{
	uint32_t slot, kept = 0;
	bool moved = false;

	while (steps-- > 0 && (slot = list_first(l, SOFT)) && slot != kept) {
		bool pinned = mcm_evict_soft(&m->index, mcm_object(&m->index, slot), now);

		list_move(m, l, pinned ? SOFT : PLAIN, slot);
		kept = pinned && !kept ? slot : kept;
		moved |= !pinned;
	}
	return moved;
}

/* ---- victims ---- */

struct search {
	struct mcm *m;
	struct mcm_object_lists *l;
	const struct mcm_evict_view *view;
	unsigned level;
	uint64_t want;
	struct mcm_victim *v;
	unsigned n, max;
	int steps, chances;
	uint32_t slot;			/* slot of the wheel that is searched */
};

static bool search_done(const struct search *s)
{
	return s->n == s->max || !s->want || s->steps <= 0;
}

/* Is the object too new for this level?  Then all objects behind it on its list are. */
static bool search_ends(const struct search *s, unsigned list, const struct mcm_object *o)
{
	return s->level & MCM_EVICT_KEEP_RECENT && list < WHEEL && !mcm_load_relaxed(&o->pins) &&
	       mcm_load_relaxed(&o->lease) <= s->view->now && mcm_evict_recent(s->view, o);
}

/* Handle the first object of a list: move it to the list where it belongs now, or make it a victim. */
static void search_object(struct search *s, unsigned list, uint32_t slot, struct mcm_object *o)
{
	uint32_t lease = mcm_load_relaxed(&o->lease), now = s->view->now;
	uint64_t bytes = mcm_object_size(o);

	if (mcm_load_relaxed(&o->pins)) {
		/* Its last reader puts it back, even one that releases it right now. */
		if (mcm_object_park(o))
			unlink_object(s->m, s->l, slot);
	} else if (list < WHEEL ? lease > now : lease >> wheel_shift(s->m) > s->slot &&
		   s->slot + 1 < s->l->turn + MCM_OBJECT_WHEEL) {
		wheel_add(s->m, s->l, slot, lease);
	} else if (list != SOFT && mcm_evict_soft(&s->m->index, o, now) &&
		   (list == PLAIN || !(s->level & MCM_EVICT_SOFT))) {
		list_move(s->m, s->l, SOFT, slot);
	} else if (list < WHEEL && mcm_load_relaxed(&o->marks) & MCM_MARK_TOUCHED && s->chances-- > 0) {
		__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_TOUCHED, __ATOMIC_RELAXED);
		list_move(s->m, s->l, list, slot);
	} else {
		unlink_object(s->m, s->l, slot);
		s->v[s->n++] = (struct mcm_victim){
			.slot = slot, .generation = mcm_load_relaxed(&o->generation)
		};
		s->want -= bytes < s->want ? bytes : s->want;
	}
}

static void search_list(struct search *s, unsigned list)
{
	struct mcm_object *o;
	uint32_t slot;

	while (!search_done(s) && (slot = list_first(s->l, list))) {
		o = mcm_object(&s->m->index, slot);
		if (search_ends(s, list, o))
			return;
		s->steps--;
		search_object(s, list, slot, o);
	}
}

unsigned mcm_object_lists_choose(struct mcm *m, struct mcm_object_lists *l, const struct mcm_evict_view *v,
				 unsigned level, uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more)
{
	struct search s = {
		.m = m, .l = l, .view = v, .level = level, .want = want, .v = ret, .max = max,
		.steps = STEPS, .chances = SECOND_CHANCES,
	};

	MC_LOCKED(&l->lock);
	wheel_turn(m, l, v->now, &s.steps);
	move_expired_soft_pins(m, l, v->now);
	search_list(&s, PLAIN);
	if (!s.n && move_all_expired_soft_pins(m, l, v->now, s.steps))
		search_list(&s, PLAIN);
	if (level & MCM_EVICT_SOFT)
		search_list(&s, SOFT);
	for (unsigned i = 0; level & MCM_EVICT_LEASED && i < MCM_OBJECT_WHEEL; i++) {
		s.slot = l->turn + i;
		search_list(&s, WHEEL + s.slot % MCM_OBJECT_WHEEL);
	}
	*ret_more = s.steps <= 0;
	return s.n;
}
