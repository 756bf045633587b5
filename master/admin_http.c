/* SPDX-License-Identifier: Apache-2.0
 * admin_http.c - health, metrics and queries over HTTP. */
#include <config.h>

#include "master/admin_http.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/metrics.h"
#include "common/options.h"
#include "master/get.h"
#include "master/mcm_i.h"
#include "master/scratch.h"
#include "master/stats.h"
#include "proto/codec.h"

#define JSON_TYPE "application/json"

/* Print @json, which is given; NULL: there was no memory for it. */
static void answer_json(struct mc_http_request *rq, int status, json_t *json)
{
	rq->content_type = JSON_TYPE;
	rq->status = json ? status : 500;
	if (json)
		json_dumpf(json, rq->out, JSON_COMPACT);
	json_decref(json);
}

static void answer_error(struct mc_http_request *rq, int err)
{
	int status = 500;

	if (err == -MC_EPARAM || err == -MC_EKEY)
		status = 400;
	else if (err == -MC_ENOOBJECT || err == -MC_ENOSEGMENT)
		status = 404;
	answer_json(rq, status, json_pack("{s:b, s:i, s:s}", "success", 0, "error_code",
					  mc_err_to_upstream(err), "error_message",
					  mc_err_detail(err)));
}

static void serve_health(struct mc_http_request *rq, void *arg)
{
	(void)arg;
	answer_json(rq, 200, json_pack("{s:s, s:s, s:s, s:b}", "status", "ok", "role", "leader",
				       "ha_state", "serving", "service_ready", 1));
}

static void serve_role(struct mc_http_request *rq, void *arg)
{
	(void)arg;
	fputs("leader", rq->out);
}

static void serve_ha_status(struct mc_http_request *rq, void *arg)
{
	(void)arg;
	fputs("serving", rq->out);
}

static void serve_metrics(struct mc_http_request *rq, void *arg)
{
	mc_http_metrics(rq, NULL);
	mcm_stats_print_segments(arg, rq->out);
}

static void serve_summary(struct mc_http_request *rq, void *arg)
{
	char line[512];

	mcm_stats_summary(arg, line, sizeof(line));
	fprintf(rq->out, "role=leader, state=serving, service_ready=true, master={%s}, ha={}\n",
		line);
}

/* ---- segments ---- */

/* Upstream prints its ids like this. */
static const char *print_id(struct mcp_id id, char buf[48])
{
	snprintf(buf, 48, "%" PRIu64 "-%" PRIu64, id.hi, id.lo);
	return buf;
}

static const char *state_name(const struct mcm_segment *s)
{
	switch (mcm_segment_state(s)) {
	case MCP_SEG_OK:
		return "OK";
	case MCP_SEG_SILENT:
		return "SILENT";
	default:
		return "UNMOUNTING";
	}
}

static void serve_segment_names(struct mc_http_request *rq, void *arg)
{
	struct mcm_segments *ss = &((struct mcm *)arg)->segments;
	unsigned i, j;

	pthread_rwlock_rdlock(&ss->lock);
	for (i = 0; i < ss->n_live; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		for (j = 0; j < i && ss->at[ss->live[j]]->name_hash != s->name_hash; j++)
			;
		if (j == i)
			fprintf(rq->out, "%s\n", s->name);
	}
	pthread_rwlock_unlock(&ss->lock);
}

static json_t *segment_json(const struct mcm_segment *s)
{
	char id[48], client[48], base[24], human[32];
	uint64_t used = mcm_peek(&s->used);

	snprintf(base, sizeof(base), "0x%" PRIx64, s->base);
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:f}",
			 "segment_name", s->name, "segment_id", print_id(s->id, id),
			 "client_id", print_id(s->client, client), "base_address", base,
			 "size_bytes", (json_int_t)s->size,
			 "size_human", mc_format_size(s->size, human, sizeof(human)),
			 "te_endpoint", s->endpoint, "protocol", s->protocol, "status", state_name(s),
			 "allocator_used_bytes", (json_int_t)used,
			 "allocator_capacity_bytes", (json_int_t)s->size,
			 "allocator_usage_percent", 100.0 * (double)used / (double)s->size);
}

