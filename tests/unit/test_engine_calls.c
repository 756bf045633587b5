/* SPDX-License-Identifier: Apache-2.0
 * test_engine_calls.c - the system calls with which an engine moves bytes over TCP: connections stay open,
 * requests are in flight in parallel, up to a bound, header and payload leave in one call, payload is received
 * into its destination; and the call in which a waiting thread sleeps. */
#include <config.h>

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "engine/engine_i.h"
#include "engine/tcp/tcp_client.h"
#include "engine/tcp/tcp_wire.h"
#include "tests/unit/test_engine_fixture.h"

#define LEN (8u << 20)
#define SEED 3
#define SMALL 4096u
#define MANY 256u
#define FDS 1024

/* Sums over the wrapped calls since calls_forget(), also those of the I/O threads. */
static struct {
	struct mc_mutex lock;
	const char *from, *to;	/* the destination of reads */
	unsigned sends;
	uint64_t most_sent;	/* by one call */
	uint64_t received, received_there;
	uint64_t sent_on[FDS];
} calls = { .lock = MC_MUTEX_INIT };

ssize_t __real_send(int fd, const void *p, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *p, size_t len, int flags);
ssize_t __real_recv(int fd, void *p, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);

/* A slow thread: its send returns only when the answer has arrived and was processed. */
static __thread bool dawdles;
static bool is_out;
#define LONG_ENOUGH_US 50000

static uint64_t received(void)
{
	MC_LOCKED(&calls.lock);
	return calls.received;
}

static void dawdle(void)
{
	uint64_t until = SECONDS(20);

	__atomic_store_n(&is_out, true, __ATOMIC_RELEASE);
	while (received() < SMALL && mc_now_ns() < until)
		usleep(100);
	usleep(LONG_ENOUGH_US);
}

static ssize_t count_sent(int fd, ssize_t n)
{
	if (dawdles)
		dawdle();

	mc_mutex_lock(&calls.lock);
	if (n > 0 && fd < FDS) {
		calls.sends++;
		calls.sent_on[fd] += (uint64_t)n;
		if ((uint64_t)n > calls.most_sent)
			calls.most_sent = (uint64_t)n;
	}
	mc_mutex_unlock(&calls.lock);
	return n;
}

static ssize_t count_received(const struct iovec *iov, size_t niov, ssize_t n)
{
	ssize_t left = n;

	mc_mutex_lock(&calls.lock);
	calls.received += n > 0 ? (uint64_t)n : 0;
	for (size_t i = 0; i < niov && left > 0; i++) {
		const char *at = iov[i].iov_base;
		size_t here = (size_t)left < iov[i].iov_len ? (size_t)left : iov[i].iov_len;

		if (at >= calls.from && at + here <= calls.to)
			calls.received_there += here;
		left -= (ssize_t)here;
	}
	mc_mutex_unlock(&calls.lock);
	return n;
}

ssize_t __wrap_send(int fd, const void *p, size_t len, int flags)
{
	return count_sent(fd, __real_send(fd, p, len, flags));
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return count_sent(fd, __real_sendmsg(fd, msg, flags));
}

ssize_t __wrap_recv(int fd, void *p, size_t len, int flags)
{
	const struct iovec iov = { p, len };

	return count_received(&iov, 1, __real_recv(fd, p, len, flags));
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	return count_received(msg->msg_iov, msg->msg_iovlen, __real_recvmsg(fd, msg, flags));
}

/* A patient thread sleeps until an event, not for the time that it asked for. */
static __thread bool patient;
static __thread unsigned waits;
static bool asleep;
#define PATIENCE_S 60

int __real_epoll_wait(int fd, struct epoll_event *ev, int max, int ms);
int __wrap_epoll_wait(int fd, struct epoll_event *ev, int max, int ms);

int __wrap_epoll_wait(int fd, struct epoll_event *ev, int max, int ms)
{
	waits++;
	if (!patient || ms == 0)
		return __real_epoll_wait(fd, ev, max, ms);
	__atomic_store_n(&asleep, true, __ATOMIC_RELEASE);
	return __real_epoll_wait(fd, ev, max, PATIENCE_S * 1000);
}

static void calls_forget(const char *from, uint64_t len)
{
	mc_mutex_lock(&calls.lock);
	calls.from = from;
	calls.to = from + len;
	calls.sends = 0;
	calls.most_sent = calls.received = calls.received_there = 0;
	memset(calls.sent_on, 0, sizeof(calls.sent_on));
	mc_mutex_unlock(&calls.lock);
}

