/* SPDX-License-Identifier: Apache-2.0
 * test_engine_late.c - a WRITE that was cancelled while its bytes were in flight never overwrites a later WRITE
 * to the same range. Between the engines a forwarder delays connections. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "engine/shm/mapped.h"
#include "engine/tcp/tcp_wire.h"

#define LEN (64u << 10)
#define PAIRS 32u
#define WHOLE (LEN + MCE_REQ_SIZE)	/* a WRITE with its header */
#define HELD_MAX (2u << 20)		/* more than a connection has in flight */
#define TICK_MS 2

/* ---- the forwarder ------------------------------------------------------------------------------ */

struct pair {
	int client, server;	/* -1: ended */
	bool held;		/* bytes of the client are kept here, also after the client has closed */
	uint64_t answered;	/* bytes of the server */
	size_t n;
	char *bytes;
};

static struct forwarder {
	struct mc_mutex lock;
	pthread_t thread;
	int listener;
	char addr[MC_ADDR_MAX], to[MC_ADDR_MAX];
	bool stop, refuses;
	unsigned n, max;	/* connections, those that are taken */
	struct pair pair[PAIRS];
} fw = { .lock = MC_MUTEX_INIT };

static void end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void take_new(void)
{
	struct pair *p = &fw.pair[fw.n];
	int fd = mc_socket_accept(fw.listener);

	if (fd < 0)
		return;
	if (fw.refuses || fw.n == fw.max) {
		close(fd);
		return;
	}
	*p = (struct pair){ .client = fd, .server = mc_socket_connect(fw.to, SECONDS(5)), .bytes = malloc(HELD_MAX) };
	/* Not cmocka's thread. */
	if (p->server < 0 || !p->bytes)
		abort();
	fw.n++;
}

/* False: the other end has gone. */
static bool give(int to, const char *bytes, size_t n)
{
	struct pollfd pfd = { .fd = to, .events = POLLOUT };

	while (n) {
		ssize_t k = send(to, bytes, n, MSG_NOSIGNAL);

		if (k < 0 && errno != EAGAIN)
			return false;
		if (k < 0) {
			poll(&pfd, 1, 1000);
			continue;
		}
		bytes += k;
		n -= (size_t)k;
	}
	return true;
}

static void forward(struct pair *p)
{
	char buf[4096];
	ssize_t k;

	while (p->client >= 0 && p->n < HELD_MAX) {
		k = recv(p->client, p->bytes + p->n, HELD_MAX - p->n, MSG_DONTWAIT);
		if (k == 0 || (k < 0 && errno != EAGAIN))
			end(&p->client);
		if (k <= 0)
			break;
		p->n += (size_t)k;
	}
	if (p->n && !p->held && p->server >= 0) {
		if (!give(p->server, p->bytes, p->n))
			end(&p->server);
		p->n = 0;
	}
	while (p->server >= 0) {
		k = recv(p->server, buf, sizeof(buf), MSG_DONTWAIT);
		if (k == 0 || (k < 0 && errno != EAGAIN))
			end(&p->server);
		if (k <= 0)
			break;
		p->answered += (size_t)k;
		if (p->client >= 0 && !give(p->client, buf, (size_t)k))
			end(&p->client);
	}
	if (p->server < 0 || (p->client < 0 && !p->held && !p->n)) {
		end(&p->client);
		end(&p->server);
	}
}

static void *forwarder_main(void *arg)
{
	bool stop;

	(void)arg;
	do {
		poll(NULL, 0, TICK_MS);
		mc_mutex_lock(&fw.lock);
		take_new();
		for (unsigned i = 0; i < fw.n; i++)
			forward(&fw.pair[i]);
		stop = fw.stop;
		mc_mutex_unlock(&fw.lock);
	} while (!stop);
	return NULL;
}

/* ---- one engine that writes through it, and one that is written to ------------------------------ */

struct fixture {
	struct side s;
	struct mce_mr *mr;	/* where is written to */
	char *to;
	struct mce_engine *e;
	struct mce_peer *peer;
	char mem[LEN];
	struct iovec iov;
	struct mce_req req;
	struct mce_batch b;
};

