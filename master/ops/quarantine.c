/* SPDX-License-Identifier: Apache-2.0
 * quarantine.c - ranges of aborted puts, unused while bytes for them may still be on their way. */
#include <config.h>

#include "master/ops/quarantine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/journal/journal.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

MC_COUNTER(discarded, "master_put_start_discard_cnt", "",
	   "Copies of aborted puts whose ranges were quarantined")
MC_COUNTER(released, "master_put_start_release_cnt", "", "Quarantined copies that were freed")
MC_GAUGE(staging, "master_put_start_discarded_staging_size", "", "Bytes in quarantine")
MC_GAUGE(held, "mooncake_master_quarantined_bytes", "",
	 "Bytes of ranges that wait until owners have fenced the writers of aborted puts")
MC_COUNTER(refused, "mooncake_master_quarantine_refused_puts_total", "",
	   "Requests for puts that were refused because of --max_client_quarantine_ratio")
MC_COUNTER(ended, "mooncake_master_quarantine_ended_bytes_total", "",
	   "Bytes of ranges that an operator released from quarantine")
MC_GAUGE(unconfirmed, "mooncake_master_unconfirmed_fences", "",
	 "Orders to fence a writer that owners have not confirmed yet")

void mcm_quarantine_init(struct mcm *m)
{
	struct mcm_quarantine *q = &m->puts.quarantine;

	mc_mutex_init(&q->lock);
	mc_list_init(&q->aborted);
	mc_list_init(&q->confirmed);
}

static void fence_free(struct mcm_fence *f)
{
	mc_list_remove(&f->link);
	free(f->range);
	free(f);
}

static void fences_free(struct mc_list *list)
{
	while (!mc_list_empty(list))
		fence_free(mc_list_first(list, struct mcm_fence, link));
}

void mcm_quarantine_done(struct mcm *m)
{
	struct mcm_quarantine *q = &m->puts.quarantine;
	unsigned i;

	mc_metric_add(&unconfirmed, -(int64_t)q->pending);
	mc_metric_add(&held, -(int64_t)q->bytes);
	for (i = 0; m->segments.at && i < m->segments.top; i++)
		fences_free(&m->segments.at[i]->fences);
	fences_free(&q->confirmed);
	while (!mc_list_empty(&q->aborted)) {
		struct mcm_aborted *a = mc_list_first(&q->aborted, struct mcm_aborted, link);

		mc_list_remove(&a->link);
		free(a);
	}
	mc_mutex_destroy(&q->lock);
}

/* ---- the quarantine's lock held ---- */

static struct mcm_fence *fence_find(const struct mcm_segment *s, struct mcp_id engine, uint64_t upto)
{
	struct mc_list *at;

	/* Newest first: the ranges of one session come one after another. */
	for (at = s->fences.prev; at != &s->fences; at = at->prev) {
		struct mcm_fence *f = mc_container_of(at, struct mcm_fence, link);

		if (f->upto == upto && mcp_id_eq(f->engine, engine))
			return f;
	}
	return NULL;
}

/* Who writes, or wrote. */
struct writer {
	struct mcp_id engine, client;	/* zero: of an earlier master */
	uint64_t account;		/* 0: none */
	uint64_t upto;			/* number of the session */
	char name[MCM_NAME_MAX + 1], host[MCM_NAME_MAX + 1];
};

/* The order for the session's ranges in the segment; NULL: no memory. */
static struct mcm_fence *fence_get(struct mcm *m, struct mcm_segment *s, const struct writer *w)
{
	struct mcm_fence *f = fence_find(s, w->engine, w->upto);

	if (f)
		return f;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->number = mcm_generation_next(m, 0);
	f->engine = w->engine;
	f->upto = w->upto;
	f->client = w->client;
	f->account = w->account;
	f->since_ms = mcm_now_ms(m);
	memcpy(f->name, w->name, sizeof(f->name));
	memcpy(f->host, w->host, sizeof(f->host));
	mc_list_push_back(&s->fences, &f->link);
	__atomic_add_fetch(&m->puts.quarantine.pending, 1, __ATOMIC_RELAXED);
	mc_metric_add(&unconfirmed, 1);
	return f;
}

