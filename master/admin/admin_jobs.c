/* SPDX-License-Identifier: Apache-2.0
 * admin_jobs.c - HTTP requests that change the pool: drain jobs, removal of all objects, checkpoints. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/err.h"
#include "common/hash.h"
#include "master/admin/admin.h"
#include "master/admin/admin_json.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"
#include "master/snapshot/snapshot.h"
#include "proto/codec.h"

/* ---- drain jobs ---- */

static const struct {
	int number;
	const char *name;
} job_status[] = {
	[MCP_TASK_PENDING] = { 0, "CREATED" },
	[MCP_TASK_RUNNING] = { 2, "RUNNING" },
	[MCP_TASK_SUCCEEDED] = { 3, "SUCCEEDED" },
	[MCP_TASK_FAILED] = { 4, "FAILED" },
	[MCP_TASK_CANCELED] = { 5, "CANCELED" },
};

static void answer_job(struct mc_http_request *rq, struct mcp_id id, const char *status)
{
	char text[MCM_ID_TEXT];

	mcm_answer_json(rq, 200, json_pack("{s:b, s:s, s:s, s:i, s:s}", "success", 1, "job_id",
					   mcm_id_text(id, text), "status", status, "error_code", 0,
					   "error_message", ""));
}

void mcm_admin_drain_create(struct mc_http_request *rq, void *arg)
{
	struct mcm_drain_body body;
	struct mcm_task_request tr;
	struct mcp_id id;
	int r;

	r = mcm_drain_body_parse(rq->body, rq->body_len, &body);
	if (r == 0) {
		tr = (struct mcm_task_request){
			.type = MCP_TASK_DRAIN, .source = body.source, .n_sources = body.n_sources,
			.target = body.target, .n_targets = body.n_targets,
			.max_active = body.max_active,
		};
		r = mcm_task_create(arg, &tr, &id);
	}
	if (r < 0)
		mcm_answer_error(rq, r, mc_err_detail(r));
	else
		answer_job(rq, id, "CREATED");
	mcm_drain_body_done(&body);
}

struct query {
	struct mcm *m;
	json_t *json;
	bool progress;		/* with more fields than upstream's answer has */
	bool drain, ended;
};

/* For persons and dashboards. */
static void describe_progress(struct mcm *m, const struct mcm_task *t, json_t *to)
{
	struct mcm_task_left left = mcm_task_left(m, t);
	uint64_t done = t->total > left.bytes ? t->total - left.bytes : 0;
	json_t *more;

	more = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "total_bytes", (json_int_t)t->total, "left_bytes",
			 (json_int_t)left.bytes, "total_units", (json_int_t)t->total_objects, "left_units",
			 (json_int_t)left.objects, "given_up_units", (json_int_t)t->given_up, "percent",
			 (json_int_t)(t->total ? (double)done * 100 / (double)t->total : 100), "bytes_per_second",
			 (json_int_t)t->rate);
	/* It is not known while the task waits. */
	if (t->rate && !*t->message)
		json_object_set_new(more, "seconds_left", json_integer((json_int_t)(left.bytes / t->rate)));
	json_object_update(to, more);
	json_decref(more);
}

static int describe_job(void *arg, const struct mcm_task *t)
{
	json_t *segments = json_array();
	struct query *q = arg;
	char id[MCM_ID_TEXT];

	q->drain = t->type == MCP_TASK_DRAIN;
	q->ended = t->status != MCP_TASK_PENDING && t->status != MCP_TASK_RUNNING;
	for (unsigned i = 0; i < t->n_sources; i++)
		json_array_append_new(segments, json_string(t->source[i].name));
	q->json = json_pack("{s:b, s:s, s:i, s:s, s:i, s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, "
			    "s:s, s:i, s:s}",
			    "success", 1, "job_id", mcm_id_text(t->id, id), "type", 0, "type_name",
			    "DRAIN", "status", job_status[t->status].number, "status_name",
			    job_status[t->status].name, "created_at_ms_epoch",
			    (json_int_t)t->created_ms, "last_updated_at_ms_epoch",
			    (json_int_t)t->updated_ms, "segments", segments, "succeeded_units",
			    (json_int_t)t->succeeded, "failed_units", (json_int_t)t->failed,
			    "blocked_units", (json_int_t)t->blocked, "active_units",
			    (json_int_t)t->active, "migrated_bytes", (json_int_t)t->bytes, "message",
			    t->message, "error_code", 0, "error_message", "");
	if (q->progress)
		describe_progress(q->m, t, q->json);
	return 0;
}

