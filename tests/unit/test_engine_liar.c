/* SPDX-License-Identifier: Apache-2.0
 * test_engine_liar.c - requests to a peer that answers wrongly: each fails, writes to no other
 * memory, and releases the memory of its caller. */
#include <config.h>

#include "test_engine_fixture.h"
#include "test_engine_impostor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "common/net/socket.h"
#include "engine/tcp/tcp_wire.h"

#define LEN 100000u

enum lie {
	LIE_NONE,
	LIE_SHORT_HEADER,	/* like headers of older versions: no lie */
	LIE_OTHER_ID,		/* a response with an unknown request id */
	LIE_OTHER_TYPE,
	LIE_TOO_LONG,		/* more bytes than requested */
	LIE_TOO_SHORT,
	LIE_TWICE,		/* the same answer again */
	LIE_HALF,		/* of an answer, then close */
	LIE_NONSENSE,		/* no header at all */
	LIE_EARLY,		/* an acknowledgement before the payload was taken */
	LIE_OLD_GREETING,	/* refuses our version */
	LIE_NO_WINDOW,
	LIE_NOT_OVER,		/* refusals with statuses that only the client may set */
	LIE_LATER,
	LIE_MAX,
};

struct liar {
	struct impostor im;
	enum lie lie;
	unsigned served;
};

static bool greet(struct liar *l, int fd)
{
	struct mce_greeting g = {
		.version = 1, .version_min = 1, .len_max = 1 << 20, .window = 256,
		.id = { .nonce = { 1, 2, 3 } },
	};
	uint8_t b[MCE_GREETING_SIZE];

	if (!impostor_move(&l->im, fd, b, sizeof(b), false))
		return false;
	if (l->lie == LIE_OLD_GREETING)
		g.status = mc_err_to_wire(-MC_EVERSION);
	if (l->lie == LIE_NO_WINDOW)
		g.window = 0;
	mce_greeting_pack(b, &g);
	return impostor_move(&l->im, fd, b, sizeof(b), true);
}

static bool answer(struct liar *l, int fd, const struct mce_wire_req *q)
{
	struct mce_wire_resp a = { .type = MCE_FRAME_DATA, .id = q->id, .len = q->len };
	static uint8_t bytes[4 * LEN];
	size_t n;

	memset(bytes, 0x99, sizeof(bytes));
	if (q->type == MCE_FRAME_WRITE) {
		a.type = MCE_FRAME_ACK;
		a.len = 0;
		if (l->lie != LIE_EARLY && !impostor_move(&l->im, fd, bytes, q->len, false))
			return false;
	}
	if (l->lie == LIE_OTHER_ID)
		a.id ^= 1ull << 40;
	if (l->lie == LIE_OTHER_TYPE)
		a.type = a.type == MCE_FRAME_ACK ? MCE_FRAME_DATA : MCE_FRAME_ACK, a.len = 0;
	if (l->lie == LIE_TOO_LONG)
		a.len = q->len + 1, a.type = MCE_FRAME_DATA;
	if (l->lie == LIE_TOO_SHORT)
		a.len = q->len - 1, a.type = MCE_FRAME_DATA;
	if (l->lie == LIE_NOT_OVER || l->lie == LIE_LATER) {
		a.status = mc_err_to_wire(l->lie == LIE_LATER ? -EAGAIN : -EINPROGRESS);
		a.len = 0;
	}
	mce_resp_pack(bytes, &a);
	n = MCE_RESP_SIZE + a.len;
	if (l->lie == LIE_SHORT_HEADER) {
		mce_put16(bytes + 2, MCE_RESP_MIN);
		n = MCE_RESP_MIN + a.len;
		memmove(bytes + MCE_RESP_MIN, bytes + MCE_RESP_SIZE, a.len);
	}
	if (l->lie == LIE_HALF)
		n /= 2;
	if (l->lie == LIE_NONSENSE)
		memset(bytes, 0xff, MCE_RESP_SIZE);
	if (l->lie == LIE_TWICE) {
		memcpy(bytes + n, bytes, n);
		n *= 2;
	}
	l->served++;
	if (!impostor_move(&l->im, fd, bytes, n, true))
		return false;
	return l->lie != LIE_HALF;
}

