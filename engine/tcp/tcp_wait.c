/* SPDX-License-Identifier: Apache-2.0
 * tcp_wait.c - a thread that waits for little receives it by itself: the I/O thread would have to be woken
 * first and then wake it, and that costs more than the transfer.  While it does, the I/O threads leave
 * what comes from this peer to it.
 *
 * Its sleep ends by what comes, and when others say that they have ended something (mce_tcp_wait_tell()): for
 * that it watches a descriptor that is always readable, and they have it reported once.  It looks up now and then
 * besides, since its batch may have got requests to other peers meanwhile.
 *
 * Before it sleeps it polls for as long as that was seen to pay, as hypervisors do for a halted guest
 * (Linux, Documentation/virt/kvm/halt-polling.rst): a wait that was over soon makes the polling longer, one
 * that took long ends it.  On a machine with other work polling is taken from the peer's thread, and was
 * measured three times as slow as sleeping: so it gives the processor away between looks. */
#include <config.h>

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "engine/tcp/tcp_client.h"

/* With more under way the I/O threads' side by side is worth more. */
#define LITTLE (256u << 10)
/* Sleeps between looks at the batch. */
#define LOOK_MIN_MS 5
#define LOOK_MAX_MS 50
/* A wait of at most so long is worth polling for. */
#define POLL_MAX_NS (200 * 1000u)
#define POLL_MIN_NS (10 * 1000u)

static bool is_little(struct mce_tcp *t)
{
	uint64_t bytes = 0;

	MC_LOCKED(&t->p->lock);
	if (mce_tcp_queued_locked(t) || !mc_list_empty(&t->retry) || t->up == 0)
		return false;
	for (unsigned i = 0; i < t->nlanes; i++)
		bytes += t->lanes[i].bytes;
	return bytes <= LITTLE;
}

static void wait_for_others(struct mce_tcp *t)
{
	for (unsigned i = 0; i < t->nlanes; i++) {
		pthread_mutex_lock(&t->lanes[i].rx_lock);
		pthread_mutex_unlock(&t->lanes[i].rx_lock);
	}
}

/* Take what has come, or comes within @ms.  Level-triggered: what is left is told again. */
static void take(struct mce_tcp *t, uint64_t until, int ms)
{
	struct epoll_event ev[MCE_TCP_CONNS_MAX + 1];
	int left = ms ? mc_deadline_left_ms(until) : 0, n;

	n = epoll_wait(t->wait_fd, ev, MCE_TCP_CONNS_MAX + 1, left < ms ? left : ms);
	for (int i = 0; i < n; i++)
		if (ev[i].data.ptr)
			mce_tcp_conn_look(ev[i].data.ptr);
	if (n > 0)
		mce_tcp_conns_pump(t);
}

/* ---- the descriptor to wait at: there as long as a lane is up or somebody uses it ---- */

static int look_at(struct mce_tcp *t, struct mce_tcp_conn *l)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = l };
	int r;

	r = mc_fault("engine.tcp.look_at");
	if (r == 0 && epoll_ctl(t->wait_fd, EPOLL_CTL_ADD, l->look_fd, &ev))
		r = -errno;
	return r;
}

/* False, for want of descriptors or memory: who slept there would not see some lane. */
static bool look_at_all_locked(struct mce_tcp *t)
{
	struct epoll_event told = { .events = EPOLLONESHOT };
	bool all = true;

	if (t->wait_fd < 0) {
		t->wait_fd = epoll_create1(EPOLL_CLOEXEC);
		if (t->wait_fd < 0)
			return false;
		/* When it fails, who sleeps there looks up by itself. */
		(void)epoll_ctl(t->wait_fd, EPOLL_CTL_ADD, t->p->e->ready_fd, &told);
	}
	for (unsigned i = 0; i < t->nlanes; i++) {
		struct mce_tcp_conn *l = &t->lanes[i];

		if (l->look_fd >= 0 && !l->looked_at)
			l->looked_at = look_at(t, l) == 0;
		all = all && (l->look_fd < 0 || l->looked_at);
	}
	return all;
}

