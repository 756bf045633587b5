/* SPDX-License-Identifier: Apache-2.0
 * service_put.c - PUT_START, PUT_END, PUT_REVOKE. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/hash.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/op_metrics.h"
#include "master/memory/scratch.h"
#include "master/security/capability.h"
#include "master/service/service_i.h"
#include "master/session.h"

#define PREFERRED_MAX 64	/* further names are ignored */
#define SLICE_NS (500 * 1000)	/* time for evictions, during which other requests wait */
#define SLICES_MAX 1000

MCM_OP_METRICS(starts, "put_start", "batch_put_start")
MCM_OP_METRICS(ends, "put_end", "batch_put_end")
MCM_OP_METRICS(revokes, "put_revoke", "batch_put_revoke")
MC_HISTOGRAM(value_size, "master_value_size_bytes", "", "Sizes of objects put", 1)

static int put_request_of(const struct mcm *m, const struct mcp_put_start *rq, uint64_t *preferred,
			  struct mcm_put_request *ret)
{
	struct mcp_name name;
	struct mcp_iter it;

	*ret = (struct mcm_put_request){
		.flags = rq->flags, .copies = rq->replicas, .soft_ms = rq->soft_pin_ms,
		.preferred = preferred, .soft_pin = rq->soft_pin, .data_type = rq->data_type,
		.host = rq->host,
	};
	if (rq->soft_pin > MCP_SOFT_PIN_DISABLE || rq->data_type >= MCP_DATA_TYPES)
		return mc_fail(-MC_EPARAM, "unknown soft pin action %u or data type %u",
			       rq->soft_pin, rq->data_type);
	if (rq->soft_pin == MCP_SOFT_PIN_ENABLE)
		ret->flags |= MCP_PUT_SOFT_PIN;
	if (!ret->copies)
		ret->copies = 1;
	if (ret->copies > MCM_REPLICA_MAX)
		ret->copies = MCM_REPLICA_MAX;
	if (!ret->soft_ms)
		ret->soft_ms = (uint32_t)m->conf.default_kv_soft_pin_ttl;
	else if (ret->soft_ms > m->conf.max_kv_soft_pin_ttl)
		return mc_fail(-MC_EPARAM, "soft pin too long: ms=%u maximum=%llu", ret->soft_ms,
			       (unsigned long long)m->conf.max_kv_soft_pin_ttl);
	mcp_iter_init(&it, &rq->preferred, &mcp_desc_name);
	while (ret->n_preferred < PREFERRED_MAX && mcp_iter_next(&it, &name))
		preferred[ret->n_preferred++] = mc_hash(name.name.data, name.name.len, 0);
	return 0;
}

/* Items of a request that are started together. */
struct put_window {
	struct mcp_put_item item[MCM_PREFETCH_MAX];
	struct mcm_put_granted granted[MCM_PREFETCH_MAX];
	int outcome[MCM_PREFETCH_MAX];
	unsigned at[MCM_PREFETCH_MAX];	/* positions in the request */
	unsigned n;
};

/* Add the item that was decoded into the window, with the tenant's prefix.  *@text: memory for
 * names with a prefix, advanced. */
static int put_window_add(struct put_window *w, struct mcm_scope sc, unsigned at, char **text)
{
	struct mcp_put_item *item = &w->item[w->n];

	if (item->group.len > MCP_GROUP_MAX)
		return mc_fail(-MC_EPARAM, "a group's name is too long: bytes=%u", item->group.len);
	item->key = mcm_scope_key(sc, item->key, *text);
	*text += item->key.data == *text ? item->key.len : 0;
	item->group = mcm_scope_name(sc, item->group, MCP_GROUP_MAX, *text);
	*text += item->group.data == *text ? item->group.len : 0;
	w->at[w->n++] = at;
	return 0;
}

/* Sizes are often equal: count runs of equal ones at once. */
static void observe_sizes(const struct put_window *w)
{
	uint64_t size = 0;
	unsigned i, n = 0;

	for (i = 0; i < w->n; i++) {
		if (w->outcome[i] < 0)
			continue;
		if (w->item[i].size != size) {
			mc_metric_observe_many(&value_size, size, n);
			size = w->item[i].size;
			n = 0;
		}
		n++;
	}
	mc_metric_observe_many(&value_size, size, n);
}

