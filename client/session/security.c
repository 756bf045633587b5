/* SPDX-License-Identifier: Apache-2.0
 * security.c - the credential of a handle, and its tickets. */
#include <config.h>

#include "client/session/security.h"

#include <endian.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/session/session.h"
#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/security/tls.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"

/* A ticket is replaced when it is valid for less than this time. */
#define TICKET_LEFT_S 60u
#define TICKETS_MAX 4096u
#define TICKET_LIFE_MS 3600000		/* master/security/security.c */
#define TOKENS 16u		/* tokens that are remembered, by their SHA-256 */
#define HASH 32u

struct held_ticket {
	struct held_ticket *next;
	char addr[MC_ADDR_MAX];
	struct mc_credential *ticket;
};

struct mcs_security {
	/* constant after open */
	char *path;				/* absolute: the program may change its directory */
	struct mc_tls *rpc, *data;
	struct mc_tls *control;			/* data without plain_data; NULL: data has none */
	struct mc_principal opened;		/* the rights of the credential as it was then */
	struct mc_mutex lock;
	/* guarded by lock */
	struct mc_credential *own;		/* as it was read last */
	uint64_t session_serial;		/* that of the credential when the session began */
	/* The one before, of another secret of the pool or with another name, until before_ns: peers may have tickets
	 * for its key. */
	struct mc_credential *before;
	uint64_t before_ns;			/* on the mc_now_ns() scale; 0: none */
	struct held_ticket *tickets;
	unsigned n_tickets;
	uint64_t renewals;			/* sessions that have begun */
	struct mcs_session *session;
	uint64_t *revoked;			/* in their order */
	unsigned n_revoked;
	struct {
		uint8_t hash[HASH];
		struct mc_identity id;		/* serial 0: unused */
	} token[TOKENS];			/* tokens of HTTP that the master has confirmed */
	unsigned next_token;
	unsigned asking;			/* threads that use the session */
	struct mc_cond idle;			/* asking became 0 */
};

/* ---- masters ---- */

/* The master makes tickets with the secret of the newest credential that it has seen of this node, and peers keep
 * theirs as long as they are valid.  So a rotation interrupts no peer. */
static void own_replace_locked(struct mcs_security *s, const struct mc_credential *c)
{
	bool other = c->id.secret != s->own->id.secret || strcmp(c->id.name, s->own->id.name);

	if (other && s->own->has_node_key) {
		*s->before = *s->own;
		s->before_ns = mc_deadline_ms(TICKET_LIFE_MS);
	}
	*s->own = *c;
}

/* Read the file again; when it cannot be read, the credential that was read last stays. */
static int rpc_present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	struct mcs_security *s = arg;
	int r = mc_credential_load(s->path, ret);

	MC_LOCKED(&s->lock);
	if (r < 0)
		*ret = *s->own;
	else
		own_replace_locked(s, ret);
	return mc_identity_check_time(&ret->id, mc_wall_ms() / 1000);
}

/* ---- data ports of others ---- */

static void ticket_free(struct held_ticket *t)
{
	mc_credential_free(t->ticket);
	free(t);
}

static bool ticket_find_locked(struct mcs_security *s, const char *addr, struct mc_credential *ret)
{
	uint64_t now_s = mc_wall_ms() / 1000;

	for (struct held_ticket **at = &s->tickets, *t; (t = *at); at = &t->next) {
		if (strcmp(t->addr, addr))
			continue;
		if (t->ticket->id.expires_s > now_s + TICKET_LEFT_S) {
			*ret = *t->ticket;
			return true;
		}
		*at = t->next;
		s->n_tickets--;
		ticket_free(t);
		break;
	}
	return false;
}

/* Keep it; without memory the next connection asks again. */
static void ticket_keep(struct mcs_security *s, const char *addr, const struct mc_credential *c, uint64_t renewals)
{
	struct held_ticket *t = calloc(1, sizeof(*t));

	if (!t || strlen(addr) >= sizeof(t->addr)) {
		free(t);
		return;
	}
	t->ticket = mc_credential_new();
	if (!t->ticket) {
		free(t);
		return;
	}
	strcpy(t->addr, addr);
	*t->ticket = *c;
	MC_LOCKED(&s->lock);
	/* The session that asked for it may have ended, and with it the use of its credential. */
	if (s->renewals != renewals) {
		ticket_free(t);
		return;
	}
	while (s->n_tickets >= TICKETS_MAX) {
		struct held_ticket *first = s->tickets;

		s->tickets = first->next;
		s->n_tickets--;
		ticket_free(first);
	}
	t->next = s->tickets;
	s->tickets = t;
	s->n_tickets++;
}

