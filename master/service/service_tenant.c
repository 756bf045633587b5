/* SPDX-License-Identifier: Apache-2.0
 * service_tenant.c - TENANTS, QUOTA. */
#include <config.h>

#include <errno.h>

#include "common/err.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "master/service/service_i.h"

int mcm_serve_tenants(struct mcp_session *s, const void *body, size_t len,
		      struct mcp_answer *answer, void *arg)
{
	struct mcp_tenants_reply reply = { 0 };
	struct mcp_tenants rq;
	struct mcp_tenant *list;
	uint32_t first = 0, count, n = 0;
	struct mcm *m = arg;
	int r;

	r = mcp_decode(&mcp_desc_tenants, body, len, &rq);
	if (r == 0 && !m->tenants.on)
		r = mc_fail(-MC_EMODE, "the master was started without --enable_multi_tenants");
	/* An identity of a tenant lists only that one. */
	if (r == 0)
		r = mcm_tenant_confine(m, mcp_session_principal(s), &rq.tenant);
	if (r == 0 && rq.tenant.len)
		r = mcm_tenant_find(m, rq.tenant, &first);
	if (r < 0)
		return r;
	/* Tenants that are added from now on are not listed. */
	count = rq.tenant.len ? 1 : mcm_load_relaxed(&m->tenants.count);
	list = mcm_scratch(MCM_SCRATCH_ITEMS, count, sizeof(*list));
	if (!list)
		return -ENOMEM;
	if (rq.tenant.len)
		n = mcm_tenant_describe(m, first, list);
	else
		while (n < count && mcm_tenant_describe(m, n, &list[n]))
			n++;
	reply.tenants = mcp_seq(list, n);
	return mcp_answer(answer, &mcp_desc_tenants_reply, &reply);
}

int mcm_serve_quota(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer,
		    void *arg)
{
	struct mcp_quota_reply reply = { 0 };
	struct mcp_quota rq;
	int r;

	r = mcp_decode(&mcp_desc_quota, body, len, &rq);
	if (r == 0)
		r = mcm_serve_check_tenantless(s, "the quota policy");
	if (r == 0)
		r = mcm_tenant_set_quota(arg, rq.tenant, rq.quota, &reply.effective);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_quota_reply, &reply);
}