/* Progress of a PUT_START. */
struct put_progress {
	unsigned items, parts;		/* finished, in the arrays below */
	struct mcp_put_grant *grant;
	struct mcp_replica *part;
};

/* The same between slices. */
struct mcm_put_started {
	unsigned items, parts, slices;
	struct mcm_slice slice;
	uint64_t same_node, refused;
	/* followed by the grants and replicas */
};

MC_COUNTER(existing, "master_put_start_object_already_exists_total", "", "Single puts of keys that had a value")
MC_COUNTER(batch_existing, "master_batch_put_start_object_already_exists_total", "",
	   "Items of batched puts whose keys had a value")

static unsigned count_failures(const struct mcp_put_grant *grant, unsigned n)
{
	unsigned failed = 0;

	while (n)
		failed += grant[--n].status != 0;
	return failed;
}

static void count_existing(const struct mcp_put_grant *grant, unsigned n)
{
	const int32_t existing_status = mc_err_to_wire(-MC_EEXISTS);
	unsigned found = 0;

	for (unsigned i = 0; i < n; i++)
		found += grant[i].status == existing_status;
	if (found)
		mc_metric_add(n == 1 ? &existing : &batch_existing, found);
}

/* Save the progress between slices, because other requests use the thread's scratch memory.
 * -ENOMEM. */
static int put_suspend(struct mcm_session *s, const struct mcm_put_request *pr, const struct put_progress *pg)
{
	size_t grants = pg->items * sizeof(*pg->grant), parts = pg->parts * sizeof(*pg->part);
	struct mcm_put_started *st = malloc(sizeof(*st) + grants + parts);
	char *p = (char *)(st + 1);

	if (!st)
		return -ENOMEM;
	*st = (struct mcm_put_started){
		pg->items, pg->parts, s->started ? s->started->slices + 1 : 1, pr->slice,
		pr->same_node, pr->refused,
	};
	memcpy(p, pg->grant, grants);
	memcpy(p + grants, pg->part, parts);
	free(s->started);
	s->started = st;
	return 0;
}

/* Restore the saved progress, if any, and begin the next slice. */
static void put_resume(const struct mcm_session *s, struct mcm_put_request *pr, struct put_progress *pg)
{
	const struct mcm_put_started *st = s->started;
	size_t grants;
	unsigned i, at = 0;

	if (st)
		pr->slice = st->slice;
	/* More slices are needed only if other puts take the freed memory; then finish without. */
	pr->slice.end_ns = st && st->slices == SLICES_MAX ? 0 : mc_now_ns() + SLICE_NS;
	if (!st)
		return;
	grants = st->items * sizeof(*pg->grant);
	pr->same_node = st->same_node;
	pr->refused = st->refused;
	pg->items = st->items;
	pg->parts = st->parts;
	memcpy(pg->grant, st + 1, grants);
	memcpy(pg->part, (const char *)(st + 1) + grants, st->parts * sizeof(*pg->part));
	for (i = 0; i < pg->items; i++) {
		pg->grant[i].replicas = mcp_seq(&pg->part[at], pg->grant[i].replicas.count);
		at += pg->grant[i].replicas.count;
	}
}

/* Start the items of the window, up to one that must wait for the next slice (MCP_AGAIN). */
static int put_window_start(struct mcm *m, struct mcm_session *s, struct put_window *w,
			struct mcm_put_request *pr, struct put_progress *pg)
{
	unsigned i, j;

	mcm_put_start_many(m, s, pr, w->item, w->n, w->granted, w->outcome);
	for (i = 0; i < w->n && w->outcome[i] != MCP_AGAIN; i++) {
		const struct mcm_put_granted *g = &w->granted[i];
		struct mcp_put_grant *to = &pg->grant[w->at[i]];

		pg->items = w->at[i] + 1;
		if (w->outcome[i] < 0) {
			to->status = mc_err_to_wire(w->outcome[i]);
			continue;
		}
		for (j = 0; j < g->copies; j++)
			pg->part[pg->parts + j] = g->replica[j];
		to->generation = g->generation;
		to->replicas = mcp_seq(&pg->part[pg->parts], g->copies);
		pg->parts += g->copies;
		if (m->security)
			mcm_capabilities_write(m, s->identity, to, w->item[i].size);
	}
	j = w->n;
	w->n = i;
	observe_sizes(w);
	return i < j ? MCP_AGAIN : 0;
}