void mcs_security_renew(struct mcs_security *s)
{
	if (!s)
		return;
	MC_LOCKED(&s->lock);
	s->renewals++;
	s->session_serial = s->own->id.serial;
	for (struct held_ticket **at = &s->tickets, *t; (t = *at);) {
		if (t->ticket->id.serial == s->own->id.serial) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		s->n_tickets--;
		ticket_free(t);
	}
}

static int ticket_ask(struct mcs_session *session, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	struct mcp_node_ticket msg = { .endpoint = mcp_bytes(addr, (uint32_t)strlen(addr)) };
	struct mcp_node_ticket_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	r = mcs_call(session, MCP_NODE_TICKET, &msg, &reply, &mem, deadline);
	if (r < 0)
		return mc_fail(r, "the master gives no ticket for %s: %s", addr, strdupa(mc_err_detail(r)));
	r = mc_credential_set(ret, reply.identity.data, reply.identity.len, reply.key.data, reply.key.len);
	OPENSSL_cleanse((void *)(uintptr_t)reply.key.data, reply.key.len);
	mcp_reply_done(&mem);
	return r;
}

static int data_present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	struct mcs_security *s = arg;
	struct mcs_session *session;
	uint64_t renewals;
	int r;

	mc_mutex_lock(&s->lock);
	session = s->session;
	renewals = s->renewals;
	r = ticket_find_locked(s, addr, ret) ? 1 : 0;
	if (!r && session)
		s->asking++;
	mc_mutex_unlock(&s->lock);
	if (r)
		return 0;
	if (!session)
		return mc_fail(-MC_EUNAVAILABLE, "no ticket for %s: the connection to the master is closed", addr);
	r = ticket_ask(session, addr, deadline, ret);
	if (r == 0)
		ticket_keep(s, addr, ret, renewals);
	mc_mutex_lock(&s->lock);
	if (!--s->asking)
		mc_cond_broadcast(&s->idle);
	mc_mutex_unlock(&s->lock);
	return r;
}

/* The node may have got a new credential since the ticket was made.  With another one that the master made meanwhile a
 * connection may succeed. */
static bool data_failed(void *arg, const char *addr, const struct mc_credential *c)
{
	struct mcs_security *s = arg;

	MC_LOCKED(&s->lock);
	for (struct held_ticket **at = &s->tickets, *t; (t = *at); at = &t->next) {
		if (strcmp(t->addr, addr) || strcmp(t->ticket->text, c->text))
			continue;
		*at = t->next;
		s->n_tickets--;
		ticket_free(t);
		return true;
	}
	return false;
}

/* ---- the data port of this process ---- */

static int serial_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static bool is_revoked_locked(const struct mcs_security *s, uint64_t serial)
{
	return s->n_revoked && bsearch(&serial, s->revoked, s->n_revoked, sizeof(*s->revoked), serial_compare);
}

static bool ticket_is_for(const struct mc_identity *peer, const struct mc_credential *node)
{
	return !strcmp(peer->cluster, node->id.cluster) && !strcmp(peer->node, node->id.name) &&
	       peer->secret == node->id.secret;
}

/* A segment serves one tenant: that of its owner's credential, or the default one if the credential is of all tenants.
 * The master makes no ticket for another tenant's holder, but nodes of several tenants may share a name; the credential
 * may have been replaced since a ticket was made; and over RDMA no capability tells whose a range is. */
static bool tenant_served_locked(const struct mcs_security *s, const char *tenant)
{
	const char *own = strcmp(s->own->id.tenant, "*") ? s->own->id.tenant : "default";

	return !*tenant || !strcmp(tenant, "*") || !strcmp(tenant, own);
}

/* The credential whose key the ticket was made with; NULL: it is for another node, pool or secret. */
static const struct mc_credential *data_own_locked(const struct mcs_security *s, const struct mc_identity *peer)
{
	if (ticket_is_for(peer, s->own))
		return s->own;
	return mc_now_ns() < s->before_ns && !is_revoked_locked(s, s->before->id.serial) &&
	       ticket_is_for(peer, s->before) ? s->before : NULL;
}

static int data_identify(void *arg, const char *text, size_t len, uint8_t key[MC_KEY_LEN], struct mc_principal *ret)
{
	struct mcs_security *s = arg;
	char copy[MC_IDENTITY_MAX + 1];
	const struct mc_credential *own;
	struct mc_identity id;
	int r = mc_identity_parse(text, len, &id);

	if (r == 0 && !id.ticket)
		r = mc_fail(-EACCES, "a data port admits tickets only, which the master makes");
	/* Masters make none for other roles; with a stolen key of a node these would be able to read. */
	if (r == 0 && !(id.role & MC_MAY_READ))
		r = mc_fail(-EACCES, "a ticket for role %s, which uses no data port", mc_role_name(id.role));
	if (r == 0)
		r = mc_identity_check_time(&id, mc_wall_ms() / 1000);
	if (r < 0)
		return r;
	memcpy(copy, text, len);
	copy[len] = '\0';
	MC_LOCKED(&s->lock);
	if (!s->own->has_node_key)
		return mc_fail(-EACCES, "this process has no credential of role node, so it admits no peer");
	own = data_own_locked(s, &id);
	if (!own)
		return mc_fail(-EACCES, "a ticket for another node, pool or secret: node=%s secret=%u", id.node,
			       id.secret);
	if (!tenant_served_locked(s, id.tenant))
		return mc_fail(-EACCES, "a ticket of tenant \"%s\", which this node does not serve", id.tenant);
	mc_key_ticket(own->node_key, copy, key);
	mc_identity_principal(&id, ret);
	return 0;
}

