/* SPDX-License-Identifier: Apache-2.0
 * service_task.c - TASK_CREATE, TASKS, TASK_CANCEL, TASK_FETCH, COPIED, ADOPT, USED, DESCRIBE. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "master/ops/ops.h"
#include "master/security/capability.h"
#include "master/service/service_i.h"
#include "master/session.h"
#include "master/task/adopt.h"
#include "master/task/used.h"
#include "proto/rpc_server.h"

#define GONE_MAX 1024u		/* notes of removed objects in one answer */
#define FETCH_PARTS 64u		/* most parts of a fetch, even if none of them found a copy */

MC_COUNTER(copies_created, "master_create_copy_task_requests_total", "", "Requests to create a copy task")
MC_COUNTER(copies_refused, "master_create_copy_task_failures_total", "", "Copy tasks that were refused")
MC_COUNTER(moves_created, "master_create_move_task_requests_total", "", "Requests to create a move task")
MC_COUNTER(moves_refused, "master_create_move_task_failures_total", "", "Move tasks that were refused")
MC_COUNTER(queries, "master_query_task_requests_total", "", "Queries of tasks")
MC_COUNTER(query_failures, "master_query_task_failures_total", "", "Queries of unknown tasks")
MC_COUNTER(fetches, "master_fetch_tasks_requests_total", "", "Requests of owners for copies to make")
MC_COUNTER(fetch_failures, "master_fetch_tasks_failures_total", "", "Requests of owners for copies to make that failed")
MC_COUNTER(updates, "master_update_task_requests_total", "", "Copies whose end owners reported")
MC_COUNTER(update_failures, "master_update_task_failures_total", "", "Copies that failed or were not used")

int mcm_serve_task_create(struct mcp_session *s, const void *body, size_t len,
			  struct mcp_answer *answer, void *arg)
{
	auto_free struct mcp_bytes *source = NULL, *target = NULL;
	struct mcp_task_create_reply reply;
	struct mcm_task_request tr;
	struct mcp_task_create rq;
	struct mcm_scope sc;
	char key[MCM_KEY_MAX];
	int r;

	r = mcp_decode(&mcp_desc_task_create, body, len, &rq);
	if (r == 0 && !rq.key.len)
		r = mcm_serve_check_tenantless(s, "a task about segments");
	if (r < 0)
		return r;
	r = mcm_scope_begin(arg, mcp_session_principal(s), rq.tenant, false, &sc);
	if (r < 0)
		return r;
	if (rq.key.len)
		rq.key = mcm_scope_key(sc, rq.key, key);
	if (rq.type == MCP_TASK_COPY || rq.type == MCP_TASK_MOVE)
		mc_metric_add(rq.type == MCP_TASK_COPY ? &copies_created : &moves_created, 1);
	tr = (struct mcm_task_request){
		.type = rq.type, .key = rq.key, .max_active = rq.max_active,
	};
	r = mcm_task_names_decode(&rq.sources, &source, &tr.n_sources);
	if (r == 0)
		r = mcm_task_names_decode(&rq.targets, &target, &tr.n_targets);
	tr.source = source;
	tr.target = target;
	if (r == 0)
		r = mcm_task_create(arg, &tr, &reply.id);
	if (r == 0)
		return mcp_answer(answer, &mcp_desc_task_create_reply, &reply);
	if (rq.type == MCP_TASK_COPY || rq.type == MCP_TASK_MOVE)
		mc_metric_add(rq.type == MCP_TASK_COPY ? &copies_refused : &moves_refused, 1);
	return r;
}

/* ---- queries ---- */

/* Tasks as messages.  They are encoded without tasks.lock, so everything they point to is copied. */
struct listing {
	struct mcm *m;
	struct mcp_task *task;
	void **owned;		/* names and text */
	unsigned n, cap, n_owned;
	bool confined;		/* list only tasks about keys of @tenant */
	uint32_t tenant;
};

#define LISTED_MAX 1024

static struct mcp_seq names_copy(struct listing *l, const struct mcm_task_name *names, unsigned n, int *r)
{
	size_t len = n * sizeof(struct mcp_name);
	struct mcp_name *list;
	char *text;

