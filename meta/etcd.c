/* SPDX-License-Identifier: Apache-2.0
 * etcd.c - client of etcd over its gateway, JSON over HTTP: keys and values in base64, 64-bit numbers
 * as strings.
 *
 * All keys of one node are attached to one etcd lease, which is kept alive.  If the lease has expired
 * (etcd was unreachable longer than the TTL, or lost its data), the client grants a new one and puts
 * all keys again. */
#include <config.h>

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/net.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "meta/credentials.h"
#include "meta/meta_i.h"
#include "meta/seat_i.h"

#define ENDPOINTS_MAX 16
#define ENDPOINT_LEN 280
#define PORT 2379
/* Time limit for one member, so that a silent member leaves time for the others. */
#define TRY_MS 2000
#define GRPC_NOT_FOUND 5

struct etcd {
	struct mcd_backend base;
	struct mc_web *web;
	unsigned ttl_s;
	unsigned n;
	char endpoints[ENDPOINTS_MAX][ENDPOINT_LEN];	/* "http://host:port" */
	struct mcd_credentials credentials;
	char *user, *password;	/* NULL: none */
	bool user_is_ours;	/* parsed, and allocated by curl; else the file's */
	/* guarded by lock */
	struct mc_mutex lock;
	unsigned good;		/* index of the endpoint that answered last */
	char *token;		/* token of the user, NULL: not logged in */
	int64_t lease;		/* 0: none */
	bool lost;		/* the lease has expired, and with it all our keys */
};

static struct etcd *etcd_of(struct mcd_backend *b)
{
	return (struct etcd *)b;
}

/* ---- open -------------------------------------------------------------------------------------- */

static int etcd_add_endpoint(struct etcd *e, const char *s, size_t len)
{
	const char *scheme = mcd_credentials_tls(&e->credentials) ? "https://" : "http://";
	char addr[MC_ADDR_MAX], host[MC_ADDR_MAX];
	int port, r;

	/* Endpoint lists for other etcd clients have schemes. */
	if (len > 7 && !memcmp(s, "http://", 7)) {
		if (mcd_credentials_tls(&e->credentials))
			return mc_fail(-EINVAL, "etcd: %s has a ca or a cert, but %.*s is without TLS: write https://",
				       e->credentials.path, len < 300 ? (int)len : 300, s);
		s += 7;
		len -= 7;
	} else if (len > 8 && !memcmp(s, "https://", 8)) {
		scheme = "https://";
		s += 8;
		len -= 8;
	}
	if (len && s[len - 1] == '/')
		len--;
	if (len == 0 || len >= sizeof(addr) || e->n == ENDPOINTS_MAX)
		return mc_fail(-EINVAL, "etcd: the address must be a list of 1 to %u HOST:PORT", ENDPOINTS_MAX);
	memcpy(addr, s, len);
	addr[len] = '\0';
	if (strpbrk(addr, "/?#@ \t\"\\"))
		return mc_fail(-EINVAL, "etcd: invalid address: %s", addr);
	r = mc_addr_split(addr, host, sizeof(host), PORT, &port);
	if (r < 0)
		return r;
	if (!*host || !port)
		return mc_fail(-EINVAL, "etcd: invalid address: %s", addr);
	snprintf(e->endpoints[e->n++], ENDPOINT_LEN, strchr(host, ':') ? "%s[%s]:%d" : "%s%s:%d",
		 scheme, host, port);
	return 0;
}

static void etcd_close(struct mcd_backend *b)
{
	struct etcd *e = etcd_of(b);

	mc_web_close(e->web);
	mc_mutex_destroy(&e->lock);
	if (e->user_is_ours) {
		curl_free(e->user);
		curl_free(e->password);
	}
	mcd_credentials_done(&e->credentials);
	free(e->token);
	free(e);
}

