/* SPDX-License-Identifier: Apache-2.0
 * s3.c - named pieces of data as objects of a bucket.  libcurl signs the requests (AWS signature, version 4). */
#include <config.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/net/net.h"
#include "common/net/web.h"
#include "common/sys/clock.h"
#include "tiers/blob/blob_i.h"

#define ATTEMPTS 3
#define PAUSE_MS 200		/* after the first attempt; three times as long after the second */
#define ATTEMPT_MS 600000	/* limit of one that makes progress */
#define URL_MAX 8192
#define PAGE "1000"		/* names in an answer to a list; the server's default as well */
_Static_assert(MCT_KEYED_MAX <= MC_WEB_TEXT_MAX, "mc_web_run() receives a blob");
#define PAGES_MAX 100000	/* a server may always name a next page */

struct blob_s3 {
	struct mct_keyed base;
	struct mc_web *web;
	char url[1024];		/* with the bucket, ends in '/' */
	char sign[128];		/* for libcurl */
	char *keys;		/* ID:SECRET */
	char *token;		/* header line, NULL: none */
	unsigned connect_ms, stall_ms;
};

static void s3_close(struct mct_keyed *b)
{
	struct blob_s3 *s = (struct blob_s3 *)b;

	mc_web_close(s->web);
	free(s->keys);
	free(s->token);
	free(s);
}

/* ---- errors -------------------------------------------------------------------------------------- */

/* The text of <Code> in S3's error document, "" if there is none or it is no word. */
static void s3_error_code(const struct mc_web_call *c, char ret[64])
{
	const char *at = c->text ? strstr(c->text, "<Code>") : NULL;
	size_t n = at ? strcspn(at + 6, "<") : 0;

	snprintf(ret, 64, "%.*s", n < 64 ? (int)n : 0, at ? at + 6 : "");
	for (const char *p = ret; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr(".-_", *p))
			*ret = '\0';
}

static int s3_error_number(long status, const char *code)
{
	static const struct { const char *code; int err; } codes[] = {
		{ "NoSuchKey", -ENOENT }, { "InvalidRange", -ERANGE }, { "EntityTooLarge", -EMSGSIZE },
		{ "QuotaExceeded", -ENOSPC }, { "XMinioStorageFull", -ENOSPC }, { "InvalidAccessKeyId", -EACCES },
		{ "ExpiredToken", -EACCES }, { "InvalidToken", -EACCES }, { "RequestTimeout", -ETIMEDOUT },
		{ "SlowDown", -EAGAIN }, { "NotImplemented", -EOPNOTSUPP },
	};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (!strcasecmp(code, codes[i].code))
			return codes[i].err;
	switch (status) {
	case 401:
	case 403:
		return -EACCES;
	case 408:
		return -ETIMEDOUT;
	case 409:
	case 412:
		return -EEXIST;
	case 429:
	case 503:
		return -EAGAIN;
	case 501:
		return -EOPNOTSUPP;
	case 507:
		return -ENOSPC;
	default:
		/* 404 with another code: no such bucket, or this is no S3 server.  3xx: the bucket is in another
		 * region, or at another endpoint. */
		return status / 100 == 3 || status / 100 == 4 ? -EINVAL : -EIO;
	}
}

static const char *s3_advice(long status, const char *code)
{
	if (status / 100 == 3)
		return " (check the endpoint and the region)";
	if (!strcmp(code, "NoSuchBucket"))
		return " (create the bucket, or name another one)";
	return s3_error_number(status, code) == -EACCES ? " (check the keys and their permissions)" : "";
}

static int s3_error(const struct blob_s3 *s, const char *name, const struct mc_web_call *c)
{
	char code[64];

	s3_error_code(c, code);
	return mc_fail(s3_error_number(c->status, code), "%s: HTTP status %ld%s%s for %s%s", s->base.where, c->status,
		       *code ? " " : "", code, *name ? name : "a list", s3_advice(c->status, code));
}

/* May the same request succeed soon? */
static bool s3_may_pass(int r, const struct mc_web_call *c)
{
	if (r < 0)
		return r != -ENOMEM && r != -EINVAL && r != -EMSGSIZE && r != -ECANCELED;
	return c->status == 408 || c->status == 429 || (c->status / 100 == 5 && c->status != 501 && c->status != 507);
}