/* Find the drain job that the request names.  On failure the error was sent. */
static int find_job(struct mc_http_request *rq, struct mcm *m, struct mcp_id *ret_id, struct query *ret)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->m = m;
	ret->progress = mcm_flag_parse(mc_http_query(rq, "progress"));
	r = mcm_id_parse(mc_http_query(rq, "job_id"), ret_id);
	if (r < 0) {
		mcm_answer_error(rq, r, "Missing or invalid job_id");
		return r;
	}
	r = mcm_task_each(m, *ret_id, describe_job, ret);
	if (r == 0 && !ret->drain) {
		json_decref(ret->json);
		r = -MC_ENOTASK;
	}
	if (r < 0)
		mcm_answer_error(rq, r, NULL);
	return r;
}

void mcm_admin_drain_query(struct mc_http_request *rq, void *arg)
{
	struct mcp_id id;
	struct query q;

	if (find_job(rq, arg, &id, &q) == 0)
		mcm_answer_json(rq, 200, q.json);
}

void mcm_admin_drain_cancel(struct mc_http_request *rq, void *arg)
{
	struct mcp_id id;
	struct query q;
	uint8_t status;
	int r;

	if (find_job(rq, arg, &id, &q) < 0)
		return;
	json_decref(q.json);
	r = q.ended ? -MC_EUNAVAILABLE : mcm_task_cancel(arg, id, &status);
	if (r < 0)
		mcm_answer_error(rq, r, NULL);
	else
		answer_job(rq, id, job_status[status].name);
}

/* ---- the state of a segment ---- */

static int segment_status(struct mcm *m, const char *name, const char **ret_name)
{
	static const struct {
		int number;
		const char *name;
	} by_state[] = {
		[MCM_SEG_NONE] = { 0, "UNDEFINED" }, [MCP_SEG_OK] = { 1, "OK" },
		[MCP_SEG_SILENT] = { 0, "UNDEFINED" }, [MCP_SEG_UNMOUNTING] = { 5, "UNMOUNTING" },
		[MCP_SEG_DRAINING] = { 2, "DRAINING" }, [MCP_SEG_DRAINED] = { 3, "DRAINED" },
		[MCP_SEG_CONFIRMING] = { 0, "UNDEFINED" }, [MCP_SEG_PAUSED] = { 1, "OK" },
	};
	struct mcm_segments *ss = &m->segments;
	const struct mcm_segment *s;
	int r = -MC_ENOSEGMENT;

	mc_rwlock_rdlock(&ss->lock);
	s = mcm_segments_named(ss, mc_hash(name, strlen(name), 0), NULL);
	if (s) {
		*ret_name = by_state[mcm_segment_shown(s)].name;
		r = by_state[mcm_segment_shown(s)].number;
	}
	mc_rwlock_unlock(&ss->lock);
	return r;
}

void mcm_admin_segment_status(struct mc_http_request *rq, void *arg)
{
	const char *name = mc_http_query(rq, "segment"), *status = "";
	int r;

	if (!name || !*name) {
		mcm_answer_error(rq, -MC_EPARAM, "Missing segment query parameter");
		return;
	}
	r = segment_status(arg, name, &status);
	if (r < 0)
		mcm_answer_error(rq, r, NULL);
	else
		mcm_answer_json(rq, 200, json_pack("{s:b, s:s, s:i, s:s, s:i, s:s}", "success", 1,
						   "segment", name, "status", r, "status_name",
						   status, "error_code", 0, "error_message", ""));
}

/* ---- removal of all objects ---- */