struct client {
	struct owner o;
	struct mce_engine *e;
	struct mce_peer *peer;
	char *mem;
};

static int setup(void **state)
{
	static const struct mce_conf conf = { .force_tcp = true };
	static const struct owner_conf oc = { .len = LEN, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .seed = SEED };
	struct client *c = calloc(1, sizeof(*c));
	enum mce_path path;

	c->mem = calloc(1, LEN);
	if (owner_start(&c->o, &oc))
		return -1;
	assert_int_equal(mce_engine_open(&conf, &c->e), 0);
	assert_int_equal(mce_peer_get(c->e, c->o.endpoint, &c->peer), 0);
	/* Wait until both connections are up; the second one follows later. */
	for (int64_t up = 0, i = 0; up < 2 && i < 1000; i++) {
		assert_int_equal(transfer(c->e, c->peer, MCE_READ, c->o.addr, c->o.rkey, c->mem, LEN, &path), 0);
		assert_int_equal(path, MCE_PATH_TCP);
		assert_int_equal(mc_metrics_lookup("mooncake_transfer_lanes", "direction=\"out\"", &up), 0);
	}
	*state = c;
	return 0;
}

static int teardown(void **state)
{
	struct client *c = *state;

	mce_peer_put(c->peer);
	mce_engine_close(c->e);
	owner_stop(&c->o);
	free(c->mem);
	free(c);
	return 0;
}

static void move(struct client *c, enum mce_op op, uint64_t len)
{
	enum mce_path path;

	assert_int_equal(transfer(c->e, c->peer, op, c->o.addr, c->o.rkey, c->mem, len, &path), 0);
}

static void header_and_payload_leave_in_one_call(void **state)
{
	struct client *c = *state;

	pattern_fill(c->mem, 64 << 10, SEED, 0);
	calls_forget(c->mem, LEN);
	move(c, MCE_WRITE, 64 << 10);
	assert_int_equal(calls.sends, 1);
	assert_int_equal(calls.most_sent, MCE_REQ_SIZE + (64 << 10));
	calls_forget(c->mem, LEN);
	move(c, MCE_READ, 64 << 10);
	assert_int_equal(calls.sends, 1);
	assert_int_equal(calls.most_sent, MCE_REQ_SIZE);
}

static void payload_is_received_into_its_destination(void **state)
{
	struct client *c = *state;
	uint64_t received, there;

	calls_forget(c->mem, LEN);
	memset(c->mem, 0, LEN);
	move(c, MCE_READ, LEN);
	pattern_check(c->mem, LEN, SEED, 0);
	/* All bytes except those received ahead with a header. A thread may still be receiving. */
	mc_mutex_lock(&calls.lock);
	received = calls.received;
	there = calls.received_there;
	mc_mutex_unlock(&calls.lock);
	assert_true(received >= LEN);
	assert_true(there > LEN - LEN / 64);
}

static void a_long_request_uses_all_connections(void **state)
{
	struct client *c = *state;
	unsigned used = 0;

	pattern_fill(c->mem, LEN, SEED, 0);
	calls_forget(c->mem, LEN);
	move(c, MCE_WRITE, LEN);
	for (unsigned i = 0; i < FDS; i++)
		used += calls.sent_on[i] > 512 << 10;
	assert_int_equal(used, 2);
}

/* A batch of small requests: many leave with one call, and are in flight before the first is answered. */
static void small_requests_share_calls(void **state)
{
	static struct mce_req reqs[MANY];
	static struct iovec iov[MANY];
	struct client *c = *state;
	struct mce_batch b;

	memset(reqs, 0, sizeof(reqs));
	pattern_fill(c->mem, MANY * SMALL, SEED, 0);
	for (unsigned i = 0; i < MANY; i++) {
		iov[i] = (struct iovec){ c->mem + i * SMALL, SMALL };
		reqs[i] = (struct mce_req){
			.op = MCE_WRITE, .peer = c->peer, .addr = c->o.addr + i * SMALL, .rkey = c->o.rkey,
			.iov = &iov[i], .iovcnt = 1,
		};
	}
	calls_forget(c->mem, LEN);
	mce_batch_init(&b);
	mce_submit(c->e, &b, reqs, MANY);
	assert_int_equal(mce_batch_wait(c->e, &b, reqs, MANY, SECONDS(30)), 0);
	assert_int_equal(b.failed, 0);
	assert_true(calls.most_sent >= 64 * SMALL);
	assert_true(calls.sends <= MANY / 4);
}

