/* SPDX-License-Identifier: Apache-2.0
 * httpd.c - HTTP server: libmicrohttpd with a table of routes. */
#include <config.h>

#include "common/net/httpd_i.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/list.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/net/socket.h"

/* libmicrohttpd renamed its constant for this. */
#define HTTP_TOO_LARGE 413
#define CONNECTIONS_MAX 256
#define CONNECTION_MEMORY 65536		/* bytes for headers */
#define IDLE_SEC 30
#define CROWD (CONNECTIONS_MAX * 3 / 4)	/* above this a new connection closes the slowest one */
#define ANSWERS_MAX (256ull << 20)	/* bytes of all responses that clients have not taken yet */
#define BODIES_MAX (256ull << 20)	/* bytes of memory for all request bodies */
/* A body up to this size is received even beyond that limit: all connections together have few such bytes, and clients
 * with large bodies must not keep out the small requests of others. */
#define BODY_SMALL 65536u
#define PIECE 32768u			/* bytes of a response passed to the library at once */
/* The body of a request that gets an error is read to its end, up to this many bytes, so that the
 * client reads the response. */
#define SWALLOW_MAX (1u << 20)
#define TLS_VERSIONS "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"	/* GnuTLS's words */
#define LOG_LEN 256			/* bytes of a message of the library */
#define REFUSAL_LOG_MS 1000u		/* at most one line about refused tokens in this time */

MC_COUNTER(crowded_out, "mooncake_http_connections_given_up_total", "",
	   "HTTP connections closed to make room for new ones")
MC_COUNTER(too_much, "mooncake_http_answers_refused_total", "",
	   "Requests answered with 503 because too many bytes of requests or responses were in memory")
MC_COUNTER(unauthorized, "mooncake_http_unauthorized_total", "",
	   "HTTP requests without a valid token for routes that need one")

struct mc_httpd {
	struct MHD_Daemon *daemon;
	struct mc_httpd_security security;	/* without its strings */
	struct mc_httpd_files files;
	atomic_ullong log_ms;		/* a line about a refused token may be logged from then on */
	const struct mc_http_route *routes;
	size_t max_body;
	void *arg;
	atomic_ullong held;		/* bytes of responses in memory */
	atomic_ullong receiving;	/* bytes of memory for request bodies */
	/* guarded by lock, a leaf */
	struct mc_mutex lock;
	struct mc_list conns;		/* first: the one without progress for the longest time */
	unsigned n_conns;
};

/* A connection; not in the list after it was shut down. */
struct peer {
	struct mc_list link;
	int fd;
	char name[MC_ADDR_MAX];	/* its address; constant */
};

/* A request while its body is received. */
struct exchange {
	const struct mc_http_route *route;
	struct mc_principal principal;
	int error;		/* status of the response if the route must not be called */
	char *body;
	size_t len, size, swallowed;
};

/* ---- connections: many idle ones must not keep out a new one ---- */

/* The connection has made progress. */
static void peer_progress(struct mc_httpd *h, struct peer *p)
{
	if (!p)
		return;
	MC_LOCKED(&h->lock);
	if (mc_list_empty(&p->link))
		return;
	mc_list_remove(&p->link);
	mc_list_push_back(&h->conns, &p->link);
}

static struct peer *peer_of(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static const char *peer_name(struct MHD_Connection *conn)
{
	const struct peer *p = peer_of(conn);

	return p ? p->name : "unknown";
}

static void peer_leave(struct mc_httpd *h, struct peer *p)
{
	if (!mc_list_empty(&p->link))
		h->n_conns--;
	mc_list_remove(&p->link);
}

static void peer_arrive(struct mc_httpd *h, struct MHD_Connection *conn, void **ret)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct peer *p = info ? calloc(1, sizeof(*p)) : NULL, *slowest;

	if (!p)
		return;
	p->fd = info->connect_fd;
	(void)mc_socket_peer(p->fd, p->name);
	*ret = p;
	MC_LOCKED(&h->lock);
	mc_list_push_back(&h->conns, &p->link);
	if (++h->n_conns <= CROWD)
		return;
	/* The library's thread of that connection notices the end and closes it. */
	slowest = mc_list_first(&h->conns, struct peer, link);
	peer_leave(h, slowest);
	(void)shutdown(slowest->fd, SHUT_RDWR);
	mc_metric_add(&crowded_out, 1);
}

