/* SPDX-License-Identifier: Apache-2.0
 * http.c - client of HTTP metadata servers: upstream's (Python, C++, Go) and ours.
 *
 * Connections are closed after each call: thousands of nodes with two calls a minute would keep
 * thousands of them open.  The parameter ttl is ours; upstream's servers ignore it. */
#include <config.h>

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "meta/credentials.h"
#include "meta/meta_i.h"
#include "meta/token.h"

struct http {
	struct mcd_backend base;
	struct mc_web *web;
	char *url;
	char *header;		/* the token's; NULL: no token */
	struct mcd_credentials credentials;	/* files for TLS; empty without https */
	unsigned ttl_s;
};

static struct http *http_of(struct mcd_backend *b)
{
	return (struct http *)b;
}

static void http_close(struct mcd_backend *b)
{
	struct http *h = http_of(b);

	mc_web_close(h->web);
	free(h->url);
	free(h->header);
	mcd_credentials_done(&h->credentials);
	free(h);
}

/* *ret stays NULL without a token. */
static int http_token(char **ret)
{
	auto_free char *token = NULL;
	int r = mcd_token_read(&token);

	if (r == 0 && token && asprintf(ret, "Authorization: Bearer %s", token) < 0) {
		*ret = NULL;
		r = mc_fail(-ENOMEM, "no memory for a token");
	}
	return r;
}

/* The file's user and password are for etcd and redis. */
static int http_use_file(struct http *h, const struct mcd_open *o)
{
	int r = mcd_credentials_read(o->credentials, &h->credentials);

	return r < 0 ? r : mc_web_set_tls(h->web, h->credentials.ca, h->credentials.cert, h->credentials.key);
}

static int http_open_as(const struct mcd_ops *ops, const char *where, const struct mcd_open *o,
			struct mcd_backend **ret)
{
	const char *host = strstr(where, "://");
	struct http *h;
	int r;

	if (!host || !host[3] || strchr("/?#:", host[3]))
		return mc_fail(-EINVAL, "no host in %s; the form is http://HOST:PORT/metadata", where);
	h = calloc(1, sizeof(*h));
	if (!h)
		return mc_fail(-ENOMEM, "no memory for a metadata client");
	h->base.ops = ops;
	h->ttl_s = o->ttl_s;
	h->url = strdup(where);
	r = h->url ? mc_web_open(&h->web) : mc_fail(-ENOMEM, "no memory for a metadata client");
	if (r == 0 && ops == &mcd_https)
		r = http_use_file(h, o);
	if (r == 0)
		r = http_token(&h->header);
	if (r < 0) {
		http_close(&h->base);
		return r;
	}
	*ret = &h->base;
	return 0;
}

static int http_open(const char *where, const struct mcd_open *o, struct mcd_backend **ret)
{
	return http_open_as(&mcd_http, where, o, ret);
}

static int https_open(const char *where, const struct mcd_open *o, struct mcd_backend **ret)
{
	return http_open_as(&mcd_https, where, o, ret);
}

static int http_run(struct http *h, const char *key, unsigned ttl_s, struct mc_web_call *c)
{
	auto_free char *url = NULL;
	char *escaped, ttl[32] = "";
	int r;

	escaped = curl_easy_escape(NULL, key, 0);
	if (ttl_s)
		snprintf(ttl, sizeof(ttl), "&ttl=%u", ttl_s);
	if (!escaped || asprintf(&url, "%s%ckey=%s%s", h->url, strchr(h->url, '?') ? '&' : '?', escaped,
				 ttl) < 0)
		url = NULL;
	curl_free(escaped);
	if (!url)
		return mc_fail(-ENOMEM, "no memory for an HTTP call");
	c->url = url;
	c->header = h->header;
	r = mc_web_run(h->web, c);
	c->url = NULL;
	return r < 0 ? mcd_tls_advise(r, &h->credentials, h->base.ops == &mcd_https, "http://", "https://") : r;
}

static int http_error(const struct http *h, const struct mc_web_call *c, const char *key)
{
	char said[256];
	int r = -EIO;

	if (c->status == 401 || c->status == 403)
		r = -EACCES;
	else if (c->status == 413)
		r = -EMSGSIZE;
	else if (c->status == 507)
		r = -ENOSPC;
	else if (c->status >= 400 && c->status < 500)
		r = -EINVAL;
	mc_fail(r, "metadata server, %s of %s: %s", c->method, key, mc_web_status_line(c, said, sizeof(said)));
	return mcd_tls_advise(r, &h->credentials, false, "http://", "https://");
}

