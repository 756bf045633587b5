/* SPDX-License-Identifier: Apache-2.0
 * server_http.c - HTTP routes of the metadata server. */
#include <config.h>

#include "meta/server_http.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/httpd.h"
#include "common/log.h"
#include "common/metrics.h"
#include "meta/server_store_i.h"
#include "meta/token.h"

#define LOG "metadata"
#define THREADS 4
#define BYTES_MAX (1ull << 30)

MC_COUNTER(gets, "mooncake_metadata_requests_total", "method=\"get\"", "Requests for a metadata key");
MC_COUNTER(puts_, "mooncake_metadata_requests_total", "method=\"put\"", "Requests for a metadata key");
MC_COUNTER(dels, "mooncake_metadata_requests_total", "method=\"delete\"", "Requests for a metadata key");

MC_COUNTER(refused, "mooncake_metadata_unauthorized_total", "", "Requests without the right token");

struct mcd_server {
	struct mc_httpd *httpd;
	struct mcd_store *store;
	char *token;		/* NULL: none */
};

static void http_answer(struct mc_http_request *rq, int status, const char *text)
{
	rq->status = status;
	fputs(text, rq->out);
}

/* The time depends on the lengths only, so that it tells nothing about the token's text. */
static bool token_equal(const char *token, const char *given)
{
	size_t len = strlen(token), given_len = strlen(given);
	volatile unsigned char differ = given_len != len;

	for (size_t i = 0; i < given_len; i++)
		differ |= (unsigned char)(given[i] ^ token[i % len]);
	return !differ;
}

static bool http_allowed(const struct mcd_server *m, struct mc_http_request *rq)
{
	const char *given = mc_http_header(rq, "Authorization");

	/* Descriptors hold the keys to the memory of all tenants. */
	if (rq->principal.tenant[0]) {
		http_answer(rq, 403, "the credential is for one tenant, and metadata is not");
		return false;
	}
	if (!m->token || (given && !strncasecmp(given, "Bearer ", 7) && token_equal(m->token, given + 7)))
		return true;
	mc_metric_add(&refused, 1);
	http_answer(rq, 401, "unauthorized");
	return false;
}

/* The key without surrounding white space, malloc'ed; NULL: an error was answered. */
static char *http_key(const struct mcd_server *m, struct mc_http_request *rq)
{
	const char *key = mc_http_query(rq, "key");
	size_t len;
	char *copy;

	if (!http_allowed(m, rq))
		return NULL;
	while (key && isspace((unsigned char)*key))
		key++;
	len = key ? strlen(key) : 0;
	while (len && isspace((unsigned char)key[len - 1]))
		len--;
	if (!len || len > MCD_SERVER_KEY_MAX) {
		http_answer(rq, 400, len ? "key too long" : "missing key");
		return NULL;
	}
	copy = strndup(key, len);
	if (!copy)
		http_answer(rq, 500, "no memory");
	return copy;
}

/* *ret is 0 without a ttl.  Negative: an error was answered. */
static int http_ttl(struct mc_http_request *rq, uint32_t *ret)
{
	const char *s = mc_http_query(rq, "ttl");
	unsigned long n = 0;

	*ret = 0;
	if (!s)
		return 0;
	for (const char *p = s; n <= MCD_SERVER_TTL_MAX && isdigit((unsigned char)*p); p++) {
		n = n * 10 + (unsigned long)(*p - '0');
		if (!p[1] && n && n <= MCD_SERVER_TTL_MAX) {
			*ret = (uint32_t)n;
			return 0;
		}
	}
	http_answer(rq, 400, "ttl is a number of seconds");
	return -EINVAL;
}

static void on_get(struct mc_http_request *rq, void *arg)
{
	struct mcd_server *m = arg;
	auto_free char *key = http_key(m, rq), *text = NULL;
	size_t len;
	int r;

	mc_metric_add(&gets, 1);
	if (!key)
		return;
	r = mcd_store_get(m->store, key, &text, &len);
	if (r == -ENOENT) {
		http_answer(rq, 404, "metadata not found");
	} else if (r < 0) {
		http_answer(rq, 500, mc_err_detail(r));
	} else {
		rq->content_type = "application/json";
		fwrite(text, 1, len, rq->out);
	}
}