static struct mce_req *request(struct fixture *f, uint64_t seed)
{
	pattern_fill(f->mem, LEN, seed, 0);
	f->iov = (struct iovec){ f->mem, LEN };
	f->req = (struct mce_req){
		.op = MCE_WRITE, .peer = f->peer, .addr = (uintptr_t)f->to, .rkey = mce_mr_rkey(f->mr),
		.iov = &f->iov, .iovcnt = 1,
	};
	return &f->req;
}

static int write_within(struct fixture *f, uint64_t seed, unsigned ms)
{
	return mce_transfer(f->e, request(f, seed), mc_deadline_ms(ms));
}

static bool conns_are(int64_t n)
{
	int64_t up = -1;

	return mc_metrics_lookup("mooncake_transfer_lanes", "direction=\"out\"", &up) == 0 && up == n;
}

static void wait_conns(int64_t n)
{
	for (uint64_t until = SECONDS(20); !conns_are(n) && mc_now_ns() < until;)
		poll(NULL, 0, 1);
	assert_true(conns_are(n));
}

static void begin(struct fixture *f, unsigned progress_ms)
{
	struct mce_conf conf = { .conns = 2, .force_tcp = true, .progress_timeout_ms = progress_ms };

	side_open(&f->s, NULL, LEN, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 1);
	f->mr = f->s.mr;
	f->to = f->s.mem;
	strcpy(fw.to, mce_engine_endpoint(f->s.e));
	fw.listener = mc_socket_listen("127.0.0.1:0", 8, 0, fw.addr);
	fw.stop = fw.refuses = false;
	fw.n = 0;
	fw.max = PAIRS;
	assert_true(fw.listener >= 0);
	assert_int_equal(pthread_create(&fw.thread, NULL, forwarder_main, NULL), 0);
	assert_int_equal(mce_engine_open(&conf, &f->e), 0);
	assert_int_equal(mce_peer_get(f->e, fw.addr, &f->peer), 0);
	for (uint64_t until = mc_deadline_ms(20000); !conns_are(2) && mc_now_ns() < until;)
		assert_int_equal(write_within(f, 2, 20000), 0);
	assert_true(conns_are(2));
}

static void finish(struct fixture *f)
{
	mce_peer_put(f->peer);
	mce_engine_close(f->e);
	mc_mutex_lock(&fw.lock);
	fw.stop = true;
	mc_mutex_unlock(&fw.lock);
	pthread_join(fw.thread, NULL);
	for (unsigned i = 0; i < fw.n; i++) {
		end(&fw.pair[i].client);
		end(&fw.pair[i].server);
		free(fw.pair[i].bytes);
	}
	close(fw.listener);
	side_close(&f->s);
}

static void take_at_most(unsigned max)
{
	MC_LOCKED(&fw.lock);
	fw.max = max;
}

static void hold_all(void)
{
	MC_LOCKED(&fw.lock);
	for (unsigned i = 0; i < fw.n; i++)
		fw.pair[i].held = true;
}

/* Connections with whole WRITEs that are held, and the bytes of all. */
static unsigned count_held(size_t *ret_bytes)
{
	unsigned n = 0;

	*ret_bytes = 0;
	MC_LOCKED(&fw.lock);
	for (unsigned i = 0; i < fw.n; i++) {
		n += fw.pair[i].n > 0 && fw.pair[i].n % WHOLE == 0;
		*ret_bytes += fw.pair[i].n;
	}
	return n;
}

/* Wait until @pairs of them are held and no byte has arrived for @still_ms: cancelling a partly sent WRITE would
 * close its connection. */
static void wait_held(unsigned pairs, unsigned still_ms)
{
	uint64_t until = mc_deadline_ms(20000), since = mc_now_ns(), now = since;
	size_t bytes = 0, before;

	do {
		poll(NULL, 0, 1);
		before = bytes;
		now = mc_now_ns();
		if (count_held(&bytes) < pairs || (still_ms && bytes != before))
			since = now;
		else if (now - since >= still_ms * MC_NS_PER_MS)
			return;
	} while (now < until);
}

