/* SPDX-License-Identifier: Apache-2.0
 * blob_s3.c - named pieces of data as objects of a bucket.  libcurl signs the requests (AWS signature, version 4). */
#include <config.h>

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/env.h"
#include "common/err.h"
#include "common/net/net.h"
#include "meta/blob_i.h"
#include "meta/meta_i.h"

#define ATTEMPTS 3
#define PAUSE_MS 200
#define URL_MAX 4096
#define PAGE "1000"		/* names in an answer to a list; the server's default as well */

struct s3 {
	struct mcd_blobs base;
	struct mcd_web *web;
	char url[1024];		/* with the bucket, ends in '/' */
	char sign[128];		/* for libcurl */
	char *keys;		/* ID:SECRET */
	char *token;		/* header line, NULL: none */
	uint64_t limit_ms;	/* of an attempt */
};

static void s3_close(struct mcd_blobs *b)
{
	struct s3 *s = (struct s3 *)b;

	mcd_web_close(s->web);
	free(s->keys);
	free(s->token);
	free(s);
}

/* ---- errors -------------------------------------------------------------------------------------- */

/* The text of <Code> in S3's error document, "" if there is none. */
static void error_code(const struct mcd_web_call *c, char ret[64])
{
	const char *at = c->text ? strstr(c->text, "<Code>") : NULL;

	*ret = '\0';
	if (at)
		snprintf(ret, 64, "%.*s", (int)strcspn(at + 6, "<"), at + 6);
}

static int s3_error(const struct s3 *s, const char *name, const struct mcd_web_call *c)
{
	int r = -EIO;
	char code[64];

	error_code(c, code);
	if (c->status == 401 || c->status == 403)
		r = -EACCES;
	else if (c->status == 404 && strcmp(code, "NoSuchBucket") != 0)
		r = -ENOENT;
	else if (c->status / 100 == 4)
		r = -EINVAL;
	return mc_fail(r, "%s: HTTP status %ld %s for %s", s->base.where, c->status, code, name);
}

/* May the same request succeed soon? */
static bool may_pass(int r, const struct mcd_web_call *c)
{
	return r < 0 ? r != -ENOMEM && r != -EINVAL && r != -EMSGSIZE : c->status == 429 || c->status / 100 == 5;
}

/* ---- requests ------------------------------------------------------------------------------------ */

/* @name: for messages.  0: the status is 2xx, and the caller frees c->text. */
static int s3_run(struct s3 *s, const char *name, struct mcd_web_call *c)
{
	int r;

	c->sign = s->sign;
	c->keys = s->keys;
	c->header = s->token;
	c->keep = true;
	for (unsigned i = 1;; i++) {
		c->wait = (struct mcd_wait){ .deadline = mc_deadline_ms((int64_t)s->limit_ms) };
		r = mcd_web_run(s->web, c);
		if (r == 0 && c->status / 100 == 2)
			return 0;
		if (i == ATTEMPTS || !may_pass(r, c))
			break;
		free(c->text);
		nanosleep(&(const struct timespec){ .tv_nsec = PAUSE_MS * i * 1000000L }, NULL);
	}
	if (r == 0)
		r = s3_error(s, name, c);
	free(c->text);
	c->text = NULL;
	return r;
}

static int url_of(const struct s3 *s, const char *name, char ret[URL_MAX])
{
	return snprintf(ret, URL_MAX, "%s%s", s->url, name) < URL_MAX ? 0 : mc_fail(-EINVAL, "the URL is too long");
}

static int s3_put(struct mcd_blobs *b, const char *name, const void *data, size_t len)
{
	char url[URL_MAX];
	struct mcd_web_call c = {
		.method = "PUT", .url = url, .body = len ? data : "", .body_len = len,
		.type = "application/octet-stream",
	};
	int r = url_of((struct s3 *)b, name, url);

	if (r == 0)
		r = s3_run((struct s3 *)b, name, &c);
	free(c.text);
	return r;
}