/* ---- requests ------------------------------------------------------------------------------------ */

/* @name: for messages.  0: the status is 2xx, and the caller frees c->text. */
static int s3_run(struct blob_s3 *s, const char *name, struct mc_web_call *c)
{
	uint64_t limit = s->base.limit_ms ? mc_deadline_ms(s->base.limit_ms) : UINT64_MAX, one;
	auto_free char *why = NULL;
	int r;

	c->cancel = s->base.cancel;
	c->sign = s->sign;
	c->keys = s->keys;
	c->header = s->token;
	c->keep = true;
	c->connect_ms = s->connect_ms;
	c->stall_ms = s->stall_ms;
	for (unsigned i = 1, pause_ms = PAUSE_MS;; i++, pause_ms *= 3) {
		one = mc_deadline_ms(ATTEMPT_MS);
		c->deadline = one < limit ? one : limit;
		r = mc_web_run(s->web, c);
		if (r == 0 && c->status / 100 == 2)
			return 0;
		if (i == ATTEMPTS || !s3_may_pass(r, c) || mc_deadline_ms(pause_ms) >= limit)
			break;
		free(c->text);
		mc_sleep_ms(pause_ms);
	}
	if (r == 0) {
		r = s3_error(s, name, c);
	} else {
		/* The detail names the host; mc_fail() overwrites it. */
		why = strdup(mc_err_detail(r));
		r = mc_fail(r, "%s: %s", s->base.where, why ? why : mc_strerror(r));
	}
	free(c->text);
	c->text = NULL;
	return r;
}

static int s3_url(const struct blob_s3 *s, const char *name, char ret[URL_MAX])
{
	return snprintf(ret, URL_MAX, "%s%s", s->url, name) < URL_MAX ? 0 : mc_fail(-EINVAL, "the URL is too long");
}

/* @condition: a header line, NULL: none. */
static int s3_put_if(struct mct_keyed *b, const char *name, const void *data, size_t len, const char *condition)
{
	char url[URL_MAX];
	struct mc_web_call c = {
		.method = "PUT", .url = url, .body = len ? data : "", .body_len = len,
		.type = "application/octet-stream", .condition = condition,
	};
	int r = s3_url((struct blob_s3 *)b, name, url);

	if (r == 0)
		r = s3_run((struct blob_s3 *)b, name, &c);
	free(c.text);
	return r;
}

static int s3_put(struct mct_keyed *b, const char *name, const void *data, size_t len)
{
	return s3_put_if(b, name, data, len, NULL);
}

static int s3_get_tagged(struct mct_keyed *b, const char *name, void **ret, size_t *ret_len, char tag[MC_WEB_TAG_MAX])
{
	char url[URL_MAX];
	struct mc_web_call c = { .method = "GET", .url = url };
	int r = s3_url((struct blob_s3 *)b, name, url);

	if (r == 0)
		r = s3_run((struct blob_s3 *)b, name, &c);
	if (r == -EMSGSIZE)
		return mc_fail(r, "%s: %s has more than %u bytes", b->where, name, MCT_KEYED_MAX);
	if (r < 0)
		return r;
	if (!c.text)
		c.text = calloc(1, 1);
	if (!c.text)
		return mc_fail(-ENOMEM, "no memory for %s", name);
	*ret = c.text;
	*ret_len = c.len;
	memcpy(tag, c.tag, sizeof(c.tag));
	return 0;
}

static int s3_get(struct mct_keyed *b, const char *name, void **ret, size_t *ret_len)
{
	char tag[MC_WEB_TAG_MAX];

	return s3_get_tagged(b, name, ret, ret_len, tag);
}

