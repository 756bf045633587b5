/* SPDX-License-Identifier: Apache-2.0
 * httpd.c - libmicrohttpd behind a table of routes. */
#include <config.h>

#include "common/httpd.h"

#include <errno.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/net.h"

/* libmicrohttpd renamed its own name for it. */
#define HTTP_TOO_LARGE 413
#define CONNECTIONS_MAX 256
#define CONNECTION_MEMORY 65536		/* headers */
#define IDLE_SEC 30
/* A body that gets an error anyway is read to its end so that the client sees the answer, unless
 * the end is too far away. */
#define SWALLOW_MAX (1u << 20)

struct mc_httpd {
	struct MHD_Daemon *daemon;
	const struct mc_http_route *routes;
	size_t max_body;
	void *arg;
};

/* A request while its body comes in. */
struct exchange {
	const struct mc_http_route *route;
	int error;		/* the status to answer with instead of calling the route */
	char *body;
	size_t len, size, swallowed;
};

const char *mc_http_query_n(const struct mc_http_request *rq, const char *name, size_t *ret_len)
{
	const char *value = NULL;
	size_t len = 0;

	if (MHD_lookup_connection_value_n(rq->conn, MHD_GET_ARGUMENT_KIND, name, strlen(name),
					  &value, &len) != MHD_YES)
		return NULL;
	*ret_len = value ? len : 0;
	return value ? value : "";
}

const char *mc_http_query(const struct mc_http_request *rq, const char *name)
{
	size_t len;

	return mc_http_query_n(rq, name, &len);
}

static bool method_fits(const struct mc_http_route *r, const char *method)
{
	if (!r->method)
		return true;
	/* libmicrohttpd leaves the body out of the answer to HEAD. */
	return !strcmp(r->method, method) ||
	       (!strcmp(method, "HEAD") && !strcmp(r->method, "GET"));
}

static void find_route(const struct mc_httpd *h, const char *path, const char *method,
		       struct exchange *x)
{
	x->error = MHD_HTTP_NOT_FOUND;
	for (const struct mc_http_route *r = h->routes; r->path; r++) {
		if (strcmp(r->path, path))
			continue;
		x->error = MHD_HTTP_METHOD_NOT_ALLOWED;
		if (method_fits(r, method)) {
			x->route = r;
			x->error = 0;
			return;
		}
	}
}

/* NUL bytes where text is meant are the end of the request. */
static enum MHD_Result check_value(void *arg, enum MHD_ValueKind kind, const char *name,
				   size_t name_len, const char *value, size_t len)
{
	struct exchange *x = arg;
	const char *bytes = x->route->bytes;

	if (!value || !memchr(value, 0, len) ||
	    (bytes && strlen(bytes) == name_len && !memcmp(bytes, name, name_len)))
		return MHD_YES;
	x->error = MHD_HTTP_BAD_REQUEST;
	return MHD_NO;
}

static void add_allow(const struct mc_httpd *h, const char *path, struct MHD_Response *resp)
{
	char allow[128] = "";
	size_t len = 0;

	for (const struct mc_http_route *r = h->routes; r->path; r++)
		if (!strcmp(r->path, path) && len < sizeof(allow))
			len += (size_t)snprintf(allow + len, sizeof(allow) - len, "%s%s",
						len ? ", " : "", r->method);
	MHD_add_response_header(resp, MHD_HTTP_HEADER_ALLOW, allow);
}

static enum MHD_Result answer_error(const struct mc_httpd *h, struct MHD_Connection *conn,
				    const char *path, int status)
{
	const char *text = status == MHD_HTTP_NOT_FOUND ? "not found\n" :
		status == MHD_HTTP_BAD_REQUEST ? "a parameter holds a NUL\n" :
		status == MHD_HTTP_METHOD_NOT_ALLOWED ? "method not allowed\n" :
		status == HTTP_TOO_LARGE ? "body too large\n" : "internal error\n";
	struct MHD_Response *resp;
	enum MHD_Result ok;

	resp = MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
					       MHD_RESPMEM_PERSISTENT);
	if (!resp)
		return MHD_NO;
	MHD_add_response_header(resp, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		add_allow(h, path, resp);
	ok = MHD_queue_response(conn, (unsigned)status, resp);
	MHD_destroy_response(resp);
	return ok;
}

static enum MHD_Result answer(const struct mc_httpd *h, struct MHD_Connection *conn,
			      const char *path, const char *method, struct exchange *x)
{
	struct mc_http_request rq = {
		.method = method, .path = path, .body = x->body ? x->body : "",
		.body_len = x->len, .conn = conn, .status = MHD_HTTP_OK,
		.content_type = "text/plain; charset=utf-8",
	};
	struct MHD_Response *resp;
	enum MHD_Result ok;
	char *text = NULL;
	size_t len = 0;
	bool failed;

	rq.out = open_memstream(&text, &len);
	if (!rq.out)
		return answer_error(h, conn, path, MHD_HTTP_INTERNAL_SERVER_ERROR);
	x->route->handle(&rq, h->arg);
	failed = ferror(rq.out);
	failed |= fclose(rq.out) != 0;
	resp = failed ? NULL : MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
	if (!resp) {
		free(text);
		return answer_error(h, conn, path, MHD_HTTP_INTERNAL_SERVER_ERROR);
	}
	MHD_add_response_header(resp, MHD_HTTP_HEADER_CONTENT_TYPE, rq.content_type);
	ok = MHD_queue_response(conn, (unsigned)rq.status, resp);
	MHD_destroy_response(resp);
	return ok;
}