/* Parse an optional percent-encoded "USER:PASSWORD@" and advance *where past it; else take those of the file. */
static int etcd_parse_user(struct etcd *e, const char **where)
{
	const char *at = strrchr(*where, '@'), *colon = strchr(*where, ':');

	if (!at && e->credentials.password && !e->credentials.user)
		return mc_fail(-EINVAL, "etcd: %s has a password without a user", e->credentials.path);
	if (!at) {
		e->user = e->credentials.user;
		e->password = e->credentials.password;
		return 0;
	}
	if (!strncmp(*where, "http://", 7) || !strncmp(*where, "https://", 8))
		return mc_fail(-EINVAL, "etcd: write USER:PASSWORD@ before the first http:// or https://");
	if (!colon || colon > at || colon == *where)
		return mc_fail(-EINVAL, "etcd: the part before the @ must be USER:PASSWORD");
	mcd_password_seen(*where, (size_t)(at - *where));
	e->user_is_ours = true;
	e->user = curl_easy_unescape(NULL, *where, (int)(colon - *where), NULL);
	e->password = curl_easy_unescape(NULL, colon + 1, (int)(at - colon - 1), NULL);
	*where = at + 1;
	return e->user && e->password ? 0 : mc_fail(-ENOMEM, "no memory for a metadata client");
}

static int etcd_open(const char *where, const struct mcd_open *o, struct mcd_backend **ret)
{
	struct etcd *e = calloc(1, sizeof(*e));
	size_t len;
	int r = 0;

	if (!e)
		return mc_fail(-ENOMEM, "no memory for a metadata client");
	e->base.ops = &mcd_etcd;
	e->ttl_s = o->ttl_s;
	mc_mutex_init(&e->lock);
	r = mcd_credentials_read(o->credentials, &e->credentials);
	if (r == 0)
		r = etcd_parse_user(e, &where);
	while (r == 0) {
		len = strcspn(where, ",;");
		r = etcd_add_endpoint(e, where, len);
		where += len;
		if (!*where++)
			break;
	}
	if (r == 0)
		r = mc_web_open(&e->web);
	if (r == 0)
		r = mc_web_set_tls(e->web, e->credentials.ca, e->credentials.cert, e->credentials.key);
	if (r < 0) {
		etcd_close(&e->base);
		return r;
	}
	*ret = &e->base;
	return 0;
}

/* ---- calls ------------------------------------------------------------------------------------- */

/* The error number for an error answer of etcd. */
static int etcd_error(const struct mc_web_call *c, int *ret_grpc)
{
	json_t *o = json_loadb(c->text ? c->text : "", c->len, 0, NULL);
	const char *said = json_string_value(json_object_get(o, "error"));
	char line[256];
	int r = -EIO;

	*ret_grpc = (int)json_integer_value(json_object_get(o, "code"));
	if (c->status == 401 || c->status == 403 || *ret_grpc == 7 || *ret_grpc == 16)
		r = -EACCES;
	else if (said && (strstr(said, "user name is empty") || strstr(said, "authentication")))
		r = -EACCES;
	else if (said && (strstr(said, "request is too large") || strstr(said, "larger than max")))
		r = -EMSGSIZE;
	else if (said && strstr(said, "database space exceeded"))
		r = -ENOSPC;
	else if (*ret_grpc == GRPC_NOT_FOUND)
		r = -ESTALE;
	if (said)
		mc_fail(r, "etcd: %s", said);
	else
		mc_fail(r, "etcd: %s", mc_web_status_line(c, line, sizeof(line)));
	json_decref(o);
	return r;
}

/* True if another member may answer: this one is dead, starting, or has no leader. */
static bool etcd_try_next(const struct mc_web_call *c, int r)
{
	if (r < 0)
		return r != -ECANCELED && r != -EMSGSIZE && r != -ENOMEM && r != -EINVAL;
	return c->status == 502 || c->status == 503 || c->status == 504;
}

/* POST @body to @path of one member after another until one answers.  0 with status 200; the caller
 * frees c->text in any case. */
