/* SPDX-License-Identifier: Apache-2.0
 * admin_keys.c - HTTP queries about objects. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "master/admin/admin.h"
#include "master/admin/admin_json.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "master/ops/ops.h"
#include "proto/codec.h"

#define TEXT "text/plain; version=0.0.4"

/* State of a listing of all keys between its pages. */
struct walk {
	struct mcm *m;
	char tenant[MC_PRINCIPAL_TENANT_MAX + 1];	/* "": the default one */
	uint8_t cursor[sizeof(((struct mcm_list_page *)NULL)->cursor)];
	uint32_t len;
};

static int more_keys(void *arg, FILE *out)
{
	struct mcm_list_page *pg = mcm_list_page();
	struct walk *w = arg;
	struct mcp_list list = {
		.tenant = mcp_bytes(w->tenant, strlen(w->tenant)), .cursor = mcp_bytes(w->cursor, w->len),
	};
	int r;

	r = pg ? mcm_list(w->m, &list, pg) : -ENOMEM;
	if (r < 0)
		return r;
	for (unsigned i = 0; i < pg->names.count; i++) {
		const struct mcm_names_item *it = &pg->names.item[i];

		fwrite(pg->names.text + it->name, 1, it->name_len, out);
		fputc('\n', out);
	}
	memcpy(w->cursor, pg->cursor, pg->cursor_len);
	w->len = pg->cursor_len;
	mcm_journal_wait(w->m);
	return w->len > 0;
}

/* Send one page at a time: memory may be too small for all keys. */
void mcm_admin_all_keys(struct mc_http_request *rq, void *arg)
{
	struct walk *w = calloc(1, sizeof(*w));
	int r = -ENOMEM;

	rq->content_type = TEXT;
	if (w) {
		w->m = arg;
		strcpy(w->tenant, rq->principal.tenant);
		r = more_keys(w, rq->out);
	}
	if (r < 0)
		rq->status = r == -MC_ENOTREADY ? 503 : 500;
	rq->done = free;
	rq->state = w;
	if (r > 0)
		rq->more = more_keys;
}

/* The lists of upstream's answers. */
enum list { VALUES, LOCAL_DISK, NOF, LISTS };

static enum list list_of(uint8_t medium)
{
	if (mcp_medium(medium)->rank < MCP_RANK_DISK)
		return VALUES;
	return mcp_medium_is(medium, MCP_TRAIT_NOF) ? NOF : LOCAL_DISK;
}

static json_t *replica_json(struct mcm *m, const struct mcp_replica *r, uint64_t size)
{
	const struct mcm_segment *s;
	json_t *json = NULL;

	mc_rwlock_rdlock(&m->segments.lock);
	s = mcm_segments_find(&m->segments, r->segment);
	/* As upstream's descriptor of a copy on a node's disk; the owner's id is shown to the owner only. */
	if (s && list_of(s->medium) == LOCAL_DISK)
		json = json_pack("{s:s, s:I, s:s}", "client_id", "0-0", "object_size", (json_int_t)size,
				 "transport_endpoint", s->endpoint);
	else if (s)
		json = json_pack("{s:I, s:I, s:s, s:s}", "size_", (json_int_t)size, "buffer_address_",
				 (json_int_t)(s->base + r->offset), "protocol_", s->protocol,
				 "transport_endpoint_", s->endpoint);
	mc_rwlock_unlock(&m->segments.lock);
	return json;
}

/* The locations of an object's replicas that are in this list.  NULL: *ret_err gets the error. */
static json_t *replicas_json(struct mcm *m, struct mcm_scope sc, struct mcp_bytes name, enum list which, int *ret_err)
{
	char buf[MCM_KEY_MAX];
	struct mcp_bytes key = mcm_scope_key(sc, name, buf);
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcp_object obj;
	json_t *list, *one;
	unsigned n;

	*ret_err = mcm_get(m, NULL, 0, key, &obj, replica, &n);
	if (*ret_err < 0)
		return NULL;
	list = json_array();
	for (unsigned i = 0; list && i < n; i++) {
		one = list_of(replica[i].medium) == which ? replica_json(m, &replica[i], obj.size) : NULL;
		if (one)
			json_array_append_new(list, one);
	}
	if (!list)
		*ret_err = -ENOMEM;
	return list;
}

void mcm_admin_key(struct mc_http_request *rq, void *arg)
{
	size_t len = 0;
	const char *key = mc_http_query_n(rq, "key", &len);
	json_t *list = NULL;
	struct mcm_scope sc;
	int r = mcm_scope_begin(arg, &rq->principal, mcp_bytes("", 0), false, &sc);

	/* A missing or empty key is an unknown object. */
	if (r == 0 && !len)
		r = -MC_ENOOBJECT;
	if (r == 0)
		list = replicas_json(arg, sc, mcp_bytes(key, len), VALUES, &r);
	if (list)
		mcm_answer_json(rq, 200, json_pack("{s:b, s:o}", "success", 1, "data", list));
	else
		mcm_answer_error(rq, r, NULL);
}

struct batch {
	struct mcm *m;
	struct mcm_scope scope;
	json_t *data;
};

static void batch_key(void *arg, const char *key, size_t len)
{
	struct batch *b = arg;
	json_t *list[LISTS] = { NULL }, *one;
	int r = 0;

	for (enum list i = VALUES; len && i < LISTS && r == 0; i++) {
		list[i] = replicas_json(b->m, b->scope, mcp_bytes(key, len), i, &r);
		/* Upstream has null for none. */
		if (i != VALUES && list[i] && !json_array_size(list[i])) {
			json_decref(list[i]);
			list[i] = NULL;
		}
	}
	one = list[VALUES] ?
		json_pack("{s:b, s:n, s:o, s:n, s:o?, s:o?}", "ok", 1, "error", "values", list[VALUES],
			  "disk_values", "local_disk_values", list[LOCAL_DISK], "nof_values", list[NOF]) :
		     json_pack("{s:b, s:s, s:n, s:n, s:n, s:n}", "ok", 0, "error",
			       mcm_error_name(len ? r : -MC_ENOOBJECT), "values", "disk_values", "local_disk_values",
			       "nof_values");
	/* JSON cannot contain a key that is not UTF-8: report it under a fixed name. */
	if (json_object_setn_new(b->data, key, len, one) < 0)
		json_object_set_new(b->data, "(not UTF-8)",
				    json_pack("{s:b, s:s}", "ok", 0, "error", "INVALID_KEY"));
}

void mcm_admin_batch_keys(struct mc_http_request *rq, void *arg)
{
	struct batch b = { .m = arg };
	size_t len = 0;
	const char *keys = mc_http_query_n(rq, "keys", &len);
	int r = mcm_scope_begin(arg, &rq->principal, mcp_bytes("", 0), false, &b.scope);

	if (r < 0) {
		mcm_answer_error(rq, r, mc_err_detail(r));
		return;
	}
	b.data = json_object();
	if (!mcm_list_parse(keys, len, batch_key, &b)) {
		json_decref(b.data);
		mcm_answer_json(rq, 400, json_pack("{s:b, s:s}", "success", 0, "error",
						   "No keys provided. Use ?keys=key1,key2,..."));
		return;
	}
	mcm_answer_json(rq, 200, json_pack("{s:b, s:o}", "success", 1, "data", b.data));
}