static void take_body(const struct mc_httpd *h, struct exchange *x, const char *data, size_t len)
{
	size_t size;
	char *body;

	if (!x->error && len > h->max_body - x->len)
		x->error = HTTP_TOO_LARGE;
	if (!x->error && x->len + len + 1 > x->size) {
		size = x->size * 2 > x->len + len + 1 ? x->size * 2 : x->len + len + 1;
		body = realloc(x->body, size);
		if (body) {
			x->body = body;
			x->size = size;
		} else {
			x->error = MHD_HTTP_INTERNAL_SERVER_ERROR;
		}
	}
	if (x->error) {
		x->swallowed += len;
		return;
	}
	memcpy(x->body + x->len, data, len);
	x->len += len;
	x->body[x->len] = '\0';
}

/* The headers are in.  A body that announces itself as too large is refused unread. */
static enum MHD_Result begin(const struct mc_httpd *h, struct MHD_Connection *conn,
			     const char *path, const char *method, void **state)
{
	const char *length = MHD_lookup_connection_value(conn, MHD_HEADER_KIND,
							 MHD_HTTP_HEADER_CONTENT_LENGTH);
	struct exchange *x;

	if (length && strtoull(length, NULL, 10) > h->max_body)
		return answer_error(h, conn, path, HTTP_TOO_LARGE);
	x = calloc(1, sizeof(*x));
	if (!x)
		return MHD_NO;
	find_route(h, path, method, x);
	if (x->route)
		MHD_get_connection_values_n(conn, MHD_GET_ARGUMENT_KIND, check_value, x);
	*state = x;
	return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *path,
				  const char *method, const char *version, const char *data,
				  size_t *data_len, void **state)
{
	const struct mc_httpd *h = arg;
	struct exchange *x = *state;

	if (!x)
		return begin(h, conn, path, method, state);
	if (*data_len) {
		take_body(h, x, data, *data_len);
		*data_len = 0;
		return x->swallowed > SWALLOW_MAX ? MHD_NO : MHD_YES;
	}
	return x->error ? answer_error(h, conn, path, x->error) :
			  answer(h, conn, path, method, x);
}

static void on_end(void *arg, struct MHD_Connection *conn, void **state,
		   enum MHD_RequestTerminationCode why)
{
	struct exchange *x = *state;

	if (x)
		free(x->body);
	free(x);
	*state = NULL;
}

__attribute__((format(printf, 2, 0)))
static void on_log(void *arg, const char *fmt, va_list ap)
{
	char text[256];
	int n;

	n = vsnprintf(text, sizeof(text), fmt, ap);
	if (n > 0 && (size_t)n < sizeof(text) && text[n - 1] == '\n')
		text[n - 1] = '\0';
	mc_debug("http", "%s", text);
}

static struct MHD_Daemon *start_daemon(struct mc_httpd *h, int fd, unsigned threads)
{
	struct MHD_OptionItem pool[] = {
		{ MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)threads, NULL },
		{ MHD_OPTION_END, 0, NULL },
	};
	struct MHD_Daemon *daemon;
	sigset_t all, old;

	/* A pool of one is no pool to libmicrohttpd. */
	if (threads < 2)
		pool[0] = pool[1];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_ERROR_LOG,
				  0, NULL, NULL, on_request, h,
				  MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
				  MHD_OPTION_LISTEN_SOCKET, fd,
				  MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
				  MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SEC,
				  MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
				  MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL,
				  MHD_OPTION_ARRAY, pool, MHD_OPTION_END);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return daemon;
}

int mc_httpd_start(const char *addr, unsigned threads, size_t max_body,
		   const struct mc_http_route *routes, void *arg, int *ret_port,
		   struct mc_httpd **ret)
{
	char bound[MC_ADDR_MAX], host[MC_ADDR_MAX];
	struct mc_httpd *h;
	int fd, port, r;

	h = calloc(1, sizeof(*h));
	if (!h)
		return mc_fail(-ENOMEM, "no memory for the HTTP server on %s", addr);
	h->routes = routes;
	h->max_body = max_body;
	h->arg = arg;
	fd = mc_listen(addr, 128, 0, bound);
	if (fd < 0) {
		free(h);
		return fd;
	}
	r = mc_addr_split(bound, host, sizeof(host), 0, &port);
	h->daemon = r < 0 ? NULL : start_daemon(h, fd, threads);
	if (!h->daemon) {
		/* Whether libmicrohttpd has closed @fd depends on how far it got, so it stays. */
		free(h);
		return r < 0 ? r : mc_fail(-EIO, "cannot start the HTTP server on %s", addr);
	}
	if (ret_port)
		*ret_port = port;
	*ret = h;
	return 0;
}

void mc_httpd_stop(struct mc_httpd *h)
{
	if (!h)
		return;
	MHD_stop_daemon(h->daemon);
	free(h);
}

void mc_http_metrics(struct mc_http_request *rq, void *arg)
{
	rq->content_type = "text/plain; version=0.0.4; charset=utf-8";
	if (mc_metrics_print(rq->out) < 0)
		rq->status = MHD_HTTP_INTERNAL_SERVER_ERROR;
}
