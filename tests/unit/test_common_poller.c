/* SPDX-License-Identifier: Apache-2.0
 * test_common_poller.c - the kernel's poller, and an event loop over a poller without descriptors: streams and
 * listeners in memory. */
#include <config.h>

#include "common/net/evloop.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/cleanup.h"
#include "common/list.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

#define ENTRIES 8

/* ---- streams in memory ------------------------------------------------------------------------- */

/* Guards everything in memory; each change is announced. */
static struct mc_mutex lock = MC_MUTEX_INIT;
static struct mc_cond changed;
static unsigned changes;

struct pipe {
	char buf[64];
	size_t len;
	bool ended;
};

struct end {
	struct pipe *in, *out;
};

static void announce_locked(void)
{
	changes++;
	mc_cond_broadcast(&changed);
}

static ssize_t memory_send(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct pipe *p = ((struct end *)s->state)->out;
	size_t len = iov->iov_len;

	MC_LOCKED(&lock);
	if (p->ended)
		return -EPIPE;
	if (len > sizeof(p->buf) - p->len)
		len = sizeof(p->buf) - p->len;
	memcpy(p->buf + p->len, iov->iov_base, len);
	p->len += len;
	announce_locked();
	return len ? (ssize_t)len : -EAGAIN;
}

static ssize_t memory_recv(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct pipe *p = ((struct end *)s->state)->in;
	size_t len = iov->iov_len;

	MC_LOCKED(&lock);
	if (!p->len)
		return p->ended ? 0 : -EAGAIN;
	if (len > p->len)
		len = p->len;
	memcpy(iov->iov_base, p->buf, len);
	p->len -= len;
	memmove(p->buf, p->buf + len, p->len);
	announce_locked();
	return (ssize_t)len;
}

static int memory_wait(struct mc_stream *s, short events, uint64_t deadline)
{
	struct end *e = s->state;
	int r;

	MC_LOCKED(&lock);
	for (;;) {
		r = (e->in->len || e->in->ended ? POLLIN : 0) | (e->out->len < sizeof(e->out->buf) ? POLLOUT : 0) |
			(e->in->ended ? POLLRDHUP : 0);
		r &= events;
		if (r || mc_now_ns() >= deadline)
			return r;
		(void)mc_cond_wait_until(&changed, &lock, deadline);
	}
}

static void memory_shutdown(struct mc_stream *s, int how)
{
	MC_LOCKED(&lock);
	((struct end *)s->state)->out->ended = true;
	announce_locked();
}

/* The slots that a loop calls; the others are not called here. */
static const struct mc_stream_ops memory_ops = {
	.send = memory_send, .recv = memory_recv, .wait = memory_wait, .shutdown = memory_shutdown,
};

static struct pipe pipes[2];
static struct end ends[2] = { { &pipes[0], &pipes[1] }, { &pipes[1], &pipes[0] } };
static struct mc_stream a = { .ops = &memory_ops, .fd = -1, .state = &ends[0] };
static struct mc_stream b = { .ops = &memory_ops, .fd = -1, .state = &ends[1] };

/* ---- a poller that asks each entry --------------------------------------------------------------- */

struct look_poller {
	struct mc_poller poller;
	/* guarded by lock */
	struct mc_evfd *entry[ENTRIES];
	bool woken;
};

static struct look_poller *look_poller(struct mc_poller *p)
{
	return mc_container_of(p, struct look_poller, poller);
}

static void look_replace(struct mc_poller *p, struct mc_evfd *old, struct mc_evfd *e)
{
	struct look_poller *lp = look_poller(p);

	MC_LOCKED(&lock);
	for (int i = 0; i < ENTRIES; i++)
		if (lp->entry[i] == old) {
			lp->entry[i] = e;
			break;
		}
	announce_locked();
}

static int look_add(struct mc_poller *p, struct mc_evfd *e)
{
	look_replace(p, NULL, e);
	return 0;
}

static int look_mod(struct mc_poller *p, struct mc_evfd *e)
{
	look_replace(p, e, e);
	return 0;
}

static void look_del(struct mc_poller *p, struct mc_evfd *e)
{
	look_replace(p, e, NULL);
}