int mcs_security_revoke(struct mcs_security *s, const uint64_t *serials, unsigned n)
{
	uint64_t *copy = malloc((n ? n : 1) * sizeof(*copy)), *old;

	if (!copy)
		return mc_fail(-ENOMEM, "no memory for the list of revoked credentials");
	if (n)
		memcpy(copy, serials, n * sizeof(*copy));
	mc_mutex_lock(&s->lock);
	old = s->revoked;
	s->revoked = copy;
	s->n_revoked = n;
	mc_mutex_unlock(&s->lock);
	free(old);
	return 0;
}

static bool principal_valid_locked(const struct mcs_security *s, const struct mc_principal *p)
{
	return mc_wall_ms() / 1000 < p->expires_s && !is_revoked_locked(s, p->serial);
}

bool mcs_security_admits(void *arg, const struct mc_principal *p)
{
	struct mcs_security *s = arg;

	MC_LOCKED(&s->lock);
	return principal_valid_locked(s, p) && tenant_served_locked(s, p->tenant);
}

/* ---- tokens of HTTP ---- */

static void token_hash(const char *token, uint8_t ret[HASH])
{
	SHA256((const unsigned char *)token, strlen(token), ret);
}

static bool token_known_locked(struct mcs_security *s, const uint8_t hash[HASH], struct mc_identity *ret)
{
	for (unsigned i = 0; i < TOKENS; i++) {
		if (!s->token[i].id.serial || CRYPTO_memcmp(s->token[i].hash, hash, HASH))
			continue;
		*ret = s->token[i].id;
		return true;
	}
	return false;
}

int mcs_security_token(struct mcs_security *s, struct mcs_session *session, const char *token, uint64_t deadline,
		       struct mc_identity *ret)
{
	struct mcp_identify msg = { .token = mcp_bytes(token, (uint32_t)strlen(token)) };
	struct mcp_identify_reply reply;
	struct mcp_reply mem = { 0 };
	struct mc_principal who;
	uint8_t hash[HASH];
	bool known, valid = false;
	int r;

	token_hash(token, hash);
	mc_mutex_lock(&s->lock);
	known = token_known_locked(s, hash, ret);
	if (known) {
		mc_identity_principal(ret, &who);
		valid = principal_valid_locked(s, &who);
	}
	mc_mutex_unlock(&s->lock);
	if (known)
		return valid ? 0 : mc_fail(-EACCES, "the token of %s is not valid any more", ret->name);
	if (msg.token.len >= MC_BEARER_MAX)
		return mc_fail(-EACCES, "not a token of mcctl credential token");
	r = mcs_call(session, MCP_IDENTIFY, &msg, &reply, &mem, deadline);
	if (r < 0)
		return mc_fail(-EACCES, "the master does not confirm the token: %s", strdupa(mc_err_detail(r)));
	r = mc_identity_parse(reply.identity.data, reply.identity.len, ret);
	mcp_reply_done(&mem);
	if (r < 0)
		return r;
	MC_LOCKED(&s->lock);
	memcpy(s->token[s->next_token].hash, hash, HASH);
	s->token[s->next_token].id = *ret;
	s->next_token = (s->next_token + 1) % TOKENS;
	return 0;
}

/* ---- open and close ---- */

/* Links stay: one of them may lead to a new file later.  NULL: no memory. */
static char *path_absolute(const char *path)
{
	auto_free char *dir = *path == '/' ? NULL : getcwd(NULL, 0);
	char *ret;

	if (!dir)
		return strdup(path);
	return asprintf(&ret, "%s/%s", dir, path) < 0 ? NULL : ret;
}

/* *ret_plain: the bytes of objects are not encrypted between processes that both want that. */
static int encrypt_parse(const char *encrypt, bool *ret_plain)
{
	if (!encrypt || !*encrypt)
		encrypt = mc_env_str("MC_ENCRYPT");
	*ret_plain = encrypt && !strcmp(encrypt, "control");
	return !encrypt || *ret_plain || !strcmp(encrypt, "all") ? 0 :
	       mc_fail(-MC_EPARAM, "encrypt=%s: it must be all or control (MC_ENCRYPT)", encrypt);
}