static void serve_segments_detail(struct mc_http_request *rq, void *arg)
{
	struct mcm_segments *ss = &((struct mcm *)arg)->segments;
	json_t *list = json_array();
	unsigned i;

	pthread_rwlock_rdlock(&ss->lock);
	for (i = 0; list && i < ss->n_live; i++)
		json_array_append_new(list, segment_json(ss->at[ss->live[i]]));
	pthread_rwlock_unlock(&ss->lock);
	answer_json(rq, 200, json_pack("{s:I, s:o}", "total_segments",
				       (json_int_t)json_array_size(list), "segments", list));
}

static void serve_segment(struct mc_http_request *rq, void *arg)
{
	struct mcm_segments *ss = &((struct mcm *)arg)->segments;
	const char *name = mc_http_query(rq, "segment");
	uint64_t used = 0, size = 0;
	unsigned i;

	pthread_rwlock_rdlock(&ss->lock);
	for (i = 0; name && i < ss->n_live; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		if (!strcmp(s->name, name)) {
			used += mcm_peek(&s->used);
			size += s->size;
		}
	}
	pthread_rwlock_unlock(&ss->lock);
	if (size) {
		fprintf(rq->out, "%s\nUsed(bytes): %" PRIu64 "\nCapacity(bytes) : %" PRIu64 "\n", name,
			used, size);
	} else {
		rq->status = 500;
		fputs("no segment has this name\n", rq->out);
	}
}

/* ---- keys ---- */

static void serve_keys(struct mc_http_request *rq, void *arg)
{
	struct mcm_list_page *pg = mcm_scratch_page();
	struct mcp_list list = { 0 };
	uint8_t cursor[sizeof(pg->cursor)];
	unsigned i;
	int r;

	do {
		r = pg ? mcm_list(arg, &list, pg) : -ENOMEM;
		if (r < 0) {
			rq->status = 500;
			return;
		}
		for (i = 0; i < pg->names.count; i++) {
			const struct mcm_names_item *it = &pg->names.item[i];

			fwrite(pg->names.text + it->name, 1, it->name_len, rq->out);
			fputc('\n', rq->out);
		}
		memcpy(cursor, pg->cursor, sizeof(cursor));
		list.cursor = mcp_bytes(cursor, pg->cursor_len);
	} while (pg->cursor_len);
}

static json_t *replica_json(struct mcm *m, const struct mcp_replica *r, uint64_t size)
{
	const struct mcm_segment *s;
	json_t *json = NULL;

	pthread_rwlock_rdlock(&m->segments.lock);
	s = mcm_segments_find(&m->segments, r->segment);
	if (s)
		json = json_pack("{s:I, s:I, s:s, s:s}", "size_", (json_int_t)size, "buffer_address_",
				 (json_int_t)(s->base + r->offset), "protocol_", s->protocol,
				 "transport_endpoint_", s->endpoint);
	pthread_rwlock_unlock(&m->segments.lock);
	return json;
}

static void serve_key(struct mc_http_request *rq, void *arg)
{
	const char *key = mc_http_query(rq, "key");
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcp_object obj;
	unsigned n, i;
	json_t *list;
	int r;

	r = key && *key ? mcm_get(arg, NULL, 0, mcp_bytes(key, strlen(key)), &obj, replica, &n) :
		mc_fail(-MC_EPARAM, "which key? ask for /query_key?key=NAME");
	if (r < 0) {
		answer_error(rq, r);
		return;
	}
	list = json_array();
	for (i = 0; list && i < n; i++) {
		json_t *one = replica_json(arg, &replica[i], obj.size);

		if (one)
			json_array_append_new(list, one);
	}
	answer_json(rq, 200, json_pack("{s:b, s:o}", "success", 1, "data", list));
}

const struct mc_http_route mcm_http_routes[] = {
	{ "GET", "/health", serve_health },
	{ "GET", "/role", serve_role },
	{ "GET", "/ha_status", serve_ha_status },
	{ "GET", "/metrics", serve_metrics },
	{ "GET", "/metrics/summary", serve_summary },
	{ "GET", "/get_all_segments", serve_segment_names },
	{ "GET", "/get_segments_detail", serve_segments_detail },
	{ "GET", "/query_segment", serve_segment },
	{ "GET", "/get_all_keys", serve_keys },
	{ "GET", "/query_key", serve_key },
	{ NULL, NULL, NULL },
};