/* Again after a conflict: an attempt whose answer was lost may have stored the bytes. */
static int s3_swap(struct mct_keyed *b, const char *name, const void *was, size_t was_len, const void *data, size_t len)
{
	char tag[MC_WEB_TAG_MAX], condition[MC_WEB_TAG_MAX + 16];
	int r = -EEXIST;

	for (unsigned i = 0; i < ATTEMPTS && r == -EEXIST; i++) {
		auto_free void *now = NULL;
		size_t now_len = 0;

		*tag = '\0';
		r = s3_get_tagged(b, name, &now, &now_len, tag);
		if (r < 0 && r != -ENOENT)
			return r;
		r = mct_blob_swap_check(b->where, name, now, now_len, was, was_len, data, len);
		if (r <= 0)
			return r;
		snprintf(condition, sizeof(condition), "%s%s", now ? "If-Match: " : "If-None-Match: *", tag);
		r = s3_put_if(b, name, data, len, now && !*tag ? NULL : condition);
		if (r == -EOPNOTSUPP)
			r = s3_put(b, name, data, len);
	}
	return r;
}

static int s3_get_part(struct mct_keyed *b, const char *name, uint64_t off, void *buf, size_t len)
{
	char url[URL_MAX], range[64];
	struct mc_web_call c = { .method = "GET", .url = url, .range = range };
	int r = s3_url((struct blob_s3 *)b, name, url);

	snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)off, (unsigned long long)(off + len - 1));
	if (r == 0)
		r = s3_run((struct blob_s3 *)b, name, &c);
	/* A server may ignore the range. */
	if (r == 0 && c.status == 200 && c.len >= off + len)
		memcpy(buf, c.text + off, len);
	else if (r == 0 && c.status == 206 && c.len == len)
		memcpy(buf, c.text, len);
	else if (r == 0)
		r = mc_fail(-ERANGE, "%s: %s ends before byte %llu", b->where, name, (unsigned long long)(off + len));
	free(c.text);
	return r;
}

static int s3_del(struct mct_keyed *b, const char *name)
{
	char url[URL_MAX];
	struct mc_web_call c = { .method = "DELETE", .url = url };
	int r = s3_url((struct blob_s3 *)b, name, url);

	if (r == 0)
		r = s3_run((struct blob_s3 *)b, name, &c);
	free(c.text);
	return r == -ENOENT ? 0 : r;
}

/* ---- lists --------------------------------------------------------------------------------------- */

/* As the signature demands: all but the unreserved characters in capital hexadecimal digits.  -1: @size is too
 * small. */
static int s3_percent_encode(const char *text, char *ret, size_t size)
{
	size_t at = 0;

	for (; *text; text++) {
		if (at + 4 > size)
			return -1;
		if (isalnum((unsigned char)*text) || strchr("-._~", *text))
			ret[at++] = *text;
		else
			at += (size_t)snprintf(ret + at, size - at, "%%%02X", (unsigned char)*text);
	}
	ret[at] = '\0';
	return 0;
}

/* @token: of this page, NULL: the first.  *ret_next: of the next one, NULL: this was the last. */
static int s3_list_page(struct blob_s3 *s, const char *prefix, const char *token, mct_keyed_fn fn, void *arg,
			char **ret_next)
{
	char url[URL_MAX], encoded[3 * MCT_KEYED_NAME_MAX + 1], page[3 * MCT_S3_TOKEN_MAX + 1] = "";
	struct mc_web_call c = { .method = "GET", .url = url };
	int r;

	if (s3_percent_encode(prefix, encoded, sizeof(encoded)) < 0 ||
	    (token && s3_percent_encode(token, page, sizeof(page)) < 0))
		return mc_fail(-EINVAL, "%s: a name in a list is too long", s->base.where);
	/* The parameters in the order that the signature demands: libcurl 7.88 does not sort and encode them. */
	if (snprintf(url, sizeof(url), "%s?%s%s%slist-type=2&max-keys=" PAGE "&prefix=%s", s->url,
		     token ? "continuation-token=" : "", page, token ? "&" : "", encoded) >= URL_MAX)
		return mc_fail(-EINVAL, "the URL of a list is too long");
	r = s3_run(s, prefix, &c);
	if (r == 0)
		r = mct_s3_list_decode(c.text ? c.text : "", c.len, fn, arg, ret_next);
	free(c.text);
	return r == -EBADMSG ? mc_fail(-EIO, "%s: invalid answer to a list", s->base.where) : r;
}

