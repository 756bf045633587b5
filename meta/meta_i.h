/* SPDX-License-Identifier: Apache-2.0
 * meta_i.h - what a kind of metadata server has to offer.  All functions may run on several threads at once. */
#ifndef MCD_META_I_H
#define MCD_META_I_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta.h"

/* How long a call may take. */
struct mcd_wait {
	uint64_t deadline;
	const atomic_bool *cancel;	/* ends it early, within about a second; NULL: nobody does */
};

struct mcd_backend {
	const struct mcd_ops *ops;	/* first member of every implementation */
};

struct mcd_ops {
	const char *scheme;	/* "redis" of "redis://..." */
	/* @where: what stands behind "://", but for http all of it.  No network traffic.  Texts are kept by
	 * the server for @ttl_s seconds. */
	int (*open)(const char *where, unsigned ttl_s, struct mcd_backend **ret);
	void (*close)(struct mcd_backend *b);
	int (*get)(struct mcd_backend *b, const char *key, const struct mcd_wait *w,
		   char **ret_text);
	int (*put)(struct mcd_backend *b, const char *key, const char *text,
		   const struct mcd_wait *w);
	/* 0 also when it was not there. */
	int (*del)(struct mcd_backend *b, const char *key, const struct mcd_wait *w);
	/* The same of what this object has put, and of nothing else: @text, or the one before, @was (NULL: none).
	 * 0 also when another's text is there. */
	int (*take)(struct mcd_backend *b, const char *key, const char *text, const char *was,
		    const struct mcd_wait *w);
	/* Three times per TTL, before the keys' turn: 1 when all texts have to be put again, 0, negative. */
	int (*beat)(struct mcd_backend *b, const struct mcd_wait *w);
	/* Keep a text that was put for another TTL. */
	int (*refresh)(struct mcd_backend *b, const char *key, const char *text,
		       const struct mcd_wait *w);
};

extern const struct mcd_ops mcd_http, mcd_https, mcd_etcd, mcd_redis;

/* .take of servers that know texts but not whose they are: what is put between its two calls is lost until the next
 * refresh. */
int mcd_take_text(struct mcd_backend *b, const char *key, const char *text, const char *was,
		       const struct mcd_wait *w);

/* Has the other side been asked to stop, or is it too late?  0, -ECANCELED, -ETIMEDOUT. */
int mcd_waited(const struct mcd_wait *w, const char *server);

/* ---- HTTP, by libcurl -------------------------------------------------------------------------- */

struct mcd_web;

struct mcd_web_call {
	const char *method, *url;
	const char *body;	/* NULL: none */
	const char *type;	/* of the body; NULL: application/json */
	const char *header;	/* one more line, NULL: none */
	bool keep;		/* leave the connection open for the next call */
	struct mcd_wait wait;
	/* the answer */
	long status;
	char *text;		/* malloc'ed, NUL-terminated, at most MCD_TEXT_MAX bytes; NULL when empty */
	size_t len;
};

int mcd_web_open(struct mcd_web **ret);
void mcd_web_close(struct mcd_web *web);
/* 0 when there was an answer, whatever its status.  Free c->text in any case. */
int mcd_web_run(struct mcd_web *web, struct mcd_web_call *c);
/* First line of an answer for an error's detail, cut to @len. */
const char *mcd_web_said(const struct mcd_web_call *c, char *buf, size_t len);

/* ---- base64, as etcd's gateway wants it -------------------------------------------------------- */

char *mcd_base64_encode(const void *p, size_t len);	/* malloc'ed; NULL: no memory */
/* *ret is malloc'ed and has a NUL behind its *ret_len bytes.  -EINVAL. */
int mcd_base64_decode(const char *text, char **ret, size_t *ret_len);

/* ---- pure parts, for the fuzzers --------------------------------------------------------------- */

int mcd_etcd_range_decode(const char *text, size_t len, char **ret_text, int64_t *ret_lease);
int mcd_etcd_grant_decode(const char *text, size_t len, int64_t *ret_id);
int mcd_etcd_token_decode(const char *text, size_t len, char **ret_token);
int mcd_etcd_keepalive_decode(const char *text, size_t len, int64_t *ret_ttl);

#endif