static void connections_stay_open_between_requests(void **state)
{
	struct client *c = *state;
	int64_t up, again;

	for (unsigned i = 0; i < 200; i++)
		move(c, i % 2 ? MCE_READ : MCE_WRITE, SMALL);
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_lanes", "direction=\"out\"", &up), 0);
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_reconnects_total", "", &again), 0);
	assert_int_equal(up, 2);
	assert_int_equal(again, 0);
}

/* A peer that reads nothing is sent no more than the bound of a connection on each, even if the sockets have more
 * room. */
static void bytes_in_flight_per_connection_are_bounded(void **state)
{
	struct mce_req reqs[8];
	struct iovec iov[8];
	struct client *c = *state;
	struct mce_batch b;
	uint64_t sent = 0, most = 0;

	memset(reqs, 0, sizeof(reqs));
	for (unsigned i = 0; i < 8; i++) {
		iov[i] = (struct iovec){ c->mem, LEN };
		reqs[i] = (struct mce_req){
			.op = MCE_WRITE, .peer = c->peer, .addr = c->o.addr, .rkey = c->o.rkey,
			.iov = &iov[i], .iovcnt = 1,
		};
	}
	assert_int_equal(kill(c->o.pid, SIGSTOP), 0);
	/* kill() alone does not wait until the process has stopped. */
	assert_int_equal(waitpid(c->o.pid, NULL, WUNTRACED), c->o.pid);
	calls_forget(c->mem, LEN);
	mce_batch_init(&b);
	mce_submit(c->e, &b, reqs, 8);
	assert_int_equal(mce_batch_wait(c->e, &b, reqs, 8, mc_deadline_ms(300)), -MC_ETIMEDOUT);
	for (unsigned i = 0; i < FDS; i++) {
		most = calls.sent_on[i] > most ? calls.sent_on[i] : most;
		sent += calls.sent_on[i];
	}
	/* Before any assertion: a stopped owner could not be ended. */
	assert_int_equal(kill(c->o.pid, SIGCONT), 0);
	assert_true(most <= (1 << 20) + 64 * MCE_REQ_SIZE);
	assert_true(sent > 64 << 10);
	move(c, MCE_READ, SMALL);
}

static void *cancel_main(void *arg)
{
	struct mce_req *req = arg;

	while (!__atomic_load_n(&asleep, __ATOMIC_ACQUIRE))
		usleep(100);
	mce_peer_cancel(req->peer, req, -ECANCELED);
	return NULL;
}