static int s3_list(struct mct_keyed *b, const char *prefix, mct_keyed_fn fn, void *arg)
{
	struct blob_s3 *s = (struct blob_s3 *)b;
	auto_free char *token = NULL;
	char *next = NULL;
	int r = 0;

	for (unsigned i = 0; i < PAGES_MAX && r == 0 && (i == 0 || token); i++) {
		r = s3_list_page(s, prefix, token, fn, arg, &next);
		if (r == 0 && next && token && !strcmp(next, token)) {
			free(next);
			return mc_fail(-EIO, "%s: a list repeats a page", s->base.where);
		}
		free(token);
		token = TAKE_PTR(next);
	}
	return r == 0 && token ? mc_fail(-EMSGSIZE, "%s: a list has too many pages", s->base.where) : r;
}

/* ---- configuration ------------------------------------------------------------------------------- */

/* The names of a setting, the first that is set counts: today's, those of Alibaba's OSS, and older ones. */
enum setting { ENDPOINT, REGION, BUCKET, KEY_ID, SECRET, TOKEN, PATH_STYLE, SETTINGS };
static const char *const names[SETTINGS][3] = {
	[ENDPOINT] = { "MOONCAKE_S3_ENDPOINT", "MOONCAKE_OSS_ENDPOINT", "MOONCAKE_AWS_S3_ENDPOINT" },
	[REGION] = { "MOONCAKE_S3_REGION", "MOONCAKE_OSS_REGION", "MOONCAKE_AWS_REGION" },
	[BUCKET] = { "MOONCAKE_S3_BUCKET", "MOONCAKE_OSS_BUCKET", "MOONCAKE_AWS_BUCKET_NAME" },
	[KEY_ID] = { "MOONCAKE_S3_ACCESS_KEY_ID", "MOONCAKE_OSS_ACCESS_KEY_ID", "MOONCAKE_AWS_ACCESS_KEY_ID" },
	[SECRET] = { "MOONCAKE_S3_SECRET_ACCESS_KEY", "MOONCAKE_OSS_ACCESS_KEY_SECRET",
		     "MOONCAKE_AWS_SECRET_ACCESS_KEY" },
	[TOKEN] = { "MOONCAKE_S3_SESSION_TOKEN", "MOONCAKE_OSS_SECURITY_TOKEN" },
	[PATH_STYLE] = { "MOONCAKE_S3_PATH_STYLE", "MOONCAKE_OSS_PATH_STYLE" },
};

/* The name that is set; NULL: none. */
static const char *s3_name(enum setting which)
{
	for (unsigned i = 0; i < 3 && names[which][i]; i++)
		if (mc_env_str(names[which][i]))
			return names[which][i];
	return NULL;
}

static const char *s3_setting(enum setting which, const char *def)
{
	const char *name = s3_name(which);

	return name ? mc_env_str(name) : def;
}

/* "A, B or C" */
static const char *s3_names(enum setting which, char ret[200])
{
	const char *const *n = names[which];

	snprintf(ret, 200, n[2] ? "%s, %s or %s" : "%s or %s", n[0], n[1], n[2]);
	return ret;
}

static bool s3_path_style(const char *host, bool https, const char *bucket)
{
	if (s3_name(PATH_STYLE))
		return mc_env_on(s3_name(PATH_STYLE));
	if (mc_env_str("MOONCAKE_AWS_USE_VIRTUAL_ADDRESSING"))
		return !mc_env_on("MOONCAKE_AWS_USE_VIRTUAL_ADDRESSING");
	return !strcmp(host, "localhost") || !strncmp(host, "localhost:", 10) || *host == '[' ||
		strspn(host, "0123456789.:") == strlen(host) || (https && strchr(bucket, '.'));
}

/* Words that become parts of URLs and of the signature. */
static bool s3_is_word(const char *text, const char *more)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr(more, *text))
			return false;
	return true;
}

