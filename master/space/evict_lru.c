/* SPDX-License-Identifier: Apache-2.0
 * evict_lru.c - approximate least-recently-used order with a second chance.
 *
 * Ranges are in a queue in the order of their commits.  A read only sets a mark in the object.
 * When the queue's head has the mark, the mark is cleared and the range moves to the tail. */
#include <config.h>

#include "master/space/evict_lists.h"

struct lru {
	struct mcm_lists lists;
	uint32_t queue;
};

static void lru_requeue(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_list_tail(l, v->a, ((struct lru *)l)->queue, range);
}

static int lru_init(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks)
{
	struct lru *lru = state;
	int r;

	(void)shared;
	r = mcm_lists_init(&lru->lists, a, lease_ticks, lru_requeue);
	return r < 0 ? r : mcm_list_new(a, &lru->queue);
}

static void lru_insert(void *state, const struct mcm_evict_view *v, uint32_t range, bool fresh)
{
	(void)fresh;
	mcm_lists_insert(state, v, range);
}

static void lru_remove(void *state, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_lists_del(state, v->a, range);
}

static unsigned lru_victims(void *state, const struct mcm_evict_view *v, unsigned level,
			    uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more)
{
	struct lru *lru = state;
	struct mcm_lists *l = &lru->lists;
	struct mcm_selection h = mcm_selection_begin(l, v, level, want, ret, max);
	uint32_t id;

	while ((id = mcm_selection_next(&h, l, v, lru->queue))) {
		if (mcm_evict_touched(v, id) && h.chances-- > 0) {
			mcm_evict_untouch(v, id);
			mcm_lists_del(l, v->a, id);
			mcm_list_tail(l, v->a, lru->queue, id);
		} else {
			mcm_selection_take(&h, l, v, id);
		}
	}
	return mcm_selection_end(&h, l, v, level, ret_more);
}

const struct mcm_evict_ops mcm_evict_lru = {
	.name = "lru",
	.state_size = sizeof(struct lru),
	.shared_new = mcm_evict_shared_none,
	.shared_free = mcm_evict_shared_free,
	.init = lru_init,
	.insert = lru_insert,
	.remove = lru_remove,
	.victims = lru_victims,
	.evicted = mcm_evict_ignore,
};
