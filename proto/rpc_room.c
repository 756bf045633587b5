/* SPDX-License-Identifier: Apache-2.0
 * rpc_room.c - see the header. */
#include <config.h>

#include "proto/rpc_room.h"

#include <errno.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/thread.h"

#define SMALL 64u		/* so many of the small ones would fill it */

MC_GAUGE(unfinished, "mooncake_rpc_unfinished_bytes", "", "Bytes set aside for requests that have not come whole")

void mcp_room_init(struct mcp_room *r, uint64_t max)
{
	r->max = max;
	pthread_mutex_init(&r->lock, NULL);
	mc_list_init(&r->small);
	mc_list_init(&r->large);
}

void mcp_room_done(struct mcp_room *r)
{
	pthread_mutex_destroy(&r->lock);
}

static bool is_small(const struct mcp_room *r, uint64_t whole)
{
	return whole <= r->max / SMALL;
}

static bool fits(const struct mcp_room *r, uint64_t whole)
{
	return r->used + whole <= (is_small(r, whole) ? r->max : r->max - r->max / 4);
}

static void let_in(struct mcp_room *r, struct mcp_share *s, uint64_t whole)
{
	r->used += whole;
	s->bytes = whole;
	mc_metric_add(&unfinished, (int64_t)whole);
}

static void leave(struct mcp_room *r, struct mcp_share *s)
{
	if (mcp_share_waits(s)) {
		mc_list_remove(&s->link);
		atomic_fetch_sub(&r->waiting, 1);
		r->parked -= s->bytes;
		/* Last: then it is its connection's again. */
		atomic_store(&s->waits, false);
	} else {
		r->used -= s->bytes;
		mc_metric_add(&unfinished, -(int64_t)s->bytes);
	}
	s->bytes = 0;
}

static void next_ones(struct mcp_room *r, struct mc_list *queue)
{
	while (!mc_list_empty(queue)) {
		struct mcp_share *s = mc_list_first(queue, struct mcp_share, link);

		if (!fits(r, s->whole))
			break;
		mc_list_remove(&s->link);
		atomic_fetch_sub(&r->waiting, 1);
		r->parked -= s->bytes;
		let_in(r, s, s->whole);
		atomic_store(&s->waits, false);
	}
}

int mcp_room_take(struct mcp_room *r, struct mcp_share *s, uint64_t has, uint64_t whole)
{
	struct mc_list *queue;

	MC_LOCKED(&r->lock);
	leave(r, s);
	next_ones(r, &r->small);
	next_ones(r, &r->large);
	queue = is_small(r, whole) ? &r->small : &r->large;
	if (mc_list_empty(queue) && fits(r, whole)) {
		let_in(r, s, whole);
		return 0;
	}
	if (r->parked + has > r->max)
		return mc_fail(-ENOBUFS, "too many requests of which only a part has come");
	r->parked += has;
	s->bytes = has;
	s->whole = whole;
	atomic_store(&s->waits, true);
	atomic_fetch_add(&r->waiting, 1);
	mc_list_push_back(queue, &s->link);
	return 1;
}

void mcp_room_give(struct mcp_room *r, struct mcp_share *s)
{
	/* Only its own connection's thread makes it one that has something. */
	if (!mcp_share_waits(s) && !s->bytes)
		return;
	MC_LOCKED(&r->lock);
	leave(r, s);
	next_ones(r, &r->small);
	next_ones(r, &r->large);
}
