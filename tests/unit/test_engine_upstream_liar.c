/* SPDX-License-Identifier: Apache-2.0
 * test_engine_upstream_liar.c - requests to failing servers of upstream's protocol: each request ends in time,
 * is repeated if possible, and releases its memory. */
#include <config.h>

#include "test_engine_fixture.h"
#include "test_engine_impostor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/net.h"
#include "engine/upstream/upstream_wire.h"

#define LEN 200000u
/* Eight parts take clearly longer than the time that slow_server() allows for one. */
#define DRIP_MS 600

enum lie {
	LIE_NONE,
	LIE_MAGIC,		/* a status with a wrong magic */
	LIE_UNASKED,		/* a status before the request, which it does not read */
	LIE_HALF,		/* of an answer, then close */
	LIE_CLOSE,		/* accepts and closes */
	LIE_REFUSE,		/* every request */
	LIE_SILENT,		/* reads and does not answer */
	LIE_STOPPED,		/* does not read */
	LIE_ONE_EACH,		/* closes after each request: no lie, older servers do */
	LIE_DRIP,		/* answers in small parts with time between */
};

struct server {
	struct impostor im;
	int port;
	enum lie lie;
	unsigned version;
	unsigned conns;
	char mem[LEN];
};

static bool drip(struct server *s, int fd, char *p, size_t n)
{
	for (unsigned i = 0; i < 8; i++) {
		if (!impostor_move(&s->im, fd, p + n / 8 * i, i < 7 ? n / 8 : n - n / 8 * 7, true))
			return false;
		poll(NULL, 0, DRIP_MS);
	}
	return true;
}

/* Discard bytes. */
static bool swallow(struct server *s, int fd, uint64_t n)
{
	static char trash[LEN];

	for (; n > LEN; n -= LEN)
		if (!impostor_move(&s->im, fd, trash, LEN, false))
			return false;
	return impostor_move(&s->im, fd, trash, n, false);
}

/* False: close. */
static bool answer(struct server *s, int fd, const struct mce_up_req *q)
{
	static char trash[LEN];
	uint64_t off = q->addr % LEN;
	uint8_t b[MCE_UP_STATUS_SIZE];
	bool ok;

	mce_up_status_pack(b, s->lie == LIE_REFUSE);
	if (s->lie == LIE_MAGIC)
		b[7] = 'X';
	if (s->lie == LIE_HALF || s->lie == LIE_REFUSE) {
		impostor_move(&s->im, fd, b, s->lie == LIE_HALF ? 3 : 8, true);
		return false;
	}
	if (s->lie == LIE_SILENT) {
		while (impostor_move(&s->im, fd, trash, 1, false))
			;
		return false;
	}
	if (q->op == MCE_UP_WRITE && q->size > LEN - off)
		return swallow(s, fd, q->size);
	if (q->op == MCE_UP_WRITE)
		return impostor_move(&s->im, fd, s->mem + off, q->size, false) &&
			(!q->v2 || impostor_move(&s->im, fd, b, sizeof(b), true));
	ok = !q->v2 || impostor_move(&s->im, fd, b, sizeof(b), true);
	if (ok && s->lie == LIE_DRIP)
		return drip(s, fd, s->mem + off, q->size);
	return ok && impostor_move(&s->im, fd, s->mem + off, q->size, true);
}

/* Has the client closed? Waits for a moment. */
static bool is_left(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	return poll(&p, 1, 20) > 0;
}

static void serve(struct server *s, int fd)
{
	struct mce_up_req q = { .size = 0 };
	uint8_t b[MCE_UP_REQ_SIZE];

	if (s->lie == LIE_UNASKED)
		impostor_move(&s->im, fd, (char *)"\0\0\0\0VTCM", 8, true);
	/* Do not read on: that would take the whole request before the client has checked the status. */
	while (s->lie == LIE_UNASKED && !impostor_stopping(&s->im) && !is_left(fd))
		;
	while (s->lie == LIE_STOPPED && !impostor_stopping(&s->im))
		poll(NULL, 0, 20);
	while (impostor_move(&s->im, fd, b, sizeof(b), false)) {
		assert_int_equal(mce_up_req_unpack(b, sizeof(b), &q), sizeof(b));
		assert_int_equal(q.v2, s->version == 2);
		if (!answer(s, fd, &q) || s->lie == LIE_ONE_EACH)
			return;
	}
}

