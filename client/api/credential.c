/* SPDX-License-Identifier: Apache-2.0
 * credential.c - credentials of a pool with security. */
#include <config.h>

#include <mooncake/mcs_credential.h>

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session/security.h"
#include "client/store_i.h"
#include "common/cleanup.h"
#include "common/env.h"
#include "common/security/secret.h"

static struct mcp_bytes bytes_of(const char *text)
{
	return mcp_bytes(text, (uint32_t)strlen(text));
}

static int credential_take(const struct mcp_credential_create_reply *reply, struct mc_credential *ret)
{
	int r = mc_credential_set(ret, reply->identity.data, reply->identity.len, reply->key.data, reply->key.len);

	if (r == 0 && reply->node_key.len && reply->node_key.len != MC_KEY_LEN)
		r = mc_fail(-MC_EPROTO, "the master's credential has a wrong size");
	if (r < 0)
		return r;
	ret->has_node_key = reply->node_key.len;
	if (ret->has_node_key)
		memcpy(ret->node_key, reply->node_key.data, MC_KEY_LEN);
	return 0;
}

int mcs_credential_create(struct mcs *s, const char *role, const char *tenant, const char *name, uint64_t ttl_s,
			  const char *path, uint64_t *ret_serial, int64_t timeout_ms)
{
	const struct mcp_credential_create msg = {
		.role = bytes_of(role), .tenant = bytes_of(tenant && *tenant ? tenant : "default"),
		.name = bytes_of(name), .ttl_s = ttl_s,
	};
	struct mcp_credential_create_reply reply;
	struct mcp_reply mem = { 0 };
	struct mc_credential *c = mc_credential_new();
	int r;

	if (!c)
		return -ENOMEM;
	r = mcs_call_once(s->session, MCP_CREDENTIAL_CREATE, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));
	if (r == -MC_ELIMIT)
		r = mc_fail(r, "the master's list of credentials is full until some expire; mooncake_master "
			    "--rotate_security ends all of the older secret");
	if (r >= 0) {
		r = credential_take(&reply, c);
		OPENSSL_cleanse((void *)(uintptr_t)reply.key.data, reply.key.len);
		OPENSSL_cleanse((void *)(uintptr_t)reply.node_key.data, reply.node_key.len);
		mcp_reply_done(&mem);
	}
	if (r >= 0) {
		r = mc_credential_save(c, path);
		if (r < 0) {
			auto_free char *why = strdup(mc_err_detail(r));

			(void)mcs_credential_revoke(s, c->id.serial, timeout_ms);
			r = mc_fail(r, "%s", why ? why : "no memory");
		}
	}
	if (r >= 0 && ret_serial)
		*ret_serial = c->id.serial;
	mc_credential_free(c);
	return r < 0 ? r : 0;
}

static void credential_fill(struct mcs_credential *out, const struct mcp_credential *in)
{
	struct mc_identity id;

	*out = (struct mcs_credential){
		.serial = in->serial, .created_s = in->created_s, .revoked = in->revoked,
	};
	if (!in->identity.len || mc_identity_parse(in->identity.data, in->identity.len, &id) < 0)
		return;
	out->expires_s = id.expires_s;
	snprintf(out->role, sizeof(out->role), "%s", mc_role_name(id.role));
	snprintf(out->tenant, sizeof(out->tenant), "%s", id.tenant);
	snprintf(out->name, sizeof(out->name), "%s", id.name);
}

int mcs_credentials(struct mcs *s, struct mcs_credential **ret, int64_t timeout_ms)
{
	struct mcp_credentials msg = { .after = 0 };
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_credential *all = NULL;
	bool whole = false;
	int n = 0;

	while (!whole) {
		struct mcp_credentials_reply reply;
		struct mcp_reply mem = { 0 };
		struct mcp_credential one;
		struct mcs_credential *more;
		struct mcp_iter it;
		int r = mcs_call(s->session, MCP_CREDENTIALS, &msg, &reply, &mem, deadline);

		if (r < 0) {
			free(all);
			return r;
		}
		whole = !reply.credentials.count;
		more = realloc(all, ((size_t)n + reply.credentials.count + 1) * sizeof(*all));
		if (more) {
			all = more;
			mcp_iter_init(&it, &reply.credentials, &mcp_desc_credential);
			while (mcp_iter_next(&it, &one)) {
				credential_fill(&all[n++], &one);
				msg.after = one.serial;
			}
		}
		mcp_reply_done(&mem);
		if (!more) {
			free(all);
			return -ENOMEM;
		}
	}
	*ret = all;
	return n;
}

int mcs_credential_revoke(struct mcs *s, uint64_t serial, int64_t timeout_ms)
{
	struct mcp_credential_revoke msg = { .serial = serial };
	struct mcp_credential_revoke_reply reply;
	struct mcp_reply mem = { 0 };
	int r = mcs_call(s->session, MCP_CREDENTIAL_REVOKE, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));

	mcp_reply_done(&mem);
	return r < 0 ? r : 0;
}

int mcs_credential_check(struct mcs *s, const char *token, struct mcs_holder *ret, int64_t timeout_ms)
{
	struct mc_identity id;
	int r;

	if (!s->security)
		return mc_fail(-EACCES, "this process has no credential, so it cannot ask for the holder of a token");
	r = mcs_security_token(s->security, s->session, token, mcs_deadline(s, timeout_ms), &id);
	if (r < 0)
		return r;
	*ret = (struct mcs_holder){ .serial = id.serial, .expires_s = id.expires_s };
	snprintf(ret->role, sizeof(ret->role), "%s", mc_role_name(id.role));
	snprintf(ret->tenant, sizeof(ret->tenant), "%s", id.tenant);
	snprintf(ret->name, sizeof(ret->name), "%s", id.name);
	return 0;
}

int mcs_credential_token(const char *path, char *ret, size_t size)
{
	char token[MC_BEARER_MAX];
	struct mc_credential *c;
	int r;

	if (!path || !*path)
		path = mc_env_str("MC_CREDENTIAL");
	if (!path)
		return mc_fail(-MC_EPARAM, "no credential: give its file, or set MC_CREDENTIAL");
	c = mc_credential_new();
	if (!c)
		return -ENOMEM;
	r = mc_credential_load(path, c);
	if (r == 0) {
		mc_bearer_make(c, token);
		r = (int)strlen(token);
		if ((size_t)r >= size)
			r = mc_fail(-MC_EBUFFER_OVERFLOW, "a token of %d bytes does not fit", r);
		else
			strcpy(ret, token);
		OPENSSL_cleanse(token, sizeof(token));
	}
	mc_credential_free(c);
	return r;
}
