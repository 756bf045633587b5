/* SPDX-License-Identifier: Apache-2.0
 * service_put.c - PUT_START, PUT_END, PUT_REVOKE. */
#include <config.h>

#include <errno.h>

#include "common/err.h"
#include "common/hash.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/op_metrics.h"
#include "master/scratch.h"
#include "master/service.h"

#define PREFERRED_MAX 64	/* further ones are not looked at */

MCM_OP_METRICS(starts, "put_start", "batch_put_start")
MCM_OP_METRICS(ends, "put_end", "batch_put_end")
MCM_OP_METRICS(revokes, "put_revoke", "batch_put_revoke")
MC_HISTOGRAM(value_size, "master_value_size_bytes", "", "Sizes of objects put", 1)

static int request_of(const struct mcm *m, const struct mcp_put_start *rq, uint64_t *preferred,
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
		return mc_fail(-MC_EPARAM, "a soft pin of %u ms, %llu are allowed", ret->soft_ms,
			       (unsigned long long)m->conf.max_kv_soft_pin_ttl);
	mcp_iter_init(&it, &rq->preferred, &mcp_desc_name);
	while (ret->n_preferred < PREFERRED_MAX && mcp_iter_next(&it, &name))
		preferred[ret->n_preferred++] = mc_hash(name.name.data, name.name.len, 0);
	return 0;
}

/* Items of a request that are begun together. */
struct window {
	struct mcp_put_item item[MCM_WARM_MAX];
	struct mcm_put_granted granted[MCM_WARM_MAX];
	int outcome[MCM_WARM_MAX];
	unsigned at[MCM_WARM_MAX];	/* in the request */
	unsigned n;
};

/* The next item, under its names inside the master; @text: where those go that are others outside. */
static int window_add(struct window *w, struct mcm_scope sc, unsigned at, char **text)
{
	struct mcp_put_item *item = &w->item[w->n];

	if (item->group.len > MCP_GROUP_MAX)
		return mc_fail(-MC_EPARAM, "a group's name of %u bytes", item->group.len);
	item->key = mcm_scope_key(sc, item->key, *text);
	*text += item->key.data == *text ? item->key.len : 0;
	item->group = mcm_scope_name(sc, item->group, MCP_GROUP_MAX, *text);
	*text += item->group.data == *text ? item->group.len : 0;
	w->at[w->n++] = at;
	return 0;
}

/* Sizes are often the same. */
static void observe_sizes(const struct window *w)
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

static unsigned window_start(struct mcm *m, struct mcm_session *s, struct window *w,
			     struct mcm_put_request *pr, struct mcp_put_grant *grant,
			     struct mcp_replica **part)
{
	unsigned failed = 0, i, j;

	mcm_put_start_many(m, s, pr, w->item, w->n, w->granted, w->outcome);
	observe_sizes(w);
	for (i = 0; i < w->n; i++) {
		const struct mcm_put_granted *g = &w->granted[i];
		struct mcp_put_grant *to = &grant[w->at[i]];

		if (w->outcome[i] < 0) {
			to->status = mc_err_to_wire(w->outcome[i]);
			failed++;
			continue;
		}
		for (j = 0; j < g->copies; j++)
			(*part)[j] = g->replica[j];
		to->generation = g->generation;
		to->replicas = mcp_seq(*part, g->copies);
		*part += g->copies;
	}
	return failed;
}

/* @text has room for all keys and groups: in the message more bytes than a prefix's stand beside each. */
static int start_items(struct mcm *m, struct mcm_session *s, struct mcm_scope sc,
		       struct mcm_put_request *pr, const struct mcp_seq *items,
		       struct mcp_put_grant *grant, struct mcp_replica *part, char *text)
{
	unsigned failed = 0, n = 0;
	struct window w;
	struct mcp_iter it;
	int r;

	mcp_iter_init(&it, items, &mcp_desc_put_item);
	while (n < items->count) {
		for (w.n = 0; w.n < MCM_WARM_MAX && n < items->count; n++) {
			mcp_iter_next(&it, &w.item[w.n]);
			r = window_add(&w, sc, n, &text);
			grant[n] = (struct mcp_put_grant){ .status = r < 0 ? mc_err_to_wire(r) : 0 };
			failed += r < 0;
		}
		if (w.n)
			failed += window_start(m, s, &w, pr, grant, &part);
	}
	return (int)failed;
}