/* CLOSED is notified before the descriptor is closed. */
static void on_connection(void *arg, struct MHD_Connection *conn, void **socket_context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct mc_httpd *h = arg;
	struct peer *p = *socket_context;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		peer_arrive(h, conn, socket_context);
	} else if (p) {
		mc_mutex_lock(&h->lock);
		peer_leave(h, p);
		mc_mutex_unlock(&h->lock);
		free(p);
		*socket_context = NULL;
	}
}

/* ---- requests ---- */

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

const char *mc_http_header(const struct mc_http_request *rq, const char *name)
{
	return MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, name);
}

static bool method_fits(const struct mc_http_route *r, const char *method)
{
	if (!r->method)
		return true;
	/* libmicrohttpd omits the body of the response to HEAD. */
	return !strcmp(r->method, method) ||
	       (!strcmp(method, "HEAD") && !strcmp(r->method, "GET"));
}

static const struct mc_http_route *find_route(const struct mc_httpd *h, const char *path, const char *method,
					      int *ret_error)
{
	*ret_error = MHD_HTTP_NOT_FOUND;
	for (const struct mc_http_route *r = h->routes; r->path; r++) {
		if (strcmp(r->path, path))
			continue;
		*ret_error = MHD_HTTP_METHOD_NOT_ALLOWED;
		if (!method_fits(r, method))
			continue;
		*ret_error = 0;
		return r;
	}
	return NULL;
}

/* The request gets @status.  The reason is for the operator: a peer without a valid token learns nothing from it. */
static void exchange_refuse(struct mc_httpd *h, struct MHD_Connection *conn, const char *path, const char *method,
			    int status, const char *why, struct exchange *x)
{
	const struct mc_http_request rq = {
		.method = method, .path = path, .body = "", .conn = conn, .peer = peer_name(conn),
		.principal = x->principal, .status = status,
	};

	x->error = status;
	if (h->security.refused)
		h->security.refused(h->security.arg, &rq, why);
}

static void log_refusal(struct mc_httpd *h, const char *why)
{
	unsigned long long now = mc_now_ms(), due = atomic_load(&h->log_ms);

	mc_metric_add(&unauthorized, 1);
	if (now >= due && atomic_compare_exchange_strong(&h->log_ms, &due, now + REFUSAL_LOG_MS))
		mc_info("http", "refused a request: %s", why);
}

/* May the peer call the route that it asks for?  Sets route, principal and error of @x.  The token is first: the other
 * errors would tell a peer without one about paths. */
static void exchange_admit(struct mc_httpd *h, struct MHD_Connection *conn, const char *path, const char *method,
			   struct exchange *x)
{
	const struct mc_http_route *route = find_route(h, path, method, &x->error);
	bool open = route && route->roles & MC_OPEN;
	int r = 0;

	x->principal = mc_principal_of_peer(-1);
	if (h->security.tokens) {
		x->principal.roles = 0;
		if (!open)
			r = mc_httpd_identify(&h->security, MHD_lookup_connection_value(conn, MHD_HEADER_KIND,
					      MHD_HTTP_HEADER_AUTHORIZATION), &x->principal);
	}
	if (r < 0) {
		log_refusal(h, mc_err_detail(r));
		exchange_refuse(h, conn, path, method, MHD_HTTP_UNAUTHORIZED, mc_err_detail(r), x);
	} else if (route && !open && mc_principal_check(&x->principal, route->roles) < 0) {
		exchange_refuse(h, conn, path, method, MHD_HTTP_FORBIDDEN, mc_err_detail(-EACCES), x);
	} else {
		x->route = route;
	}
}

