/* SPDX-License-Identifier: Apache-2.0
 * admin_http.c - health, metrics and queries over HTTP. */
#include <config.h>

#include "master/admin/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/metrics.h"
#include "master/admin/admin_json.h"
#include "master/admin/stats.h"
#include "master/admin/stats_series.h"
#include "master/ha/feeder.h"
#include "master/mcm_i.h"
#include "master/security/audit.h"
#include "proto/codec.h"

#define TEXT "text/plain; version=0.0.4"

static bool is_ready(const struct mcm *m)
{
	return __atomic_load_n(&m->ready, __ATOMIC_ACQUIRE);
}

static struct mcm_status status_describe(const struct mcm *m)
{
	const struct mcm_lead *l = m->lead;
	bool ready = is_ready(m);

	/* A master that is alone has no election. */
	return (struct mcm_status){
		.role = ready ? "leader" : "standby", .state = ready ? "serving" : "starting", .serves = ready,
		.ready = ready, .leader = l ? l->name : NULL, .term = l ? l->term : 0,
	};
}

static void serve_status(struct mc_http_request *rq, void *arg)
{
	const struct mcm_status st = status_describe(arg);

	mcm_answer_status(rq, &st);
}

static void serve_version(struct mc_http_request *rq, void *arg)
{
	(void)arg;
	mcm_answer_json(rq, 200, json_pack("{s:s, s:s}", "version", PACKAGE_VERSION, "display_version",
					   PACKAGE_VERSION " (" PACKAGE_NAME ")"));
}

static void serve_metrics(struct mc_http_request *rq, void *arg)
{
	const struct mcm *m = arg;

	mc_http_metrics(rq, NULL);
	mcm_stats_print_segments(arg, rq->out);
	mcm_stats_print_tenants(arg, rq->out);
	mcm_stats_print_series(rq->out);
	mcm_stats_print_process(rq->out);
	if (m->feeders)
		mcm_feeders_print(m->feeders, rq->out);
}

static void serve_summary(struct mc_http_request *rq, void *arg)
{
	const struct mcm_status st = status_describe(arg);

	fprintf(rq->out, "role=%s, state=%s, service_ready=%s, master={", st.role, st.state,
		st.serves ? "true" : "false");
	mcm_stats_print_summary(arg, rq->out);
	fputs("}, ha={HA Metrics Summary: last_seq=0, applied_seq=0, lag=0, pending=0, mutation_queue=0, "
	      "batch_commits=0, sync_commits=0, skipped=0, checksum_fail=0, etcd_fail=0, "
	      "watch_disconn=0, state=0}\n", rq->out);
}

/* ---- segments ---- */

static const char *state_name(uint8_t shown)
{
	switch (shown) {
	case MCP_SEG_OK:
		return "OK";
	case MCP_SEG_DRAINING:
		return "DRAINING";
	case MCP_SEG_DRAINED:
		return "DRAINED";
	case MCP_SEG_SILENT:
		return "SILENT";
	case MCP_SEG_CONFIRMING:
		return "CONFIRMING";
	case MCP_SEG_PAUSED:
		return "PAUSED";
	default:
		return "UNMOUNTING";
	}
}

static void serve_segment_names(struct mc_http_request *rq, void *arg)
{
	auto_free struct mcm_segment_sum *sum = NULL;
	unsigned n = 0;

	rq->content_type = TEXT;
	if (mcm_segments_sums(&((struct mcm *)arg)->segments, &sum, &n) < 0)
		rq->status = 500;
	for (unsigned i = 0; i < n; i++)
		fprintf(rq->out, "%s\n", sum[i].name);
}

/* An id that stands for the owner.  With its client id another program could act as the owner. */
static struct mcp_id owner_alias(const struct mcm_segment_view *s)
{
	return (struct mcp_id){ mc_hash(s->name, strlen(s->name), 0), mc_hash(s->endpoint, strlen(s->endpoint), 0) };
}

static json_t *segment_json(const struct mcm_segment_view *s)
{
	char id[MCM_ID_TEXT], client[MCM_ID_TEXT], base[24], human[32];

	snprintf(base, sizeof(base), "0x%" PRIx64, s->base);
	snprintf(human, sizeof(human), "%g GiB", (double)s->size / (1ull << 30));
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:f}",
			 "segment_name", s->name, "segment_id", mcm_id_text(s->id, id),
			 "client_id", mcm_id_text(owner_alias(s), client), "base_address", base,
			 "size_bytes", (json_int_t)s->size,
			 "size_human", human,
			 "te_endpoint", s->endpoint, "protocol", s->protocol, "status",
			 state_name(s->shown),
			 "allocator_used_bytes", (json_int_t)s->used,
			 "allocator_capacity_bytes", (json_int_t)s->size,
			 "allocator_usage_percent", 100.0 * (double)s->used / (double)s->size);
}