static int look_collect(struct look_poller *lp, struct epoll_event *ret)
{
	int n = 0;

	for (int i = 0; i < ENTRIES; i++) {
		uint32_t events = lp->entry[i] ? mc_evfd_look(lp->entry[i]) : 0;

		if (events)
			ret[n++] = (struct epoll_event){ .events = events, .data.ptr = lp->entry[i] };
	}
	return n;
}

static int look_wait(struct mc_poller *p, struct epoll_event *ret, int n, uint64_t deadline)
{
	struct look_poller *lp = look_poller(p);
	unsigned seen;
	bool woken;
	int got;

	do {
		mc_mutex_lock(&lock);
		seen = changes;
		woken = lp->woken;
		lp->woken = false;
		mc_mutex_unlock(&lock);
		got = look_collect(lp, ret);
		if (got || woken)
			return got;
		mc_mutex_lock(&lock);
		while (changes == seen && mc_now_ns() < deadline)
			(void)mc_cond_wait_until(&changed, &lock, deadline);
		mc_mutex_unlock(&lock);
	} while (mc_now_ns() < deadline);
	return 0;
}

static void look_wake(struct mc_poller *p)
{
	MC_LOCKED(&lock);
	look_poller(p)->woken = true;
	announce_locked();
}

static void look_close(struct mc_poller *p)
{
	free(look_poller(p));
}

static struct mc_poller *look_poller_new(void)
{
	static const struct mc_poller_ops ops = {
		.add = look_add, .mod = look_mod, .del = look_del, .wait = look_wait, .wake = look_wake,
		.close = look_close,
	};
	struct look_poller *lp = calloc(1, sizeof(*lp));

	assert_non_null(lp);
	lp->poller.ops = &ops;
	return &lp->poller;
}

/* ---- tests ----------------------------------------------------------------------------------------- */

static struct mc_evloop *loop;

static int start(void **state)
{
	memset(pipes, 0, sizeof(pipes));
	assert_int_equal(mc_evloop_new_on(look_poller_new(), "look", 0, &loop), 0);
	assert_int_equal(mc_evloop_start(loop), 0);
	return 0;
}

static int stop(void **state)
{
	mc_evloop_free(loop);
	return 0;
}

static struct mc_evfd echo;
static atomic_bool echo_ended;

static void echo_ready(struct mc_evfd *e, uint32_t events)
{
	char buf[16];
	struct iovec iov = { buf, sizeof(buf) };
	ssize_t n = mc_stream_recv(&b, &iov, 1);

	if (n > 0) {
		iov.iov_len = (size_t)n;
		(void)mc_stream_send(&b, &iov, 1);
	} else if (n == 0) {
		mc_evloop_del(loop, e);
		atomic_store(&echo_ended, true);
		mc_stream_shutdown(&b, SHUT_WR);
	}
}

static void a_loop_serves_streams_without_descriptors(void **state)
{
	static const char text[] = "bytes without a descriptor";
	struct iovec iov = { (void *)(uintptr_t)text, sizeof(text) };
	char in[sizeof(text)];
	size_t got = 0;

	echo = (struct mc_evfd){ .ready = echo_ready };
	mc_evfd_stream(&echo, &b);
	assert_int_equal(echo.fd, -1);
	assert_int_equal(mc_evloop_add(loop, &echo, EPOLLIN | EPOLLRDHUP), 0);
	assert_int_equal(mc_stream_send(&a, &iov, 1), sizeof(text));
	while (got < sizeof(text)) {
		iov = (struct iovec){ in + got, sizeof(in) - got };
		assert_int_equal(mc_stream_wait(&a, POLLIN, mc_deadline_ms(5000)), POLLIN);
		got += (size_t)mc_stream_recv(&a, &iov, 1);
	}
	assert_memory_equal(in, text, sizeof(text));
	mc_stream_shutdown(&a, SHUT_WR);
	assert_int_equal(mc_stream_wait(&a, POLLRDHUP, mc_deadline_ms(5000)), POLLRDHUP);
	assert_true(atomic_load(&echo_ended));
}

static atomic_int runs;

static void count_run(void *arg)
{
	atomic_fetch_add(&runs, 1);
}

