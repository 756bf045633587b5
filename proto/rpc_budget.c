/* SPDX-License-Identifier: Apache-2.0
 * rpc_budget.c - reservations and the two queues of connections that wait for one. */
#include <config.h>

#include "proto/rpc_budget.h"

#include <errno.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"

#define SMALL 64u		/* a request is small when this many of its length fit into the budget */

MC_GAUGE(unfinished, "mooncake_rpc_unfinished_bytes", "", "Bytes reserved for incomplete requests")

void mcp_budget_init(struct mcp_budget *b, uint64_t max)
{
	b->max = max;
	mc_mutex_init(&b->lock);
	mc_list_init(&b->small);
	mc_list_init(&b->large);
}

void mcp_budget_done(struct mcp_budget *b)
{
	mc_mutex_destroy(&b->lock);
}

static bool budget_is_small(const struct mcp_budget *b, uint64_t whole)
{
	return whole <= b->max / SMALL;
}

static bool budget_fits(const struct mcp_budget *b, uint64_t whole)
{
	return b->used + whole <= (budget_is_small(b, whole) ? b->max : b->max - b->max / 4);
}

static void budget_grant(struct mcp_budget *b, struct mcp_reservation *s, uint64_t whole)
{
	b->used += whole;
	s->bytes = whole;
	mc_metric_add(&unfinished, (int64_t)whole);
}

static void budget_release_locked(struct mcp_budget *b, struct mcp_reservation *s)
{
	if (mcp_reservation_waits(s)) {
		mc_list_remove(&s->link);
		atomic_fetch_sub(&b->waiting, 1);
		b->parked -= s->bytes;
		/* Last: from then on only the connection's thread uses it. */
		atomic_store(&s->waits, false);
	} else {
		b->used -= s->bytes;
		mc_metric_add(&unfinished, -(int64_t)s->bytes);
	}
	s->bytes = 0;
}

static void budget_grant_waiting(struct mcp_budget *b, struct mc_list *queue)
{
	while (!mc_list_empty(queue)) {
		struct mcp_reservation *s = mc_list_first(queue, struct mcp_reservation, link);

		if (!budget_fits(b, s->whole))
			break;
		mc_list_remove(&s->link);
		atomic_fetch_sub(&b->waiting, 1);
		b->parked -= s->bytes;
		budget_grant(b, s, s->whole);
		atomic_store(&s->waits, false);
	}
}

int mcp_budget_reserve(struct mcp_budget *b, struct mcp_reservation *s, uint64_t has, uint64_t whole)
{
	struct mc_list *queue;

	MC_LOCKED(&b->lock);
	budget_release_locked(b, s);
	budget_grant_waiting(b, &b->small);
	budget_grant_waiting(b, &b->large);
	queue = budget_is_small(b, whole) ? &b->small : &b->large;
	if (mc_list_empty(queue) && budget_fits(b, whole)) {
		budget_grant(b, s, whole);
		return 0;
	}
	if (b->parked + has > b->max)
		return mc_fail(-ENOBUFS, "too many incomplete requests");
	b->parked += has;
	s->bytes = has;
	s->whole = whole;
	atomic_store(&s->waits, true);
	atomic_fetch_add(&b->waiting, 1);
	mc_list_push_back(queue, &s->link);
	return 1;
}

void mcp_budget_release(struct mcp_budget *b, struct mcp_reservation *s)
{
	/* No lock needed: only this thread, the connection's, can make it wait or hold bytes. */
	if (!mcp_reservation_waits(s) && !s->bytes)
		return;
	MC_LOCKED(&b->lock);
	budget_release_locked(b, s);
	budget_grant_waiting(b, &b->small);
	budget_grant_waiting(b, &b->large);
}