/* Refuse the request if a text parameter contains a NUL byte. */
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
		status == MHD_HTTP_UNAUTHORIZED ? "this needs a valid token: Authorization: Bearer TOKEN\n" :
		status == MHD_HTTP_FORBIDDEN ? "the role of the peer does not allow this\n" :
		status == MHD_HTTP_METHOD_NOT_ALLOWED ? "method not allowed\n" :
		status == HTTP_TOO_LARGE ? "body too large\n" :
		status == MHD_HTTP_SERVICE_UNAVAILABLE ? "too much is in memory, try again later\n" :
		"internal error\n";
	struct MHD_Response *resp;
	enum MHD_Result ok;

	resp = MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
					       MHD_RESPMEM_PERSISTENT);
	if (!resp)
		return MHD_NO;
	MHD_add_response_header(resp, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		add_allow(h, path, resp);
	if (status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(resp, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	ok = MHD_queue_response(conn, (unsigned)status, resp);
	MHD_destroy_response(resp);
	return ok;
}

/* A response that is being sent: bytes that the client has not taken yet, and the source of the rest. */
struct body {
	struct mc_httpd *h;
	struct peer *peer;
	char *text;
	size_t len, at;
	int (*more)(void *state, FILE *out);	/* NULL: there is no more */
	void (*done)(void *state);
	void *state;
};

static void body_free(void *arg)
{
	struct body *b = arg;

	atomic_fetch_sub(&b->h->held, b->len);
	if (b->done)
		b->done(b->state);
	free(b->text);
	free(b);
}

static int body_next(struct body *b)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out;
	int r;

	out = open_memstream(&text, &len);
	if (!out)
		return -ENOMEM;
	r = b->more(b->state, out);
	if (ferror(out))
		r = -ENOMEM;
	if (fclose(out))
		r = -ENOMEM;
	if (r <= 0)
		b->more = NULL;
	atomic_fetch_add(&b->h->held, len);
	atomic_fetch_sub(&b->h->held, b->len);
	free(b->text);
	b->text = text;
	b->len = len;
	b->at = 0;
	peer_progress(b->h, b->peer);
	return r;
}

static ssize_t on_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct body *b = arg;
	size_t n;

	while (b->at == b->len) {
		if (!b->more)
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (body_next(b) < 0)
			return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	n = b->len - b->at < max ? b->len - b->at : max;
	memcpy(buf, b->text + b->at, n);
	b->at += n;
	return (ssize_t)n;
}

/* Call the handler; negative: its response cannot be sent. */
static int body_write(struct body *b, const struct exchange *x, struct mc_http_request *rq)
{
	bool failed;

	rq->out = open_memstream(&b->text, &b->len);
	if (!rq->out)
		return -ENOMEM;
	x->route->handle(rq, b->h->arg);
	failed = ferror(rq->out);
	failed |= fclose(rq->out) != 0;
	b->more = rq->more;
	b->done = rq->done;
	b->state = rq->state;
	/* The limit does not apply to a single response. */
	if (atomic_fetch_add(&b->h->held, b->len) && atomic_load(&b->h->held) > ANSWERS_MAX)
		return -ENOBUFS;
	return failed ? -ENOMEM : 0;
}

static enum MHD_Result exchange_answer(struct mc_httpd *h, struct MHD_Connection *conn,
			      const char *path, const char *method, struct exchange *x)
{
	struct mc_http_request rq = {
		.method = method, .path = path, .body = x->body ? x->body : "",
		.body_len = x->len, .conn = conn, .peer = peer_name(conn), .principal = x->principal,
		.status = MHD_HTTP_OK, .content_type = "text/plain; charset=utf-8",
	};
	struct body *b = calloc(1, sizeof(*b));
	struct MHD_Response *resp;
	enum MHD_Result ok;
	int r;

	if (!b)
		return answer_error(h, conn, path, MHD_HTTP_INTERNAL_SERVER_ERROR);
	b->h = h;
	b->peer = peer_of(conn);
	peer_progress(h, b->peer);
	r = body_write(b, x, &rq);
	resp = r < 0 ? NULL : MHD_create_response_from_callback(b->more ? MHD_SIZE_UNKNOWN : b->len, PIECE,
								on_read, b, body_free);
	if (!resp) {
		body_free(b);
		if (r == -ENOBUFS)
			mc_metric_add(&too_much, 1);
		return answer_error(h, conn, path, r == -ENOBUFS ? MHD_HTTP_SERVICE_UNAVAILABLE :
				    MHD_HTTP_INTERNAL_SERVER_ERROR);
	}
	MHD_add_response_header(resp, MHD_HTTP_HEADER_CONTENT_TYPE, rq.content_type);
	ok = MHD_queue_response(conn, (unsigned)rq.status, resp);
	MHD_destroy_response(resp);
	return ok;
}

static bool bodies_are_full(struct mc_httpd *h, size_t more)
{
	return atomic_load(&h->receiving) + more > BODIES_MAX;
}

static void exchange_free_body(struct mc_httpd *h, struct exchange *x)
{
	free(x->body);
	atomic_fetch_sub(&h->receiving, x->size);
	x->body = NULL;
	x->len = x->size = 0;
}

/* Make room for a body of @need bytes; 0, or the status of the response. */
static int exchange_grow(struct mc_httpd *h, struct exchange *x, size_t need)
{
	size_t size = x->size * 2 > need ? x->size * 2 : need;
	char *body;

	if (size > h->max_body + 1)
		size = h->max_body + 1;
	if (need > BODY_SMALL && bodies_are_full(h, size - x->size)) {
		mc_metric_add(&too_much, 1);
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	}
	body = realloc(x->body, size);
	if (!body)
		return MHD_HTTP_INTERNAL_SERVER_ERROR;
	atomic_fetch_add(&h->receiving, size - x->size);
	x->body = body;
	x->size = size;
	return 0;
}

static void exchange_take_body(struct mc_httpd *h, struct exchange *x, const char *data, size_t len)
{
	if (!x->error && len > h->max_body - x->len)
		x->error = HTTP_TOO_LARGE;
	if (!x->error && x->len + len + 1 > x->size)
		x->error = exchange_grow(h, x, x->len + len + 1);
	if (x->error) {
		exchange_free_body(h, x);
		x->swallowed += len;
		return;
	}
	memcpy(x->body + x->len, data, len);
	x->len += len;
	x->body[x->len] = '\0';
}

/* A body whose announced length is too large is refused unread: the status; 0: receive it. */
static int exchange_refuse_body(struct mc_httpd *h, struct MHD_Connection *conn, const struct exchange *x)
{
	const char *length = MHD_lookup_connection_value(conn, MHD_HEADER_KIND,
							 MHD_HTTP_HEADER_CONTENT_LENGTH);
	unsigned long long len = length ? strtoull(length, NULL, 10) : 0;

	if (len > h->max_body)
		return x->error == MHD_HTTP_UNAUTHORIZED ? x->error : HTTP_TOO_LARGE;
	if (x->error || len <= BODY_SMALL || !bodies_are_full(h, len))
		return 0;
	mc_metric_add(&too_much, 1);
	return MHD_HTTP_SERVICE_UNAVAILABLE;
}

/* The headers have been received. */
static enum MHD_Result exchange_begin(struct mc_httpd *h, struct MHD_Connection *conn,
			     const char *path, const char *method, void **state)
{
	struct exchange *x = calloc(1, sizeof(*x));
	int status;

	if (!x)
		return MHD_NO;
	exchange_admit(h, conn, path, method, x);
	status = exchange_refuse_body(h, conn, x);
	if (status) {
		free(x);
		return answer_error(h, conn, path, status);
	}
	if (x->route)
		MHD_get_connection_values_n(conn, MHD_GET_ARGUMENT_KIND, check_value, x);
	*state = x;
	return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *path,
				  const char *method, const char *version, const char *data,
				  size_t *data_len, void **state)
{
	struct mc_httpd *h = arg;
	struct exchange *x = *state;

	if (!x)
		return exchange_begin(h, conn, path, method, state);
	if (*data_len) {
		exchange_take_body(h, x, data, *data_len);
		*data_len = 0;
		return x->swallowed > SWALLOW_MAX ? MHD_NO : MHD_YES;
	}
	return x->error ? answer_error(h, conn, path, x->error) :
			  exchange_answer(h, conn, path, method, x);
}

static void on_end(void *arg, struct MHD_Connection *conn, void **state,
		   enum MHD_RequestTerminationCode why)
{
	struct exchange *x = *state;

	if (x)
		exchange_free_body(arg, x);
	free(x);
	*state = NULL;
	peer_progress(arg, peer_of(conn));
}

/* Gets the library's last message while this thread starts a server. */
static __thread char *start_log;

__attribute__((format(printf, 2, 0)))
static void on_log(void *arg, const char *fmt, va_list ap)
{
	char text[LOG_LEN];
	int n;

	n = vsnprintf(text, sizeof(text), fmt, ap);
	if (n > 0 && (size_t)n < sizeof(text) && text[n - 1] == '\n')
		text[n - 1] = '\0';
	if (start_log)
		memcpy(start_log, text, sizeof(text));
	mc_debug("http", "%s", text);
}

/* @why gets the library's reason for a failure. */
static struct MHD_Daemon *start_daemon(struct mc_httpd *h, int fd, unsigned threads, char why[LOG_LEN])
{
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_ERROR_LOG, n = 0;
	struct MHD_OptionItem more[5];
	struct MHD_Daemon *daemon;
	sigset_t all, old;

	/* libmicrohttpd does not accept a pool of one thread. */
	if (threads > 1)
		more[n++] = (struct MHD_OptionItem){ MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)threads, NULL };
	if (h->files.cert) {
		flags |= MHD_USE_TLS;
		more[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_CERT, 0, h->files.cert };
		more[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_KEY, 0, h->files.key };
		more[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_VERSIONS };
	}
	more[n] = (struct MHD_OptionItem){ MHD_OPTION_END, 0, NULL };
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	start_log = why;
	daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, h,
				  MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
				  MHD_OPTION_LISTEN_SOCKET, fd,
				  MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
				  MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SEC,
				  MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
				  MHD_OPTION_NOTIFY_COMPLETED, on_end, h,
				  MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
				  MHD_OPTION_ARRAY, more, MHD_OPTION_END);
	start_log = NULL;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return daemon;
}