static void take_connection(struct impostor *im, int fd)
{
	struct server *s = (struct server *)im;

	s->conns++;
	if (s->lie != LIE_CLOSE)
		serve(s, fd);
}

static void server_start(struct server *s, enum lie lie, unsigned version)
{
	char host[MC_ADDR_MAX];

	memset(s, 0, sizeof(*s));
	s->lie = lie;
	s->version = version;
	pattern_fill(s->mem, LEN, 8, 0);
	impostor_start(&s->im, take_connection);
	assert_int_equal(mc_addr_split(s->im.addr, host, sizeof(host), -1, &s->port), 0);
}

/* ---- one request against each lie ---- */

static const struct mce_conf quick = {
	.conns = 1, .progress_timeout_ms = 1000, .status_timeout_ms = 600,
};

static int ask(struct server *s, enum mce_op op, const struct mce_conf *conf, char *mem, uint64_t n)
{
	struct mce_engine *e;
	struct mce_peer *peer;
	int r;

	assert_int_equal(mce_engine_open(conf, &e), 0);
	assert_int_equal(mce_peer_get_upstream(e, "127.0.0.1", s->port, s->version, &peer), 0);
	r = transfer(e, peer, op, LEN * 1000ull, 0, mem, n, NULL);
	mce_peer_put(peer);
	mce_engine_close(e);
	return r;
}

static int ask_liar(enum lie lie, unsigned version, enum mce_op op, uint64_t n)
{
	static struct server s;
	static char mem[LEN];
	int r;

	server_start(&s, lie, version);
	memset(mem, 'm', sizeof(mem));
	r = ask(&s, op, &quick, mem, n);
	impostor_stop(&s.im);
	if (r == 0 && op == MCE_READ)
		pattern_check(mem, n, 8, 0);
	if (r == 0 && op == MCE_WRITE)
		assert_memory_equal(mem, s.mem, n);
	return r;
}

static void invalid_answers_fail_the_request(void **state)
{
	for (enum mce_op op = MCE_READ; op <= MCE_WRITE; op++) {
		assert_int_equal(ask_liar(LIE_NONE, 2, op, LEN), 0);
		assert_int_equal(ask_liar(LIE_MAGIC, 2, op, LEN), -MC_ETRANSFER);
		assert_int_equal(ask_liar(LIE_HALF, 2, op, LEN), -MC_ETRANSFER);
		assert_int_equal(ask_liar(LIE_CLOSE, 2, op, LEN), -MC_ETRANSFER);
		assert_int_equal(ask_liar(LIE_REFUSE, 2, op, LEN), -ERANGE);
		assert_int_equal(ask_liar(LIE_ONE_EACH, 2, op, LEN), 0);
		assert_int_equal(ask_liar(LIE_NONE, 1, op, LEN), 0);
		assert_int_equal(ask_liar(LIE_CLOSE, 1, op, LEN), -MC_ETRANSFER);
	}
	assert_int_equal(ask_liar(LIE_ONE_EACH, 1, MCE_READ, LEN), 0);
}

static void a_status_before_the_request_is_a_protocol_error(void **state)
{
	static struct server s;
	char *mem = calloc(1, 8 << 20);
	struct mce_conf conf = quick;
	uint64_t start;

	/* One fragment larger than the sockets hold while the server does not read. */
	conf.stripe_bytes = 8 << 20;
	conf.progress_timeout_ms = conf.status_timeout_ms = 30000;
	server_start(&s, LIE_UNASKED, 2);
	start = mc_now_ms();
	assert_int_equal(ask(&s, MCE_WRITE, &conf, mem, 8 << 20), -MC_ETRANSFER);
	/* Detected, not timed out. */
	assert_in_range(mc_now_ms() - start, 0, 15000);
	impostor_stop(&s.im);
	free(mem);
}

/* ---- time ---- */

static void a_silent_server_times_out(void **state)
{
	for (enum mce_op op = MCE_READ; op <= MCE_WRITE; op++)
		for (enum lie lie = LIE_SILENT; lie <= LIE_STOPPED; lie++) {
			uint64_t began = mc_now_ms();

			assert_int_equal(ask_liar(lie, 2, op, LEN), -MC_ETRANSFER);
			assert_in_range(mc_now_ms() - began, 500, 20000);
		}
}