/* @text has room for all keys and groups with prefixes: each has more bytes of encoding in the message. */
static int start_items(struct mcm *m, struct mcm_session *s, struct mcm_scope sc,
		       struct mcm_put_request *pr, const struct mcp_seq *items, struct put_progress *pg,
		       char *text)
{
	unsigned n, done = pg->items;
	struct put_window w;
	struct mcp_iter it;
	int r = 0;

	mcp_iter_init(&it, items, &mcp_desc_put_item);
	for (n = 0; n < done; n++)
		mcp_iter_next(&it, &w.item[0]);
	while (n < items->count && r == 0) {
		for (w.n = 0; w.n < MCM_PREFETCH_MAX && n < items->count; n++) {
			mcp_iter_next(&it, &w.item[w.n]);
			r = put_window_add(&w, sc, n, &text);
			pg->grant[n] = (struct mcp_put_grant){ .status = r < 0 ? mc_err_to_wire(r) : 0 };
		}
		r = w.n ? put_window_start(m, s, &w, pr, pg) : 0;
	}
	return r;
}

static int put_start(struct mcm *m, struct mcm_session *s, const struct mcp_put_start *rq,
		     struct mcp_put_start_reply *ret)
{
	uint64_t preferred[PREFERRED_MAX];
	struct put_progress pg = { 0 };
	struct mcm_put_request pr;
	struct mcm_scope sc;
	char *text;
	int r;

	r = put_request_of(m, rq, preferred, &pr);
	if (r == 0)
		r = mcm_scope_begin(m, s->identity, rq->tenant, true, &sc);
	if (r < 0)
		return r;
	pr.tenant = m->security ? (uint16_t)(sc.tenant + 1) : 0;
	pg.grant = mcm_scratch(MCM_SCRATCH_ITEMS, rq->items.count, sizeof(*pg.grant));
	pg.part = mcm_scratch(MCM_SCRATCH_PARTS, (size_t)rq->items.count * pr.copies, sizeof(*pg.part));
	text = mcm_scratch(MCM_SCRATCH_TEXT, rq->items.raw_len, 1);
	if (!pg.grant || !pg.part || !text)
		return -ENOMEM;
	put_resume(s, &pr, &pg);
	r = start_items(m, s, sc, &pr, &rq->items, &pg, text);
	if (r == MCP_AGAIN && put_suspend(s, &pr, &pg) == 0)
		return r;
	/* If there is no memory to save the progress, finish without slices. */
	pr.slice.end_ns = 0;
	if (r == MCP_AGAIN)
		(void)start_items(m, s, sc, &pr, &rq->items, &pg, text);
	/* Records of earlier slices may have been waited for by the answer to another request. */
	if (s->started)
		mcm_journal_depend(m);
	mcm_op_count(&starts, rq->items.count, count_failures(pg.grant, rq->items.count));
	count_existing(pg.grant, rq->items.count);
	ret->grants = mcp_seq(pg.grant, rq->items.count);
	return 0;
}

int mcm_serve_put_start(struct mcp_session *session, const void *body, size_t len,
			struct mcp_answer *answer, void *arg)
{
	struct mcm_session *s = mcp_session_get(session);
	struct mcp_put_start_reply reply = { 0 };
	struct mcp_put_start rq;
	int r;

	r = mcp_decode(&mcp_desc_put_start, body, len, &rq);
	if (r == 0)
		r = mcm_serve_check_writer(s);
	if (r == 0)
		r = put_start(arg, s, &rq, &reply);
	if (r == MCP_AGAIN)
		return r;
	free(s->started);
	s->started = NULL;
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_put_start_reply, &reply);
}

static void revoke_many(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done,
			unsigned n, int *ret)
{
	unsigned i;

	for (i = 0; i < n; i++)
		ret[i] = mcm_put_revoke(m, s, &done[i]);
}