int mcm_serve_put_start(struct mcp_session *s, const void *body, size_t len,
			struct mcp_answer *answer, void *arg)
{
	struct mcp_put_start_reply reply = { 0 };
	uint64_t preferred[PREFERRED_MAX];
	struct mcm_put_request pr;
	struct mcm_scope sc;
	struct mcp_put_start rq;
	struct mcp_put_grant *grant;
	struct mcp_replica *part;
	struct mcm *m = arg;
	char *text;
	int r;

	r = mcp_decode(&mcp_desc_put_start, body, len, &rq);
	if (r == 0)
		r = request_of(m, &rq, preferred, &pr);
	if (r == 0)
		r = mcm_scope_begin(m, rq.tenant, true, &sc);
	if (r < 0)
		return r;
	grant = mcm_scratch(MCM_SCRATCH_ITEMS, rq.items.count, sizeof(*grant));
	part = mcm_scratch(MCM_SCRATCH_PARTS, (size_t)rq.items.count * pr.copies, sizeof(*part));
	text = mcm_scratch(MCM_SCRATCH_TEXT, rq.items.raw_len, 1);
	if (!grant || !part || !text)
		return -ENOMEM;
	r = start_items(m, mcp_session_get(s), sc, &pr, &rq.items, grant, part, text);
	mcm_op_count(&starts, rq.items.count, (unsigned)r);
	reply.grants = mcp_seq(grant, rq.items.count);
	return mcp_answer(answer, &mcp_desc_put_start_reply, &reply);
}

static void revoke_many(struct mcm *m, const struct mcp_put_done *done, unsigned n, int *ret)
{
	unsigned i;

	for (i = 0; i < n; i++)
		ret[i] = mcm_put_revoke(m, &done[i]);
}

static int finish_items(struct mcm *m, struct mcp_bytes tenant, const struct mcp_seq *items,
			void (*fn)(struct mcm *m, const struct mcp_put_done *done, unsigned n,
				   int *ret),
			const struct mcm_op_metrics *om, struct mcp_seq *ret)
{
	struct mcp_put_done done[MCM_WARM_MAX];
	int outcome[MCM_WARM_MAX];
	struct mcp_status *status, *st;
	unsigned failed = 0, n, w, i;
	struct mcm_scope sc;
	struct mcp_iter it;
	char *text;
	int r;

	/* What was begun may end, also when the tenant was taken out of the policy meanwhile. */
	r = mcm_scope_begin(m, tenant, false, &sc);
	if (r < 0)
		return r;
	st = status = mcm_scratch(MCM_SCRATCH_ITEMS, items->count, sizeof(*st));
	/* A key stands in the message with more than a prefix's bytes beside it. */
	text = mcm_scratch(MCM_SCRATCH_TEXT, items->raw_len, 1);
	if (!status || !text)
		return -ENOMEM;
	mcp_iter_init(&it, items, &mcp_desc_put_done);
	for (n = 0; n < items->count; n += w) {
		for (w = 0; w < MCM_WARM_MAX && mcp_iter_next(&it, &done[w]); w++) {
			done[w].key = mcm_scope_key(sc, done[w].key, text);
			text += done[w].key.data == text ? done[w].key.len : 0;
		}
		fn(m, done, w, outcome);
		for (i = 0; i < w; i++, st++) {
			st->status = outcome[i] < 0 ? mc_err_to_wire(outcome[i]) : 0;
			failed += outcome[i] < 0;
		}
	}
	mcm_op_count(om, items->count, failed);
	*ret = mcp_seq(status, items->count);
	return 0;
}

int mcm_serve_put_end(struct mcp_session *s, const void *body, size_t len,
		      struct mcp_answer *answer, void *arg)
{
	struct mcp_put_end_reply reply = { 0 };
	struct mcp_put_end rq;
	int r;

	(void)s;
	r = mcp_decode(&mcp_desc_put_end, body, len, &rq);
	if (r == 0)
		r = finish_items(arg, rq.tenant, &rq.items, mcm_put_end_many, &ends, &reply.results);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_put_end_reply, &reply);
}

int mcm_serve_put_revoke(struct mcp_session *s, const void *body, size_t len,
			 struct mcp_answer *answer, void *arg)
{
	struct mcp_put_revoke_reply reply = { 0 };
	struct mcp_put_revoke rq;
	int r;

	(void)s;
	r = mcp_decode(&mcp_desc_put_revoke, body, len, &rq);
	if (r == 0)
		r = finish_items(arg, rq.tenant, &rq.items, revoke_many, &revokes,
				 &reply.results);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_put_revoke_reply, &reply);
}