/* Slow is not dead: each part is progress. */
static void a_slow_server_does_not_time_out(void **state)
{
	struct mce_conf conf = quick;
	static struct server s;
	static char mem[LEN];

	conf.progress_timeout_ms = 3000;
	conf.status_timeout_ms = 3000;
	server_start(&s, LIE_DRIP, 2);
	assert_int_equal(ask(&s, MCE_READ, &conf, mem, LEN), 0);
	pattern_check(mem, LEN, 8, 0);
	impostor_stop(&s.im);
}

/* A thousand requests to a server that closes every connection end soon, by the count of lost connections. */
static void requests_to_a_server_that_always_closes_end_soon(void **state)
{
	enum { N = 1000 };
	struct mce_req *reqs = calloc(N, sizeof(*reqs));
	static struct server s;
	static char mem[N];
	struct iovec iov[N];
	struct mce_engine *e;
	struct mce_peer *peer;
	struct mce_batch b;

	server_start(&s, LIE_CLOSE, 2);
	assert_int_equal(mce_engine_open(&quick, &e), 0);
	assert_int_equal(mce_peer_get_upstream(e, "127.0.0.1", s.port, 2, &peer), 0);
	for (unsigned i = 0; i < N; i++) {
		iov[i] = (struct iovec){ mem + i, 1 };
		reqs[i] = (struct mce_req){
			.op = MCE_READ, .peer = peer, .addr = i + 1, .iov = &iov[i], .iovcnt = 1,
		};
	}
	mce_batch_init(&b);
	mce_submit(e, &b, reqs, N);
	assert_int_equal(mce_batch_wait(e, &b, reqs, N, SECONDS(20)), 0);
	assert_int_equal(b.failed, N);
	mce_peer_put(peer);
	mce_engine_close(e);
	impostor_stop(&s.im);
	/* 16 to 40, and up to 880 when the submitting thread was not scheduled; without that count 8,000 and more. */
	assert_in_range(s.conns, 1, 2 * N);
	free(reqs);
}

/* ---- cancelling ---- */

/* The deadline passes while a WRITE is partly sent: its memory is free at once, and waiting requests succeed as
 * soon as the server is back. */
static void memory_of_a_partly_sent_write_is_free_after_the_deadline(void **state)
{
	uint64_t big = 64 << 20;
	char *mem = calloc(1, big), byte = 0;
	struct mce_conf serve_conf = { .upstream = true, .bind_host = "127.0.0.1" };
	struct mce_conf conf = { .conns = 1, .progress_timeout_ms = 20000 };
	struct iovec iov = { mem, big };
	struct mce_req req = { .op = MCE_WRITE, .iov = &iov, .iovcnt = 1 };
	struct side owner;
	struct mce_engine *e;
	unsigned late = 0;
	uint64_t began;
	int r;

	side_open(&owner, &serve_conf, big, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 1);
	assert_int_equal(mce_engine_open(&conf, &e), 0);
	assert_int_equal(mce_peer_get_upstream(e, "127.0.0.1", mce_engine_upstream_port(owner.e), 2,
					       &req.peer), 0);
	req.addr = (uintptr_t)owner.mem;
	/* A thread that the scheduler has kept waiting may find all of it done after the deadline. */
	for (unsigned i = 0; i < 200 && late < 20; i++) {
		began = mc_now_ms();
		memset(mem, 1, big);
		r = mce_transfer(e, &req, mc_deadline_ms(i % 5));
		if (r != 0)
			assert_int_equal(r, -MC_ETIMEDOUT);
		late += r != 0;
		memset(mem, 2, big);
		/* Only bytes that were sent before the deadline have arrived. */
		assert_int_equal(transfer(e, req.peer, MCE_READ, req.addr, 0, &byte, 1, NULL), 0);
		assert_true(byte != 2);
		assert_true(mc_now_ms() - began < 10000);
	}
	assert_true(late >= 5);
	mce_peer_put(req.peer);
	mce_engine_close(e);
	side_close(&owner);
	free(mem);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(invalid_answers_fail_the_request),
		cmocka_unit_test(a_status_before_the_request_is_a_protocol_error),
		cmocka_unit_test(a_silent_server_times_out),
		cmocka_unit_test(a_slow_server_does_not_time_out),
		cmocka_unit_test(requests_to_a_server_that_always_closes_end_soon),
		cmocka_unit_test(memory_of_a_partly_sent_write_is_free_after_the_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