static int etcd_post(struct etcd *e, const char *path, const char *body, const char *header,
		     const struct mcd_wait *w, struct mc_web_call *c)
{
	char url[ENDPOINT_LEN + 64];
	unsigned first, at = 0;
	uint64_t latest;
	int r = 0, grpc;

	mc_mutex_lock(&e->lock);
	first = e->good;
	mc_mutex_unlock(&e->lock);
	for (unsigned i = 0; i < e->n; i++) {
		free(c->text);
		at = (first + i) % e->n;
		snprintf(url, sizeof(url), "%s%s", e->endpoints[at], path);
		*c = (struct mc_web_call){ .method = "POST", .url = url, .body = body, .keep = true,
					    .header = header, .deadline = w->deadline, .cancel = w->cancel };
		latest = mc_deadline_ms(TRY_MS);
		if (i + 1 < e->n && latest < w->deadline)
			c->deadline = latest;
		r = mc_web_run(e->web, c);
		if (!etcd_try_next(c, r))
			break;
	}
	c->url = c->header = NULL;
	if (r < 0)
		return mcd_tls_advise(r, &e->credentials, !strncmp(e->endpoints[at], "https", 5), "http://",
				      "https://");
	mc_mutex_lock(&e->lock);
	e->good = at;
	mc_mutex_unlock(&e->lock);
	if (c->status == 200)
		return 0;
	return mcd_tls_advise(etcd_error(c, &grpc), &e->credentials, false, "http://", "https://");
}

int mcd_etcd_token_decode(const char *text, size_t len, char **ret_token)
{
	json_t *o = json_loadb(text, len, 0, NULL);
	const char *said = json_string_value(json_object_get(o, "token"));
	char *token = NULL;
	int r = 0;

	/* The token becomes part of a header line. */
	if (!said || !*said || strpbrk(said, "\r\n"))
		r = mc_fail(-EINVAL, "etcd: invalid answer to authenticate");
	else if (!(token = strdup(said)))
		r = mc_fail(-ENOMEM, "no memory for etcd");
	json_decref(o);
	if (r == 0)
		*ret_token = token;
	return r;
}

static int etcd_log_in(struct etcd *e, const struct mcd_wait *w)
{
	json_t *o = json_pack("{s:s, s:s}", "name", e->user, "password", e->password);
	auto_free char *body = o ? json_dumps(o, JSON_COMPACT) : NULL;
	struct mc_web_call c = { .text = NULL };
	char *token = NULL;
	int r;

	json_decref(o);
	if (!body)
		return mc_fail(-EINVAL, "etcd: user or password is not UTF-8");
	r = etcd_post(e, "/v3/auth/authenticate", body, NULL, w, &c);
	if (r == 0)
		r = mcd_etcd_token_decode(c.text ? c.text : "", c.len, &token);
	free(c.text);
	if (r < 0)
		return r;
	mc_mutex_lock(&e->lock);
	free(e->token);
	e->token = token;
	mc_mutex_unlock(&e->lock);
	return 0;
}

/* Make the line "Authorization: TOKEN"; @renew: with a new token.  The caller frees it. */
static int etcd_authorization(struct etcd *e, const struct mcd_wait *w, bool renew, char **ret)
{
	bool none;
	int r = 0;

	mc_mutex_lock(&e->lock);
	none = !e->token;
	mc_mutex_unlock(&e->lock);
	if (none || renew)
		r = etcd_log_in(e, w);
	if (r < 0)
		return r;
	mc_mutex_lock(&e->lock);
	r = asprintf(ret, "Authorization: %s", e->token);
	mc_mutex_unlock(&e->lock);
	return r < 0 ? mc_fail(-ENOMEM, "no memory for etcd") : 0;
}

