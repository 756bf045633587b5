/* SPDX-License-Identifier: Apache-2.0
 * httpd.h - a small HTTP server (libmicrohttpd) with a table of routes. */
#ifndef MC_HTTPD_H
#define MC_HTTPD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/principal.h"

struct mc_httpd;

struct mc_http_request {
	const char *method, *path;
	const char *body;		/* borrowed for the call; body_len bytes and a NUL */
	size_t body_len;
	void *conn;			/* for mc_http_query() */
	const char *peer;		/* address with the port; borrowed for the call */
	struct mc_principal principal;
	/* the response, set by the handler: */
	int status;			/* 200 unless changed */
	const char *content_type;	/* static; "text/plain; charset=utf-8" unless changed */
	FILE *out;			/* the handler writes the body here */
	/* Optional, for long bodies: when the client has taken all written so far, a thread of the
	 * server calls @more to write the next part.  0: the body is complete; negative: abort the
	 * response.  @done is called with @state at the end in every case. */
	int (*more)(void *state, FILE *out);
	void (*done)(void *state);
	void *state;
};

/* Value of ?name=, "" for a bare ?name, NULL when absent; borrowed for the call.  Only the
 * parameter that the route's @bytes names can contain a NUL. */
const char *mc_http_query(const struct mc_http_request *rq, const char *name);
const char *mc_http_query_n(const struct mc_http_request *rq, const char *name, size_t *ret_len);

/* Value of a header of the request, NULL when absent; borrowed for the call. */
const char *mc_http_header(const struct mc_http_request *rq, const char *name);

struct mc_http_route {
	/* Exact matches; GET also serves HEAD.  method NULL: all methods that the rows above do not
	 * serve for this path.  path NULL: end of table. */
	const char *method, *path;
	void (*handle)(struct mc_http_request *rq, void *arg);
	/* The parameter that may contain any bytes and is read with its length; NULL: none.  A request with a
	 * NUL in another parameter gets 400, because the value would be cut as a C string. */
	const char *bytes;
	uint32_t roles;			/* MC_MAY_*: peers with one of them may call it, others get 403; not 0 */
};

/* Tokens, TLS, or both.  The strings are used during mc_httpd_start() only. */
struct mc_httpd_security {
	/* Requests for other routes than those of MC_MAY_ANYONE need the header "Authorization: Bearer TOKEN", and get
	 * 401 without a valid one, also where the path is unknown.  Such a server has TLS, or a loopback address. */
	bool tokens;
	/* The principal of @token, which is any text of a peer.  Negative, with a detail for the log: it is not valid;
	 * @ret names its holder only if the token was proved before.
	 * Called on the server's threads, several at the same time; while it waits, other requests do.  NULL: no token
	 * is valid. */
	int (*identify)(void *arg, const char *token, struct mc_principal *ret);
	void *arg;
	/* PEM files: the server's certificate, followed by those of its authorities, and its key, which only the
	 * owner may read.  NULL or "": no TLS.  A renewed file needs a new server. */
	const char *cert, *key;
	/* For records: the server answers @rq with 401 or 403 (rq->status) and calls no handler; @why: the reason, for
	 * the operator.  rq->principal: the peer if it is known, without roles if not.  No body, query or header of @rq
	 * may be used.  With @arg, on the server's threads.  NULL: nothing to do. */
	void (*refused)(void *arg, const struct mc_http_request *rq, const char *why);
};

/* Serve @routes (constant) on @addr ("host:port", port 0: a free one) with @threads threads until
 * mc_httpd_stop().  Handlers run on several threads at the same time.  *ret_port gets the real port.  Bodies
 * over @max_body bytes get 413, unknown paths 404, other methods 405; 503 when the responses in memory exceed a
 * limit, or when the bodies that are being received do (256 MiB; bodies up to 64 KiB are exempt).  Connections are
 * limited and time out.  When there are many, the connection that made no progress (a
 * complete request, or a part of a response taken) for the longest time is closed for a new one.
 * @security: NULL: no tokens and no TLS; each peer has all roles. */
int mc_httpd_start(const char *addr, unsigned threads, size_t max_body, const struct mc_http_route *routes, void *arg,
		   const struct mc_httpd_security *security, int *ret_port, struct mc_httpd **ret);
void mc_httpd_stop(struct mc_httpd *h);		/* waits for running handlers; NULL is fine */

/* Handler for /metrics: Prometheus text; 403 for a peer with a tenant. */
void mc_http_metrics(struct mc_http_request *rq, void *arg);

#endif