static void serve(struct impostor *im, int fd)
{
	struct liar *l = (struct liar *)im;
	struct mce_wire_req q = { .type = 0 };
	uint8_t b[MCE_REQ_SIZE];

	if (!greet(l, fd))
		return;
	while (impostor_move(&l->im, fd, b, sizeof(b), false))
		if (mce_req_unpack(b, sizeof(b), &q) != MCE_REQ_SIZE || !answer(l, fd, &q))
			return;
}

static int ask_liar(enum lie lie, enum mce_op op)
{
	struct mce_conf conf = { .conns = 1, .progress_timeout_ms = 20000 };
	struct liar l = { .lie = lie };
	char *mem = malloc(3 * LEN);
	struct mce_peer *peer;
	struct side s;
	int r;

	impostor_start(&l.im, serve);
	side_open(&s, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, l.im.addr, &peer), 0);
	memset(mem, 0x11, 3 * LEN);
	r = transfer(s.e, peer, op, 4096, 1, mem + LEN, LEN, NULL);
	for (unsigned i = 0; i < LEN; i++)
		assert_true(mem[i] == 0x11 && mem[2 * LEN + i] == 0x11);
	if (r == 0 && op == MCE_READ)
		for (unsigned i = 0; i < LEN; i++)
			assert_int_equal((uint8_t)mem[LEN + i], 0x99);
	/* With AddressSanitizer: the engine does not use it any more. */
	free(mem);
	mce_peer_put(peer);
	side_close(&s);
	impostor_stop(&l.im);
	return r;
}

static void invalid_answers_fail_the_request(void **state)
{
	int r;

	for (int op = MCE_READ; op <= MCE_WRITE; op++) {
		assert_int_equal(ask_liar(LIE_NONE, (enum mce_op)op), 0);
		for (int lie = LIE_NONE + 1; lie < LIE_MAX; lie++) {
			r = ask_liar((enum lie)lie, (enum mce_op)op);
			if (lie == LIE_OLD_GREETING)
				assert_int_equal(r, -MC_EVERSION);
			else if (lie == LIE_NOT_OVER || lie == LIE_LATER)
				assert_int_equal(r, -MC_EINTERNAL);
			else if (lie == LIE_SHORT_HEADER || lie == LIE_TWICE || (lie == LIE_EARLY && op == MCE_READ))
				assert_int_equal(r, 0);
			else if (lie == LIE_EARLY)	/* accepted when all was sent already */
				assert_true(r == 0 || r == -MC_ETRANSFER);
			else
				assert_int_equal(r, -MC_ETRANSFER);
		}
	}
}

/* ---- a peer that does not read ---- */

struct sleeper {
	struct liar l;
	bool awake;		/* atomic */
	bool over, reset;	/* atomic; out: the connection has ended, and how */
};

static void sleep_then_read(struct impostor *im, int fd)
{
	struct sleeper *s = (struct sleeper *)im;
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	char buf[65536];
	ssize_t n;

	if (__atomic_load_n(&s->over, __ATOMIC_SEQ_CST) || !greet(&s->l, fd))
		return;
	while (!__atomic_load_n(&s->awake, __ATOMIC_SEQ_CST) && !impostor_stopping(im))
		usleep(1000);
	while (!impostor_stopping(im)) {
		n = recv(fd, buf, sizeof(buf), 0);
		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			s->reset = n < 0 && errno == ECONNRESET;
			__atomic_store_n(&s->over, true, __ATOMIC_SEQ_CST);
			return;
		}
		if (n < 0)
			poll(&pfd, 1, 20);
	}
}