static void serve_segments_detail(struct mc_http_request *rq, void *arg)
{
	auto_free struct mcm_segment_view *v = malloc(MCM_SEGMENT_VIEWS * sizeof(*v));
	struct mcm_segments *ss = &((struct mcm *)arg)->segments;
	json_t *list = v ? json_array() : NULL;
	bool more = list;
	unsigned next = 0, n;

	while (more) {
		more = mcm_segments_view(ss, &next, v, &n);
		for (unsigned i = 0; i < n; i++)
			json_array_append_new(list, segment_json(&v[i]));
	}
	mcm_answer_json(rq, 200, json_pack("{s:I, s:o}", "total_segments",
				       (json_int_t)json_array_size(list), "segments", list));
}

static void serve_segment(struct mc_http_request *rq, void *arg)
{
	struct mcm_segments *ss = &((struct mcm *)arg)->segments;
	const char *name = mc_http_query(rq, "segment");
	const struct mcm_segment *s = NULL;
	uint64_t used = 0, size = 0, hash;

	rq->content_type = TEXT;
	hash = name ? mc_hash(name, strlen(name), 0) : 0;
	mc_rwlock_rdlock(&ss->lock);
	while (name && (s = mcm_segments_named(ss, hash, s))) {
		used += mcm_load_relaxed(&s->used);
		size += s->size;
	}
	mc_rwlock_unlock(&ss->lock);
	if (size) {
		fprintf(rq->out, "%s\nUsed(bytes): %" PRIu64 "\nCapacity(bytes) : %" PRIu64 "\n", name,
			used, size);
	} else {
		rq->status = 500;
		fputs("Failed to query segment", rq->out);
	}
}

static void serve_kv_events(struct mc_http_request *rq, void *arg)
{
	struct mcm_kv_events_stats st = mcm_kv_events_stats(arg);

	/* The last two are the same number: upstream renamed it in 0.3.14. */
	mcm_answer_json(rq, 200, json_pack("{s:b, s:I, s:I, s:I, s:I, s:I}", "enabled", st.enabled,
					   "published_batches", (json_int_t)st.batches,
					   "published_events", (json_int_t)st.events,
					   "dropped_events", (json_int_t)st.dropped,
					   "skipped_keyless_events", (json_int_t)st.skipped,
					   "skipped_unparsed_keys", (json_int_t)st.skipped));
}

/* ---- routes ---- */

struct guarded {
	struct mc_http_route route;
	bool early;		/* served also before the master is ready */
	bool by_tenant;		/* the handler confines a peer with a tenant to it, or says nothing about any tenant */
};

static const struct guarded table[];

static void answer_inactive(struct mc_http_request *rq)
{
	mcm_answer_json(rq, 503, json_pack("{s:b, s:i, s:s}", "success", 0, "error_code", -1011, "error_message",
					   "service plane is not active"));
}

/* HTTP answers wait for the journal like RPC replies, and do not leave either when another master may serve. */
static void http_finish(struct mc_http_request *rq, const struct guarded *g, struct mcm *m)
{
	mcm_journal_wait(m);
	if (g->early || !m->feeders || mcm_feeders_lead(m->feeders))
		return;
	if (rq->done)
		rq->done(rq->state);
	rq->more = NULL;
	rq->done = NULL;
	/* The body ends at this position. */
	rewind(rq->out);
	answer_inactive(rq);
}

/* A peer with a tenant may neither see nor change the whole pool.  Without tenants all keys are those of "default". */
static bool refused_tenant(struct mc_http_request *rq, const struct guarded *g, const struct mcm *m)
{
	const char *tenant = rq->principal.tenant;

	if (!tenant[0] || (g->by_tenant && (m->tenants.on || mcm_tenant_is_default(mcp_bytes(tenant, strlen(tenant))))))
		return false;
	mcm_answer_error(rq, -EACCES, g->by_tenant ? "this master has no tenants (--enable_multi_tenants)" :
			 "this is about the whole pool, and the credential is for one tenant");
	return true;
}

/* Call the route's handler if the master is ready for it. */
static void serve_guarded(struct mc_http_request *rq, void *arg)
{
	const struct guarded *g;
	const char *method = strcmp(rq->method, "HEAD") ? rq->method : "GET";

	for (g = table; g->route.path; g++)
		if (!strcmp(g->route.path, rq->path) && !strcmp(g->route.method, method))
			break;
	/* The routes that are served early return no keys, and monitoring may ask for them by any name. */
	if (!mcm_admin_refused(rq, arg, g->route.path && g->early) &&
	    !(g->route.path && refused_tenant(rq, g, arg))) {
		if (g->route.path && (g->early || is_ready(arg))) {
			g->route.handle(rq, arg);
			http_finish(rq, g, arg);
		} else {
			answer_inactive(rq);
		}
	}
	mcm_audit_http(((const struct mcm *)arg)->audit, rq, g->route.path ? g->route.roles : 0);
}

/* As upstream: a known path with another method is not found. */
static void serve_other_method(struct mc_http_request *rq, void *arg)
{
	(void)arg;
	rq->status = 404;
	fputs("404 Not Found", rq->out);
}