	for (unsigned i = 0; i < n; i++)
		len += strlen(names[i].name);
	list = malloc(len + 1);
	if (!list) {
		*r = -ENOMEM;
		return mcp_seq(NULL, 0);
	}
	l->owned[l->n_owned++] = list;
	text = (char *)(list + n);
	for (unsigned i = 0; i < n; i++) {
		size_t part = strlen(names[i].name);

		memcpy(text, names[i].name, part);
		list[i].name = mcp_bytes(text, part);
		text += part;
	}
	return mcp_seq(list, n);
}

static struct mcp_bytes bytes_copy(struct listing *l, const void *data, size_t len, int *r)
{
	void *copy = malloc(len + 1);

	if (!copy) {
		*r = -ENOMEM;
		return mcp_bytes(NULL, 0);
	}
	l->owned[l->n_owned++] = copy;
	if (len)
		memcpy(copy, data, len);
	return mcp_bytes(copy, len);
}

static int listing_grow(struct listing *l)
{
	unsigned cap = l->cap ? 2 * l->cap : 16;
	struct mcp_task *task = realloc(l->task, cap * sizeof(*task));
	void **owned;

	if (!task)
		return -ENOMEM;
	l->task = task;
	owned = realloc(l->owned, 4 * cap * sizeof(*owned));
	if (!owned)
		return -ENOMEM;
	l->owned = owned;
	l->cap = cap;
	return 0;
}

static int listing_add(void *arg, const struct mcm_task *t)
{
	struct listing *l = arg;
	struct mcm_task_left left = mcm_task_left(l->m, t);
	uint32_t tenant;
	struct mcp_bytes key = mcm_key_bare(mcp_bytes(t->key ? t->key : "", t->key_len), &tenant);
	int r = 0;

	if (l->confined && (!t->key || tenant != l->tenant))
		return 0;
	if (l->n == LISTED_MAX)
		return 1;
	if (l->n == l->cap)
		r = listing_grow(l);
	if (r < 0)
		return r;
	l->task[l->n++] = (struct mcp_task){
		.id = t->id, .type = t->type, .status = t->status,
		.key = bytes_copy(l, key.data, key.len, &r),
		.sources = names_copy(l, t->source, t->n_sources, &r),
		.targets = names_copy(l, t->target, t->n_targets, &r),
		.max_active = t->max_active, .created_ms = t->created_ms,
		.updated_ms = t->updated_ms, .succeeded = t->succeeded, .failed = t->failed,
		.blocked = t->blocked, .active = t->active, .bytes = t->bytes,
		.total = t->total, .left = left.bytes, .total_objects = t->total_objects,
		.left_objects = left.objects, .given_up = t->given_up, .rate = t->rate, .client = t->client,
		.error = t->error ? mc_err_to_wire(t->error) : 0,
		.message = bytes_copy(l, t->message, strlen(t->message), &r),
		.tenant = t->key ? mcm_tenant_name(l->m, tenant) : mcp_bytes("", 0),
	};
	return r;
}

int mcm_serve_tasks(struct mcp_session *s, const void *body, size_t len,
		    struct mcp_answer *answer, void *arg)
{
	struct listing l = { .m = arg };
	struct mcp_tasks_reply reply;
	struct mcm_scope sc;
	struct mcp_tasks rq;
	int r;

	l.confined = mcp_session_principal(s)->tenant[0];
	r = mcp_decode(&mcp_desc_tasks, body, len, &rq);
	if (r == 0)
		r = mcm_scope_begin(arg, mcp_session_principal(s), mcp_bytes("", 0), false, &sc);
	if (r < 0)
		return r;
	l.tenant = sc.tenant;
	mc_metric_add(&queries, 1);
	r = mcm_task_each(arg, rq.id, listing_add, &l);
	/* A task of another tenant must look unknown. */
	if (r == 0 && l.confined && !l.n && !mcp_id_zero(rq.id))
		r = mc_fail(-MC_ENOTASK, "no task has this id");
	if (r >= 0) {
		reply.tasks = mcp_seq(l.task, l.n);
		r = mcp_answer(answer, &mcp_desc_tasks_reply, &reply);
	} else {
		mc_metric_add(&query_failures, 1);
	}
	for (unsigned i = 0; i < l.n_owned; i++)
		free(l.owned[i]);
	free(l.owned);
	free(l.task);
	return r;
}

