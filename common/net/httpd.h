/* SPDX-License-Identifier: Apache-2.0
 * httpd.h - a small HTTP server (libmicrohttpd) of routes. */
#ifndef MC_HTTPD_H
#define MC_HTTPD_H

#include <stddef.h>
#include <stdio.h>

struct mc_httpd;

struct mc_http_request {
	const char *method, *path;
	const char *body;		/* borrowed for the call; body_len bytes and a NUL */
	size_t body_len;
	void *conn;			/* for mc_http_query() */
	/* the answer, set by the handler: */
	int status;			/* 200 unless changed */
	const char *content_type;	/* static; "text/plain; charset=utf-8" unless changed */
	FILE *out;			/* the handler writes the body here */
	/* A long body's rest, when @more is set: it is asked for the next part whenever the client has taken the one
	 * before, on a thread of the server, until it says 0: that was all, or a negative number: the answer is broken
	 * off.  @done gets @state at the end in any case. */
	int (*more)(void *state, FILE *out);
	void (*done)(void *state);
	void *state;
};

/* Value of ?name=, "" for a bare ?name, NULL when absent; borrowed for the call.  A NUL can be only in
 * what the route's @bytes names. */
const char *mc_http_query(const struct mc_http_request *rq, const char *name);
const char *mc_http_query_n(const struct mc_http_request *rq, const char *name, size_t *ret_len);

struct mc_http_route {
	/* exact; GET also serves HEAD; method NULL: whatever the path's rows above do not serve; path
	 * NULL: end of table */
	const char *method, *path;
	void (*handle)(struct mc_http_request *rq, void *arg);
	/* The parameter that may be any bytes and is read with its length, NULL: none.  A request with a
	 * NUL in any other one gets 400: as C strings they would mean something else. */
	const char *bytes;
};

/* Serve @routes (constant) on @addr ("host:port", port 0 = free port) with @threads threads until
 * mc_httpd_stop().  Bodies over @max_body bytes get 413, unknown paths 404, other methods 405, and what all
 * answers hold together is limited: 503.  Connections are limited and time out; when there are many, the one that
 * has brought no whole request, and taken no part of an answer, for the longest gives way.  Handlers run on several
 * threads at once.  *ret_port gets the real port. */
int mc_httpd_start(const char *addr, unsigned threads, size_t max_body,
		   const struct mc_http_route *routes, void *arg, int *ret_port,
		   struct mc_httpd **ret);
void mc_httpd_stop(struct mc_httpd *h);		/* waits for running handlers; NULL is fine */

/* Ready-made handlers: /metrics in Prometheus text. */
void mc_http_metrics(struct mc_http_request *rq, void *arg);

#endif