static void free_server(struct mc_httpd *h)
{
	mc_httpd_files_free(&h->files);
	mc_mutex_destroy(&h->lock);
	free(h);
}

static int routes_check(const struct mc_http_route *routes)
{
	for (const struct mc_http_route *route = routes; route->path; route++)
		if (!route->roles)
			return mc_fail(-EINVAL, "no role may call %s", route->path);
	return 0;
}

static int use_security(struct mc_httpd *h, const struct mc_httpd_security *sec, const char *addr)
{
	int r = mc_httpd_files_read(sec, addr, &h->files);

	if (r == 0 && sec)
		h->security = (struct mc_httpd_security){
			.tokens = sec->tokens, .identify = sec->identify, .arg = sec->arg, .refused = sec->refused,
		};
	if (r == 0 && h->files.cert && MHD_is_feature_supported(MHD_FEATURE_SSL) != MHD_YES)
		r = mc_fail(-ENOTSUP, "this machine's libmicrohttpd was built without TLS, which http_tls_cert needs");
	return r;
}

static int listen_and_serve(struct mc_httpd *h, const char *addr, unsigned threads, int *ret_port)
{
	char bound[MC_ADDR_MAX], host[MC_ADDR_MAX], why[LOG_LEN] = "no reason is known";
	int fd = mc_socket_listen(addr, 128, 0, bound), r;

	if (fd < 0)
		return fd;
	r = mc_addr_split(bound, host, sizeof(host), 0, ret_port);
	if (r < 0)
		return r;
	h->daemon = start_daemon(h, fd, threads, why);
	/* libmicrohttpd may or may not have closed @fd, depending on the failure, so leave it open. */
	return h->daemon ? 0 : mc_fail(-EIO, "cannot start the HTTP server on %s: %s", addr, why);
}