static int http_get(struct mcd_backend *b, const char *key, const struct mcd_wait *w, char **ret_text)
{
	struct mc_web_call c = { .method = "GET", .deadline = w->deadline, .cancel = w->cancel };
	int r;

	r = http_run(http_of(b), key, 0, &c);
	if (r == 0 && c.status == 404)
		r = mc_fail(-ENOENT, "metadata server: no %s", key);
	else if (r == 0 && c.status != 200)
		r = http_error(http_of(b), &c, key);
	else if (r == 0 && c.text && strlen(c.text) != c.len)
		r = mc_fail(-EINVAL, "metadata server: %s is not text", key);
	if (r == 0 && !c.text)
		c.text = strdup("");
	if (r == 0 && !c.text)
		r = -ENOMEM;
	if (r == 0)
		*ret_text = TAKE_PTR(c.text);
	free(c.text);
	return r;
}

/* The server refused a record that is written once.  0 if it has the same text already, which upstream's Python
 * server does not check. */
static int http_compare(struct mcd_backend *b, const char *key, const char *text, const struct mcd_wait *w)
{
	auto_free char *theirs = NULL;
	int r;

	r = http_get(b, key, w, &theirs);
	if (r < 0)
		return r;
	return strcmp(theirs, text) ? mc_fail(-EEXIST, "metadata server: another node has %s", key) : 0;
}

static int http_put(struct mcd_backend *b, const char *key, const char *text, const struct mcd_wait *w)
{
	struct mc_web_call c = { .method = "PUT", .body = text, .deadline = w->deadline, .cancel = w->cancel };
	int r;

	r = http_run(http_of(b), key, http_of(b)->ttl_s, &c);
	if (r == 0 && c.status == 400 && strstr(key, "rpc_meta"))
		r = http_compare(b, key, text, w);
	else if (r == 0 && c.status != 200)
		r = http_error(http_of(b), &c, key);
	free(c.text);
	return r;
}

static int http_del(struct mcd_backend *b, const char *key, const struct mcd_wait *w)
{
	struct mc_web_call c = { .method = "DELETE", .deadline = w->deadline, .cancel = w->cancel };
	int r;

	r = http_run(http_of(b), key, 0, &c);
	if (r == 0 && c.status != 200 && c.status != 404)
		r = http_error(http_of(b), &c, key);
	free(c.text);
	return r;
}

/* HTTP servers have no state besides the texts. */
static int http_beat(struct mcd_backend *b, const struct mcd_wait *w)
{
	return 0;
}

/* Nor have they transactions, without which there is no lease. */
static int http_no_leases(const struct mcd_backend *b)
{
	return mc_fail(-EINVAL, "%s servers have no leases", b->ops->scheme);
}

static int http_turn(struct mcd_backend *b, const struct mcd_turn *t, const struct mcd_wait *w)
{
	(void)t, (void)w;
	return http_no_leases(b);
}

static int http_prolong(struct mcd_backend *b, const char *leader_key, const char *mine, unsigned ttl_ms,
			const struct mcd_wait *w)
{
	(void)leader_key, (void)mine, (void)ttl_ms, (void)w;
	return http_no_leases(b);
}

static int http_leave(struct mcd_backend *b, const char *leader_key, const char *mine, const struct mcd_wait *w)
{
	(void)leader_key, (void)mine, (void)w;
	return http_no_leases(b);
}

const struct mcd_ops mcd_http = {
	.scheme = "http",
	.wants_url = true,
	.open = http_open,
	.close = http_close,
	.get = http_get,
	.put = http_put,
	.del = http_del,
	.del_own = mcd_del_own_text,
	.beat = http_beat,
	.refresh = http_put,
	.turn = http_turn,
	.prolong = http_prolong,
	.leave = http_leave,
};

const struct mcd_ops mcd_https = {
	.scheme = "https",
	.wants_url = true,
	.open = https_open,
	.close = http_close,
	.get = http_get,
	.put = http_put,
	.del = http_del,
	.del_own = mcd_del_own_text,
	.beat = http_beat,
	.refresh = http_put,
	.turn = http_turn,
	.prolong = http_prolong,
	.leave = http_leave,
};
