/* SPDX-License-Identifier: Apache-2.0
 * service_name.c - REMOVE, CLEAR, REMOVE_MATCH, RENAME, RENAME_DIR, LINK, LIST. */
#include <config.h>

#include <errno.h>

#include "common/err.h"
#include "common/metrics.h"
#include "master/ops/ops.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "master/service/service_i.h"
#include "master/session.h"

MC_COUNTER(removes, "master_remove_requests_total", "", "Keys in requests to remove")
MC_COUNTER(remove_failures, "master_remove_failures_total", "", "Keys that could not be removed")
MC_COUNTER(matches, "master_remove_by_regex_requests_total", "", "Removals by pattern or prefix")
MC_COUNTER(match_failures, "master_remove_by_regex_failures_total", "",
	   "Removals by pattern or prefix that failed")
MC_COUNTER(alls, "master_remove_all_requests_total", "", "Removals of all objects")
MC_COUNTER(all_failures, "master_remove_all_failures_total", "", "Removals of all objects that failed")

MC_COUNTER(clears, "master_batch_replica_clear_requests_total", "", "Requests to free copies in a segment")
MC_COUNTER(clear_failures, "master_batch_replica_clear_failures_total", "", "Those that failed for every key")
MC_COUNTER(clears_partial, "master_batch_replica_clear_partial_successes_total", "", "Those that failed for some keys")
MC_COUNTER(clear_keys, "master_batch_replica_clear_items_total", "", "Keys in requests to free copies")
MC_COUNTER(clear_key_failures, "master_batch_replica_clear_failed_items_total", "",
	   "Keys of which no copy was freed")

/* REMOVE of all keys, or with @segment CLEAR.  The number of failures; *ret_results is in scratch memory. */
static int name_keys(struct mcm *m, const struct mcp_session *s, struct mcp_bytes tenant, const struct mcp_seq *keys,
		     uint32_t flags, const struct mcp_bytes *segment, struct mcp_seq *ret_results)
{
	struct mcp_status *status, *st;
	char buf[MCM_KEY_MAX];
	struct mcm_scope sc;
	struct mcp_iter it;
	struct mcp_key key;
	int r, failed = 0;

	r = mcm_scope_begin(m, mcp_session_principal(s), tenant, false, &sc);
	if (r < 0)
		return r;
	st = status = mcm_scratch(MCM_SCRATCH_ITEMS, keys->count, sizeof(*st));
	if (!status)
		return -ENOMEM;
	mcp_iter_init(&it, keys, &mcp_desc_key);
	for (; mcp_iter_next(&it, &key); st++) {
		key.key = mcm_scope_key(sc, key.key, buf);
		r = segment ? mcm_clear(m, *segment, key.key) : mcm_remove(m, flags, key.key);
		st->status = r < 0 ? mc_err_to_wire(r) : 0;
		failed += r < 0;
	}
	*ret_results = mcp_seq(status, keys->count);
	return failed;
}

int mcm_serve_remove(struct mcp_session *s, const void *body, size_t len,
		     struct mcp_answer *answer, void *arg)
{
	struct mcp_remove_reply reply = { 0 };
	struct mcp_remove rq;
	int r;

	r = mcp_decode(&mcp_desc_remove, body, len, &rq);
	if (r == 0)
		r = name_keys(arg, s, rq.tenant, &rq.keys, rq.flags, NULL, &reply.results);
	if (r < 0)
		return r;
	mc_metric_add(&removes, rq.keys.count);
	if (r)
		mc_metric_add(&remove_failures, r);
	return mcp_answer(answer, &mcp_desc_remove_reply, &reply);
}

int mcm_serve_clear(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_clear_reply reply = { 0 };
	struct mcp_clear rq;
	int r;

	r = mcp_decode(&mcp_desc_clear, body, len, &rq);
	if (r == 0)
		r = name_keys(arg, s, rq.tenant, &rq.keys, 0, &rq.segment, &reply.results);
	if (r < 0)
		return r;
	mc_metric_add(&clears, 1);
	mc_metric_add(&clear_keys, rq.keys.count);
	mc_metric_add(&clear_key_failures, r);
	if (r)
		mc_metric_add((uint32_t)r == rq.keys.count ? &clear_failures : &clears_partial, 1);
	return mcp_answer(answer, &mcp_desc_clear_reply, &reply);
}

/* For a client that does not ask for slices: make them here, and serve other requests in between. */
static int remove_slice(struct mcm_session *s, struct mcm *m, struct mcp_remove_match *rq,
			struct mcp_remove_match_reply *reply)
{
	int r;

	rq->sliced = 1;
	rq->at = s->match_at;
	r = mcm_remove_part(m, rq, reply);
	s->match_removed += reply->removed;
	s->match_at = r < 0 ? 0 : reply->at;
	if (s->match_at)
		return MCP_AGAIN;
	reply->removed = s->match_removed;
	s->match_removed = 0;
	return r;
}

int mcm_serve_remove_match(struct mcp_session *s, const void *body, size_t len,
			   struct mcp_answer *answer, void *arg)
{
	struct mcp_remove_match_reply reply = { 0 };
	struct mcp_remove_match rq;
	bool all;
	int r;