int mc_httpd_start(const char *addr, unsigned threads, size_t max_body, const struct mc_http_route *routes, void *arg,
		   const struct mc_httpd_security *security, int *ret_port, struct mc_httpd **ret)
{
	int port, r = routes_check(routes);
	struct mc_httpd *h;

	if (r < 0)
		return r;
	h = calloc(1, sizeof(*h));
	if (!h)
		return mc_fail(-ENOMEM, "no memory for the HTTP server on %s", addr);
	h->routes = routes;
	h->max_body = max_body;
	h->arg = arg;
	mc_list_init(&h->conns);
	mc_mutex_init(&h->lock);
	r = use_security(h, security, addr);
	if (r == 0)
		r = listen_and_serve(h, addr, threads, &port);
	if (r < 0) {
		free_server(h);
		return r;
	}
	if (ret_port)
		*ret_port = port;
	*ret = h;
	return 0;
}

void mc_httpd_stop(struct mc_httpd *h)
{
	MHD_socket fd;

	if (!h)
		return;
	/* A forked child may have the socket too: without shutdown() it would go on to accept connections. */
	fd = MHD_quiesce_daemon(h->daemon);
	if (fd != MHD_INVALID_SOCKET)
		(void)shutdown(fd, SHUT_RDWR);
	MHD_stop_daemon(h->daemon);
	if (fd != MHD_INVALID_SOCKET)
		close(fd);
	free_server(h);
}

void mc_http_metrics(struct mc_http_request *rq, void *arg)
{
	/* Series may have the names of other tenants. */
	if (rq->principal.tenant[0]) {
		rq->status = MHD_HTTP_FORBIDDEN;
		fputs("metrics need a credential for all tenants, such as one of role metrics\n", rq->out);
		return;
	}
	rq->content_type = "text/plain; version=0.0.4; charset=utf-8";
	if (mc_metrics_print(rq->out) < 0)
		rq->status = MHD_HTTP_INTERNAL_SERVER_ERROR;
}
