/* SPDX-License-Identifier: Apache-2.0
 * web.c - HTTP calls with libcurl.  A handle serves one call at a time; a few idle handles are kept with their
 * connections. */
#include <config.h>

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/net/web.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"

#define IDLE_MAX 16
/* At most this many name lookups may be abandoned in this time, after which the resolver has probably given up. */
#define ABANDONED_MAX 64
#define ABANDONED_NS (60 * MC_NS_PER_SEC)

struct mc_web {
	struct mc_mutex lock;
	uint64_t abandoned[ABANDONED_MAX];	/* times of abandoned lookups, a ring; 0: unused */
	unsigned nabandoned;
	CURL *idle[IDLE_MAX];
	unsigned nidle;
	bool proxy;				/* as the environment says; constant */
	char *ca, *cert, *key;			/* see mc_web_set_tls(); constant */
};

static void curl_once(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

int mc_web_open(struct mc_web **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct mc_web *web = calloc(1, sizeof(*web));

	if (!web)
		return mc_fail(-ENOMEM, "no memory for an HTTP client");
	pthread_once(&once, curl_once);
	mc_mutex_init(&web->lock);
	web->proxy = mc_env_on("MC_METADATA_USE_PROXY");
	*ret = web;
	return 0;
}

void mc_web_close(struct mc_web *web)
{
	if (!web)
		return;
	while (web->nidle)
		curl_easy_cleanup(web->idle[--web->nidle]);
	mc_mutex_destroy(&web->lock);
	free(web->ca);
	free(web->cert);
	free(web->key);
	free(web);
}

int mc_web_set_tls(struct mc_web *web, const char *ca, const char *cert, const char *key)
{
	web->ca = ca ? strdup(ca) : NULL;
	web->cert = cert ? strdup(cert) : NULL;
	web->key = key ? strdup(key) : NULL;
	return (ca && !web->ca) || (cert && !web->cert) || (key && !web->key) ?
		mc_fail(-ENOMEM, "no memory for an HTTP client") : 0;
}

static CURL *handle_get(struct mc_web *web)
{
	CURL *h = NULL;

	mc_mutex_lock(&web->lock);
	if (web->nidle)
		h = web->idle[--web->nidle];
	mc_mutex_unlock(&web->lock);
	return h ? h : curl_easy_init();
}

static void handle_put(struct mc_web *web, CURL *h)
{
	curl_easy_reset(h);
	mc_mutex_lock(&web->lock);
	if (web->nidle < IDLE_MAX) {
		web->idle[web->nidle++] = h;
		h = NULL;
	}
	mc_mutex_unlock(&web->lock);
	curl_easy_cleanup(h);
}

static size_t web_on_data(char *p, size_t one, size_t n, void *arg)
{
	struct mc_web_call *c = arg;
	char *text;

	if (n > MC_WEB_TEXT_MAX - c->len)
		return 0;
	/* A blob has thousands of pieces: do not copy the text for each. */
	if (c->len + n >= c->room) {
		size_t room = c->len + n + 1 > 2 * c->room ? c->len + n + 1 : 2 * c->room;

		text = realloc(c->text, room);
		if (!text)
			return 0;
		c->text = text;
		c->room = room;
	}
	memcpy(c->text + c->len, p, n);
	c->len += n;
	c->text[c->len] = '\0';
	return n;
}

static int web_on_progress(void *arg, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
			   curl_off_t up)
{
	struct mc_web_call *c = arg;
	uint64_t moved = (uint64_t)up + (uint64_t)down;

	if (c->stall_ms && moved != c->moved) {
		c->moved = moved;
		c->stall_at = mc_deadline_ms(c->stall_ms);
	}
	return (c->stall_ms && mc_now_ns() > c->stall_at) || (c->cancel && atomic_load(c->cancel));
}

/* The connection is open, and the request follows. */
static int web_on_request(void *arg, char *to, char *from, int to_port, int from_port)
{
	struct mc_web_call *c = arg;

	c->stall_at = mc_deadline_ms(c->stall_ms);
	return CURL_PREREQFUNC_OK;
}

static long web_left_ms(uint64_t deadline)
{
	int ms = mc_deadline_left_ms(deadline);

	/* 0 means no limit to libcurl. */
	return ms > 0 ? ms : 1;
}

/* Name servers that do not answer block libcurl's resolver thread for half a minute, and the call waits
 * for that thread unless it may abandon it.  The number of abandoned threads is limited; calls above
 * the limit wait. */
static void web_set_quick_exit(struct mc_web *web, CURL *h)
{
#if LIBCURL_VERSION_NUM >= 0x075700
	uint64_t oldest;

	mc_mutex_lock(&web->lock);
	oldest = web->abandoned[web->nabandoned % ABANDONED_MAX];
	mc_mutex_unlock(&web->lock);
	curl_easy_setopt(h, CURLOPT_QUICK_EXIT, !oldest || mc_now_ns() - oldest > ABANDONED_NS ? 1L : 0L);
#endif
}

static void web_note_abandoned(struct mc_web *web, CURL *h, CURLcode code)
{
	curl_off_t lookup_us = 0;

	curl_easy_getinfo(h, CURLINFO_NAMELOOKUP_TIME_T, &lookup_us);
	if (lookup_us || (code != CURLE_OPERATION_TIMEDOUT && code != CURLE_ABORTED_BY_CALLBACK))
		return;
	mc_mutex_lock(&web->lock);
	web->abandoned[web->nabandoned++ % ABANDONED_MAX] = mc_now_ns();
	mc_mutex_unlock(&web->lock);
}

static void web_set_call(CURL *h, struct mc_web_call *c, struct curl_slist *headers)
{
	long connect_ms = web_left_ms(c->deadline);

	if (c->connect_ms && c->connect_ms < connect_ms)
		connect_ms = c->connect_ms;
	c->moved = 0;
	c->stall_at = mc_deadline_ms(connect_ms + c->stall_ms);
	curl_easy_setopt(h, CURLOPT_URL, c->url);
	curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, c->method);
	curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(h, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, web_left_ms(c->deadline));
	curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, connect_ms);
	curl_easy_setopt(h, CURLOPT_FORBID_REUSE, c->keep ? 0L : 1L);
	curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, web_on_data);
	curl_easy_setopt(h, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, web_on_progress);
	curl_easy_setopt(h, CURLOPT_XFERINFODATA, c);
	curl_easy_setopt(h, CURLOPT_PREREQFUNCTION, web_on_request);
	curl_easy_setopt(h, CURLOPT_PREREQDATA, c);
	curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
	if (c->range)
		curl_easy_setopt(h, CURLOPT_RANGE, c->range);
	if (c->sign) {
		curl_easy_setopt(h, CURLOPT_AWS_SIGV4, c->sign);
		curl_easy_setopt(h, CURLOPT_USERPWD, c->keys);
	}
	if (c->body) {
		size_t len = c->body_len ? c->body_len : strlen(c->body);

		curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
		curl_easy_setopt(h, CURLOPT_POSTFIELDS, c->body);
	}
}