static int64_t conns_open(void)
{
	int64_t n = -1;

	assert_int_equal(mc_metrics_lookup("mooncake_transfer_lanes", "direction=\"out\"", &n), 0);
	return n;
}

/* The kernel does not deliver a cancelled WRITE later, even when a child has the socket. */
static void a_cancelled_write_is_not_delivered_later(void **state)
{
	struct mce_conf conf = { .conns = 1, .progress_timeout_ms = 5000 };
	struct sleeper s = { .awake = false };
	struct iovec iov = { malloc(8 << 20), 8 << 20 };
	struct mce_req req = { .op = MCE_WRITE, .addr = 4096, .rkey = 1, .iov = &iov, .iovcnt = 1 };
	struct mce_req byte = { .op = MCE_WRITE, .addr = 4096, .rkey = 1, .iov = &(struct iovec){ iov.iov_base, 1 },
				.iovcnt = 1 };
	uint64_t until;
	struct side side;
	pid_t pid;

	assert_non_null(iov.iov_base);
	impostor_start(&s.l.im, sleep_then_read);
	side_open(&side, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(side.e, s.l.im.addr, &req.peer), 0);
	byte.peer = req.peer;
	/* It connects, possibly after the deadline, and gets no answer. */
	assert_int_equal(mce_transfer(side.e, &byte, mc_deadline_ms(1000)), -MC_ETIMEDOUT);
	for (until = SECONDS(20); conns_open() != 1 && mc_now_ns() < until;)
		usleep(1000);
	assert_int_equal(conns_open(), 1);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_int_equal(mce_transfer(side.e, &req, mc_deadline_ms(1000)), -MC_ETIMEDOUT);
	/* No progress: the connection is closed. */
	for (until = SECONDS(20); conns_open() > 0 && mc_now_ns() < until;)
		usleep(1000);
	__atomic_store_n(&s.awake, true, __ATOMIC_SEQ_CST);
	for (until = SECONDS(20); !__atomic_load_n(&s.over, __ATOMIC_SEQ_CST) && mc_now_ns() < until;)
		usleep(1000);
	assert_true(s.over && s.reset);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	mce_peer_put(req.peer);
	side_close(&side);
	impostor_stop(&s.l.im);
	free(iov.iov_base);
}

/* ---- a peer that answers a request before it is sent ---- */

#define HALF 4096u

struct hasty {
	struct liar l;
	bool go, sent;		/* atomic; send the answer; half of it is sent */
};

static bool answer_with(struct hasty *h, int fd, uint64_t id, char byte)
{
	struct mce_wire_resp a = { .type = MCE_FRAME_DATA, .id = id, .len = 2 * HALF };
	uint8_t bytes[MCE_RESP_SIZE + 2 * HALF];

	mce_resp_pack(bytes, &a);
	memset(bytes + MCE_RESP_SIZE, byte, 2 * HALF);
	return impostor_move(&h->l.im, fd, bytes, sizeof(bytes), true);
}

static bool ask_of(struct hasty *h, int fd, struct mce_wire_req *q)
{
	uint8_t b[MCE_REQ_SIZE];

	return impostor_move(&h->l.im, fd, b, sizeof(b), false) && mce_req_unpack(b, sizeof(b), q) == MCE_REQ_SIZE;
}

/* Two connections. Half of the next answer is sent on the first one, and the rest when a request arrives on the
 * second. */