/* Cancel a WRITE when all of it has left the engine. Its connection stays held. */
static struct pair *give_up(struct fixture *f)
{
	struct pair *ret = NULL;

	hold_all();
	request(f, 3);
	mce_batch_init(&f->b);
	mce_submit(f->e, &f->b, &f->req, 1);
	wait_held(1, 0);
	assert_int_equal(mce_batch_wait(f->e, &f->b, &f->req, 1, mc_deadline_ms(1)), -MC_ETIMEDOUT);
	MC_LOCKED(&fw.lock);
	for (unsigned i = 0; i < fw.n; i++)
		if (fw.pair[i].n >= LEN)
			ret = &fw.pair[i];
		else
			fw.pair[i].held = false;
	assert_non_null(ret);
	return ret;
}

/* Forward the held bytes; returns when the owner has processed them. */
static void let_go(const struct pair *held)
{
	struct pair *p = &fw.pair[held - fw.pair];
	uint64_t until = mc_deadline_ms(20000), before;
	bool over = false;

	mc_mutex_lock(&fw.lock);
	before = p->answered;
	p->held = false;
	mc_mutex_unlock(&fw.lock);
	while (!over && mc_now_ns() < until) {
		poll(NULL, 0, TICK_MS);
		mc_mutex_lock(&fw.lock);
		over = p->server < 0 || (p->n == 0 && p->answered > before);
		mc_mutex_unlock(&fw.lock);
	}
	assert_true(over);
}

static void cut(struct pair *p)
{
	MC_LOCKED(&fw.lock);
	end(&p->client);
	end(&p->server);
}

static int64_t failed_connects(void)
{
	int64_t n = 0;

	assert_int_equal(mc_metrics_lookup("mooncake_transfer_connect_errors_total", "", &n), 0);
	return n;
}

/* ---- cases -------------------------------------------------------------------------------------- */

/* The connection is held for a while, and then continues. */
static void a_delayed_write_does_not_overwrite_a_later_one(void **state)
{
	struct fixture *f = *state;
	const struct pair *held;

	begin(f, 20000);
	held = give_up(f);
	request(f, 4);
	mce_batch_init(&f->b);
	mce_submit(f->e, &f->b, &f->req, 1);
	/* Long enough for a connection that did not wait. */
	for (uint64_t until = mc_deadline_ms(300); mce_req_status(&f->req) == -EINPROGRESS && mc_now_ns() < until;)
		poll(NULL, 0, TICK_MS);
	let_go(held);
	assert_int_equal(mce_batch_wait(f->e, &f->b, &f->req, 1, SECONDS(20)), 0);
	assert_int_equal(f->req.status, 0);
	pattern_check(f->s.mem, LEN, 4, 0);
	/* No doubt is left. */
	assert_int_equal(write_within(f, 5, 20000), 0);
	pattern_check(f->s.mem, LEN, 5, 0);
	finish(f);
}

/* The connection times out, too, and its bytes arrive when there is another one. */
static void a_lost_write_does_not_overwrite_a_later_one(void **state)
{
	struct fixture *f = *state;
	const struct pair *held;

	begin(f, 2000);
	held = give_up(f);
	assert_int_equal(write_within(f, 4, 20000), 0);
	let_go(held);
	pattern_check(f->s.mem, LEN, 4, 0);
	finish(f);
}

/* There is no other connection: nothing is written until there is one. */
static void writes_fail_while_the_connection_in_doubt_is_down(void **state)
{
	struct fixture *f = *state;
	const struct pair *held;

	begin(f, 2000);
	held = give_up(f);
	mc_mutex_lock(&fw.lock);
	fw.refuses = true;
	mc_mutex_unlock(&fw.lock);
	assert_int_equal(write_within(f, 4, 20000), -MC_ETRANSFER);
	assert_int_equal(write_within(f, 5, 20000), -MC_ETRANSFER);
	mc_mutex_lock(&fw.lock);
	fw.refuses = false;
	mc_mutex_unlock(&fw.lock);
	assert_int_equal(write_within(f, 6, 20000), 0);
	let_go(held);
	pattern_check(f->s.mem, LEN, 6, 0);
	finish(f);
}