static int fence_add(struct mcm_fence *f, struct mcm_aborted *put, struct mcm_extent extent)
{
	struct mcm_held_range *more;

	if (f->n == f->cap) {
		size_t cap = f->cap ? 2 * f->cap : 8;

		more = realloc(f->range, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		f->range = more;
		f->cap = cap;
	}
	f->range[f->n++] = (struct mcm_held_range){ put, extent };
	return 0;
}

/* Hold one range of @a for the session; -ENOMEM: it is not held. */
static int hold_range(struct mcm *m, struct mcm_aborted *a, struct mcm_extent extent, const struct writer *w)
{
	struct mcm_fence *f = fence_get(m, mcm_segment(&m->segments, extent.segment), w);
	uint64_t bytes;

	if (!f || fence_add(f, a, extent) < 0)
		return -ENOMEM;
	bytes = mcm_extent_record_of(m, extent).len << MCM_GRANULE_SHIFT;
	f->bytes += bytes;
	__atomic_add_fetch(&m->puts.quarantine.bytes, bytes, __ATOMIC_RELAXED);
	mc_metric_add(&held, (int64_t)bytes);
	a->extent[a->copies++] = extent;
	return 0;
}

static struct mcm_aborted *aborted_new(struct mcm_quarantine *q, uint64_t generation)
{
	struct mcm_aborted *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->generation = generation;
	mc_list_push_back(&q->aborted, &a->link);
	return a;
}

/* The range is about to be free: forget it, and with the last one the put. */
static void aborted_forget(struct mcm *m, struct mcm_aborted *a, struct mcm_extent extent)
{
	unsigned i = 0;

	while (a->extent[i].segment != extent.segment || a->extent[i].range != extent.range)
		i++;
	a->extent[i] = a->extent[--a->copies];
	if (a->copies) {
		mcm_journal_put(m, a->generation, a->extent, a->copies);
		return;
	}
	mcm_journal_put_gone(m, a->generation);
	mc_list_remove(&a->link);
	free(a);
}

static void fence_confirmed(struct mcm *m, struct mcm_fence *f)
{
	mc_list_remove(&f->link);
	mc_list_push_back(&m->puts.quarantine.confirmed, &f->link);
	__atomic_sub_fetch(&m->puts.quarantine.pending, 1, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&m->puts.quarantine.bytes, f->bytes, __ATOMIC_RELAXED);
	mc_metric_add(&unconfirmed, -1);
	mc_metric_add(&held, -(int64_t)f->bytes);
}

/* ---- holding ---- */

static void writer_of(struct mcm *m, const struct mcm_put *put, uint64_t account, struct writer *ret)
{
	const struct mcm_client *c;

	*ret = (struct writer){ .engine = put->engine, .client = put->client, .account = account,
				.upto = put->fence };
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, put->client);
	if (!c)
		return;
	memcpy(ret->name, c->name, sizeof(ret->name));
	memcpy(ret->host, c->host, sizeof(ret->host));
}

void mcm_quarantine_put(struct mcm *m, const struct mcm_put *put, uint64_t account)
{
	struct mcm_quarantine *q = &m->puts.quarantine;
	uint64_t charged = put->copies ? put->charged / put->copies : 0;
	struct mcm_aborted *a;
	unsigned i, kept = 0;
	bool unmounted = false;
	struct writer w;

	writer_of(m, put, account, &w);
	mc_mutex_lock(&q->lock);
	/* Journal it again: a running checkpoint may have read the shard after it left and the
	 * quarantine before it came. */
	mcm_journal_put(m, put->generation, put->extent, put->copies);
	a = aborted_new(q, put->generation);
	for (i = 0; a && i < put->copies; i++) {
		if (hold_range(m, a, put->extent[i], &w) < 0)
			break;
		kept++;
		unmounted |= mcm_segment_state(mcm_segment(&m->segments, put->extent[i].segment)) ==
			     MCP_SEG_UNMOUNTING;
	}
	if (a) {
		a->size = put->size;
		a->charged = charged;
		a->tenant = put->tenant;
	}
	if (a && !kept) {
		mc_list_remove(&a->link);
		free(a);
	}
	mc_mutex_unlock(&q->lock);
	if (unmounted)
		mcm_quarantine_unmounted(m);
	mc_metric_add(&discarded, kept);
	mc_metric_add(&staging, (int64_t)(kept * put->size));
	mcm_tenant_refund(m, put->tenant, put->charged - kept * charged);
	/* Not freed: the writer may still write there. */
	if (kept < put->copies)
		mc_warn("put", "out of memory: ranges of an aborted put stay unused until their segment is unmounted "
			"ranges=%u bytes=%llu", put->copies - kept, (unsigned long long)put->size);
}

