/* SPDX-License-Identifier: Apache-2.0
 * test_engine_liar.c - the asking side against a peer that answers wrongly: it fails, it writes nowhere
 * else, and it lets go of its memory. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "engine/tcp_wire.h"

#define LEN 100000u

enum lie {
	LIE_NONE,
	LIE_SHORT_HEADER,	/* as headers once were: no lie */
	LIE_OTHER_ID,		/* an answer to no request */
	LIE_OTHER_TYPE,
	LIE_TOO_LONG,		/* more bytes than were asked for */
	LIE_TOO_SHORT,
	LIE_TWICE,		/* the same answer again */
	LIE_HALF,		/* and then the end */
	LIE_NONSENSE,		/* no header at all */
	LIE_EARLY,		/* an acknowledgement before the payload was taken */
	LIE_OLD_GREETING,	/* refuses our version */
	LIE_NO_WINDOW,
	LIE_MAX,
};

struct liar {
	int listener;
	char addr[MC_ADDR_MAX];
	pthread_t thread;
	enum lie lie;
	bool stop;
	unsigned served;
};

static bool move_all(struct liar *l, int fd, void *p, size_t n, bool out)
{
	struct pollfd pfd = { .fd = fd, .events = out ? POLLOUT : POLLIN };

	while (n) {
		ssize_t k = out ? send(fd, p, n, MSG_NOSIGNAL) : recv(fd, p, n, 0);

		if (k > 0) {
			p = (char *)p + k;
			n -= (size_t)k;
			continue;
		}
		if (k == 0 || errno != EAGAIN || __atomic_load_n(&l->stop, __ATOMIC_RELAXED))
			return false;
		poll(&pfd, 1, 20);
	}
	return true;
}

static bool greet(struct liar *l, int fd)
{
	struct mce_greeting g = {
		.version = 1, .version_min = 1, .len_max = 1 << 20, .window = 256,
		.id = { .nonce = { 1, 2, 3 } },
	};
	uint8_t b[MCE_GREETING_SIZE];

	if (!move_all(l, fd, b, sizeof(b), false))
		return false;
	if (l->lie == LIE_OLD_GREETING)
		g.status = mc_err_to_wire(-MC_EVERSION);
	if (l->lie == LIE_NO_WINDOW)
		g.window = 0;
	mce_greeting_pack(b, &g);
	return move_all(l, fd, b, sizeof(b), true);
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
		if (l->lie != LIE_EARLY && !move_all(l, fd, bytes, q->len, false))
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
	if (!move_all(l, fd, bytes, n, true))
		return false;
	return l->lie != LIE_HALF;
}

static void serve(struct liar *l, int fd)
{
	struct mce_wire_req q = { .type = 0 };
	uint8_t b[MCE_REQ_SIZE];

	if (!greet(l, fd))
		return;
	while (move_all(l, fd, b, sizeof(b), false))
		if (mce_req_unpack(b, sizeof(b), &q) != MCE_REQ_SIZE || !answer(l, fd, &q))
			return;
}

static void *liar_main(void *arg)
{
	struct liar *l = arg;
	struct pollfd pfd = { .fd = l->listener, .events = POLLIN };
	int fd;

	while (!__atomic_load_n(&l->stop, __ATOMIC_RELAXED)) {
		poll(&pfd, 1, 20);
		fd = mc_accept(l->listener);
		if (fd < 0)
			continue;
		serve(l, fd);
		close(fd);
	}
	return NULL;
}

static int ask_liar(enum lie lie, enum mce_op op)
{
	struct mce_conf conf = { .lanes = 1, .progress_timeout_ms = 20000 };
	struct liar l = { .lie = lie };
	char *mem = malloc(3 * LEN);
	struct mce_peer *peer;
	struct side s;
	int r;

	l.listener = mc_listen("127.0.0.1:0", 8, 0, l.addr);
	assert_true(l.listener >= 0);
	assert_int_equal(pthread_create(&l.thread, NULL, liar_main, &l), 0);
	side_open(&s, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, l.addr, &peer), 0);
	memset(mem, 0x11, 3 * LEN);
	r = transfer(s.e, peer, op, 4096, 1, mem + LEN, LEN, NULL);
	for (unsigned i = 0; i < LEN; i++)
		assert_true(mem[i] == 0x11 && mem[2 * LEN + i] == 0x11);
	if (r == 0 && op == MCE_READ)
		for (unsigned i = 0; i < LEN; i++)
			assert_int_equal((uint8_t)mem[LEN + i], 0x99);
	/* Under AddressSanitizer: nobody uses it any more. */
	free(mem);
	mce_peer_put(peer);
	side_close(&s);
	__atomic_store_n(&l.stop, true, __ATOMIC_RELAXED);
	pthread_join(l.thread, NULL);
	close(l.listener);
	return r;
}

static void lies(void **state)
{
	int r;

	for (int op = MCE_READ; op <= MCE_WRITE; op++) {
		assert_int_equal(ask_liar(LIE_NONE, (enum mce_op)op), 0);
		for (int lie = LIE_NONE + 1; lie < LIE_MAX; lie++) {
			r = ask_liar((enum lie)lie, (enum mce_op)op);
			if (lie == LIE_OLD_GREETING)
				assert_int_equal(r, -MC_EVERSION);
			else if (lie == LIE_SHORT_HEADER || lie == LIE_TWICE || (lie == LIE_EARLY && op == MCE_READ))
				assert_int_equal(r, 0);
			else if (lie == LIE_EARLY)	/* believed when all was out already */
				assert_true(r == 0 || r == -MC_ETRANSFER);
			else
				assert_int_equal(r, -MC_ETRANSFER);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