int mcs_security_open(const char *path, const char *encrypt, struct mcs_security **ret)
{
	struct mc_tls_conf rpc = { .present = rpc_present };
	struct mc_tls_conf data = {
		.present = data_present, .failed = data_failed, .identify = data_identify, .service = "the data port",
	};
	struct mc_credential_files files;
	struct mcs_security *s;
	int r = encrypt_parse(encrypt, &data.plain_data);

	*ret = NULL;
	if (!path || !*path)
		path = mc_env_str("MC_CREDENTIAL");
	if (r < 0 || !path)
		return r;
	r = -ENOMEM;
	s = calloc(1, sizeof(*s));
	if (!s)
		return r;
	mc_mutex_init(&s->lock);
	mc_cond_init(&s->idle);
	s->path = path_absolute(path);
	s->own = mc_credential_new();
	s->before = mc_credential_new();
	rpc.arg = data.arg = s;
	if (s->path && s->own && s->before)
		r = mc_credential_files_load(s->path, &files);
	if (r == 0)
		r = mc_credential_load(s->path, s->own);
	else if (r > 0) {
		/* Certificates are for masters: tickets have keys here too, and this process admits no peer. */
		rpc.present = NULL;
		rpc.cert = files.cert;
		rpc.key = files.key;
		rpc.ca = files.ca;
		rpc.map = files.map;
		r = 0;
	}
	if (r == 0) {
		mc_identity_principal(&s->own->id, &s->opened);
		s->session_serial = s->own->id.serial;
	}
	/* The master knows the role of a certificate; it is not node, because that needs a key for tickets. */
	if (r == 0 && !s->own->text[0])
		s->opened.roles = MC_ROLE_CLIENT;
	if (r == 0)
		r = mc_tls_new(&rpc, &s->rpc);
	if (r == 0)
		r = mc_tls_new(&data, &s->data);
	if (r == 0 && data.plain_data) {
		/* It connects only; the listeners of data admit such connections too. */
		data.plain_data = false;
		r = mc_tls_new(&data, &s->control);
	}
	if (r < 0) {
		mcs_security_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

void mcs_security_close(struct mcs_security *s)
{
	if (!s)
		return;
	while (s->tickets) {
		struct held_ticket *t = s->tickets;

		s->tickets = t->next;
		ticket_free(t);
	}
	mc_tls_free(s->rpc);
	mc_tls_free(s->data);
	mc_tls_free(s->control);
	mc_credential_free(s->own);
	mc_credential_free(s->before);
	free(s->revoked);
	free(s->path);
	mc_cond_destroy(&s->idle);
	mc_mutex_destroy(&s->lock);
	free(s);
}

const struct mc_net *mcs_security_net(const struct mcs_security *s)
{
	return s ? mc_tls_net(s->rpc) : NULL;
}

const struct mc_net *mcs_security_data_net(const struct mcs_security *s)
{
	return s ? mc_tls_net(s->data) : NULL;
}

const struct mc_net *mcs_security_control_net(const struct mcs_security *s)
{
	return s ? mc_tls_net(s->control ? s->control : s->data) : NULL;
}

void mcs_security_session(struct mcs_security *s, struct mcs_session *session)
{
	if (!s)
		return;
	MC_LOCKED(&s->lock);
	s->session = session;
	while (!session && s->asking)
		mc_cond_wait(&s->idle, &s->lock);
}

const char *mcs_security_name(const struct mcs_security *s)
{
	return s->opened.name;
}

uint32_t mcs_security_role(const struct mcs_security *s)
{
	return s->opened.roles;
}

const char *mcs_security_tenant(const struct mcs_security *s)
{
	return s->opened.tenant;
}

/* A guess of the name can be compared with it; the name itself does not follow from it. */
uint64_t mcs_security_tenant_number(const struct mcs_security *s)
{
	const char *text = s ? s->opened.tenant : "";
	unsigned char hash[SHA256_DIGEST_LENGTH];
	uint64_t n;

	SHA256((const unsigned char *)text, strlen(text), hash);
	memcpy(&n, hash, sizeof(n));
	n = le64toh(n);
	return s ? n + !n : 0;
}

const char *mcs_security_path(const struct mcs_security *s)
{
	return s->path;
}

uint64_t mcs_security_serial(struct mcs_security *s)
{
	if (!s)
		return 0;
	MC_LOCKED(&s->lock);
	return s->session_serial;
}

int mcs_security_fresh(struct mcs_security *s)
{
	MC_LOCKED(&s->lock);
	/* A certificate is checked by the master. */
	return s->own->text[0] ? mc_identity_check_time(&s->own->id, mc_wall_ms() / 1000) : 0;
}
