/* SPDX-License-Identifier: Apache-2.0
 * service_security.c - NODE_TICKET, IDENTIFY, REVOKED, DISK_KEY; CREDENTIAL_CREATE, CREDENTIALS, CREDENTIAL_REVOKE. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "master/security/audit.h"
#include "master/security/security.h"
#include "master/service/service_i.h"

#define LOG "security"
#define REVOKED_MAX 4096u
#define LIST_MAX 1024u
#define TTL_MAX_S (10ull * 365 * 86400)

static int check_on(const struct mcm *m)
{
	return m->security ? 0 : mc_fail(-MC_ENOTSUP, "the master was started without --security=on");
}

/* Copy bytes of a request as text.  -EINVAL: too long, or with a NUL. */
static int text_of(struct mcp_bytes from, const char *field, char *ret, size_t size)
{
	if (from.len >= size || (from.len && memchr(from.data, 0, from.len)))
		return mc_fail(-EINVAL, "invalid %s: at most %zu characters", field, size - 1);
	if (from.len)
		memcpy(ret, from.data, from.len);
	ret[from.len] = '\0';
	return 0;
}

static struct mcp_bytes bytes_of(const char *text)
{
	return mcp_bytes(text, (uint32_t)strlen(text));
}

/* ---- peers of nodes ---- */

int mcm_serve_ticket(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	const struct mc_principal *peer = mcp_session_principal(s);
	struct mcp_node_ticket_reply reply;
	struct mc_credential ticket;
	struct mcm_node_identity node;
	struct mcp_node_ticket rq;
	struct mcm *m = arg;
	int r;

	r = mcp_decode(&mcp_desc_node_ticket, body, len, &rq);
	if (r == 0)
		r = check_on(m);
	if (r == 0)
		r = mcm_mount_node(m, rq.endpoint, peer, &node);
	if (r < 0)
		return r;
	r = mcm_security_ticket(m->security, node.secret, node.name, peer, &ticket);
	/* A rotation has dropped the node's secret, and it needs a moment to connect with a new credential. */
	if (r == -EACCES)
		r = mc_fail(-MC_ENOTREADY, "node %s has not connected with an accepted secret yet", node.name);
	if (r < 0)
		return r;
	reply.identity = bytes_of(ticket.text);
	reply.key = mcp_bytes(ticket.key, MC_KEY_LEN);
	r = mcp_answer(answer, &mcp_desc_node_ticket_reply, &reply);
	OPENSSL_cleanse(&ticket, sizeof(ticket));
	return r;
}

int mcm_serve_identify(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_identify_reply reply;
	char token[MC_BEARER_MAX];
	struct mc_principal who;
	struct mcp_identify rq;
	struct mcm *m = arg;
	int r;

	(void)s;
	r = mcp_decode(&mcp_desc_identify, body, len, &rq);
	if (r == 0)
		r = check_on(m);
	if (r == 0)
		r = text_of(rq.token, "token", token, sizeof(token));
	if (r < 0)
		return r;
	/* The token is refused, not the node that asks. */
	r = mcm_security_bearer(m->security, token, &who);
	if (r < 0)
		return mc_fail(-EINVAL, "%s", strdupa(mc_err_detail(r)));
	/* The token was checked: its identity is the part before the last dot. */
	reply.identity = mcp_bytes(token, (uint32_t)(strrchr(token, '.') - token));
	return mcp_answer(answer, &mcp_desc_identify_reply, &reply);
}

int mcm_serve_revoked(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_revoked_reply reply;
	struct mcp_serial *list;
	struct mcp_revoked rq;
	uint64_t *serials;
	unsigned n;
	int r;

	(void)s;
	r = mcp_decode(&mcp_desc_revoked, body, len, &rq);
	if (r < 0)
		return r;
	serials = mcm_scratch(MCM_SCRATCH_ITEMS, REVOKED_MAX, sizeof(*serials) + sizeof(*list));
	if (!serials)
		return -ENOMEM;
	list = (struct mcp_serial *)(serials + REVOKED_MAX);
	n = mcm_credentials_revoked_list(arg, rq.after, serials, REVOKED_MAX);
	for (unsigned i = 0; i < n; i++)
		list[i].serial = serials[i];
	reply.serials = mcp_seq(list, n);
	return mcp_answer(answer, &mcp_desc_revoked_reply, &reply);
}

