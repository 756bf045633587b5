/* SPDX-License-Identifier: Apache-2.0
 * test_engine_handshake.c - handshake daemon and client, and hostile peers of both. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/net/socket.h"
#include "engine/upstream/handshake.h"

#define HOST "127.0.0.1"
#define SECONDS(n) mc_deadline_ms((n) * 1000)

static atomic_int told, notified;
static char last_peer[256], last_name[64], last_msg[64];
static char *own_text;		/* answer of the daemon; NULL: none */

static int on_metadata(void *arg, const char *text, size_t len, char **ret_text)
{
	assert_ptr_equal(arg, &told);
	assert_int_equal(strlen(text), len);
	snprintf(last_peer, sizeof(last_peer), "%s", text);
	atomic_fetch_add(&told, 1);
	if (!own_text)
		return -EINVAL;
	*ret_text = strdup(own_text);
	return 0;
}

static int on_notify(void *arg, const char *name, const char *msg)
{
	snprintf(last_name, sizeof(last_name), "%s", name);
	snprintf(last_msg, sizeof(last_msg), "%s", msg);
	atomic_fetch_add(&notified, 1);
	return 0;
}

static int on_connection(void *arg, const char *text, size_t len, char **ret_text)
{
	return asprintf(ret_text, "{\"reply_msg\":\"\",\"echo\":%zu}", len) < 0 ? -ENOMEM : 0;
}

struct fixture {
	struct mce_handshake *h;
	int port;
	char addr[64];
};

static void start(struct fixture *f, bool rdma)
{
	struct mce_handshake_conf conf = {
		.host = HOST, .arg = &told, .metadata = on_metadata, .notify = on_notify,
		.connection = rdma ? on_connection : NULL,
	};

	assert_int_equal(mce_handshake_open(&conf, &f->h), 0);
	f->port = mce_handshake_port(f->h);
	snprintf(f->addr, sizeof(f->addr), HOST ":%d", f->port);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	unsetenv("MC_HANDSHAKE_MAX_LENGTH");
	free(own_text);
	own_text = strdup("{\"name\":\"me\"}\n");
	start(f, false);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	mce_handshake_close(f->h);
	free(f);
	return 0;
}

static int plug(const struct fixture *f)
{
	int fd = mc_socket_connect(f->addr, SECONDS(10));

	assert_true(fd >= 0);
	return fd;
}

static void say(int fd, const void *p, size_t len)
{
	size_t at = 0;
	ssize_t n;

	while (at < len) {
		n = send(fd, (const char *)p + at, len - at, MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			return;		/* refused before the end of the frame */
		at += n > 0 ? (size_t)n : 0;
	}
}

/* All bytes that the peer sends until it closes, or for 20 seconds. */
static size_t hear(int fd, char *buf, size_t size)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t len = 0;
	ssize_t n;

	while (poll(&p, 1, 20000) > 0) {
		n = recv(fd, buf + len, size - len, 0);
		if (n <= 0)
			return len;
		len += (size_t)n;
	}
	fail_msg("the connection stays open");
	return len;
}

static void say_frame(int fd, const char *body, size_t len)
{
	uint64_t n = len;

	say(fd, &n, sizeof(n));
	say(fd, body, len);
}

static void metadata_is_exchanged(void **state)
{
	struct fixture *f = *state;
	char *reply;

	assert_in_range(f->port, 15000, 17000);
	assert_int_equal(mce_handshake_call(HOST, f->port, MCE_HANDSHAKE_METADATA,
					    "{\"name\":\"you\"}\n", SECONDS(10), &reply), 0);
	assert_string_equal(reply, "{\"name\":\"me\"}\n");
	assert_string_equal(last_peer, "{\"name\":\"you\"}\n");
	free(reply);
}

/* The bytes on the wire are upstream's. */
static void bytes_equal_upstreams(void **state)
{
	static const char expected[] = "\x0f\0\0\0\0\0\0\0\x01{\"name\":\"me\"}\n";
	struct fixture *f = *state;
	char buf[256];
	int fd = plug(f);
	size_t n;

	say_frame(fd, "\x01{}\n", 4);
	n = hear(fd, buf, sizeof(buf));
	assert_int_equal(n, sizeof(expected) - 1);
	assert_memory_equal(buf, expected, n);
	close(fd);
}