#define TENANT true
#define POOL false
#define MCM_ADMIN_ROUTES(X) \
	X("GET", "/health", serve_status, true, TENANT, MC_MAY_ANYONE) \
	X("GET", "/role", serve_status, true, TENANT, MC_MAY_WATCH) \
	X("GET", "/ha_status", serve_status, true, TENANT, MC_MAY_WATCH) \
	X("GET", "/leader", serve_status, true, TENANT, MC_MAY_WATCH) \
	X("GET", "/version", serve_version, true, TENANT, MC_MAY_WATCH) \
	X("GET", "/metrics", serve_metrics, true, POOL, MC_MAY_WATCH) \
	X("GET", "/metrics/summary", serve_summary, true, POOL, MC_MAY_WATCH) \
	X("GET", "/get_all_segments", serve_segment_names, false, POOL, MC_MAY_READ) \
	X("GET", "/get_segments_detail", serve_segments_detail, false, POOL, MC_MAY_READ) \
	X("GET", "/query_segment", serve_segment, false, POOL, MC_MAY_READ) \
	X("GET", "/get_all_keys", mcm_admin_all_keys, false, TENANT, MC_MAY_READ) \
	X("GET", "/query_key", mcm_admin_key, false, TENANT, MC_MAY_READ, "key") \
	X("GET", "/batch_query_keys", mcm_admin_batch_keys, false, TENANT, MC_MAY_READ, "keys") \
	X("GET", "/api/v1/segments/status", mcm_admin_segment_status, false, POOL, MC_MAY_READ) \
	X("POST", "/api/v1/drain_jobs", mcm_admin_drain_create, false, POOL, MC_MAY_ADMINISTER) \
	X("GET", "/api/v1/drain_jobs/query", mcm_admin_drain_query, false, POOL, MC_MAY_ADMINISTER) \
	X("POST", "/api/v1/drain_jobs/cancel", mcm_admin_drain_cancel, false, POOL, MC_MAY_ADMINISTER) \
	X("POST", "/api/v1/remove_all", mcm_admin_remove_all, false, TENANT, MC_MAY_ADMINISTER) \
	X("GET", "/api/v1/tenant_quotas", mcm_admin_tenants, false, TENANT, MC_MAY_ADMINISTER) \
	X("PUT", "/api/v1/tenant_quotas", mcm_admin_tenants, false, TENANT, MC_MAY_ADMINISTER) \
	X("DELETE", "/api/v1/tenant_quotas", mcm_admin_tenants, false, TENANT, MC_MAY_ADMINISTER) \
	X("POST", "/api/v1/snapshot", mcm_admin_snapshot, false, POOL, MC_MAY_ADMINISTER) \
	X("GET", "/api/v1/snapshots", mcm_admin_snapshots, false, POOL, MC_MAY_ADMINISTER) \
	X("POST", "/api/v1/snapshots/verify", mcm_admin_snapshot_verify, false, POOL, MC_MAY_ADMINISTER) \
	X("POST", "/api/v1/snapshots/restore", mcm_admin_snapshot_restore, false, POOL, MC_MAY_ADMINISTER) \
	X("GET", "/api/v1/quarantine", mcm_admin_quarantine, false, POOL, MC_MAY_ADMINISTER) \
	X("POST", "/api/v1/quarantine/release", mcm_admin_quarantine_release, false, POOL, MC_MAY_ADMINISTER) \
	X("POST", "/api/v1/failover", mcm_admin_failover, false, POOL, MC_MAY_ADMINISTER) \
	X("POST", "/api/v1/soft_pin", mcm_admin_soft_pin, false, TENANT, MC_MAY_WRITE) \
	X("POST", "/api/v1/soft_unpin", mcm_admin_soft_pin, false, TENANT, MC_MAY_WRITE) \
	X("GET", "/api/v1/whatif", mcm_admin_whatif, false, POOL, MC_MAY_WATCH) \
	X("GET", "/kv_events/status", serve_kv_events, false, POOL, MC_MAY_WATCH)

#define GUARDED(method, path, handle, early, by_tenant, roles, ...) \
	{ { method, path, handle, NULL, roles }, early, by_tenant },
static const struct guarded table[] = {
	MCM_ADMIN_ROUTES(GUARDED)
	{ { NULL, NULL, NULL, NULL, 0 }, false, false },
};

/* The optional last argument names the query parameter that may contain any bytes. */
#define BYTES(none, name, ...) name
#define ROUTE(method, path, handle, early, by_tenant, roles, ...) \
	{ method, path, serve_guarded, BYTES(, ##__VA_ARGS__, NULL), roles },
#define OTHERS(method, path, handle, early, by_tenant, roles, ...) { NULL, path, serve_other_method, NULL, roles },
const struct mc_http_route mcm_http_routes[] = {
	MCM_ADMIN_ROUTES(ROUTE)
	MCM_ADMIN_ROUTES(OTHERS)
	{ NULL, NULL, NULL, NULL, 0 },
};
