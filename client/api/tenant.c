/* SPDX-License-Identifier: Apache-2.0
 * tenant.c - tenants: their quotas, and removal of their keys. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/store_i.h"

static int tenant_name(const char *tenant, struct mcp_bytes *ret)
{
	size_t len = tenant ? strlen(tenant) : 0;

	if (len > MCP_TENANT_MAX)
		return mc_fail(-MC_EPARAM, "a tenant's name of %zu bytes, %u are allowed", len,
			       MCP_TENANT_MAX);
	*ret = mcp_bytes(tenant, len);
	return 0;
}

/* A master of protocol version 1 knows neither the messages nor the field. */
static int tenant_check_version(int r)
{
	return r == -MC_ENOTSUP ? mc_fail(r, "the master is too old for tenants") : r;
}

static void tenant_fill(struct mcs_tenant *out, const struct mcp_tenant *in)
{
	int len = in->name.len < sizeof(out->name) ? (int)in->name.len : (int)sizeof(out->name) - 1;

	snprintf(out->name, sizeof(out->name), "%.*s", len, (const char *)in->name.data);
	out->requested = in->requested;
	out->effective = in->effective;
	out->charged = in->charged;
	out->objects = in->objects;
	out->explicit_policy = in->explicit_policy;
	out->admission_closed = in->admission_closed;
}

int mcs_tenants(struct mcs *s, const char *tenant, struct mcs_tenant **ret, int64_t timeout_ms)
{
	struct mcp_tenants_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_tenants msg;
	struct mcs_tenant *list;
	struct mcp_tenant one;
	struct mcp_iter it;
	int r, n = 0;

	r = tenant_name(tenant, &msg.tenant);
	if (!r)
		r = tenant_check_version(mcs_call(s->session, MCP_TENANTS, &msg, &reply, &mem,
					mcs_deadline(s, timeout_ms)));
	if (r < 0)
		return r;
	list = calloc(reply.tenants.count + 1, sizeof(*list));
	mcp_iter_init(&it, &reply.tenants, &mcp_desc_tenant);
	while (list && n < (int)reply.tenants.count && mcp_iter_next(&it, &one))
		tenant_fill(&list[n++], &one);
	mcp_reply_done(&mem);
	if (!list)
		return -ENOMEM;
	*ret = list;
	return n;
}

int mcs_quota_set(struct mcs *s, const char *tenant, uint64_t bytes, int64_t timeout_ms)
{
	struct mcp_quota msg = { .quota = bytes };
	struct mcp_quota_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	r = tenant_name(tenant, &msg.tenant);
	if (!r)
		r = tenant_check_version(mcs_call(s->session, MCP_QUOTA, &msg, &reply, &mem,
					mcs_deadline(s, timeout_ms)));
	mcp_reply_done(&mem);
	return r < 0 ? r : 0;
}

int64_t mcs_remove_tenant(struct mcs *s, const char *tenant, unsigned flags, int64_t timeout_ms)
{
	struct mcp_remove_match msg = { .flags = flags };
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	int r;

	if (flags & ~MCS_REMOVE_FORCE)
		return mc_fail(-MC_EPARAM, "unknown remove flags 0x%x", flags);
	/* An old master would remove the keys of the default tenant. */
	r = mcs_session_connect(s->session, deadline);
	if (!r && mcs_session_version(s->session) < 2)
		r = tenant_check_version(-MC_ENOTSUP);
	if (!r)
		r = tenant_name(tenant, &msg.tenant);
	if (r < 0)
		return r;
	if (!tenant)
		msg.flags |= MCP_REMOVE_TENANTS;
	return mcs_remove_parts(s, &msg, deadline);
}