/* etcd_post() with the authorization of the user, if there is one. */
static int etcd_call(struct etcd *e, const char *path, const char *body,
		     const struct mcd_wait *w, struct mc_web_call *c)
{
	int r;

	if (!e->user)
		return etcd_post(e, path, body, NULL, w, c);
	/* etcd forgets a token that was not used for some minutes: retry with a new one. */
	for (unsigned i = 0; i < 2; i++) {
		auto_free char *header = NULL;

		r = etcd_authorization(e, w, i > 0, &header);
		if (r == 0)
			r = etcd_post(e, path, body, header, w, c);
		if (r != -EACCES || !header)
			break;
	}
	return r;
}

static int etcd_call_pack(struct etcd *e, const char *path, json_t *o,
			  const struct mcd_wait *w, struct mc_web_call *c)
{
	auto_free char *body = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	return body ? etcd_call(e, path, body, w, c) : mc_fail(-ENOMEM, "no memory for etcd");
}

int mcd_etcd_call(struct mcd_backend *b, const char *path, json_t *o, const struct mcd_wait *w, struct mc_web_call *c)
{
	return etcd_call_pack(etcd_of(b), path, o, w, c);
}

/* ---- answers ----------------------------------------------------------------------------------- */

static int etcd_bad_answer(const char *what)
{
	return mc_fail(-EINVAL, "etcd: invalid answer to %s", what);
}

/* A 64-bit number: the gateway writes a string; accept a JSON number too. */
static int etcd_number(const json_t *o, const char *member, int64_t *ret)
{
	const json_t *v = json_object_get(o, member);
	const char *s = json_string_value(v);
	char *end;

	if (json_is_integer(v)) {
		*ret = json_integer_value(v);
		return 0;
	}
	if (!s || !*s)
		return -EINVAL;
	errno = 0;
	*ret = strtoll(s, &end, 10);
	return errno || *end ? -EINVAL : 0;
}

int mcd_etcd_range_decode(const char *text, size_t len, char **ret_text, int64_t *ret_lease)
{
	json_t *o = json_loadb(text, len, 0, NULL), *kvs, *value;
	char *decoded = NULL;
	int64_t lease = 0;
	size_t n = 0;
	int r = 0;

	if (!json_is_object(o)) {
		json_decref(o);
		return etcd_bad_answer("range");
	}
	kvs = json_object_get(o, "kvs");
	/* The gateway omits members of value zero: no "kvs" if the key does not exist, no "value" if it
	 * is empty. */
	if (!kvs || (json_is_array(kvs) && json_array_size(kvs) == 0)) {
		json_decref(o);
		return -ENOENT;
	}
	value = json_object_get(json_array_get(kvs, 0), "value");
	(void)etcd_number(json_array_get(kvs, 0), "lease", &lease);
	if (!json_is_object(json_array_get(kvs, 0)) || (value && !json_is_string(value)))
		r = etcd_bad_answer("range");
	else
		r = mcd_base64_decode(value ? json_string_value(value) : "", &decoded, &n);
	json_decref(o);
	if (r == 0 && strlen(decoded) != n)
		r = mc_fail(-EINVAL, "etcd: the value is not text");
	if (r < 0) {
		free(decoded);
		return r;
	}
	*ret_text = decoded;
	*ret_lease = lease;
	return 0;
}

int mcd_etcd_grant_decode(const char *text, size_t len, int64_t *ret_id)
{
	json_t *o = json_loadb(text, len, 0, NULL);
	int64_t id = 0;
	int r;

	r = etcd_number(o, "ID", &id);
	json_decref(o);
	if (r < 0 || id == 0)
		return etcd_bad_answer("lease grant");
	*ret_id = id;
	return 0;
}

/* *ret_ttl is 0 for an answer without TTL: the lease has expired. */
int mcd_etcd_keepalive_decode(const char *text, size_t len, int64_t *ret_ttl)
{
	/* The answer is a stream: other objects may follow the first. */
	json_t *o = json_loadb(text, len, JSON_DISABLE_EOF_CHECK, NULL);
	json_t *result = json_object_get(o, "result");
	int64_t ttl = 0;
	int r = 0;

	if (!json_is_object(result))
		r = etcd_bad_answer("lease keepalive");
	else if (json_object_get(result, "TTL"))
		r = etcd_number(result, "TTL", &ttl) < 0 ? etcd_bad_answer("lease keepalive") : 0;
	json_decref(o);
	if (r < 0)
		return r;
	*ret_ttl = ttl;
	return 0;
}