static int s3_get(struct mcd_blobs *b, const char *name, void **ret, size_t *ret_len)
{
	char url[URL_MAX];
	struct mcd_web_call c = { .method = "GET", .url = url };
	int r = url_of((struct s3 *)b, name, url);

	if (r == 0)
		r = s3_run((struct s3 *)b, name, &c);
	if (r < 0)
		return r;
	if (!c.text)
		c.text = calloc(1, 1);
	if (!c.text)
		return mc_fail(-ENOMEM, "no memory for %s", name);
	*ret = c.text;
	*ret_len = c.len;
	return 0;
}

static int s3_del(struct mcd_blobs *b, const char *name)
{
	char url[URL_MAX];
	struct mcd_web_call c = { .method = "DELETE", .url = url };
	int r = url_of((struct s3 *)b, name, url);

	if (r == 0)
		r = s3_run((struct s3 *)b, name, &c);
	free(c.text);
	return r == -ENOENT ? 0 : r;
}

/* ---- lists --------------------------------------------------------------------------------------- */

/* As the signature demands: all but the unreserved characters in capital hexadecimal digits. */
static void percent_encode(const char *text, char *ret, size_t size)
{
	size_t at = 0;

	for (; *text && at + 4 < size; text++) {
		if (isalnum((unsigned char)*text) || strchr("-._~", *text))
			ret[at++] = *text;
		else
			at += (size_t)snprintf(ret + at, size - at, "%%%02X", (unsigned char)*text);
	}
	ret[at] = '\0';
}

static int s3_list(struct mcd_blobs *b, const char *prefix, mcd_blob_fn fn, void *arg)
{
	struct s3 *s = (struct s3 *)b;
	char url[URL_MAX], encoded[1024], token[1536] = "";
	auto_free char *next = NULL;
	int r = 0;

	do {
		struct mcd_web_call c = { .method = "GET", .url = url };

		if (next)
			percent_encode(next, token, sizeof(token));
		percent_encode(prefix, encoded, sizeof(encoded));
		free(next);
		next = NULL;
		/* The parameters in the order that the signature demands. */
		if (snprintf(url, sizeof(url), "%s?%s%s%slist-type=2&max-keys=" PAGE "&prefix=%s", s->url,
			     *token ? "continuation-token=" : "", token, *token ? "&" : "", encoded) >= URL_MAX)
			return mc_fail(-EINVAL, "the URL is too long");
		r = s3_run(s, prefix, &c);
		if (r == 0)
			r = mcd_s3_list_decode(c.text ? c.text : "", c.len, fn, arg, &next);
		if (r == -EBADMSG)
			r = mc_fail(-EINVAL, "%s: invalid answer to a list", s->base.where);
		free(c.text);
	} while (r == 0 && next);
	return r;
}

/* ---- configuration ------------------------------------------------------------------------------- */

static const char *setting(const char *name, const char *older, const char *def)
{
	const char *v = mc_env_str(name);

	if (!v || !*v)
		v = older ? mc_env_str(older) : NULL;
	return v && *v ? v : def;
}

static bool is_off(const char *v)
{
	return v && (!strcasecmp(v, "0") || !strcasecmp(v, "false") || !strcasecmp(v, "off") || !strcasecmp(v, "no"));
}

static bool path_style(const char *host)
{
	const char *v = mc_env_str("MOONCAKE_S3_PATH_STYLE");

	if (v && *v)
		return !is_off(v);
	return is_off(mc_env_str("MOONCAKE_AWS_USE_VIRTUAL_ADDRESSING")) || !strncmp(host, "localhost", 9) ||
		*host == '[' || strspn(host, "0123456789.:") == strlen(host);
}