int mcm_quarantine_restore(struct mcm *m, uint64_t generation, struct mcm_extent extent)
{
	struct mcm_quarantine *q = &m->puts.quarantine;
	struct mcm_aborted *a = mc_list_empty(&q->aborted) ? NULL :
		mc_container_of(q->aborted.prev, struct mcm_aborted, link);
	const struct writer w = { .upto = q->restored_upto };

	MC_LOCKED(&q->lock);
	if (a && a->generation != generation)
		a = NULL;
	if (!a)
		a = aborted_new(q, generation);
	/* The record does not name the tenant, so no tenant is charged. */
	return a ? hold_range(m, a, extent, &w) : -ENOMEM;
}

/* ---- orders ---- */

static struct mcm_fence *fence_numbered(const struct mcm_segment *s, uint64_t number)
{
	struct mc_list *at;

	mc_list_for_each(at, &s->fences) {
		struct mcm_fence *f = mc_container_of(at, struct mcm_fence, link);

		if (f->number == number)
			return f;
	}
	return NULL;
}

static bool confirm_one(struct mcm *m, const struct mcm_client *c, uint64_t number)
{
	struct mc_list *at;

	mc_list_for_each(at, &c->segments) {
		struct mcm_fence *f =
			fence_numbered(mc_container_of(at, struct mcm_segment, link), number);

		if (!f)
			continue;
		fence_confirmed(m, f);
		return true;
	}
	return false;
}

/* Those that are given out move to the end, so that one that cannot be confirmed does not hold up the others. */
static unsigned orders_of(struct mcm_segment *s, struct mcp_fence *ret, unsigned max)
{
	struct mc_list given, *at, *next;
	unsigned n = 0;

	mc_list_init(&given);
	mc_list_for_each_safe(at, next, &s->fences) {
		struct mcm_fence *f = mc_container_of(at, struct mcm_fence, link);

		if (n == max)
			break;
		ret[n++] = (struct mcp_fence){ .number = f->number, .engine = f->engine, .upto = f->upto };
		mc_list_remove(&f->link);
		mc_list_push_back(&given, &f->link);
	}
	while (!mc_list_empty(&given)) {
		at = given.next;
		mc_list_remove(at);
		mc_list_push_back(&s->fences, at);
	}
	return n;
}

/* Another of the owner's segments is the first each time, so that all of them get their turn. */
static unsigned orders_of_all(struct mcm_client *c, struct mcp_fence *ret, unsigned max)
{
	unsigned count = 0, first, i, n = 0;
	struct mc_list *at;

	mc_list_for_each(at, &c->segments)
		count++;
	first = count ? c->fence_turn++ % count : 0;
	for (unsigned pass = 0; pass < 2; pass++) {
		i = 0;
		mc_list_for_each(at, &c->segments)
			if ((i++ < first) == pass)
				n += orders_of(mc_container_of(at, struct mcm_segment, link), ret + n, max - n);
	}
	return n;
}

unsigned mcm_quarantine_orders(struct mcm *m, struct mcm_client *c, const struct mcp_seq *confirmed,
			       struct mcp_fence *ret, unsigned max)
{
	struct mcm_quarantine *q = &m->puts.quarantine;
	struct mcp_fenced one;
	struct mcp_iter it;
	bool any = false;
	unsigned n;

