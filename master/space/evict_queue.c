/* SPDX-License-Identifier: Apache-2.0
 * evict_queue.c - two policies over one queue of ranges in the order of their commits.
 *
 * lru: approximate least-recently-used order with a second chance.  A read only sets a mark in the
 * object.  When the queue's head has the mark, the mark is cleared and the range moves to the tail.
 *
 * fifo: first in, first out; reads change nothing.  A range that was skipped because its object was
 * pinned or leased was the oldest then, so it is put back at the front. */
#include <config.h>

#include "master/space/evict_lists.h"

struct queue {
	struct mcm_lists lists;
	uint32_t head;
};

static void lru_requeue(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool newest)
{
	(void)newest;
	mcm_list_tail(l, v->a, ((struct queue *)l)->head, range);
}

static void fifo_requeue(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool newest)
{
	(newest ? mcm_list_tail : mcm_list_front)(l, v->a, ((struct queue *)l)->head, range);
}

static int queue_init(struct queue *q, struct mcm_alloc *a, uint32_t lease_ticks,
		      void (*requeue)(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range,
				      bool newest))
{
	int r = mcm_lists_init(&q->lists, a, lease_ticks, requeue);

	return r < 0 ? r : mcm_list_new(a, &q->head);
}

static int lru_init(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks)
{
	(void)shared;
	return queue_init(state, a, lease_ticks, lru_requeue);
}

static int fifo_init(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks)
{
	(void)shared;
	return queue_init(state, a, lease_ticks, fifo_requeue);
}

static void queue_insert(void *state, const struct mcm_evict_view *v, uint32_t range, bool fresh)
{
	mcm_lists_insert(state, v, range, fresh);
}

static void queue_remove(void *state, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_lists_del(state, v->a, range);
}

static unsigned queue_victims(struct queue *q, const struct mcm_evict_view *v, unsigned level, uint64_t want,
			      struct mcm_victim *ret, unsigned max, bool *ret_more, bool second_chance)
{
	struct mcm_lists *l = &q->lists;
	struct mcm_selection h = mcm_selection_begin(l, v, level, want, ret, max);
	uint32_t id;

	if (!second_chance)
		h.chances = 0;
	while ((id = mcm_selection_next(&h, l, v, q->head))) {
		if (mcm_evict_touched(v, id) && h.chances-- > 0) {
			mcm_evict_untouch(v, id);
			mcm_lists_del(l, v->a, id);
			mcm_list_tail(l, v->a, q->head, id);
		} else {
			mcm_selection_take(&h, l, v, id);
		}
	}
	return mcm_selection_end(&h, l, v, level, ret_more);
}

static unsigned lru_victims(void *state, const struct mcm_evict_view *v, unsigned level,
			    uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more)
{
	return queue_victims(state, v, level, want, ret, max, ret_more, true);
}

static unsigned fifo_victims(void *state, const struct mcm_evict_view *v, unsigned level,
			     uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more)
{
	return queue_victims(state, v, level, want, ret, max, ret_more, false);
}

#define QUEUE_OPS(policy) { \
	.name = #policy, \
	.state_size = sizeof(struct queue), \
	.shared_new = mcm_evict_shared_none, \
	.shared_free = mcm_evict_shared_free, \
	.init = policy##_init, \
	.insert = queue_insert, \
	.remove = queue_remove, \
	.victims = policy##_victims, \
	.retry = mcm_lists_retry, \
	.evicted = mcm_evict_ignore, \
}

const struct mcm_evict_ops mcm_evict_lru = QUEUE_OPS(lru);
const struct mcm_evict_ops mcm_evict_fifo = QUEUE_OPS(fifo);