int mcm_serve_task_cancel(struct mcp_session *s, const void *body, size_t len,
			  struct mcp_answer *answer, void *arg)
{
	struct mcp_task_cancel_reply reply;
	struct mcp_task_cancel rq;
	int r;

	r = mcp_decode(&mcp_desc_task_cancel, body, len, &rq);
	if (r == 0)
		r = mcm_serve_check_tenantless(s, "the end of a task");
	if (r == 0)
		r = mcm_task_cancel(arg, rq.id, &reply.status);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_task_cancel_reply, &reply);
}

/* ---- copies ---- */

int mcm_serve_task_fetch(struct mcp_session *s, const void *body, size_t len,
			 struct mcp_answer *answer, void *arg)
{
	struct mcp_task_fetch_reply reply;
	struct mcp_task_fetch rq;
	struct mcp_replica *part = NULL;
	struct mcp_copy *copy = NULL;
	struct mcm_session *ms = mcp_session_get(s);
	struct mcp_gone *gone;
	uint8_t *records = NULL;
	unsigned n;
	bool more;
	int r;

	if (!ms->fetch_parts)
		mc_metric_add(&fetches, 1);
	r = mcp_decode(&mcp_desc_task_fetch, body, len, &rq);
	if (r == 0)
		r = mcm_serve_check_registered(s);
	if (r == 0)
		r = mcm_serve_check_writer(mcp_session_get(s));
	if (r == 0) {
		copy = mcm_scratch(MCM_SCRATCH_ITEMS, MCM_FETCH_MAX, sizeof(*copy));
		part = mcm_scratch(MCM_SCRATCH_PARTS, 2 * MCM_FETCH_MAX, sizeof(*part));
		r = copy && part ? 0 : -ENOMEM;
	}
	if (r == 0 && rq.disk && rq.records) {
		records = mcm_scratch(MCM_SCRATCH_BYTES, MCM_FETCH_MAX, MCM_ADOPT_MAX);
		r = records ? 0 : -ENOMEM;
	}
	if (r < 0) {
		mc_metric_add(&fetch_failures, 1);
		ms->fetch_parts = 0;
		return r;
	}
	if (rq.disk) {
		n = mcm_offload_fetch(arg, ms, rq.max, copy, part, part + MCM_FETCH_MAX, records);
		more = false;
	} else {
		n = mcm_task_fetch(arg, ms, rq.max, copy, part, part + MCM_FETCH_MAX, &more);
	}
	ms->fetch_parts = more && ms->fetch_parts < FETCH_PARTS ? ms->fetch_parts + 1 : 0;
	if (ms->fetch_parts)
		return MCP_AGAIN;
	if (((struct mcm *)arg)->security)
		mcm_capabilities_copy(arg, ms->identity, copy, n);
	reply.copies = mcp_seq(copy, n);
	gone = records ? mcm_scratch(MCM_SCRATCH_TEXT, GONE_MAX, sizeof(*gone)) : NULL;
	reply.gone = mcp_seq(gone, gone ? mcm_adopt_fetch_gone(arg, ms, GONE_MAX, gone) : 0);
	return mcp_answer(answer, &mcp_desc_task_fetch_reply, &reply);
}

int mcm_serve_copied(struct mcp_session *s, const void *body, size_t len,
		     struct mcp_answer *answer, void *arg)
{
	struct mcp_copied_list_reply reply;
	struct mcp_status *status, *st;
	struct mcp_copied_list rq;
	struct mcp_copied c;
	struct mcp_iter it;
	int r;

