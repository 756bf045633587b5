/* SPDX-License-Identifier: Apache-2.0
 * admin_tenants.c - /api/v1/tenant_quotas: tenants' quotas and use, in upstream's form. */
#include <config.h>

#include <jansson.h>
#include <string.h>

#include "common/err.h"
#include "master/admin/admin.h"
#include "master/admin/admin_json.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

static json_t *tenant_json(const struct mcp_tenant *t)
{
	return json_pack("{s:s%, s:I, s:I, s:I, s:b, s:b, s:b}",
			 "tenant_id", (const char *)t->name.data, (size_t)t->name.len,
			 "requested_quota_bytes", (json_int_t)t->requested,
			 "effective_quota_bytes", (json_int_t)t->effective,
			 "charged_bytes", (json_int_t)t->charged,
			 "admission_closed", (int)t->admission_closed,
			 "over_quota", t->charged > t->effective,
			 "has_explicit_policy", (int)t->explicit_policy);
}

static void answer_data(struct mc_http_request *rq, json_t *data)
{
	mcm_answer_json(rq, 200, json_pack("{s:b, s:o}", "success", 1, "data", data));
}

/* A tenant that is not in the policy and has no data is reported as unknown. */
static bool is_forgotten(const struct mcp_tenant *t)
{
	return !t->explicit_policy && !t->charged;
}

static void answer_tenants(struct mc_http_request *rq, struct mcm *m, struct mcp_bytes name)
{
	struct mcp_tenant t;
	uint32_t number;
	json_t *list;
	unsigned i;
	int r;

	if (name.len) {
		r = mcm_tenant_find(m, name, &number);
		if (r == 0 && mcm_tenant_describe(m, number, &t) && !is_forgotten(&t))
			answer_data(rq, tenant_json(&t));
		else
			mcm_answer_error(rq, -MC_ENOOBJECT, NULL);
		return;
	}
	list = json_array();
	for (i = 0; mcm_tenant_describe(m, i, &t); i++)
		if (!is_forgotten(&t))
			json_array_append_new(list, tenant_json(&t));
	answer_data(rq, list);
}

static void change_quota(struct mc_http_request *rq, struct mcm *m, struct mcp_bytes name, uint64_t quota)
{
	uint64_t effective;
	struct mcp_tenant t;
	uint32_t number;
	int r;

	r = mcm_tenant_set_quota(m, name, quota, &effective);
	if (r == -MC_ENOTENANT)
		mcm_answer_error(rq, -MC_ENOOBJECT, NULL);
	else if (r < 0)
		mcm_answer_error(rq, r, mc_err_detail(r));
	else if (mcm_tenant_find(m, name, &number) == 0 && mcm_tenant_describe(m, number, &t) && !is_forgotten(&t))
		answer_data(rq, tenant_json(&t));
	else
		answer_data(rq, json_null());
}

void mcm_admin_tenants(struct mc_http_request *rq, void *arg)
{
	const char *tenant = mc_http_query(rq, "tenant_id");
	struct mcp_bytes name = mcp_bytes(tenant, tenant ? strlen(tenant) : 0);
	struct mcm *m = arg;
	uint64_t quota = 0;
	int r;

	if (!m->tenants.on) {
		mcm_answer_error(rq, -MC_EMODE, NULL);
		return;
	}
	r = mcm_tenant_confine(m, &rq->principal, &name);
	if (r < 0) {
		mcm_answer_error(rq, r, mc_err_detail(r));
		return;
	}
	if (!strcmp(rq->method, "GET") || !strcmp(rq->method, "HEAD")) {
		answer_tenants(rq, m, name);
		return;
	}
	if (!strcmp(rq->method, "PUT"))
		r = mcm_quota_body_parse(rq->body, rq->body_len, &quota);
	if (!name.len)
		mcm_answer_error(rq, -MC_EPARAM, "Missing tenant_id query parameter");
	else if (r < 0)
		mcm_answer_error(rq, r, mc_err_detail(r));
	else
		change_quota(rq, m, name, quota);
}