static int finish_items(struct mcm *m, const struct mcm_session *s, struct mcp_bytes tenant,
			const struct mcp_seq *items,
			void (*fn)(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done,
				   unsigned n, int *ret),
			const struct mcm_op_metrics *om, struct mcp_seq *ret)
{
	struct mcp_put_done done[MCM_PREFETCH_MAX];
	int outcome[MCM_PREFETCH_MAX];
	struct mcp_status *status, *st;
	unsigned failed = 0, n, w, i;
	struct mcm_scope sc;
	struct mcp_iter it;
	char *text;
	int r;

	/* An unfinished put may end even if the tenant was removed from the policy meanwhile. */
	r = mcm_scope_begin(m, s->identity, tenant, false, &sc);
	if (r < 0)
		return r;
	st = status = mcm_scratch(MCM_SCRATCH_ITEMS, items->count, sizeof(*st));
	/* Enough for all prefixes: each key has more bytes of encoding in the message. */
	text = mcm_scratch(MCM_SCRATCH_TEXT, items->raw_len, 1);
	if (!status || !text)
		return -ENOMEM;
	mcp_iter_init(&it, items, &mcp_desc_put_done);
	for (n = 0; n < items->count; n += w) {
		for (w = 0; w < MCM_PREFETCH_MAX && mcp_iter_next(&it, &done[w]); w++) {
			done[w].key = mcm_scope_key(sc, done[w].key, text);
			text += done[w].key.data == text ? done[w].key.len : 0;
		}
		fn(m, s, done, w, outcome);
		for (i = 0; i < w; i++, st++) {
			st->status = outcome[i] < 0 ? mc_err_to_wire(outcome[i]) : 0;
			failed += outcome[i] < 0;
		}
	}
	mcm_op_count(om, items->count, failed);
	*ret = mcp_seq(status, items->count);
	return 0;
}

/* Ask for the further copies of the objects that were committed. */
static void put_end_nof(struct mcm *m, const struct mcm_session *s, const struct mcp_put_end *rq,
			const struct mcp_status *status)
{
	uint64_t preferred[PREFERRED_MAX];
	struct mcm_nof_request want = { .n = rq->nof, .preferred = preferred, .client = s->client };
	char buf[MCM_KEY_MAX];
	struct mcp_put_done done;
	struct mcm_scope sc;
	struct mcp_name name;
	struct mcp_iter it;

	if (mcm_scope_begin(m, s->identity, rq->tenant, false, &sc) < 0)
		return;
	mcp_iter_init(&it, &rq->preferred_nof, &mcp_desc_name);
	while (want.n_preferred < PREFERRED_MAX && mcp_iter_next(&it, &name))
		preferred[want.n_preferred++] = mc_hash(name.name.data, name.name.len, 0);
	mcp_iter_init(&it, &rq->items, &mcp_desc_put_done);
	for (; mcp_iter_next(&it, &done); status++)
		if (!status->status)
			(void)mcm_nof_want(m, &want, mcm_scope_key(sc, done.key, buf), done.generation);
}

int mcm_serve_put_end(struct mcp_session *s, const void *body, size_t len,
		      struct mcp_answer *answer, void *arg)
{
	struct mcp_put_end_reply reply = { 0 };
	struct mcp_put_end rq;
	int r;

	r = mcp_decode(&mcp_desc_put_end, body, len, &rq);
	if (r == 0)
		r = finish_items(arg, mcp_session_get(s), rq.tenant, &rq.items, mcm_put_end_many, &ends,
				 &reply.results);
	if (r == 0 && rq.nof)
		put_end_nof(arg, mcp_session_get(s), &rq, reply.results.items);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_put_end_reply, &reply);
}

int mcm_serve_put_revoke(struct mcp_session *s, const void *body, size_t len,
			 struct mcp_answer *answer, void *arg)
{
	struct mcp_put_revoke_reply reply = { 0 };
	struct mcp_put_revoke rq;
	int r;

	r = mcp_decode(&mcp_desc_put_revoke, body, len, &rq);
	if (r == 0)
		r = finish_items(arg, mcp_session_get(s), rq.tenant, &rq.items, revoke_many, &revokes, &reply.results);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_put_revoke_reply, &reply);
}