/* Cancel more WRITEs than fit on one connection; their bytes are held on both. */
static void give_up_on_both(struct fixture *f)
{
	struct mce_req reqs[40];
	struct mce_batch b;

	hold_all();
	request(f, 3);
	for (unsigned i = 0; i < 40; i++)
		reqs[i] = f->req;
	mce_batch_init(&b);
	mce_submit(f->e, &b, reqs, 40);
	wait_held(2, 200);
	assert_int_equal(mce_batch_wait(f->e, &b, reqs, 40, mc_deadline_ms(1)), -MC_ETIMEDOUT);
	MC_LOCKED(&fw.lock);
	assert_int_equal(fw.n, 2);
	assert_true(fw.pair[0].n > LEN && fw.pair[1].n > LEN);
}

/* The handle of the peer was put meanwhile, and a new one is used. */
static void a_write_of_a_freed_handle_overwrites_no_later_one(void **state)
{
	struct fixture *f = *state;
	int64_t failed;

	begin(f, 20000);
	give_up_on_both(f);
	failed = failed_connects();
	mce_peer_put(f->peer);
	assert_int_equal(mce_peer_get(f->e, fw.addr, &f->peer), 0);
	/* One connection is not enough. */
	take_at_most(3);
	assert_int_equal(write_within(f, 4, 20000), -MC_ETRANSFER);
	assert_int_equal(failed_connects(), failed + 1);
	take_at_most(PAIRS);
	assert_int_equal(write_within(f, 5, 20000), 0);
	let_go(&fw.pair[0]);
	let_go(&fw.pair[1]);
	pattern_check(f->s.mem, LEN, 5, 0);
	/* A third handle inherits no doubt. */
	mce_peer_put(f->peer);
	assert_int_equal(mce_peer_get(f->e, fw.addr, &f->peer), 0);
	assert_int_equal(write_within(f, 6, 20000), 0);
	pattern_check(f->s.mem, LEN, 6, 0);
	finish(f);
}

/* READs do not wait for connections in doubt, and do not try to connect them each time. */
static void reads_do_not_wait_for_connections_in_doubt(void **state)
{
	struct fixture *f = *state;
	int64_t before;

	begin(f, 2000);
	give_up(f);
	mc_mutex_lock(&fw.lock);
	fw.refuses = true;
	mc_mutex_unlock(&fw.lock);
	assert_int_equal(write_within(f, 4, 20000), -MC_ETRANSFER);
	before = failed_connects();
	for (unsigned i = 0; i < 200; i++) {
		request(f, 5)->op = MCE_READ;
		assert_int_equal(mce_transfer(f->e, &f->req, SECONDS(20)), 0);
	}
	/* One attempt a second and connection. */
	assert_true(failed_connects() - before < 50);
	mc_mutex_lock(&fw.lock);
	fw.refuses = false;
	mc_mutex_unlock(&fw.lock);
	assert_int_equal(write_within(f, 6, 20000), 0);
	pattern_check(f->s.mem, LEN, 6, 0);
	finish(f);
}

/* The engines are on one host, and the WRITE used TCP because all hazard slots were taken; the next WRITE could
 * use process_vm, and waits for the first. */
static void a_write_on_another_path_waits_for_the_one_in_doubt(void **state)
{
	static char plain[LEN];
	struct mce_mr_attr attr = { .base = plain, .len = LEN, .fd = -1, .access = MCE_ACCESS_WRITE };
	const struct pair *held;
	struct fixture *f = *state;

	if (path_without_fd() != MCE_PATH_PROCESS_VM) {
		skip();
		return;
	}
	begin(f, 20000);
	mce_peer_put(f->peer);
	mce_engine_close(f->e);
	assert_int_equal(mce_engine_open(&(struct mce_conf){ .conns = 1 }, &f->e), 0);
	assert_int_equal(mce_peer_get(f->e, fw.addr, &f->peer), 0);
	assert_int_equal(mce_mr_register(f->s.e, &attr, &f->mr), 0);
	f->to = plain;
	assert_int_equal(write_within(f, 2, 20000), 0);
	assert_int_equal(f->req.path, MCE_PATH_PROCESS_VM);
	assert_int_equal(mc_fault_set("engine.process_vm.slot=error:EBUSY"), 0);
	held = give_up(f);
	mc_fault_set(NULL);
	request(f, 4);
	mce_batch_init(&f->b);
	mce_submit(f->e, &f->b, &f->req, 1);
	let_go(held);
	assert_int_equal(mce_batch_wait(f->e, &f->b, &f->req, 1, SECONDS(20)), 0);
	assert_int_equal(f->req.status, 0);
	assert_int_equal(f->req.path, MCE_PATH_TCP);
	pattern_check(plain, LEN, 4, 0);
	/* No WRITE is in doubt any more. */
	assert_int_equal(write_within(f, 5, 20000), 0);
	assert_int_equal(f->req.path, MCE_PATH_PROCESS_VM);
	pattern_check(plain, LEN, 5, 0);
	finish(f);
}