static void on_put(struct mc_http_request *rq, void *arg)
{
	struct mcd_server *m = arg;
	auto_free char *key = http_key(m, rq);
	uint32_t ttl_s;
	bool once;
	int r;

	mc_metric_add(&puts_, 1);
	if (!key || http_ttl(rq, &ttl_s) < 0)
		return;
	once = strstr(key, "rpc_meta");
	r = mcd_store_put(m->store, key, rq->body, rq->body_len, ttl_s, once);
	if (r >= 0) {
		http_answer(rq, 200, r && once ? "metadata unchanged" : "metadata updated");
		return;
	}
	if (r == -EEXIST)
		http_answer(rq, 400, "Duplicate rpc_meta key not allowed");
	else
		http_answer(rq, r == -ENOSPC ? 507 : 500, mc_err_detail(r));
	if (r != -EEXIST)
		mc_warn(LOG, "cannot store a text: %s", mc_err_detail(r));
}

static void on_delete(struct mc_http_request *rq, void *arg)
{
	struct mcd_server *m = arg;
	auto_free char *key = http_key(m, rq);
	int r;

	mc_metric_add(&dels, 1);
	if (!key)
		return;
	r = mcd_store_del(m->store, key);
	if (r == 0)
		http_answer(rq, 200, "metadata deleted");
	else if (r == -ENOENT)
		http_answer(rq, 404, "metadata not found");
	else
		http_answer(rq, 500, mc_err_detail(r));
}

static void on_health(struct mc_http_request *rq, void *arg)
{
	http_answer(rq, 200, "OK");
}

static const struct mc_http_route routes[] = {
	{ "GET", "/metadata", on_get, NULL, MC_MAY_READ },
	{ "PUT", "/metadata", on_put, NULL, MC_MAY_WRITE },
	{ "DELETE", "/metadata", on_delete, NULL, MC_MAY_WRITE },
	{ "GET", "/health", on_health, NULL, MC_MAY_ANYONE },
	{ "GET", "/metrics", mc_http_metrics, NULL, MC_MAY_WATCH },
	{ NULL, NULL, NULL, NULL, 0 },
};

int mcd_server_token(char **ret)
{
	return mcd_token_read(ret);
}

int mcd_server_start(const struct mcd_server_conf *conf, int *ret_port, struct mcd_server **ret)
{
	struct mcd_server *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return mc_fail(-ENOMEM, "no memory for a metadata server");
	r = mcd_store_open(conf->persist, conf->max_bytes ? conf->max_bytes : BYTES_MAX, &m->store);
	if (r == 0)
		m->store->max_keys = conf->max_keys;
	if (r == 0 && conf->token)
		r = mcd_token_check(conf->token, "the token");
	if (r == 0 && conf->token) {
		m->token = strdup(conf->token);
		r = m->token ? 0 : mc_fail(-ENOMEM, "no memory for a token");
	}
	if (r == 0)
		r = mc_httpd_start(conf->addr, conf->threads ? conf->threads : THREADS,
				   conf->max_body ? conf->max_body : MCD_SERVER_TEXT_MAX, routes, m, conf->security,
				   ret_port, &m->httpd);
	if (r < 0) {
		mcd_server_stop(m);
		return r;
	}
	*ret = m;
	return 0;
}

void mcd_server_stop(struct mcd_server *m)
{
	if (!m)
		return;
	mc_httpd_stop(m->httpd);
	mcd_store_close(m->store);
	free(m->token);
	free(m);
}

/* "mooncake/[CLUSTER/]ram/NAME" and ".../rpc_meta/NAME"; with a slash in the name "mooncake/NAME". */
static bool key_is_of_segment(const char *key, const void *arg)
{
	static const char *const kinds[] = { "ram/", "rpc_meta/" };
	size_t key_len = strlen(key), name_len = strlen(arg), kind_len;
	const char *name;

	if (strncmp(key, "mooncake/", 9) || key_len < 9 + name_len)
		return false;
	name = key + key_len - name_len;
	if (strcmp(name, arg))
		return false;
	if (strchr(arg, '/') && name == key + 9)
		return true;
	for (unsigned i = 0; i < 2; i++) {
		kind_len = strlen(kinds[i]);
		if ((size_t)(name - key) >= 9 + kind_len &&
		    !memcmp(name - kind_len, kinds[i], kind_len) && name[-(long)kind_len - 1] == '/')
			return true;
	}
	return false;
}

int mcd_server_forget(struct mcd_server *m, const char *segment_name)
{
	if (!*segment_name)
		return 0;
	return mcd_store_del_if(m->store, key_is_of_segment, segment_name);
}