static void web_set_tls(const struct mc_web *web, CURL *h)
{
	curl_easy_setopt(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (web->ca) {
		curl_easy_setopt(h, CURLOPT_CAINFO, web->ca);
		/* Else the system's authorities are trusted too. */
		curl_easy_setopt(h, CURLOPT_CAPATH, NULL);
	}
	if (web->cert)
		curl_easy_setopt(h, CURLOPT_SSLCERT, web->cert);
	if (web->key) {
		curl_easy_setopt(h, CURLOPT_SSLKEY, web->key);
		/* Else OpenSSL asks at the terminal for the passphrase of an encrypted key. */
		curl_easy_setopt(h, CURLOPT_KEYPASSWD, "");
	}
}

static int web_error(CURL *h, CURLcode code)
{
	long os = 0;

	switch (code) {
	case CURLE_COULDNT_CONNECT:
		curl_easy_getinfo(h, CURLINFO_OS_ERRNO, &os);
		return os ? (int)-os : -ECONNREFUSED;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	case CURLE_ABORTED_BY_CALLBACK:
		return -ECANCELED;
	case CURLE_WRITE_ERROR:
		return -EMSGSIZE;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
		return -EINVAL;
	case CURLE_GOT_NOTHING:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_PARTIAL_FILE:
		return -ECONNRESET;
	default:
		return -EIO;
	}
}

/* "http://host:port" of a URL, for messages: without password and query. */
static void web_server_name(const char *url, char *buf, size_t len)
{
	const char *sep = strstr(url, "://"), *host = sep ? sep + 3 : url;
	size_t n = strcspn(host, "/?#");
	const char *at = memrchr(host, '@', n);

	if (at)
		n -= (size_t)(at + 1 - host);
	snprintf(buf, len, "%.*s%.*s", (int)(host - url), url, (int)n, at ? at + 1 : host);
}

/* NULL: no memory. */
static struct curl_slist *web_headers(const struct mc_web_call *c)
{
	const char *line[5];
	struct curl_slist *headers = NULL, *more;
	char type[128];
	unsigned n = 0;

	/* Disable "Expect: 100-continue", which costs a round trip or a second.  libcurl 7.88 would sign this line,
	 * which it does not send, and the server may refuse the signature. */
	if (!c->sign)
		line[n++] = "Expect:";
	snprintf(type, sizeof(type), "Content-Type: %s", c->type ? c->type : "application/json");
	if (c->body)
		line[n++] = type;
	if (c->header)
		line[n++] = c->header;
	if (c->condition)
		line[n++] = c->condition;
	/* S3 requires this line, and libcurl 7.88 does not make it.  The project has no library for SHA-256; TLS
	 * protects the bytes, and callers compare checksums of their own. */
	if (c->sign)
		line[n++] = "x-amz-content-sha256: UNSIGNED-PAYLOAD";
	for (unsigned i = 0; i < n; i++) {
		more = curl_slist_append(headers, line[i]);
		if (!more) {
			curl_slist_free_all(headers);
			return NULL;
		}
		headers = more;
	}
	return headers;
}

static void web_take_tag(CURL *h, struct mc_web_call *c)
{
	struct curl_header *tag;

	if (curl_easy_header(h, "ETag", 0, CURLH_HEADER, -1, &tag) == CURLHE_OK && strlen(tag->value) < sizeof(c->tag))
		snprintf(c->tag, sizeof(c->tag), "%s", tag->value);
}

int mc_web_run(struct mc_web *web, struct mc_web_call *c)
{
	struct curl_slist *headers;
	char why[CURL_ERROR_SIZE] = "";
	char server[128];
	CURLcode code;
	CURL *h;
	int r;

	c->text = NULL;
	c->len = c->room = 0;
	c->tag[0] = '\0';
	web_server_name(c->url, server, sizeof(server));
	if (c->cancel && atomic_load(c->cancel))
		return mc_fail(-ECANCELED, "%s: stopped", server);
	if (mc_deadline_left_ms(c->deadline) == 0)
		return mc_fail(-ETIMEDOUT, "%s: no answer in time", server);
	headers = web_headers(c);
	h = headers ? handle_get(web) : NULL;
	if (!h) {
		curl_slist_free_all(headers);
		return mc_fail(-ENOMEM, "no memory for an HTTP call");
	}
	web_set_call(h, c, headers);
	web_set_tls(web, h);
	web_set_quick_exit(web, h);
	/* Descriptors hold addresses and keys of memory, which no proxy needs to see. */
	if (!web->proxy)
		curl_easy_setopt(h, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(h, CURLOPT_ERRORBUFFER, why);
	code = curl_easy_perform(h);
	web_note_abandoned(web, h, code);
	r = code == CURLE_OK ? 0 : web_error(h, code);
	if (r == -ECANCELED && c->stall_ms && mc_now_ns() > c->stall_at) {
		r = -ETIMEDOUT;
		snprintf(why, sizeof(why), "timed out: no progress in %u ms", c->stall_ms);
	}
	curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &c->status);
	web_take_tag(h, c);
	handle_put(web, h);
	curl_slist_free_all(headers);
	if (r < 0)
		return mc_fail(r, "%s: %s", server, *why ? why : curl_easy_strerror(code));
	return 0;
}

const char *mc_web_status_line(const struct mc_web_call *c, char *buf, size_t len)
{
	size_t n = c->text ? strcspn(c->text, "\r\n") : 0;

	snprintf(buf, len, "HTTP status %ld%s%.*s", c->status, n ? ": " : "", n < 200 ? (int)n : 200,
		 n ? c->text : "");
	return buf;
}