/* A WRITE is sent, held, and loses its connection. */
static void lose_the_conn(struct fixture *f)
{
	struct pair *with = NULL;

	hold_all();
	request(f, 6);
	mce_batch_init(&f->b);
	mce_submit(f->e, &f->b, &f->req, 1);
	wait_held(1, 0);
	mc_mutex_lock(&fw.lock);
	for (unsigned i = 0; i < fw.n; i++)
		if (fw.pair[i].n >= LEN)
			with = &fw.pair[i];
		else
			fw.pair[i].held = false;
	mc_mutex_unlock(&fw.lock);
	assert_non_null(with);
	cut(with);
}

static void is_repeated(struct fixture *f)
{
	assert_int_equal(mce_batch_wait(f->e, &f->b, &f->req, 1, SECONDS(20)), 0);
	assert_int_equal(f->req.status, 0);
	pattern_check(f->to, LEN, 6, 0);
}

/* The connection could not be made a moment ago and is not due for another attempt, but was made since, when no
 * other one was up. */
static void a_write_is_repeated_on_a_reconnected_connection(void **state)
{
	struct fixture *f = *state;
	int64_t failed;

	begin(f, 20000);
	failed = failed_connects();
	take_at_most(2);
	cut(&fw.pair[0]);
	wait_conns(1);
	request(f, 5)->op = MCE_READ;
	assert_int_equal(mce_transfer(f->e, &f->req, SECONDS(20)), 0);
	for (uint64_t until = SECONDS(20); failed_connects() == failed && mc_now_ns() < until;)
		poll(NULL, 0, 1);
	assert_true(failed_connects() > failed);
	take_at_most(PAIRS);
	cut(&fw.pair[1]);
	wait_conns(0);
	assert_int_equal(write_within(f, 5, 20000), 0);
	wait_conns(2);
	lose_the_conn(f);
	is_repeated(f);
	finish(f);
}

/* No resolver can be started to replace the connection at that time. */
static void a_write_is_repeated_when_no_resolver_starts(void **state)
{
	struct fixture *f = *state;

	begin(f, 20000);
	assert_int_equal(mc_fault_set("engine.peer.resolver=error:MC_ELIMIT@1"), 0);
	lose_the_conn(f);
	is_repeated(f);
	assert_true(mc_fault_hits("engine.peer.resolver") > 1);
	mc_fault_set(NULL);
	finish(f);
}

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct fixture));
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_delayed_write_does_not_overwrite_a_later_one, setup, teardown),
		cmocka_unit_test_setup_teardown(a_lost_write_does_not_overwrite_a_later_one, setup, teardown),
		cmocka_unit_test_setup_teardown(writes_fail_while_the_connection_in_doubt_is_down, setup, teardown),
		cmocka_unit_test_setup_teardown(a_write_of_a_freed_handle_overwrites_no_later_one, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_do_not_wait_for_connections_in_doubt, setup, teardown),
		cmocka_unit_test_setup_teardown(a_write_on_another_path_waits_for_the_one_in_doubt, setup, teardown),
		cmocka_unit_test_setup_teardown(a_write_is_repeated_on_a_reconnected_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(a_write_is_repeated_when_no_resolver_starts, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