	if (!__atomic_load_n(&q->pending, __ATOMIC_RELAXED))
		return 0;
	mc_mutex_lock(&q->lock);
	mcp_iter_init(&it, confirmed, &mcp_desc_fenced);
	while (mcp_iter_next(&it, &one))
		any |= confirm_one(m, c, one.number);
	n = orders_of_all(c, ret, max);
	mc_mutex_unlock(&q->lock);
	if (any)
		mc_stop_kick(&m->monitor_stop);
	return n;
}

/* ---- the limit, and an operator's view ---- */

uint64_t mcm_quarantine_limit(const struct mcm *m)
{
	return (uint64_t)((double)mcm_load_relaxed(&m->segments.capacity) * m->conf.max_client_quarantine_ratio);
}

/* The quarantine's lock held. */
static uint64_t bytes_of_writer(const struct mcm *m, struct mcp_id client, uint64_t account)
{
	unsigned top = __atomic_load_n(&m->segments.top, __ATOMIC_ACQUIRE);
	uint64_t bytes = 0;
	struct mc_list *at;

	for (unsigned i = 0; i < top; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, (uint16_t)i);

		/* That an owner does not answer is not its writers' fault. */
		if (!mcm_segment_attached(s))
			continue;
		mc_list_for_each(at, &s->fences) {
			const struct mcm_fence *f = mc_container_of(at, struct mcm_fence, link);

			if ((account && f->account == account) || mcp_id_eq(f->client, client))
				bytes += f->bytes;
		}
	}
	return bytes;
}

uint64_t mcm_quarantine_over(struct mcm *m, struct mcp_id client, uint64_t account)
{
	struct mcm_quarantine *q = &m->puts.quarantine;
	uint64_t limit, bytes;

	if (!mcm_load_relaxed(&q->bytes))
		return 0;
	limit = mcm_quarantine_limit(m);
	if (mcm_load_relaxed(&q->bytes) <= limit || m->conf.max_client_quarantine_ratio >= 1)
		return 0;
	MC_LOCKED(&q->lock);
	bytes = bytes_of_writer(m, client, account);
	if (bytes <= limit)
		return 0;
	mc_metric_add(&refused, 1);
	return bytes;
}

/* The clients' and the quarantine's lock held. */
static void quarantined_of(struct mcm *m, const struct mcm_segment *s, const struct mcm_fence *f,
			   struct mcm_quarantined *ret)
{
	const struct mcm_client *c = mcm_client_find(&m->clients, f->client);

	*ret = (struct mcm_quarantined){
		.client = f->client, .bytes = f->bytes, .ranges = f->n, .age_ms = mcm_now_ms(m) - f->since_ms,
		.connected = c && c->sessions, .served = mcm_segment_attached(s),
	};
	memcpy(ret->name, f->name, sizeof(ret->name));
	memcpy(ret->host, f->host, sizeof(ret->host));
	memcpy(ret->segment, s->name, sizeof(ret->segment));
}

unsigned mcm_quarantine_list(struct mcm *m, struct mcm_quarantined *ret, unsigned max)
{
	unsigned n = 0, top = __atomic_load_n(&m->segments.top, __ATOMIC_ACQUIRE);
	struct mc_list *at;

	mc_mutex_lock(&m->clients.lock);
	mc_mutex_lock(&m->puts.quarantine.lock);
	for (unsigned i = 0; i < top; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, (uint16_t)i);

		mc_list_for_each(at, &s->fences)
			if (n < max)
				quarantined_of(m, s, mc_container_of(at, struct mcm_fence, link), &ret[n++]);
	}
	mc_mutex_unlock(&m->puts.quarantine.lock);
	mc_mutex_unlock(&m->clients.lock);
	return n;
}