/* A thread that waits for little sleeps on the connections; it is woken when another thread has ended its request. */
static void a_cancelling_thread_wakes_the_waiting_one(void **state)
{
	struct client *c = *state;
	struct iovec iov = { c->mem, SMALL };
	struct mce_req req = {
		.op = MCE_READ, .peer = c->peer, .addr = c->o.addr, .rkey = c->o.rkey, .iov = &iov, .iovcnt = 1,
	};
	uint64_t began = mc_now_ns(), took;
	struct mce_batch b;
	pthread_t t;

	assert_int_equal(kill(c->o.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(c->o.pid, NULL, WUNTRACED), c->o.pid);
	mce_batch_init(&b);
	mce_submit(c->e, &b, &req, 1);
	assert_int_equal(pthread_create(&t, NULL, cancel_main, &req), 0);
	patient = true;
	assert_int_equal(mce_batch_wait(c->e, &b, &req, 1, SECONDS(2 * PATIENCE_S)), 0);
	patient = false;
	took = mc_now_ns() - began;
	pthread_join(t, NULL);
	assert_int_equal(kill(c->o.pid, SIGCONT), 0);
	assert_int_equal(req.status, -ECANCELED);
	assert_true(took < PATIENCE_S / 2 * MC_NS_PER_SEC);
	move(c, MCE_READ, SMALL);
}

struct dawdler {
	struct client *c;
	struct mce_req *req;
	struct mce_batch b;
};

static void *dawdler_main(void *arg)
{
	struct dawdler *d = arg;

	dawdles = true;
	mce_submit(d->c->e, &d->b, d->req, 1);
	dawdles = false;
	return NULL;
}

/* The waiting thread received the answer itself while another thread was still in the call that sent the request:
 * the other thread ends the request. */
static void the_sending_thread_wakes_the_waiting_one(void **state)
{
	struct client *c = *state;
	struct iovec iov = { c->mem, SMALL };
	struct mce_req req = {
		.op = MCE_READ, .peer = c->peer, .addr = c->o.addr, .rkey = c->o.rkey, .iov = &iov, .iovcnt = 1,
	};
	struct dawdler d = { .c = c, .req = &req };
	uint64_t began = mc_now_ns();
	pthread_t t;

	move(c, MCE_READ, SMALL);
	calls_forget(c->mem, LEN);
	mce_batch_init(&d.b);
	__atomic_store_n(&is_out, false, __ATOMIC_RELEASE);
	assert_int_equal(pthread_create(&t, NULL, dawdler_main, &d), 0);
	while (!__atomic_load_n(&is_out, __ATOMIC_ACQUIRE))
		usleep(100);
	patient = true;
	assert_int_equal(mce_batch_wait(c->e, &d.b, &req, 1, SECONDS(2 * PATIENCE_S)), 0);
	patient = false;
	pthread_join(t, NULL);
	assert_int_equal(req.status, 0);
	assert_true(mc_now_ns() - began < PATIENCE_S / 2 * MC_NS_PER_SEC);
}

/* When another thread holds the locks without sending, a request is left to it, and is sent nevertheless. */
static void a_request_is_sent_though_the_connections_were_locked(void **state)
{
	struct client *c = *state;
	struct mce_tcp *t = mce_tcp_of(c->peer);
	struct iovec iov = { c->mem, SMALL };
	struct mce_req req = {
		.op = MCE_READ, .peer = c->peer, .addr = c->o.addr, .rkey = c->o.rkey, .iov = &iov, .iovcnt = 1,
	};
	struct mce_batch b;

	for (unsigned i = 0; i < t->nconns; i++)
		mc_mutex_lock(&t->conns[i].tx_lock);
	mce_batch_init(&b);
	mce_submit(c->e, &b, &req, 1);
	for (unsigned i = 0; i < t->nconns; i++)
		mc_mutex_unlock(&t->conns[i].tx_lock);
	assert_int_equal(mce_batch_wait(c->e, &b, &req, 1, SECONDS(20)), 0);
	assert_int_equal(req.status, 0);
}

static bool is_up(struct mce_peer *p, unsigned idx)
{
	MC_LOCKED(&p->lock);
	return mce_tcp_of(p)->conns[idx].up;
}

/* A connection that could not be watched when it came up is watched before a thread sleeps on the connections. */
static void a_connection_is_watched_before_a_thread_sleeps(void **state)
{
	struct client *c = *state, d = { .mem = c->mem, .o = c->o };
	static const struct mce_conf conf = { .force_tcp = true };
	struct mce_tcp *t;

	assert_int_equal(mce_engine_open(&conf, &d.e), 0);
	assert_int_equal(mce_peer_get(d.e, c->o.endpoint, &d.peer), 0);
	t = mce_tcp_of(d.peer);
	assert_int_equal(mc_fault_set("engine.tcp.look_at=error:EMFILE"), 0);
	move(&d, MCE_READ, 1);
	assert_true(mc_fault_hits("engine.tcp.look_at") > 0);
	for (uint64_t until = SECONDS(20); !is_up(d.peer, 1) && mc_now_ns() < until;)
		usleep(100);
	assert_true(is_up(d.peer, 1));
	mc_fault_set(NULL);
	for (unsigned i = 0; i < 20; i++) {
		struct iovec iov = { d.mem, SMALL };
		struct mce_req req = {
			.op = MCE_READ, .peer = d.peer, .addr = d.o.addr, .rkey = d.o.rkey, .iov = &iov,
			.iovcnt = 1,
		};

		assert_int_equal(mce_transfer(d.e, &req, SECONDS(20)), 0);
	}
	mc_mutex_lock(&d.peer->lock);
	assert_true(t->conns[0].watched && t->conns[1].watched);
	mc_mutex_unlock(&d.peer->lock);
	mce_peer_put(d.peer);
	mce_engine_close(d.e);
}

/* A forked child has all sockets, also those that its parent has closed: they must not wake a waiting thread. */
static void sockets_in_a_forked_child_wake_no_waiter(void **state)
{
	struct client *c = *state;
	struct iovec iov = { c->mem, SMALL };
	struct mce_req req = {
		.op = MCE_READ, .peer = c->peer, .addr = c->o.addr, .rkey = c->o.rkey, .iov = &iov, .iovcnt = 1,
	};
	int64_t before, again;
	pid_t pid;
	int r;

	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_reconnects_total", "", &before), 0);
	assert_int_equal(mc_fault_set("engine.tcp.recv=error:EPIPE@1"), 0);
	move(c, MCE_READ, SMALL);
	mc_fault_set(NULL);
	do {
		move(c, MCE_READ, SMALL);
		assert_int_equal(mc_metrics_lookup("mooncake_transfer_reconnects_total", "", &again), 0);
	} while (again == before);
	move(c, MCE_READ, SMALL);
	assert_int_equal(kill(c->o.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(c->o.pid, NULL, WUNTRACED), c->o.pid);
	waits = 0;
	r = mce_transfer(c->e, &req, mc_deadline_ms(1000));
	assert_int_equal(kill(c->o.pid, SIGCONT), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(r, -MC_ETIMEDOUT);
	assert_in_range(waits, 1, 2000);
	move(c, MCE_READ, SMALL);
}

static void *submit_many(void *arg)
{
	struct mce_req *reqs = arg;

	mce_submit(reqs->peer->e, reqs->batch, reqs, MANY);
	return NULL;
}

static unsigned sends(void)
{
	MC_LOCKED(&calls.lock);
	return calls.sends;
}

/* Submits its own request while its parent's requests wait to be sent. */
static bool child_is_refused(struct client *c, struct mce_req *req)
{
	unsigned before = sends();
	struct mce_peer *other;
	struct mce_batch b;
	int err = 0;

	mce_batch_init(&b);
	mce_submit(c->e, &b, req, 1);
	return req->status == -MC_EUNAVAILABLE && mce_peer_get(c->e, "127.0.0.1:1", &other) == -MC_EUNAVAILABLE &&
		!mce_peer_map(c->peer, c->o.addr, c->o.rkey, 1, SECONDS(1), &err) && err == -MC_EUNAVAILABLE &&
		sends() == before;
}

static void a_forked_child_sends_no_requests(void **state)
{
	struct client *c = *state;
	struct iovec iov = { c->mem, 1 };
	struct mce_batch b;
	struct mce_req req = {
		.op = MCE_READ, .peer = c->peer, .addr = c->o.addr, .rkey = c->o.rkey, .iov = &iov, .iovcnt = 1,
		.batch = &b,
	};
	struct mce_req reqs[MANY];
	pthread_t t;
	int status;
	pid_t pid;

	move(c, MCE_READ, SMALL);
	for (unsigned i = 0; i < MANY; i++)
		reqs[i] = req;
	/* Some are queued when the others are offered together again. */
	assert_int_equal(mc_fault_set("engine.peer.run=delay:1000@2"), 0);
	mce_batch_init(&b);
	assert_int_equal(pthread_create(&t, NULL, submit_many, reqs), 0);
	for (uint64_t until = SECONDS(20); mc_fault_hits("engine.peer.run") < 2 && mc_now_ns() < until;)
		usleep(100);
	pid = fork();
	if (pid == 0)
		_exit(child_is_refused(c, &req) ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	pthread_join(t, NULL);
	mc_fault_set(NULL);
	assert_int_equal(mce_batch_wait(c->e, &b, reqs, MANY, SECONDS(20)), 0);
	assert_int_equal(b.failed, 0);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_and_payload_leave_in_one_call),
		cmocka_unit_test(payload_is_received_into_its_destination),
		cmocka_unit_test(a_long_request_uses_all_connections),
		cmocka_unit_test(small_requests_share_calls),
		cmocka_unit_test(connections_stay_open_between_requests),
		cmocka_unit_test(a_cancelling_thread_wakes_the_waiting_one),
		cmocka_unit_test(the_sending_thread_wakes_the_waiting_one),
		cmocka_unit_test(a_request_is_sent_though_the_connections_were_locked),
		cmocka_unit_test(a_connection_is_watched_before_a_thread_sleeps),
		cmocka_unit_test(bytes_in_flight_per_connection_are_bounded),
		cmocka_unit_test(sockets_in_a_forked_child_wake_no_waiter),
		cmocka_unit_test(a_forked_child_sends_no_requests),
	};

	owner_main(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
