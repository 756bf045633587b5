/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/net/httpd.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/net/socket.h"

#define MAX_BODY 5000

MC_COUNTER(seen, "test_http_requests_total", "", "Requests that a handler saw")

static struct mc_httpd *server;
static char addr[64];

static void on_echo(struct mc_http_request *rq, void *arg)
{
	const char *q = mc_http_query(rq, "q");

	mc_metric_add(&seen, 1);
	assert_int_equal(rq->body[rq->body_len], '\0');
	fprintf(rq->out, "%s %s q=%s arg=%s len=%zu:", rq->method, rq->path, q ? q : "-",
		(const char *)arg, rq->body_len);
	fwrite(rq->body, 1, rq->body_len, rq->out);
}

static void on_teapot(struct mc_http_request *rq, void *arg)
{
	rq->status = 418;
	rq->content_type = "application/json";
	fputs("{}", rq->out);
}

/* Prints parameters that may contain any bytes; each byte that is no letter becomes a dot. */
static void on_bytes(struct mc_http_request *rq, void *arg)
{
	size_t len = 0;
	const char *key = mc_http_query_n(rq, "key", &len), *q = mc_http_query(rq, "q");

	fprintf(rq->out, "key of %zu=", len);
	for (size_t i = 0; i < len; i++)
		fputc(key[i] >= 'a' && key[i] <= 'z' ? key[i] : '.', rq->out);
	fprintf(rq->out, " q=%s", q ? q : "-");
}

/* An answer of any length: parts of 100,000 bytes, every third one empty. */
static atomic_int parts_made, walks_ended;

static int next_part(void *state, FILE *out)
{
	int *left = state;

	parts_made++;
	for (int i = 0; *left % 3 && i < 10000; i++)
		fprintf(out, "%09d\n", *left);
	return --*left > 0 ? 1 : *left < -1 ? -EIO : 0;
}

static void walk_ends(void *state)
{
	walks_ended++;
	free(state);
}

static void on_long(struct mc_http_request *rq, void *arg)
{
	const char *n = mc_http_query(rq, "parts");
	int *left = malloc(sizeof(*left));

	assert_non_null(left);
	*left = atoi(n ? n : "0");
	fputs("first\n", rq->out);
	rq->more = next_part;
	rq->done = walk_ends;
	rq->state = left;
}

static void on_empty(struct mc_http_request *rq, void *arg)
{
}

#define LARGE (100u << 20)

static void on_large(struct mc_http_request *rq, void *arg)
{
	static char block[1 << 20];

	for (unsigned i = 0; i < LARGE / sizeof(block); i++)
		fwrite(block, 1, sizeof(block), rq->out);
}

static const struct mc_http_route routes[] = {
	{ "GET", "/echo", on_echo, NULL, MC_MAY_WATCH },
	{ "POST", "/echo", on_echo, NULL, MC_MAY_WATCH },
	{ "GET", "/teapot", on_teapot, NULL, MC_MAY_WATCH },
	{ "DELETE", "/empty", on_empty, NULL, MC_MAY_WATCH },
	{ "GET", "/bytes", on_bytes, "key", MC_MAY_WATCH },
	{ "GET", "/long", on_long, NULL, MC_MAY_WATCH },
	{ "GET", "/large", on_large, NULL, MC_MAY_WATCH },
	{ "GET", "/metrics", mc_http_metrics, NULL, MC_MAY_WATCH },
	{ "POST", "/secret", on_echo, NULL, 1u << 31 },		/* of a role that no peer has */
	{ NULL, "/teapot", on_empty, NULL, MC_MAY_WATCH },
	{ NULL, NULL, NULL, NULL, 0 },
};

static int start(void **state)
{
	int port;

	if (mc_httpd_start("127.0.0.1:0", 2, MAX_BODY, routes, (void *)(uintptr_t)"x", NULL, &port,
			   &server))
		return -1;
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", port);
	return 0;
}

static int stop(void **state)
{
	mc_httpd_stop(server);
	server = NULL;
	return 0;
}

static void send_all(int fd, const char *p, size_t len)
{
	struct pollfd out = { .fd = fd, .events = POLLOUT };

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			poll(&out, 1, 5000);
		else if (n < 0)
			return;		/* refused; the test checks the answer */
		else
			p += n, len -= (size_t)n;
	}
}

/* Returns all bytes that the server sends until it closes. */
static char *receive(int fd)
{
	struct pollfd in = { .fd = fd, .events = POLLIN };
	size_t size = 1 << 20, len = 0;
	char *buf = malloc(size + 1);
	ssize_t n;

	assert_non_null(buf);
	for (;;) {
		n = recv(fd, buf + len, size - len, 0);
		if (n > 0)
			len += (size_t)n;
		else if (n == 0 || errno != EAGAIN || poll(&in, 1, 10000) <= 0)
			break;
	}
	buf[len] = '\0';
	return buf;
}