void mcm_admin_remove_all(struct mc_http_request *rq, void *arg)
{
	struct mcp_remove_match match = { .flags = MCP_REMOVE_TENANTS };
	const char *tenant = mc_http_query(rq, "tenant_id");
	uint64_t removed;
	int r;

	if (mcm_flag_parse(mc_http_query(rq, "force")))
		match.flags |= MCP_REMOVE_FORCE;
	if (tenant && *tenant) {
		match.flags &= ~MCP_REMOVE_TENANTS;
		match.tenant = mcp_bytes(tenant, strlen(tenant));
	}
	/* A request for the whole pool must not remove a part of it. */
	if (rq->principal.tenant[0] && !match.tenant.len)
		r = mc_fail(-EACCES, "the credential is for tenant %s: give its name as tenant_id",
			    rq->principal.tenant);
	else
		r = mcm_tenant_confine(arg, &rq->principal, &match.tenant);
	if (r == 0)
		r = mcm_remove_match(arg, &match, &removed);
	if (r < 0)
		mcm_answer_error(rq, r, mc_err_detail(r));
	else
		mcm_answer_json(rq, 200, json_pack("{s:b, s:I}", "success", 1, "removed_count",
						   (json_int_t)removed));
}

/* ---- checkpoints and snapshots ---- */

void mcm_admin_snapshot(struct mc_http_request *rq, void *arg)
{
	struct mcm_journal_stats st;
	char id[MCM_SNAPSHOT_ID] = "";
	int r;

	mcm_journal_stats(arg, &st);
	r = st.on ? mcm_checkpoint(arg) : mc_fail(-MC_EMODE, "the master keeps no journal; start it with "
						  "--journal_dir");
	if (r < 0) {
		mcm_answer_error(rq, r, mc_err_detail(r));
		return;
	}
	if (((struct mcm *)arg)->snapshots)
		r = mcm_snapshot_create(arg, id);
	if (r < 0) {
		mcm_answer_error(rq, r, mc_err_detail(r));
		return;
	}
	mcm_journal_stats(arg, &st);
	mcm_answer_json(rq, 200, json_pack("{s:b, s:I, s:I, s:s?}", "success", 1, "sequence",
					   (json_int_t)st.sequence, "checkpoint_ms_epoch",
					   (json_int_t)st.checkpoint_ms, "id", *id ? id : NULL));
}

void mcm_admin_snapshots(struct mc_http_request *rq, void *arg)
{
	json_t *all = NULL;
	int r = mcm_snapshot_list(arg, &all);

	if (r < 0)
		mcm_answer_error(rq, r, mc_err_detail(r));
	else
		mcm_answer_json(rq, 200, json_pack("{s:b, s:o}", "success", 1, "snapshots", all));
}

void mcm_admin_snapshot_verify(struct mc_http_request *rq, void *arg)
{
	const char *asked = mc_http_query(rq, "id");
	char id[MCM_SNAPSHOT_ID] = "";
	int r = mcm_snapshot_verify(arg, asked ? asked : "", id);

	if (r < 0)
		mcm_answer_error(rq, r, mc_err_detail(r));
	else
		mcm_answer_json(rq, 200, json_pack("{s:b, s:s}", "success", 1, "id", id));
}

void mcm_admin_snapshot_restore(struct mc_http_request *rq, void *arg)
{
	const char *id = mc_http_query(rq, "id");
	int r = mcm_snapshot_choose(arg, id ? id : "");

	if (r < 0)
		mcm_answer_error(rq, r, mc_err_detail(r));
	else
		mcm_answer_json(rq, 200, json_pack("{s:b, s:s}", "success", 1, "id", id));
}

/* ---- several masters ---- */

void mcm_admin_failover(struct mc_http_request *rq, void *arg)
{
	const struct mcm_lead *l = ((const struct mcm *)arg)->lead;
	int r = l ? l->step_down(l->arg) : mc_fail(-MC_EMODE, "this master is alone; several need --enable_ha");

	if (r < 0)
		mcm_answer_error(rq, r, mc_err_detail(r));
	else
		mcm_answer_json(rq, 200, json_pack("{s:b, s:s}", "success", 1, "previous_leader", l->name));
}