int mcm_serve_disk_key(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	const char *tenant = mcp_session_principal(s)->tenant;
	uint8_t key[MC_KEY_LEN], newest_key[MC_KEY_LEN];
	struct mcp_disk_key_reply reply = { .key = { 0 } };
	char place[MC_PRINCIPAL_TENANT_MAX + 34];
	struct mcp_disk_key rq;
	struct mcm *m = arg;
	int r, n;

	r = mcp_decode(&mcp_desc_disk_key, body, len, &rq);
	if (r == 0)
		r = check_on(m);
	if (r < 0)
		return r;
	/* The key says whose bytes it opens: a node of another tenant gets another one. */
	n = snprintf(place, sizeof(place), "%s/%016" PRIx64 "%016" PRIx64, tenant[0] ? tenant : "*", rq.segment.hi,
		     rq.segment.lo);
	if (rq.secret && rq.secret <= MC_SECRET_NUMBER_MAX &&
	    mcm_security_key(m->security, (uint32_t)rq.secret, "mooncake-fs disk", place, (size_t)n, key) == 0)
		reply.key = mcp_bytes(key, MC_KEY_LEN);
	/* A rotation in between makes the next attempt necessary. */
	reply.newest = mcm_security_newest(m->security);
	r = mcm_security_key(m->security, (uint32_t)reply.newest, "mooncake-fs disk", place, (size_t)n, newest_key);
	reply.newest_key = mcp_bytes(newest_key, MC_KEY_LEN);
	if (r == 0)
		r = mcp_answer(answer, &mcp_desc_disk_key_reply, &reply);
	OPENSSL_cleanse(key, sizeof(key));
	OPENSSL_cleanse(newest_key, sizeof(newest_key));
	return r;
}

/* ---- credentials ---- */

static int credential_of(const struct mcp_credential_create *rq, struct mc_identity *ret)
{
	char role[16];
	int r;

	*ret = (struct mc_identity){ .ticket = false };
	r = text_of(rq->role, "role", role, sizeof(role));
	if (r == 0)
		r = text_of(rq->tenant, "tenant", ret->tenant, sizeof(ret->tenant));
	if (r == 0)
		r = text_of(rq->name, "name", ret->name, sizeof(ret->name));
	if (r < 0)
		return r;
	ret->role = mc_role_parse(role);
	if (!ret->role || ret->role == MC_ROLE_MASTER)
		return mc_fail(-EINVAL, "role %s: use admin, node, client, reader or metrics; masters have the secret",
			       role);
	if (!rq->ttl_s || rq->ttl_s > TTL_MAX_S)
		return mc_fail(-EINVAL, "the life of a credential must be 1 second to 10 years");
	ret->expires_s = mc_wall_ms() / 1000 + rq->ttl_s;
	return 0;
}

int mcm_serve_credential_create(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer,
				void *arg)
{
	struct mcp_credential_create_reply reply = { 0 };
	struct mcp_credential_create rq;
	struct mc_credential made = { 0 };
	struct mc_identity id;
	struct mcm *m = arg;
	int r;

	r = mcp_decode(&mcp_desc_credential_create, body, len, &rq);
	if (r == 0)
		r = check_on(m);
	if (r == 0)
		r = mcm_serve_check_tenantless(s, "making a credential");
	if (r == 0)
		r = credential_of(&rq, &id);
	if (r == 0)
		r = mcm_security_make(m->security, &id, &made);
	if (r == 0)
		r = mcm_credentials_add(m, &id, made.text);
	if (r == 0) {
		reply.identity = bytes_of(made.text);
		reply.key = mcp_bytes(made.key, MC_KEY_LEN);
		if (made.has_node_key)
			reply.node_key = mcp_bytes(made.node_key, MC_KEY_LEN);
		mcm_audit_credential(m->audit, s, made.text);
		r = mcp_answer(answer, &mcp_desc_credential_create_reply, &reply);
		mc_info(LOG, "a credential was made identity=%s by=%s", made.text, mcp_session_principal(s)->name);
	}
	OPENSSL_cleanse(&made, sizeof(made));
	return r;
}

int mcm_serve_credentials(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_credentials_reply reply;
	struct mcm_credential_entry *at;
	struct mcp_credential *list;
	struct mcp_credentials rq;
	unsigned n;
	int r;

	r = mcp_decode(&mcp_desc_credentials, body, len, &rq);
	if (r == 0)
		r = check_on(arg);
	if (r == 0)
		r = mcm_serve_check_tenantless(s, "the list of credentials");
	if (r < 0)
		return r;
	at = mcm_scratch(MCM_SCRATCH_ITEMS, LIST_MAX, sizeof(*at) + sizeof(*list));
	if (!at)
		return -ENOMEM;
	list = (struct mcp_credential *)(at + LIST_MAX);
	n = mcm_credentials_list(arg, rq.after, at, LIST_MAX);
	for (unsigned i = 0; i < n; i++)
		list[i] = (struct mcp_credential){
			.serial = at[i].serial, .created_s = at[i].created_s, .revoked = at[i].revoked,
			.identity = bytes_of(at[i].text),
		};
	reply.credentials = mcp_seq(list, n);
	return mcp_answer(answer, &mcp_desc_credentials_reply, &reply);
}

int mcm_serve_credential_revoke(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer,
				void *arg)
{
	struct mcp_credential_revoke_reply reply = { 0 };
	struct mcp_credential_revoke rq;
	int r;

	r = mcp_decode(&mcp_desc_credential_revoke, body, len, &rq);
	if (r == 0)
		r = check_on(arg);
	if (r == 0)
		r = mcm_serve_check_tenantless(s, "a revocation");
	if (r == 0 && !rq.serial)
		r = mc_fail(-EINVAL, "0 is no serial number");
	if (r == 0)
		r = mcm_credentials_revoke(arg, rq.serial);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_credential_revoke_reply, &reply);
}