static void count_fire(struct mc_evtimer *t)
{
	atomic_fetch_add(&runs, 10);
	mc_mutex_lock(&lock);
	announce_locked();
	mc_mutex_unlock(&lock);
}

static struct mc_evtimer timer = { .fire = count_fire };

static void arm_timer(void *arg)
{
	mc_evtimer_arm(loop, &timer, mc_deadline_ms(10));
}

static void its_work_and_timers_run(void **state)
{
	uint64_t end = mc_deadline_ms(5000);

	atomic_store(&runs, 0);
	assert_int_equal(mc_evloop_call(loop, count_run, NULL), 0);
	assert_int_equal(atomic_load(&runs), 1);
	assert_int_equal(mc_evloop_call(loop, arm_timer, NULL), 0);
	mc_mutex_lock(&lock);
	while (atomic_load(&runs) < 11 && mc_now_ns() < end)
		(void)mc_cond_wait_until(&changed, &lock, end);
	mc_mutex_unlock(&lock);
	assert_int_equal(atomic_load(&runs), 11);
}

static int listener_result;

static int memory_listener_wait(struct mc_listener *l, uint64_t deadline)
{
	return listener_result;
}

static void entries_without_descriptors_are_looked_at(void **state)
{
	static const struct mc_listener_ops ops = { .wait = memory_listener_wait };
	struct mc_listener l = { .ops = &ops, .fd = -1 };
	struct mc_evfd e = { .events = EPOLLIN };

	/* A bare descriptor cannot be asked. */
	assert_int_equal(mc_evfd_look(&e), EPOLLERR);
	mc_evfd_listener(&e, &l);
	assert_int_equal(mc_evfd_look(&e), 0);
	listener_result = 1;
	assert_int_equal(mc_evfd_look(&e), EPOLLIN);
	e.events = 0;
	assert_int_equal(mc_evfd_look(&e), 0);
	listener_result = -EIO;
	assert_int_equal(mc_evfd_look(&e), EPOLLERR);
}

/* ---- the kernel's poller ----------------------------------------------------------------------------- */

static void a_wake_up_ends_one_wait(void **state)
{
	struct mc_poller *p;
	struct epoll_event ev;

	assert_int_equal(mc_poller_new(&p), 0);
	assert_int_equal(p->ops->wait(p, &ev, 1, 0), 0);
	p->ops->wake(p);
	p->ops->wake(p);
	assert_int_equal(p->ops->wait(p, &ev, 1, MC_NEVER), 1);
	assert_null(ev.data.ptr);
	assert_int_equal(p->ops->wait(p, &ev, 1, 0), 0);
	p->ops->wake(p);
	assert_int_equal(p->ops->wait(p, &ev, 1, MC_NEVER), 1);
	p->ops->close(p);
}

static void an_entry_is_reported_until_it_is_deleted(void **state)
{
	struct mc_evfd e = { .fd = eventfd(1, EFD_CLOEXEC), .events = EPOLLIN };
	struct mc_poller *p;
	struct epoll_event ev;

	assert_int_equal(mc_poller_new(&p), 0);
	assert_int_equal(p->ops->add(p, &e), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(p->ops->wait(p, &ev, 1, mc_deadline_ms(5000)), 1);
		assert_ptr_equal(ev.data.ptr, &e);
		assert_int_equal(ev.events, EPOLLIN);
	}
	e.events = 0;
	assert_int_equal(p->ops->mod(p, &e), 0);
	assert_int_equal(p->ops->wait(p, &ev, 1, 0), 0);
	e.events = EPOLLOUT;
	assert_int_equal(p->ops->mod(p, &e), 0);
	assert_int_equal(p->ops->wait(p, &ev, 1, 0), 1);
	p->ops->del(p, &e);
	assert_int_equal(p->ops->wait(p, &ev, 1, mc_deadline_ms(5)), 0);
	p->ops->close(p);
	close(e.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_loop_serves_streams_without_descriptors, start, stop),
		cmocka_unit_test_setup_teardown(its_work_and_timers_run, start, stop),
		cmocka_unit_test(entries_without_descriptors_are_looked_at),
		cmocka_unit_test(a_wake_up_ends_one_wait),
		cmocka_unit_test(an_entry_is_reported_until_it_is_deleted),
	};

	(void)mc_cond_init(&changed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