static void answer_early(struct impostor *im, int fd)
{
	struct hasty *h = (struct hasty *)im;
	struct pollfd pfd = { .fd = im->listener, .events = POLLIN };
	struct mce_wire_resp a = { .type = MCE_FRAME_DATA, .len = 2 * HALF };
	uint8_t bytes[MCE_RESP_SIZE + HALF];
	struct mce_wire_req q;
	int second = -1;

	if (!greet(&h->l, fd) || !ask_of(h, fd, &q) || !answer_with(h, fd, q.id, 'a'))
		return;
	while (second < 0 && !impostor_stopping(im)) {
		poll(&pfd, 1, 20);
		second = mc_socket_accept(im->listener);
	}
	if (second < 0 || !greet(&h->l, second))
		goto out;
	while (!__atomic_load_n(&h->go, __ATOMIC_SEQ_CST) && !impostor_stopping(im))
		usleep(1000);
	/* The same fragment, used again. */
	a.id = q.id + (1ull << 32);
	mce_resp_pack(bytes, &a);
	memset(bytes + MCE_RESP_SIZE, 'x', HALF);
	if (!impostor_move(im, fd, bytes, sizeof(bytes), true))
		goto out;
	__atomic_store_n(&h->sent, true, __ATOMIC_SEQ_CST);
	if (!ask_of(h, second, &q))
		goto out;
	/* No request takes it: the connection ends. */
	(void)impostor_move(im, fd, bytes + MCE_RESP_SIZE, HALF, true);
	while (impostor_move(im, fd, bytes, 1, false))
		;
	if (answer_with(h, second, q.id, 'b'))
		(void)ask_of(h, second, &q);
out:
	if (second >= 0)
		close(second);
}

static void *submit_it(void *arg)
{
	struct mce_req *req = arg;

	mce_submit(NULL, req->batch, req, 1);
	return NULL;
}

/* A READ is being sent into a socket that accepts no bytes, is half answered, and cancelled: the rest of the
 * answer must not reach the next READ with the same id. */
static void an_early_answer_does_not_reach_the_next_read(void **state)
{
	struct mce_conf conf = { .conns = 2, .progress_timeout_ms = 20000 };
	struct hasty h = { .go = false };
	char mem[2][2 * HALF] = { "" };
	struct iovec iov[2] = { { mem[0], 2 * HALF }, { mem[1], 2 * HALF } };
	struct mce_batch b;
	struct mce_req req = { .op = MCE_READ, .addr = 4096, .rkey = 1, .iov = iov, .iovcnt = 1, .batch = &b };
	struct mce_req next = { .op = MCE_READ, .addr = 4096, .rkey = 1, .iov = iov + 1, .iovcnt = 1 };
	struct side side;
	uint64_t until;
	pthread_t t;

	impostor_start(&h.l.im, answer_early);
	side_open(&side, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(side.e, h.l.im.addr, &req.peer), 0);
	next.peer = req.peer;
	assert_int_equal(mce_transfer(side.e, &next, SECONDS(20)), 0);
	for (until = SECONDS(20); conns_open() != 2 && mc_now_ns() < until;)
		usleep(1000);
	assert_int_equal(conns_open(), 2);
	assert_int_equal(mc_fault_set("engine.tcp.send=delay:2000@1,engine.tcp.send=error:EAGAIN"), 0);
	mce_batch_init(&b);
	assert_int_equal(pthread_create(&t, NULL, submit_it, &req), 0);
	for (until = SECONDS(20); mc_fault_hits("engine.tcp.send") == 0 && mc_now_ns() < until;)
		usleep(100);
	__atomic_store_n(&h.go, true, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&h.sent, __ATOMIC_SEQ_CST) && mc_now_ns() < until)
		usleep(100);
	mce_req_poll(&req);
	pthread_join(t, NULL);
	assert_int_equal(mce_batch_wait(side.e, &b, &req, 1, mc_now_ns()), -MC_ETIMEDOUT);
	assert_int_equal(mem[0][HALF - 1], 'x');
	mc_fault_set(NULL);
	assert_int_equal(mce_transfer(side.e, &next, SECONDS(20)), 0);
	for (unsigned i = 0; i < 2 * HALF; i++)
		assert_int_equal(mem[1][i], 'b');
	mce_peer_put(req.peer);
	side_close(&side);
	impostor_stop(&h.l.im);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(invalid_answers_fail_the_request),
		cmocka_unit_test(a_cancelled_write_is_not_delivered_later),
		cmocka_unit_test(an_early_answer_does_not_reach_the_next_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