static char *exchange_raw(const char *request, size_t len)
{
	int fd = mc_socket_connect(addr, mc_deadline_ms(5000));
	char *answer;

	if (fd < 0)
		fail_msg("%s", mc_err_detail(fd));
	send_all(fd, request, len);
	answer = receive(fd);
	close(fd);
	return answer;
}

static char *exchange(const char *method, const char *path, const char *body)
{
	char *request, *answer;
	int len;

	len = asprintf(&request, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		       "Content-Length: %zu\r\n\r\n%s", method, path, strlen(body), body);
	assert_true(len > 0);
	answer = exchange_raw(request, (size_t)len);
	free(request);
	return answer;
}

static void expect(char *answer, int status, const char *part)
{
	char line[32];

	snprintf(line, sizeof(line), "HTTP/1.1 %d ", status);
	if (strncmp(answer, line, strlen(line)) || !strstr(answer, part))
		fail_msg("wanted %d and \"%s\" in: %.400s", status, part, answer);
	free(answer);
}

static void routes_answer(void **state)
{
	expect(exchange("GET", "/echo", ""), 200, "\r\n\r\nGET /echo q=- arg=x len=0:");
	expect(exchange("GET", "/echo?q=a%20b&z=1", ""), 200, "GET /echo q=a b arg=x");
	expect(exchange("GET", "/echo?q", ""), 200, " q= arg=x");
	expect(exchange("GET", "/echo?q=", ""), 200, " q= arg=x");
	expect(exchange("POST", "/echo", "hello"), 200, "POST /echo q=- arg=x len=5:hello");
	expect(exchange("GET", "/echo", ""), 200, "Content-Type: text/plain; charset=utf-8\r\n");
	expect(exchange("GET", "/teapot", ""), 418, "Content-Type: application/json\r\n");
	expect(exchange("DELETE", "/empty", ""), 200, "Content-Length: 0\r\n");
	expect(exchange("POST", "/secret", "x"), 403, "the role of the peer does not allow this\n");
	expect(exchange("GET", "/secret", ""), 405, "Allow: POST\r\n");
}

/* As text the key would end at the NUL and be another key. */
static void text_has_no_nul(void **state)
{
	int64_t before = mc_metric_get(&seen);

	expect(exchange("GET", "/echo?q=a%00b", ""), 400, "a parameter holds a NUL\n");
	expect(exchange("GET", "/echo?q=%00", ""), 400, "");
	expect(exchange("POST", "/echo?z=1&q=%00", "body"), 400, "");
	expect(exchange("GET", "/echo?q=a&unknown=%00", ""), 400, "");
	assert_int_equal(mc_metric_get(&seen), before);
	expect(exchange("GET", "/bytes?key=k%00b", ""), 200, "key of 3=k.b q=-");
	expect(exchange("GET", "/bytes?key=%00&q=x", ""), 200, "key of 1=. q=x");
	expect(exchange("GET", "/bytes?key=k&q=x%00", ""), 400, "");
	expect(exchange("GET", "/bytes?key", ""), 200, "key of 0= q=-");
	expect(exchange("GET", "/bytes?key%00=k", ""), 200, "key of 0= q=-");
}

