/* SPDX-License-Identifier: Apache-2.0
 * evict_lru.c - approximate least-recently-used with a second chance.
 *
 * Ranges stand in a queue in the order of their commits.  A read only sets a mark in the object; when
 * the queue's head bears it, the mark is cleared and the range goes to the tail.  Soft-pinned objects
 * have a queue of their own.  Objects under a promise lease wait on a wheel, sorted roughly by the end
 * of their lease, so that "the oldest promise" is found without a search; pinned ones leave the lists
 * until they are released.  Each range is moved a bounded number of times per read of its object, which
 * makes eviction O(1) in the long run. */
#include <config.h>

#include "master/evict_policy.h"

#include "common/err.h"

#define WHEEL 32u
#define STEPS 256		/* ranges moved per call at the most */
#define SECOND_CHANCES 32	/* per call: then a touched head goes all the same */

struct lru {
	uint32_t plain, soft;		/* list heads: nodes of no range */
	uint32_t wheel[WHEEL];
	uint32_t turn;			/* oldest slot of the wheel that may hold something */
	uint32_t waiting;		/* ranges on the wheel */
	unsigned shift;			/* log2 ticks of a slot */
};

/* node->policy: which list, for the count of the wheel. */
enum { ON_QUEUE, ON_WHEEL };

static int head_new(struct mcm_alloc *a, uint32_t *ret)
{
	struct mcm_node *n;
	int r;

	r = mcm_slab_take(&a->nodes, 1, ret);
	if (r < 0)
		return r;
	n = mcm_node(a, *ret);
	n->list_prev = n->list_next = *ret;
	return 0;
}

static int lru_init(void *state, struct mcm_alloc *a, uint32_t lease_ticks)
{
	struct lru *l = state;
	unsigned i;
	int r;

	while ((lease_ticks >> l->shift) + 2 > WHEEL)
		l->shift++;
	r = head_new(a, &l->plain);
	if (r == 0)
		r = head_new(a, &l->soft);
	for (i = 0; r == 0 && i < WHEEL; i++)
		r = head_new(a, &l->wheel[i]);
	return r;
}

static void list_tail(struct lru *l, struct mcm_alloc *a, uint32_t head, uint32_t id, uint8_t where)
{
	struct mcm_node *h = mcm_node(a, head), *n = mcm_node(a, id);

	n->list_prev = h->list_prev;
	n->list_next = head;
	mcm_node(a, h->list_prev)->list_next = id;
	h->list_prev = id;
	n->policy = where;
	n->flags |= MCM_NODE_LISTED;
	if (where == ON_WHEEL)
		l->waiting++;
}

static void list_del(struct lru *l, struct mcm_alloc *a, uint32_t id)
{
	struct mcm_node *n = mcm_node(a, id);

	mcm_node(a, n->list_prev)->list_next = n->list_next;
	mcm_node(a, n->list_next)->list_prev = n->list_prev;
	n->list_prev = n->list_next = 0;
	n->flags &= (uint8_t)~MCM_NODE_LISTED;
	if (n->policy == ON_WHEEL)
		l->waiting--;
}

static uint32_t list_first(const struct mcm_alloc *a, uint32_t head)
{
	uint32_t id = mcm_node(a, head)->list_next;

	return id == head ? 0 : id;
}

static void lru_insert(void *state, const struct mcm_evict_view *v, uint32_t node)
{
	struct lru *l = state;
	bool soft = mcm_evict_soft(v->ix, mcm_evict_owner(v, node), v->now);

	list_tail(l, v->a, soft ? l->soft : l->plain, node, ON_QUEUE);
}

static void lru_remove(void *state, const struct mcm_evict_view *v, uint32_t node)
{
	list_del(state, v->a, node);
}

static void wheel_add(struct lru *l, const struct mcm_evict_view *v, uint32_t node, uint32_t lease)
{
	uint32_t slot = lease >> l->shift;

	if (!l->waiting)
		l->turn = v->now >> l->shift;
	if (slot < l->turn)
		slot = l->turn;
	if (slot - l->turn >= WHEEL)
		slot = l->turn + WHEEL - 1;
	list_tail(l, v->a, l->wheel[slot % WHEEL], node, ON_WHEEL);
}

/* Ranges whose leases have run out go back to their queues. */
static void wheel_turn(struct lru *l, const struct mcm_evict_view *v, int *steps)
{
	uint32_t now = v->now >> l->shift, id, lease;

	while (l->waiting && l->turn < now) {
		while ((id = list_first(v->a, l->wheel[l->turn % WHEEL]))) {
			if ((*steps)-- <= 0)
				return;
			lease = mcm_peek(&mcm_evict_owner(v, id)->lease);
			list_del(l, v->a, id);
			if (lease > v->now && lease >> l->shift > l->turn)
				wheel_add(l, v, id, lease);
			else
				lru_insert(l, v, id);
		}
		l->turn++;
	}
}