/* ---- leases ------------------------------------------------------------------------------------ */

/* The current lease, or a new one.  If two threads grant a lease at the same time, the second expires unused. */
static int lease_get(struct etcd *e, const struct mcd_wait *w, int64_t *ret)
{
	struct mc_web_call c = { .text = NULL };
	int64_t id;
	int r;

	mc_mutex_lock(&e->lock);
	id = e->lease;
	mc_mutex_unlock(&e->lock);
	if (id) {
		*ret = id;
		return 0;
	}
	r = etcd_call_pack(e, "/v3/lease/grant", json_pack("{s:I}", "TTL", (json_int_t)e->ttl_s), w, &c);
	if (r == 0)
		r = mcd_etcd_grant_decode(c.text ? c.text : "", c.len, &id);
	free(c.text);
	if (r < 0)
		return r;
	mc_mutex_lock(&e->lock);
	if (!e->lease)
		e->lease = id;
	*ret = e->lease;
	mc_mutex_unlock(&e->lock);
	return 0;
}

static void lease_lost(struct etcd *e, int64_t id)
{
	mc_mutex_lock(&e->lock);
	if (e->lease == id) {
		e->lease = 0;
		e->lost = true;
	}
	mc_mutex_unlock(&e->lock);
}

static int etcd_beat(struct mcd_backend *b, const struct mcd_wait *w)
{
	struct mc_web_call c = { .text = NULL };
	struct etcd *e = etcd_of(b);
	int64_t id, ttl = 0;
	char number[24];
	bool lost;
	int r;

	mc_mutex_lock(&e->lock);
	id = e->lease;
	lost = e->lost;
	e->lost = false;
	mc_mutex_unlock(&e->lock);
	if (!id || lost)
		return 1;
	snprintf(number, sizeof(number), "%" PRId64, id);
	r = etcd_call_pack(e, "/v3/lease/keepalive", json_pack("{s:s}", "ID", number), w, &c);
	if (r == 0)
		r = mcd_etcd_keepalive_decode(c.text ? c.text : "", c.len, &ttl);
	free(c.text);
	if (r < 0 && r != -ESTALE)
		return r;
	if (r == 0 && ttl > 0)
		return 0;
	mc_mutex_lock(&e->lock);
	if (e->lease == id)
		e->lease = 0;
	mc_mutex_unlock(&e->lock);
	return 1;
}

/* ---- keys -------------------------------------------------------------------------------------- */

/* The text of @key and its lease, 0: none. */
static int etcd_get_with_lease(struct etcd *e, const char *key, const struct mcd_wait *w, char **ret_text,
			       int64_t *ret_lease)
{
	auto_free char *key64 = mcd_base64_encode(key, strlen(key));
	struct mc_web_call c = { .text = NULL };
	int r;

	r = etcd_call_pack(e, "/v3/kv/range", key64 ? json_pack("{s:s}", "key", key64) : NULL, w, &c);
	if (r == 0)
		r = mcd_etcd_range_decode(c.text ? c.text : "", c.len, ret_text, ret_lease);
	free(c.text);
	return r == -ENOENT ? mc_fail(r, "etcd: no %s", key) : r;
}

static int etcd_get(struct mcd_backend *b, const char *key, const struct mcd_wait *w, char **ret_text)
{
	int64_t lease;

	return etcd_get_with_lease(etcd_of(b), key, w, ret_text, &lease);
}