static void wait_for(const atomic_int *v, int want)
{
	uint64_t end = mc_deadline_ms(10000);

	while (*v != want && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(*v, want);
}

static int ask(const char *path)
{
	int fd = mc_socket_connect(addr, mc_deadline_ms(5000)), len;
	char *request;

	assert_true(fd >= 0);
	len = asprintf(&request, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
	send_all(fd, request, (size_t)len);
	free(request);
	return fd;
}

static void long_answers_come_in_parts(void **state)
{
	char *a;
	int fd;

	walks_ended = parts_made = 0;
	a = exchange("GET", "/long?parts=5", "");
	assert_non_null(strstr(a, "Transfer-Encoding: chunked\r\n"));
	assert_non_null(strstr(a, "first\n"));
	assert_null(strstr(a, "000000003\n"));
	assert_non_null(strstr(a, "000000001\n"));
	expect(a, 200, "000000005\n");
	assert_int_equal(parts_made, 5);
	free(exchange("HEAD", "/long?parts=5", ""));
	wait_for(&walks_ended, 2);
	assert_int_equal(parts_made, 5);
	/* For a client that does not read, the server makes no more parts than fit into the
	 * sockets. */
	fd = ask("/long?parts=100000");
	wait_for(&walks_ended, 2);
	close(fd);
	wait_for(&walks_ended, 3);
	assert_true(parts_made < 1000);
	/* An answer that is aborted has no last chunk, which would mark it as complete. */
	a = exchange("GET", "/long?parts=-2", "");
	assert_null(strstr(a, "\r\n0\r\n\r\n"));
	free(a);
	wait_for(&walks_ended, 4);
}

static void answers_have_a_limit_together(void **state)
{
	uint64_t end = mc_deadline_ms(20000);
	int fd[3], i;
	int64_t before, after;

	assert_int_equal(mc_metrics_lookup("mooncake_http_answers_refused_total", "", &before), 0);
	for (i = 0; i < 3; i++)
		fd[i] = ask("/large");
	do {
		assert_int_equal(mc_metrics_lookup("mooncake_http_answers_refused_total", "", &after), 0);
	} while (after == before && mc_now_ns() < end);
	/* Short answers are still sent: the total was exceeded by one answer only. */
	assert_int_equal(after - before, 1);
	for (i = 0; i < 3; i++)
		close(fd[i]);
	expect(exchange("DELETE", "/empty", ""), 200, "");
}

/* With many connections, idle ones are closed for new ones: those that send no request, and those
 * that do not read the answer. */
static void a_crowd_does_not_lock_out_others(void **state)
{
	static int fd[300];
	int i;

	for (i = 0; i < 300; i++) {
		if (i % 2)
			fd[i] = ask("/long?parts=100000");
		else
			fd[i] = mc_socket_connect(addr, mc_deadline_ms(5000));
		assert_true(fd[i] >= 0);
		if (i % 2 == 0)
			send_all(fd[i], "GET /echo HTTP/1.1\r\nX: ", 23);
	}
	expect(exchange("DELETE", "/empty", ""), 200, "Content-Length: 0");
	expect(exchange("POST", "/echo", "hello"), 200, "len=5:hello");
	for (i = 0; i < 300; i++)
		close(fd[i]);
}

static void head_has_no_body(void **state)
{
	char *a = exchange("HEAD", "/teapot", "");

	assert_string_equal(strstr(a, "\r\n\r\n"), "\r\n\r\n");
	expect(a, 418, "Content-Length: 2\r\n");
}

static void unknown_paths_are_not_found(void **state)
{
	expect(exchange("GET", "/", ""), 404, "not found");
	expect(exchange("GET", "/echo/", ""), 404, "not found");
	expect(exchange("POST", "/nothing", "some body"), 404, "not found");
	expect(exchange("PUT", "/echo", "x"), 405, "Allow: GET, POST\r\n");
	expect(exchange("GET", "/empty", ""), 405, "Allow: DELETE\r\n");
	/* a path that accepts every method */
	expect(exchange("GET", "/teapot", ""), 418, "");
	expect(exchange("PUT", "/teapot", "x"), 200, "");
	free(exchange_raw("GARBAGE\r\n\r\n", 11));
	expect(exchange("DELETE", "/empty", ""), 200, "");
}

static char *body_of(size_t n)
{
	char *body = malloc(n + 1);

	assert_non_null(body);
	memset(body, 'b', n);
	body[n] = '\0';
	return body;
}

#define ANNOUNCED "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"

static void bodies_have_a_limit(void **state)
{
	char *body = body_of(MAX_BODY + 1);
	int64_t before = mc_metric_get(&seen);

	expect(exchange("POST", "/echo", body), 413, "body too large");
	assert_int_equal(mc_metric_get(&seen), before);
	/* A body whose announced length is too large is refused before it is sent. */
	expect(exchange_raw(ANNOUNCED, strlen(ANNOUNCED)), 413, "body too large");
	body[MAX_BODY] = '\0';
	expect(exchange("POST", "/echo", body), 200, "len=5000:bbb");
	free(body);
}

/* A body without an announced length. */
static char *exchange_chunked(size_t total)
{
	char *body = body_of(1000), *request, *at, *answer;

	request = malloc(total + total / 100 + 1000);
	assert_non_null(request);
	at = stpcpy(request, "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		    "Transfer-Encoding: chunked\r\n\r\n");
	for (size_t sent = 0; sent < total; sent += 1000)
		at += sprintf(at, "3e8\r\n%s\r\n", body);
	at = stpcpy(at, "0\r\n\r\n");
	answer = exchange_raw(request, (size_t)(at - request));
	free(request);
	free(body);
	return answer;
}

static void chunked_bodies_have_it_too(void **state)
{
	char *a;

	expect(exchange_chunked(MAX_BODY), 200, "len=5000:bbb");
	expect(exchange_chunked(MAX_BODY + 1000), 413, "body too large");
	/* Far beyond the limit the connection ends without an answer. */
	a = exchange_chunked(3 << 20);
	assert_string_equal(a, "");
	free(a);
}

#define HUGE_BODY (60u << 20)
#define HALVES 5

static int start_huge(void **state)
{
	int port;

	if (mc_httpd_start("127.0.0.1:0", 2, 64u << 20, routes, (void *)(uintptr_t)"x", NULL, &port, &server))
		return -1;
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", port);
	return 0;
}

/* Send @len of @total bytes of a body. */
static int half_a_body(size_t total, const char *body, size_t len)
{
	int fd = mc_socket_connect(addr, mc_deadline_ms(5000)), n;
	char head[128];

	assert_true(fd >= 0);
	n = snprintf(head, sizeof(head), "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", total);
	send_all(fd, head, (size_t)n);
	send_all(fd, body, len);
	return fd;
}

/* Bodies that never end take at most 256 MiB together.  Small requests are served nevertheless. */
static void unfinished_bodies_have_a_limit_together(void **state)
{
	uint64_t end = mc_deadline_ms(30000);
	char *body = body_of(HUGE_BODY), *a;
	int fd[HALVES], refused = 0;

	for (int i = 0; i < HALVES; i++)
		fd[i] = half_a_body(HUGE_BODY, body, HUGE_BODY - 1);
	/* The server has received all bytes of a body when it has refused one of them. */
	while (!refused && mc_now_ns() < end)
		for (int i = 0; i < HALVES && !refused; i++) {
			struct pollfd in = { .fd = fd[i], .events = POLLIN };

			refused = poll(&in, 1, 10) > 0;
		}
	assert_true(refused);
	a = exchange("POST", "/echo", body);
	assert_non_null(strstr(a, "HTTP/1.1 503 "));
	free(a);
	expect(exchange("POST", "/echo", "hello"), 200, "len=5:hello");
	for (int i = 0; i < HALVES; i++)
		close(fd[i]);
	body[8 << 20] = '\0';
	/* The memory is free again when the server has seen the ends. */
	do {
		a = exchange("POST", "/echo", body);
		refused = !strncmp(a, "HTTP/1.1 503 ", 13);
		if (refused)
			free(a);
	} while (refused && mc_now_ns() < end);
	expect(a, 200, "len=8388608:bbb");
	free(body);
}

static void metrics_are_served(void **state)
{
	mc_metric_add(&seen, 1);
	expect(exchange("GET", "/metrics", ""), 200, "# TYPE test_http_requests_total counter\n");
	expect(exchange("GET", "/metrics", ""), 200, "Content-Type: text/plain; version=0.0.4");
}

static void *ask_often(void *arg)
{
	for (int i = 0; i < 50; i++) {
		char *a = exchange("POST", "/echo?q=1", "hello");

		if (!strstr(a, "len=5:hello"))
			abort();
		free(a);
	}
	return NULL;
}

static void several_clients(void **state)
{
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, ask_often, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

/* A client in the middle of a request does not delay the stop. */
static void stop_does_not_wait_for_clients(void **state)
{
	int fd = mc_socket_connect(addr, mc_deadline_ms(5000));
	uint64_t begin = mc_now_ns();
	char *a;

	assert_true(fd >= 0);
	send_all(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhal", 54);
	mc_httpd_stop(server);
	server = NULL;
	assert_true(mc_now_ns() - begin < 5 * MC_NS_PER_SEC);
	a = receive(fd);
	free(a);
	close(fd);
	assert_int_equal(mc_socket_connect(addr, mc_deadline_ms(5000)), -ECONNREFUSED);
}

static void a_port_in_use(void **state)
{
	struct mc_httpd *second = NULL;

	assert_int_equal(mc_httpd_start(addr, 1, 0, routes, NULL, NULL, NULL, &second), -EADDRINUSE);
	assert_non_null(strstr(mc_err_detail(-EADDRINUSE), addr));
	assert_null(second);
	mc_httpd_stop(NULL);
}

#define SERVED(f) cmocka_unit_test_setup_teardown(f, start, stop)

static void stop_closes_the_port_of_forked_children_too(void **state)
{
	struct mc_httpd *second;
	pid_t child;
	int st;

	child = fork();
	assert_true(child >= 0);
	if (!child) {
		pause();
		_exit(0);
	}
	(void)stop(state);
	server = NULL;
	assert_int_equal(mc_httpd_start(addr, 1, 0, routes, NULL, NULL, NULL, &second), 0);
	mc_httpd_stop(second);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &st, 0), child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SERVED(routes_answer),
		SERVED(text_has_no_nul),
		SERVED(long_answers_come_in_parts),
		SERVED(answers_have_a_limit_together),
		SERVED(a_crowd_does_not_lock_out_others),
		SERVED(head_has_no_body),
		SERVED(unknown_paths_are_not_found),
		SERVED(bodies_have_a_limit),
		SERVED(chunked_bodies_have_it_too),
		cmocka_unit_test_setup_teardown(unfinished_bodies_have_a_limit_together, start_huge, stop),
		SERVED(metrics_are_served),
		SERVED(several_clients),
		SERVED(stop_does_not_wait_for_clients),
		SERVED(a_port_in_use),
		SERVED(stop_closes_the_port_of_forked_children_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
