/* SPDX-License-Identifier: Apache-2.0
 * meta_i.h - what a kind of metadata server has to offer.  All functions may run on several threads at once. */
#ifndef MCE_META_I_H
#define MCE_META_I_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/meta/meta.h"

/* How long a call may take. */
struct mce_meta_wait {
	uint64_t deadline;
	const atomic_bool *cancel;	/* ends it early, within about a second; NULL: nobody does */
};

struct mce_meta_backend {
	const struct mce_meta_ops *ops;	/* first member of every implementation */
};

struct mce_meta_ops {
	const char *scheme;	/* "redis" of "redis://..." */
	/* @where: what stands behind "://", but for http all of it.  No network traffic.  Texts are kept by
	 * the server for @ttl_s seconds. */
	int (*open)(const char *where, unsigned ttl_s, struct mce_meta_backend **ret);
	void (*close)(struct mce_meta_backend *b);
	int (*get)(struct mce_meta_backend *b, const char *key, const struct mce_meta_wait *w,
		   char **ret_text);
	int (*put)(struct mce_meta_backend *b, const char *key, const char *text,
		   const struct mce_meta_wait *w);
	/* 0 also when it was not there. */
	int (*del)(struct mce_meta_backend *b, const char *key, const struct mce_meta_wait *w);
	/* The same of what this object has put, and of nothing else: @text, or the one before, @was (NULL: none).
	 * 0 also when another's text is there. */
	int (*take)(struct mce_meta_backend *b, const char *key, const char *text, const char *was,
		    const struct mce_meta_wait *w);
	/* Three times per TTL, before the keys' turn: 1 when all texts have to be put again, 0, negative. */
	int (*beat)(struct mce_meta_backend *b, const struct mce_meta_wait *w);
	/* Keep a text that was put for another TTL. */
	int (*refresh)(struct mce_meta_backend *b, const char *key, const char *text,
		       const struct mce_meta_wait *w);
};

extern const struct mce_meta_ops mce_meta_http, mce_meta_https, mce_meta_etcd, mce_meta_redis;

/* .take of servers that know texts but not whose they are: what is put between its two calls is lost until the next
 * refresh. */
int mce_meta_take_text(struct mce_meta_backend *b, const char *key, const char *text, const char *was,
		       const struct mce_meta_wait *w);

/* Has the other side been asked to stop, or is it too late?  0, -ECANCELED, -ETIMEDOUT. */
int mce_meta_waited(const struct mce_meta_wait *w, const char *server);

/* ---- HTTP, by libcurl -------------------------------------------------------------------------- */

struct mce_web;

struct mce_web_call {
	const char *method, *url;
	const char *body;	/* NULL: none */
	const char *type;	/* of the body; NULL: application/json */
	const char *header;	/* one more line, NULL: none */
	bool keep;		/* leave the connection open for the next call */
	struct mce_meta_wait wait;
	/* the answer */
	long status;
	char *text;		/* malloc'ed, NUL-terminated, at most MCE_META_TEXT_MAX bytes; NULL when empty */
	size_t len;
};

int mce_web_open(struct mce_web **ret);
void mce_web_close(struct mce_web *web);
/* 0 when there was an answer, whatever its status.  Free c->text in any case. */
int mce_web_run(struct mce_web *web, struct mce_web_call *c);
/* First line of an answer for an error's detail, cut to @len. */
const char *mce_web_said(const struct mce_web_call *c, char *buf, size_t len);

/* ---- base64, as etcd's gateway wants it -------------------------------------------------------- */

char *mce_base64_encode(const void *p, size_t len);	/* malloc'ed; NULL: no memory */
/* *ret is malloc'ed and has a NUL behind its *ret_len bytes.  -EINVAL. */
int mce_base64_decode(const char *text, char **ret, size_t *ret_len);

/* ---- pure parts, for the fuzzers --------------------------------------------------------------- */

int mce_etcd_range_decode(const char *text, size_t len, char **ret_text, int64_t *ret_lease);
int mce_etcd_grant_decode(const char *text, size_t len, int64_t *ret_id);
int mce_etcd_token_decode(const char *text, size_t len, char **ret_token);
int mce_etcd_keepalive_decode(const char *text, size_t len, int64_t *ret_ttl);

#endif