	r = mcp_decode(&mcp_desc_copied_list, body, len, &rq);
	if (r < 0)
		return r;
	st = status = mcm_scratch(MCM_SCRATCH_ITEMS, rq.items.count, sizeof(*st));
	if (!status)
		return -ENOMEM;
	mc_metric_add(&updates, rq.items.count);
	mcp_iter_init(&it, &rq.items, &mcp_desc_copied);
	for (; mcp_iter_next(&it, &c); st++) {
		r = mcm_task_copied(arg, mcp_session_get(s), &c);
		st->status = r < 0 ? mc_err_to_wire(r) : 0;
		if (r < 0)
			mc_metric_add(&update_failures, 1);
	}
	reply.results = mcp_seq(status, rq.items.count);
	return mcp_answer(answer, &mcp_desc_copied_list_reply, &reply);
}

int mcm_serve_adopt(struct mcp_session *s, const void *body, size_t len,
		    struct mcp_answer *answer, void *arg)
{
	struct mcp_adopt_reply reply;
	struct mcp_status status[MCP_ADOPT_MAX];
	struct mcp_adopt_item item;
	struct mcp_adopt rq;
	struct mcp_iter it;
	unsigned n = 0;
	int r;

	r = mcp_decode(&mcp_desc_adopt, body, len, &rq);
	if (r == 0)
		r = mcm_serve_check_registered(s);
	if (r == 0 && rq.items.count > MCP_ADOPT_MAX)
		r = mc_fail(-MC_EPARAM, "%u items, at most %u are accepted", rq.items.count, MCP_ADOPT_MAX);
	if (r < 0)
		return r;
	mcp_iter_init(&it, &rq.items, &mcp_desc_adopt_item);
	for (; r == 0 && mcp_iter_next(&it, &item); n++) {
		int one = mcm_adopt(arg, mcp_session_get(s), &rq, &item);

		status[n].status = one < 0 ? mc_err_to_wire(one) : 0;
		r = one == -MC_ENOSEGMENT || one == -MC_ENOTREADY ? one : 0;
	}
	if (r == 0 && rq.end)
		r = mcm_adopt_end(arg, mcp_session_client(s), &rq);
	reply.results = mcp_seq(status, n);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_adopt_reply, &reply);
}

int mcm_serve_used(struct mcp_session *s, const void *body, size_t len,
		   struct mcp_answer *answer, void *arg)
{
	struct mcp_used_reply reply = { 0 };
	struct mcp_used_item place;
	struct mcp_used rq;
	struct mcp_iter it;
	uint64_t *at;
	uint8_t *used;
	unsigned n = 0;
	int r;

	r = mcp_decode(&mcp_desc_used, body, len, &rq);
	if (r == 0)
		r = mcm_serve_check_registered(s);
	if (r < 0)
		return r;
	at = mcm_scratch(MCM_SCRATCH_ITEMS, rq.places.count, sizeof(*at));
	used = mcm_scratch(MCM_SCRATCH_BYTES, rq.places.count, 1);
	if (!at || !used)
		return -ENOMEM;
	mcp_iter_init(&it, &rq.places, &mcp_desc_used_item);
	for (; mcp_iter_next(&it, &place); n++) {
		if (n && place.offset <= at[n - 1])
			return mc_fail(-MC_EPARAM, "the places are not ascending");
		at[n] = place.offset;
	}
	r = mcm_used(arg, mcp_session_client(s), rq.segment, rq.epoch, at, n, used);
	if (r < 0)
		return r;
	reply.used = mcp_bytes(used, n);
	return mcp_answer(answer, &mcp_desc_used_reply, &reply);
}

int mcm_serve_describe(struct mcp_session *s, const void *body, size_t len,
		       struct mcp_answer *answer, void *arg)
{
	struct mcp_describe_reply reply;
	struct mcm_attrs_memory mem;
	struct mcp_attrs attrs;
	struct mcp_describe rq;
	int r;

	(void)s;
	mem.attrs = &attrs;
	mem.xattrs = mcm_scratch(MCM_SCRATCH_ATTRS, 1, sizeof(*mem.xattrs));
	r = mem.xattrs ? mcp_decode(&mcp_desc_describe, body, len, &rq) : -ENOMEM;
	if (r == 0)
		r = mcm_adopt_read(arg, rq.record, &mem, &reply);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_describe_reply, &reply);
}