static void notify_and_probe(void **state)
{
	struct fixture *f = *state;
	int before = notified;

	assert_int_equal(mce_handshake_notify(HOST, f->port, "n\"1", "kv \xc3\xa9", SECONDS(10)), 0);
	assert_int_equal(notified, before + 1);
	assert_string_equal(last_name, "n\"1");
	assert_string_equal(last_msg, "kv \xc3\xa9");
	assert_int_equal(mce_handshake_notify(HOST, f->port, "n", "\xe9", SECONDS(10)), -EINVAL);
	assert_int_equal(mce_handshake_probe(HOST, f->port, SECONDS(10)), 0);
}

static void connection_without_rdma(void **state)
{
	struct fixture *f = *state;
	char *reply;

	assert_int_equal(mce_handshake_call(HOST, f->port, MCE_HANDSHAKE_CONNECTION, "{}\n",
					    SECONDS(10), &reply), 0);
	assert_non_null(strstr(reply, "\"reply_msg\":\"this node has no RDMA"));
	free(reply);
}

/* A frame without a type is an old connection setup; its answer has no type. */
static void legacy_frames_are_answered(void **state)
{
	struct fixture f;
	char buf[256];
	size_t n;
	int fd;

	start(&f, true);
	fd = plug(&f);
	say_frame(fd, "{\"a\":1}\n", 8);
	n = hear(fd, buf, sizeof(buf));
	assert_int_equal(n, 8 + strlen("{\"reply_msg\":\"\",\"echo\":8}"));
	assert_memory_equal(buf + 8, "{\"reply_msg\":\"\",\"echo\":8}", n - 8);
	close(fd);
	mce_handshake_close(f.h);
}

/* An invalid frame is closed without an answer, and the next client is served. */
static void refused(void **state)
{
	static const struct {
		const char *p;
		size_t len;
	} junk[] = {
#define J(s) { s, sizeof(s) - 1 }
		J("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		J("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),	/* TLS */
		J("\0\0\0\0\0\0\0\0"),					/* empty */
		J("\x01\0\x10\0\0\0\0\0\x01"),				/* 1 MiB and one */
		J("\xff\xff\xff\xff\xff\xff\xff\xff"),
		J("\x01\0\0\0\0\0\0\0\x02"),				/* no notification */
		J("\x06\0\0\0\0\0\0\0\x02{bad}"),
		J("\x15\0\0\0\0\0\0\0\x02{\"name\":1,\"msg\":2}xx"),
	};
	struct fixture *f = *state;
	char buf[256];
	int fd;

	for (size_t i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
		fd = plug(f);
		say(fd, junk[i].p, junk[i].len);
		if (hear(fd, buf, sizeof(buf)))
			fail_msg("junk %zu was answered", i);
		close(fd);
		assert_int_equal(mce_handshake_probe(HOST, f->port, SECONDS(10)), 0);
	}
	/* the callback refuses to answer */
	free(own_text);
	own_text = NULL;
	fd = plug(f);
	say_frame(fd, "\x01{}", 3);
	assert_int_equal(hear(fd, buf, sizeof(buf)), 0);
	close(fd);
}

/* A frame of the maximum length is accepted in both directions; an environment variable sets the limit. */
static void longest_frame_is_accepted(void **state)
{
	struct fixture *f = *state, g;
	size_t len = 3 << 20;
	char *text = malloc(len + 1), *reply;

	memset(text, 'x', len);
	text[len] = '\0';
	text[(1 << 20) - 1] = '\0';
	free(own_text);
	own_text = strdup(text);
	assert_int_equal(mce_handshake_call(HOST, f->port, MCE_HANDSHAKE_METADATA, text, SECONDS(20),
					    &reply), 0);
	assert_string_equal(reply, text);
	free(reply);
	text[(1 << 20) - 1] = 'x';
	assert_int_not_equal(mce_handshake_call(HOST, f->port, MCE_HANDSHAKE_METADATA, text,
						SECONDS(20), &reply), 0);
	setenv("MC_HANDSHAKE_MAX_LENGTH", "4194304", 1);
	start(&g, false);
	free(own_text);
	own_text = strdup(text);
	assert_int_equal(mce_handshake_call(HOST, g.port, MCE_HANDSHAKE_METADATA, text, SECONDS(20),
					    &reply), 0);
	assert_int_equal(strlen(reply), len);
	free(reply);
	/* a client with a smaller limit refuses it */
	unsetenv("MC_HANDSHAKE_MAX_LENGTH");
	assert_int_equal(mce_handshake_call(HOST, g.port, MCE_HANDSHAKE_METADATA, text, SECONDS(20),
					    &reply), -MC_EPROTO);
	mce_handshake_close(g.h);
	free(text);
}