static int etcd_put_with_lease(struct etcd *e, const char *key, const char *text, int64_t lease,
			       const struct mcd_wait *w)
{
	auto_free char *key64 = mcd_base64_encode(key, strlen(key));
	auto_free char *text64 = mcd_base64_encode(text, strlen(text));
	struct mc_web_call c = { .text = NULL };
	json_t *o = NULL;
	char number[24];
	int r;

	snprintf(number, sizeof(number), "%" PRId64, lease);
	if (key64 && text64)
		o = json_pack("{s:s, s:s, s:s}", "key", key64, "value", text64, "lease", number);
	r = etcd_call_pack(e, "/v3/kv/put", o, w, &c);
	free(c.text);
	return r;
}

static int etcd_put(struct mcd_backend *b, const char *key, const char *text, const struct mcd_wait *w)
{
	struct etcd *e = etcd_of(b);
	int64_t lease = 0;
	int r;

	/* Retry once with a new lease if the old one has expired. */
	for (unsigned i = 0; i < 2; i++) {
		r = lease_get(e, w, &lease);
		if (r == 0)
			r = etcd_put_with_lease(e, key, text, lease, w);
		if (r != -ESTALE)
			break;
		lease_lost(e, lease);
	}
	return r;
}

static int etcd_del(struct mcd_backend *b, const char *key, const struct mcd_wait *w)
{
	auto_free char *key64 = mcd_base64_encode(key, strlen(key));
	struct mc_web_call c = { .text = NULL };
	int r;

	r = etcd_call_pack(etcd_of(b), "/v3/kv/deleterange",
			   key64 ? json_pack("{s:s}", "key", key64) : NULL, w, &c);
	free(c.text);
	return r;
}

static int64_t lease_current(struct etcd *e)
{
	int64_t lease;

	mc_mutex_lock(&e->lock);
	lease = e->lease;
	mc_mutex_unlock(&e->lock);
	return lease;
}

/* A key with our lease is ours, whatever its text; without a lease we have no keys. */
static int etcd_del_own(struct mcd_backend *b, const char *key, const char *text, const char *previous,
			const struct mcd_wait *w)
{
	auto_free char *key64 = mcd_base64_encode(key, strlen(key));
	struct mc_web_call c = { .text = NULL };
	struct etcd *e = etcd_of(b);
	int64_t lease = lease_current(e);
	json_t *o = NULL;
	char number[24];
	int r;

	if (!lease)
		return 0;
	snprintf(number, sizeof(number), "%" PRId64, lease);
	if (key64)
		o = json_pack("{s:[{s:s, s:s, s:s, s:s}], s:[{s:{s:s}}]}", "compare", "target", "LEASE",
			      "result", "EQUAL", "key", key64, "lease", number, "success",
			      "requestDeleteRange", "key", key64);
	r = etcd_call_pack(e, "/v3/kv/txn", o, w, &c);
	free(c.text);
	return r;
}

/* The lease keeps the key alive, but the key may have been deleted, or a member that was disconnected
 * for long may have brought back an older text.  The text of another node is not touched. */
static int etcd_refresh(struct mcd_backend *b, const char *key, const char *text, const struct mcd_wait *w)
{
	auto_free char *there = NULL;
	struct etcd *e = etcd_of(b);
	int64_t lease = 0, mine;
	int r;

	r = etcd_get_with_lease(e, key, w, &there, &lease);
	if (r < 0)
		return r == -ENOENT ? etcd_put(b, key, text, w) : r;
	mine = lease_current(e);
	/* Put again if the text is ours but not the lease, since it would expire with that lease; also
	 * if the lease is ours but not the text. */
	return !strcmp(there, text) == (mine && lease == mine) ? 0 : etcd_put(b, key, text, w);
}

const struct mcd_ops mcd_etcd = {
	.scheme = "etcd",
	.has_leases = true,
	.open = etcd_open,
	.close = etcd_close,
	.get = etcd_get,
	.put = etcd_put,
	.del = etcd_del,
	.del_own = etcd_del_own,
	.beat = etcd_beat,
	.refresh = etcd_refresh,
	.turn = mcd_etcd_turn,
	.prolong = mcd_etcd_prolong,
	.leave = mcd_etcd_leave,
};
