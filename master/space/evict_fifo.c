/* SPDX-License-Identifier: Apache-2.0
 * evict_fifo.c - first in, first out: the object committed first is evicted first, reads change nothing.
 *
 * A range that was skipped because its object was pinned or leased was the oldest then, so it is put
 * back at the front. */
#include <config.h>

#include "master/space/evict_lists.h"

struct fifo {
	struct mcm_lists lists;
	uint32_t queue;
};

static void fifo_requeue(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_list_front(l, v->a, ((struct fifo *)l)->queue, range);
}

static int fifo_init(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks)
{
	struct fifo *fifo = state;
	int r;

	(void)shared;
	r = mcm_lists_init(&fifo->lists, a, lease_ticks, fifo_requeue);
	return r < 0 ? r : mcm_list_new(a, &fifo->queue);
}

static void fifo_insert(void *state, const struct mcm_evict_view *v, uint32_t range, bool fresh)
{
	struct fifo *fifo = state;

	if (fresh && !mcm_evict_soft(v->ix, mcm_evict_owner(v, range), v->now))
		mcm_list_tail(&fifo->lists, v->a, fifo->queue, range);
	else
		mcm_lists_insert(&fifo->lists, v, range);
}

static void fifo_remove(void *state, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_lists_del(state, v->a, range);
}

static unsigned fifo_victims(void *state, const struct mcm_evict_view *v, unsigned level,
			     uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more)
{
	struct fifo *fifo = state;
	struct mcm_lists *l = &fifo->lists;
	struct mcm_selection h = mcm_selection_begin(l, v, level, want, ret, max);
	uint32_t id;

	h.chances = 0;
	while ((id = mcm_selection_next(&h, l, v, fifo->queue)))
		mcm_selection_take(&h, l, v, id);
	return mcm_selection_end(&h, l, v, level, ret_more);
}

const struct mcm_evict_ops mcm_evict_fifo = {
	.name = "fifo",
	.state_size = sizeof(struct fifo),
	.shared_new = mcm_evict_shared_none,
	.shared_free = mcm_evict_shared_free,
	.init = fifo_init,
	.insert = fifo_insert,
	.remove = fifo_remove,
	.victims = fifo_victims,
	.evicted = mcm_evict_ignore,
};