static int set_url(struct s3 *s, const char *region, const char *bucket)
{
	const char *where = setting("MOONCAKE_S3_ENDPOINT", "MOONCAKE_AWS_S3_ENDPOINT", NULL);
	const char *scheme = is_off(mc_env_str("MOONCAKE_AWS_USE_HTTPS")) ? "http" : "https";
	const char *sep = where ? strstr(where, "://") : NULL, *host = sep ? sep + 3 : where;
	char amazon[256], name[256];
	int n;

	snprintf(amazon, sizeof(amazon), "s3.%s.amazonaws.com", region);
	if (sep && strncmp(where, "http://", 7) != 0 && strncmp(where, "https://", 8) != 0)
		return mc_fail(-EINVAL, "MOONCAKE_S3_ENDPOINT=%s: use http:// or https://", where);
	if (sep)
		scheme = !strncmp(where, "http://", 7) ? "http" : "https";
	snprintf(name, sizeof(name), "%.*s", host ? (int)strcspn(host, "/") : 255, host ? host : amazon);
	n = path_style(name) ? snprintf(s->url, sizeof(s->url), "%s://%s/%s/", scheme, name, bucket) :
		snprintf(s->url, sizeof(s->url), "%s://%s.%s/", scheme, bucket, name);
	snprintf(s->base.where, sizeof(s->base.where), "S3 %s://%s, bucket %s", scheme, name, bucket);
	return n < (int)sizeof(s->url) ? 0 : mc_fail(-EINVAL, "MOONCAKE_S3_ENDPOINT is too long");
}

static int configure(struct s3 *s)
{
	const char *region = setting("MOONCAKE_S3_REGION", "MOONCAKE_AWS_REGION", "us-east-1");
	const char *bucket = setting("MOONCAKE_S3_BUCKET", "MOONCAKE_AWS_BUCKET_NAME", NULL);
	const char *id = setting("MOONCAKE_S3_ACCESS_KEY_ID", "MOONCAKE_AWS_ACCESS_KEY_ID", NULL);
	const char *secret = setting("MOONCAKE_S3_SECRET_ACCESS_KEY", "MOONCAKE_AWS_SECRET_ACCESS_KEY", NULL);
	const char *token = setting("MOONCAKE_S3_SESSION_TOKEN", NULL, NULL);

	if (!bucket || strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != strlen(bucket))
		return mc_fail(-EINVAL, "S3 needs the name of a bucket in MOONCAKE_S3_BUCKET or "
			       "MOONCAKE_AWS_BUCKET_NAME");
	if (!id || !secret)
		return mc_fail(-EINVAL, "S3 needs MOONCAKE_S3_ACCESS_KEY_ID and MOONCAKE_S3_SECRET_ACCESS_KEY, or "
			       "MOONCAKE_AWS_ACCESS_KEY_ID and MOONCAKE_AWS_SECRET_ACCESS_KEY");
	if (asprintf(&s->keys, "%s:%s", id, secret) < 0 ||
	    (token && asprintf(&s->token, "x-amz-security-token: %s", token) < 0))
		return mc_fail(-ENOMEM, "no memory for a store of snapshots");
	snprintf(s->sign, sizeof(s->sign), "aws:amz:%s:s3", region);
	s->limit_ms = (uint64_t)mc_env_int("MOONCAKE_AWS_CONNECT_TIMEOUT_MS", 10000, 1, 3600000) +
		(uint64_t)mc_env_int("MOONCAKE_AWS_REQUEST_TIMEOUT_MS", 30000, 1, 3600000);
	return set_url(s, region, bucket);
}

int mcd_blob_s3_open(struct mcd_blobs **ret)
{
	static const struct mcd_blob_ops ops = { s3_close, s3_put, s3_get, s3_del, s3_list };
	struct s3 *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return mc_fail(-ENOMEM, "no memory for a store of snapshots");
	s->base.ops = &ops;
	r = configure(s);
	if (r == 0)
		r = mcd_web_open(&s->web);
	if (r < 0) {
		s3_close(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