void mce_tcp_wait_add_locked(struct mce_tcp_conn *l, int fd)
{
	l->look_fd = fd;
	/* When it fails, it is tried again before somebody sleeps. */
	(void)look_at_all_locked(l->t);
}

/* Closing is not enough: a forked child may have the socket still, and it would be reported for ever. */
void mce_tcp_wait_del_locked(struct mce_tcp_conn *l)
{
	if (l->looked_at)
		(void)epoll_ctl(l->t->wait_fd, EPOLL_CTL_DEL, l->look_fd, NULL);
	l->looked_at = false;
	l->look_fd = -1;
}

void mce_tcp_wait_drop_locked(struct mce_tcp *t)
{
	if (t->up || t->wait_users || t->wait_fd < 0)
		return;
	close(t->wait_fd);
	t->wait_fd = -1;
	for (unsigned i = 0; i < t->nlanes; i++)
		t->lanes[i].looked_at = false;
}

void mce_tcp_wait_tell(struct mce_tcp *t)
{
	struct epoll_event told = { .events = EPOLLIN | EPOLLONESHOT };

	/* Who enters after this finds his batch as it is now. */
	MC_LOCKED(&t->p->lock);
	if (t->wait_users)
		(void)epoll_ctl(t->wait_fd, EPOLL_CTL_MOD, t->p->e->ready_fd, &told);
}

static bool wait_enter(struct mce_tcp *t)
{
	MC_LOCKED(&t->p->lock);
	if (!look_at_all_locked(t))
		return false;
	t->wait_users++;
	return true;
}

static void wait_leave(struct mce_tcp *t)
{
	MC_LOCKED(&t->p->lock);
	t->wait_users--;
	mce_tcp_wait_drop_locked(t);
}

/* ---- leading ---- */

static void poll_awhile(struct mce_tcp *t, const struct mce_batch *b, uint64_t until)
{
	while (!mce_batch_done(b) && mc_now_ns() < until) {
		take(t, until, 0);
		sched_yield();
	}
}

/* Of a wait that took @ns, all told. */
static void learn(struct mce_tcp *t, uint64_t ns)
{
	if (ns > POLL_MAX_NS)
		t->poll_ns = 0;
	else if (ns > t->poll_ns)
		t->poll_ns = t->poll_ns * 2 > POLL_MIN_NS ? t->poll_ns * 2 : POLL_MIN_NS;
}

static void lead(struct mce_tcp *t, const struct mce_batch *b, uint64_t deadline)
{
	uint64_t begun = mc_now_ns(), until = begun + t->poll_ns;
	int ms = LOOK_MIN_MS;

	/* An I/O thread that still receives may end the batch without waking us. */
	wait_for_others(t);
	poll_awhile(t, b, until < deadline ? until : deadline);
	/* Others may ask for much meanwhile: then it is better shared again. */
	while (!mce_batch_done(b) && mc_now_ns() < deadline && is_little(t)) {
		take(t, deadline, ms);
		ms = ms * 2 < LOOK_MAX_MS ? ms * 2 : LOOK_MAX_MS;
	}
	learn(t, mc_now_ns() - begun);
	/* What came before this was left to us, and what comes after it finds the I/O threads. */
	__atomic_store_n(&t->led, false, __ATOMIC_SEQ_CST);
	take(t, deadline, 0);
}

int mce_tcp_lead(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline)
{
	struct mce_tcp *t = p->tcp;
	bool led = false;

	if (!is_little(t) || !wait_enter(t))
		return -EAGAIN;
	if (__atomic_compare_exchange_n(&t->led, &led, true, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		lead(t, b, deadline);
	wait_leave(t);
	return led ? -EAGAIN : 0;
}