/* More peers than the connection limit stall in the middle of a frame: other clients are served at once. */
static void stalled_peers_do_not_block_others(void **state)
{
	enum { SLOW = 300 };
	struct fixture *f = *state;
	uint64_t before = mc_now_ns(), open = 0;
	int fds[SLOW];
	char c;

	for (int i = 0; i < SLOW; i++) {
		fds[i] = plug(f);
		say(fds[i], "\x10\0\0\0\0\0\0\0\x01{", i % 11);
	}
	/* sooner than the silence limit closes connections */
	for (int i = 0; i < 20; i++)
		assert_int_equal(mce_handshake_probe(HOST, f->port, SECONDS(4)), 0);
	/* The connections that were accepted before the limit was reached are closed. The others
	 * are open, unless this took so long that they reached the silence limit too. */
	for (int i = 0; i < SLOW; i++)
		open += recv(fds[i], &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
	assert_true(open <= 256);
	if (mc_now_ns() - before < 4 * MC_NS_PER_SEC)
		assert_true(open >= 200);
	for (int i = 0; i < SLOW; i++)
		close(fds[i]);
}

/* A silent peer is disconnected after five seconds. */
static void silent_peers_are_disconnected(void **state)
{
	struct fixture *f = *state;
	uint64_t before = mc_now_ns();
	int fd = plug(f);
	char buf[8];

	say(fd, "\x10\0\0\0", 4);
	assert_int_equal(hear(fd, buf, sizeof(buf)), 0);
	assert_in_range((mc_now_ns() - before) / MC_NS_PER_MS, 4500, 15000);
	close(fd);
}

static void *asks(void *arg)
{
	const struct fixture *f = arg;

	for (int i = 0; i < 100; i++)
		assert_int_equal(mce_handshake_probe(HOST, f->port, SECONDS(30)), 0);
	return NULL;
}

static void many_at_once(void **state)
{
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, asks, *state), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* A thousand clients, half of them hostile, leave no descriptor open. */
static void a_thousand_clients_leave_no_descriptor(void **state)
{
	struct fixture *f = *state;
	int before = open_fds(), fd;

	for (int i = 0; i < 1000; i++) {
		assert_int_equal(mce_handshake_probe(HOST, f->port, SECONDS(30)), 0);
		if (i % 2)
			continue;
		fd = plug(f);
		say(fd, "GET / HTTP/1.1\r\n\r\n", (size_t)(i % 19));
		close(fd);
	}
	for (int i = 0; i < 500 && open_fds() > before; i++)
		usleep(10000);
	assert_int_equal(open_fds(), before);
	mce_handshake_close(f->h);
	start(f, false);
	assert_int_equal(open_fds(), before);
}

/* ---- the client against hostile servers --------------------------------------------------------- */

struct liar {
	int fd, port;
	const char *says;
	size_t len;
	pthread_t thread;
};

static void *liar_main(void *arg)
{
	struct liar *l = arg;
	char buf[64];
	int fd;

	while ((fd = mc_socket_accept(l->fd)) == -EAGAIN)
		usleep(1000);
	if (l->len) {
		say(fd, l->says, l->len);
		shutdown(fd, SHUT_WR);
	}
	/* until the client closes */
	hear(fd, buf, sizeof(buf));
	close(fd);
	return NULL;
}

static int ask_liar(const char *says, size_t len, uint64_t deadline)
{
	char bound[MC_ADDR_MAX], host[MC_ADDR_MAX], *reply;
	struct liar l = { .says = says, .len = len };
	int r;

	l.fd = mc_socket_listen(HOST ":0", 8, 0, bound);
	assert_true(l.fd >= 0);
	assert_int_equal(mc_addr_split(bound, host, sizeof(host), 0, &l.port), 0);
	pthread_create(&l.thread, NULL, liar_main, &l);
	r = mce_handshake_call(HOST, l.port, MCE_HANDSHAKE_PROBE, "{}", deadline, &reply);
	pthread_join(l.thread, NULL);
	close(l.fd);
	if (r == 0)
		free(reply);
	return r;
}

static void client_refuses_invalid_answers(void **state)
{
	uint64_t before;
	char *reply;

#define ASK(s) ask_liar(s, sizeof(s) - 1, SECONDS(10))
	assert_int_equal(ASK("\x03\0\0\0\0\0\0\0\x03{}"), 0);
	assert_int_equal(ASK("\x02\0\0\0\0\0\0\0{}"), 0);	/* without a type */
	assert_int_equal(ASK("\x03\0\0\0\0\0\0\0\x01{}"), -MC_EPROTO);
	assert_int_equal(ASK("HTTP/1.1 400 Bad Request\r\n\r\n"), -MC_EPROTO);
	assert_int_equal(ASK("\0\0\0\0\0\0\0\0"), -MC_EPROTO);
	assert_int_equal(ASK("\x03\0\0"), -ECONNRESET);
	assert_int_equal(ASK("\x03\0\0\0\0\0\0\0\x03{"), -ECONNRESET);
	before = mc_now_ns();
	assert_int_equal(ask_liar("", 0, mc_deadline_ms(300)), -ETIMEDOUT);
	assert_in_range((mc_now_ns() - before) / MC_NS_PER_MS, 290, 20000);
	assert_int_equal(mce_handshake_call("", 1, MCE_HANDSHAKE_PROBE, "{}", SECONDS(1), &reply), -EINVAL);
	assert_int_equal(mce_handshake_probe(HOST, 1, SECONDS(5)), -ECONNREFUSED);
}

static void ports_are_in_the_range(void **state)
{
	struct mce_handshake_conf conf = { .host = HOST, .metadata = on_metadata };
	struct mce_handshake *h, *h2 = NULL;

	setenv("MC_MIN_RPC_PORT", "18000", 1);
	setenv("MC_MAX_PRC_PORT", "18500", 1);
	assert_int_equal(mce_handshake_open(&conf, &h), 0);
	assert_in_range(mce_handshake_port(h), 18000, 18500);
	conf.port = mce_handshake_port(h);
	assert_int_equal(mce_handshake_open(&conf, &h2), -EADDRINUSE);
	mce_handshake_close(h);
	/* the only port of the range is in use */
	assert_int_equal(mce_handshake_open(&conf, &h), 0);
	setenv("MC_MIN_RPC_PORT", "18001", 1);
	setenv("MC_MAX_RPC_PORT", "18001", 1);
	conf.port = 18001;
	if (mce_handshake_open(&conf, &h2) == 0) {
		struct mce_handshake *h3;

		conf.port = 0;
		assert_int_equal(mce_handshake_open(&conf, &h3), -EADDRINUSE);
		mce_handshake_close(h2);
	}
	mce_handshake_close(h);
	unsetenv("MC_MIN_RPC_PORT");
	unsetenv("MC_MAX_RPC_PORT");
	unsetenv("MC_MAX_PRC_PORT");
	conf.host = "no.such.host.invalid";
	conf.port = 0;
	assert_true(mce_handshake_open(&conf, &h) < 0);
}

int main(void)
{
	static const struct mc_log_conf quiet = { .levels = "err" };
#define WITH(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		WITH(metadata_is_exchanged),
		WITH(bytes_equal_upstreams),
		WITH(notify_and_probe),
		WITH(connection_without_rdma),
		cmocka_unit_test(legacy_frames_are_answered),
		WITH(refused),
		WITH(longest_frame_is_accepted),
		WITH(stalled_peers_do_not_block_others),
		WITH(silent_peers_are_disconnected),
		WITH(many_at_once),
		WITH(a_thousand_clients_leave_no_descriptor),
		cmocka_unit_test(client_refuses_invalid_answers),
		cmocka_unit_test(ports_are_in_the_range),
	};
	int r;

	mc_log_open(&quiet);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	free(own_text);
	return r;
}