	r = mcp_decode(&mcp_desc_remove_match, body, len, &rq);
	if (r == 0)
		r = mcm_tenant_confine(arg, mcp_session_principal(s), &rq.tenant);
	if (r == 0 && rq.flags & MCP_REMOVE_TENANTS)
		r = mcm_serve_check_tenantless(s, "a removal of the objects of all tenants");
	if (r < 0)
		return r;
	all = !rq.pattern.len && !rq.prefix.len;
	if (rq.sliced) {
		r = mcm_remove_part(arg, &rq, &reply);
	} else {
		r = remove_slice(mcp_session_get(s), arg, &rq, &reply);
		if (r == MCP_AGAIN)
			return r;
		rq.at = 0;
	}
	if (!rq.at)
		mc_metric_add(all ? &alls : &matches, 1);
	if (r < 0) {
		mc_metric_add(all ? &all_failures : &match_failures, 1);
		return r;
	}
	return mcp_answer(answer, &mcp_desc_remove_match_reply, &reply);
}

int mcm_serve_rename(struct mcp_session *s, const void *body, size_t len,
		     struct mcp_answer *answer, void *arg)
{
	struct mcp_rename_reply reply = { 0 };
	char from[MCM_KEY_MAX], to[MCM_KEY_MAX];
	struct mcm_scope sc;
	struct mcp_rename rq;
	int r;

	r = mcp_decode(&mcp_desc_rename, body, len, &rq);
	if (r == 0)
		r = mcm_scope_begin(arg, mcp_session_principal(s), rq.tenant, true, &sc);
	if (r < 0)
		return r;
	rq.from = mcm_scope_key(sc, rq.from, from);
	rq.to = mcm_scope_key(sc, rq.to, to);
	if (r == 0)
		r = mcm_rename(arg, &rq, &reply.generation, &reply.was);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_rename_reply, &reply);
}

int mcm_serve_rename_dir(struct mcp_session *s, const void *body, size_t len,
			 struct mcp_answer *answer, void *arg)
{
	struct mcp_rename_dir_reply reply = { 0 };
	char from[MCM_KEY_MAX], to[MCM_KEY_MAX];
	struct mcp_rename_dir rq;
	struct mcm_scope sc;
	int r;

	r = mcp_decode(&mcp_desc_rename_dir, body, len, &rq);
	if (r == 0)
		r = mcm_scope_begin(arg, mcp_session_principal(s), rq.tenant, true, &sc);
	if (r < 0)
		return r;
	rq.from = mcm_scope_key(sc, rq.from, from);
	rq.to = mcm_scope_key(sc, rq.to, to);
	r = mcm_rename_dir(arg, &rq, &reply.moved);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_rename_dir_reply, &reply);
}

int mcm_serve_link(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_link_name_reply reply = { 0 };
	char from[MCM_KEY_MAX], to[MCM_KEY_MAX];
	struct mcm_scope sc;
	struct mcp_link_name rq;
	int r;

	r = mcp_decode(&mcp_desc_link_name, body, len, &rq);
	if (r == 0)
		r = mcm_scope_begin(arg, mcp_session_principal(s), rq.tenant, true, &sc);
	if (r < 0)
		return r;
	rq.from = mcm_scope_key(sc, rq.from, from);
	rq.to = mcm_scope_key(sc, rq.to, to);
	r = mcm_link(arg, &rq, &reply.ino, &reply.generation);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_link_name_reply, &reply);
}

int mcm_serve_set_attrs(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_set_attrs_reply reply = { 0 };
	struct mcp_replica part[MCM_REPLICA_MAX];
	struct mcp_attrs attrs;
	struct mcm_attrs_memory mem = { &attrs, NULL };
	struct mcp_object obj = { 0 };
	struct mcp_set_attrs rq;
	char buf[MCM_KEY_MAX];
	struct mcm_scope sc;
	unsigned copies = 0;
	int r;

	r = mcp_decode(&mcp_desc_set_attrs, body, len, &rq);
	if (r == 0)
		r = mcm_scope_begin(arg, mcp_session_principal(s), rq.tenant, true, &sc);
	if (r < 0)
		return r;
	rq.key = mcm_scope_key(sc, rq.key, buf);
	r = mcm_set_attrs(arg, &rq);
	if (r < 0)
		return r;
	/* The key may have been removed since the change. */
	r = mcm_get_attrs(arg, NULL, MCP_GET_DIRS, rq.key, &obj, part, &copies, &mem);
	obj.status = r < 0 ? mc_err_to_wire(r) : 0;
	obj.replicas = mcp_seq(part, r < 0 ? 0 : copies);
	reply.objects = mcp_seq(&obj, 1);
	return mcp_answer(answer, &mcp_desc_set_attrs_reply, &reply);
}

int mcm_serve_list(struct mcp_session *s, const void *body, size_t len,
		   struct mcp_answer *answer, void *arg)
{
	struct mcm_list_page *pg = mcm_list_page();
	struct mcp_list_reply reply = { 0 };
	struct mcp_entry *entry;
	struct mcp_attrs *attrs;
	struct mcp_list rq;
	int r;

	r = mcp_decode(&mcp_desc_list, body, len, &rq);
	if (r == 0)
		r = mcm_tenant_confine(arg, mcp_session_principal(s), &rq.tenant);
	if (r == 0)
		r = pg ? mcm_list(arg, &rq, pg) : -ENOMEM;
	if (r < 0)
		return r;
	entry = mcm_scratch(MCM_SCRATCH_ITEMS, pg->names.count, sizeof(*entry));
	attrs = mcm_scratch(MCM_SCRATCH_ATTRS, pg->names.count, sizeof(*attrs));
	r = entry && attrs ? mcm_list_entries(arg, &rq, pg, attrs, entry) : -ENOMEM;
	if (r < 0)
		return r;
	reply.entries = mcp_seq(entry, (uint32_t)r);
	reply.cursor = mcp_bytes(pg->cursor, pg->cursor_len);
	return mcp_answer(answer, &mcp_desc_list_reply, &reply);
}