static int s3_set_url(struct blob_s3 *s, const char *region, const char *bucket)
{
	const char *where = s3_setting(ENDPOINT, NULL);
	bool https = !mc_env_str("MOONCAKE_AWS_USE_HTTPS") || mc_env_on("MOONCAKE_AWS_USE_HTTPS");
	const char *scheme, *host = where;
	char name[256], text[200];
	size_t len;
	int n;

	if (where && (!strncasecmp(where, "https://", 8) || !strncasecmp(where, "http://", 7))) {
		https = where[4] != ':';
		host = strchr(where, ':') + 3;
	}
	scheme = https ? "https" : "http";
	if (host)
		snprintf(name, sizeof(name), "%s", host);
	else
		snprintf(name, sizeof(name), "s3.%s.amazonaws.com", region);
	len = strlen(name);
	if (len && name[len - 1] == '/')
		name[len - 1] = '\0';
	/* Not in the message: the text may be a URL with a password. */
	if (!*name || (host && strlen(host) >= sizeof(name)) || !s3_is_word(name, ".-_:[]"))
		return mc_fail(-EINVAL, "%s is invalid: use HOST:PORT, or http:// or https:// before it, and no path",
			       s3_names(ENDPOINT, text));
	n = s3_path_style(name, https, bucket) ? snprintf(s->url, sizeof(s->url), "%s://%s/%s/", scheme, name, bucket) :
		snprintf(s->url, sizeof(s->url), "%s://%s.%s/", scheme, bucket, name);
	snprintf(s->base.where, sizeof(s->base.where), "S3 %s://%s, bucket %s", scheme, name, bucket);
	return n < (int)sizeof(s->url) ? 0 : mc_fail(-EINVAL, "the name of the bucket is too long");
}

static int s3_set_keys(struct blob_s3 *s)
{
	const char *id = s3_setting(KEY_ID, NULL), *secret = s3_setting(SECRET, NULL), *token = s3_setting(TOKEN, NULL);
	char text[200], more[200];

	if (!id)
		return mc_fail(-EINVAL, "S3 needs an access key in %s", s3_names(KEY_ID, text));
	if (!secret)
		return mc_fail(-EINVAL, "S3 needs a secret key in %s", s3_names(SECRET, text));
	/* libcurl separates the keys at the first colon, and a line end would begin another header line. */
	if (strpbrk(id, ":\r\n/, ") || (token && strpbrk(token, "\r\n")))
		return mc_fail(-EINVAL, "an access key or session token in %s; %s has an invalid character",
			       s3_names(KEY_ID, text), s3_names(TOKEN, more));
	if (asprintf(&s->keys, "%s:%s", id, secret) < 0) {
		s->keys = NULL;
		return mc_fail(-ENOMEM, "no memory for a store of snapshots");
	}
	if (token && asprintf(&s->token, "x-amz-security-token: %s", token) < 0) {
		s->token = NULL;
		return mc_fail(-ENOMEM, "no memory for a store of snapshots");
	}
	return 0;
}

static int s3_configure(struct blob_s3 *s, const char *bucket)
{
	const char *region = s3_setting(REGION, "us-east-1");
	char text[200];
	int r;

	if (!bucket)
		bucket = s3_setting(BUCKET, NULL);
	if (!bucket || !isalnum((unsigned char)*bucket) || !s3_is_word(bucket, ".-_"))
		return mc_fail(-EINVAL, "S3 needs the name of a bucket in %s", s3_names(BUCKET, text));
	if (!s3_is_word(region, "-_") || strlen(region) > 64)
		return mc_fail(-EINVAL, "%s is invalid: %.64s", s3_names(REGION, text), region);
	r = s3_set_keys(s);
	if (r < 0)
		return r;
	snprintf(s->sign, sizeof(s->sign), "aws:amz:%s:s3", region);
	s->connect_ms = (unsigned)mc_env_int("MOONCAKE_AWS_CONNECT_TIMEOUT_MS", 10000, 1, 3600000);
	s->stall_ms = (unsigned)mc_env_int("MOONCAKE_AWS_REQUEST_TIMEOUT_MS", 30000, 1, 3600000);
	return s3_set_url(s, region, bucket);
}

static int s3_open(const char *bucket, struct mct_keyed **ret)
{
	struct blob_s3 *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return mc_fail(-ENOMEM, "no memory for a store of snapshots");
	s->base.ops = &mct_blob_s3;
	r = s3_configure(s, bucket);
	if (r == 0)
		r = mc_web_open(&s->web);
	if (r < 0) {
		s3_close(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}

const struct mct_keyed_ops mct_blob_s3 = {
	.name = "s3",
	.open = s3_open,
	.close = s3_close,
	.put = s3_put,
	.get = s3_get,
	.get_part = s3_get_part,
	.swap = s3_swap,
	.del = s3_del,
	.list = s3_list,
};