/* Soft pins end, too; they stand roughly in that order. */
static void soften(struct lru *l, const struct mcm_evict_view *v)
{
	uint32_t id;
	int n;

	for (n = 0; n < 4 && (id = list_first(v->a, l->soft)); n++) {
		if (mcm_evict_soft(v->ix, mcm_evict_owner(v, id), v->now))
			return;
		list_del(l, v->a, id);
		list_tail(l, v->a, l->plain, id, ON_QUEUE);
	}
}

struct harvest {
	struct mcm_victim *out;
	unsigned n, max;
	uint64_t got, want;
	int steps, chances;
};

static bool harvest_full(const struct harvest *h)
{
	return h->n == h->max || (h->n && h->got >= h->want) || h->steps <= 0;
}

static void harvest_add(struct harvest *h, struct lru *l, const struct mcm_evict_view *v,
			uint32_t id)
{
	const struct mcm_node *n = mcm_node(v->a, id);
	const struct mcm_object *o = mcm_evict_owner(v, id);

	list_del(l, v->a, id);
	h->out[h->n++] = (struct mcm_victim){ n->owner, id, mcm_peek(&o->generation) };
	h->got += mcm_node_granules(n) << MCM_GRANULE_SHIFT;
}

static void harvest_queue(struct harvest *h, struct lru *l, const struct mcm_evict_view *v,
			  uint32_t head)
{
	uint32_t id;

	while (!harvest_full(h) && (id = list_first(v->a, head))) {
		struct mcm_object *o = mcm_evict_owner(v, id);

		h->steps--;
		switch (mcm_evict_peek(v, o)) {
		case MCM_PEEK_PINNED:
			if (mcm_evict_park(o))
				list_del(l, v->a, id);
			break;
		case MCM_PEEK_LEASED:
			list_del(l, v->a, id);
			wheel_add(l, v, id, mcm_peek(&o->lease));
			break;
		case MCM_PEEK_TOUCHED:
			if (h->chances-- > 0) {
				__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_TOUCHED,
						   __ATOMIC_RELAXED);
				list_del(l, v->a, id);
				list_tail(l, v->a, head, id, ON_QUEUE);
				break;
			}
			/* fall through */
		case MCM_PEEK_COLD:
			harvest_add(h, l, v, id);
			break;
		}
	}
}

/* Break promises, the oldest first. */
static void harvest_wheel(struct harvest *h, struct lru *l, const struct mcm_evict_view *v,
			  bool soft_too)
{
	uint32_t i, id;

	for (i = 0; i < WHEEL && l->waiting; i++) {
		uint32_t slot = l->turn + i;

		while ((id = list_first(v->a, l->wheel[slot % WHEEL]))) {
			struct mcm_object *o = mcm_evict_owner(v, id);
			uint32_t lease = mcm_peek(&o->lease);

			if (harvest_full(h))
				return;
			h->steps--;
			if (mcm_peek(&o->pins)) {
				if (mcm_evict_park(o))
					list_del(l, v->a, id);
			} else if (!soft_too && mcm_evict_soft(v->ix, o, v->now)) {
				list_del(l, v->a, id);
				list_tail(l, v->a, l->soft, id, ON_QUEUE);
			} else if (lease >> l->shift > slot && slot + 1 < l->turn + WHEEL) {
				list_del(l, v->a, id);
				wheel_add(l, v, id, lease);
			} else {
				harvest_add(h, l, v, id);
			}
		}
	}
}

static unsigned lru_victims(void *state, const struct mcm_evict_view *v,
			    unsigned level, uint64_t want, struct mcm_victim *ret,
			    unsigned max, bool *ret_more)
{
	struct lru *l = state;
	struct harvest h = { .out = ret, .max = max, .want = want, .steps = STEPS,
			     .chances = SECOND_CHANCES };

	wheel_turn(l, v, &h.steps);
	soften(l, v);
	harvest_queue(&h, l, v, l->plain);
	if (level & MCM_EVICT_SOFT && !harvest_full(&h))
		harvest_queue(&h, l, v, l->soft);
	if (level & MCM_EVICT_LEASED && !harvest_full(&h))
		harvest_wheel(&h, l, v, level & MCM_EVICT_SOFT);
	*ret_more = h.steps <= 0;
	return h.n;
}

const struct mcm_evict_ops mcm_evict_lru = {
	.name = "lru",
	.state_size = sizeof(struct lru),
	.init = lru_init,
	.insert = lru_insert,
	.remove = lru_remove,
	.victims = lru_victims,
};