static void release_locked(struct mcm *m, struct mcp_id client, uint64_t *ret_ranges, uint64_t *ret_bytes)
{
	unsigned top = __atomic_load_n(&m->segments.top, __ATOMIC_ACQUIRE);
	struct mc_list *at, *next;

	for (unsigned i = 0; i < top; i++) {
		struct mcm_segment *s = mcm_segment(&m->segments, (uint16_t)i);

		mc_list_for_each_safe(at, next, &s->fences) {
			struct mcm_fence *f = mc_container_of(at, struct mcm_fence, link);

			if (!mcp_id_eq(f->client, client))
				continue;
			*ret_ranges += f->n;
			*ret_bytes += f->bytes;
			fence_confirmed(m, f);
		}
	}
}

int mcm_quarantine_release(struct mcm *m, struct mcp_id client, uint64_t *ret_ranges, uint64_t *ret_bytes)
{
	uint64_t ranges = 0, bytes = 0;
	const struct mcm_client *c;
	bool lives;

	/* No check of connections is possible: any client may be one of these writers. */
	if (mcp_id_zero(client))
		return mc_fail(-MC_EPARAM, "the writers of an earlier master are not known, so they may live: their "
			       "ranges are released when the segment's owner fences them, or unmounts the segment");
	mc_mutex_lock(&m->clients.lock);
	c = mcm_client_find(&m->clients, client);
	lives = c && c->sessions;
	if (!lives) {
		mc_mutex_lock(&m->puts.quarantine.lock);
		release_locked(m, client, &ranges, &bytes);
		mc_mutex_unlock(&m->puts.quarantine.lock);
	}
	mc_mutex_unlock(&m->clients.lock);
	if (lives)
		return mc_fail(-MC_EMODE, "the client is connected, so its process has not ended: kill it first");
	if (!ranges)
		return mc_fail(-MC_ENOCLIENT, "no range of such a client is in quarantine");
	mc_metric_add(&ended, (int64_t)bytes);
	mc_warn("put", "an operator released ranges from quarantine ranges=%llu bytes=%llu",
		(unsigned long long)ranges, (unsigned long long)bytes);
	mc_stop_kick(&m->monitor_stop);
	*ret_ranges = ranges;
	*ret_bytes = bytes;
	return 0;
}

/* ---- freeing ---- */

void mcm_quarantine_unmounted(struct mcm *m)
{
	__atomic_store_n(&m->puts.quarantine.unmounted, true, __ATOMIC_RELEASE);
}

static void release_unmounted(struct mcm *m)
{
	unsigned i, top = __atomic_load_n(&m->segments.top, __ATOMIC_ACQUIRE);

	MC_LOCKED(&m->puts.quarantine.lock);
	for (i = 0; i < top; i++) {
		struct mcm_segment *s = mcm_segment(&m->segments, (uint16_t)i);

		if (mcm_segment_state(s) != MCP_SEG_UNMOUNTING)
			continue;
		while (!mc_list_empty(&s->fences))
			fence_confirmed(m, mc_list_first(&s->fences, struct mcm_fence, link));
	}
}

/* Take one range out of a confirmed fence; false: there is none. */
static bool take_free_range(struct mcm *m, struct mcm_extent *ret, struct mcm_aborted *ret_put)
{
	struct mcm_quarantine *q = &m->puts.quarantine;
	struct mcm_held_range *range;
	struct mcm_fence *f;

	MC_LOCKED(&q->lock);
	while (!mc_list_empty(&q->confirmed)) {
		f = mc_list_first(&q->confirmed, struct mcm_fence, link);
		if (f->n) {
			range = &f->range[--f->n];
			*ret = range->extent;
			*ret_put = *range->put;
			aborted_forget(m, range->put, range->extent);
			return true;
		}
		fence_free(f);
	}
	return false;
}

void mcm_quarantine_tick(struct mcm *m)
{
	struct mcm_extent extent;
	struct mcm_aborted put;

	if (__atomic_exchange_n(&m->puts.quarantine.unmounted, false, __ATOMIC_ACQ_REL))
		release_unmounted(m);
	while (take_free_range(m, &extent, &put)) {
		mc_metric_add(&released, 1);
		mc_metric_add(&staging, -(int64_t)put.size);
		mcm_extent_free(m, &extent);
		mcm_tenant_refund(m, put.tenant, put.charged);
	}
}
