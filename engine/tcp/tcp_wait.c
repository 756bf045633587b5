/* SPDX-License-Identifier: Apache-2.0
 * tcp_wait.c - receiving small amounts in the thread that waits for them.
 *
 * Otherwise the I/O thread would have to be woken first and then wake the waiting thread, which costs more than the
 * transfer.  While a waiting thread receives ("leads"), the I/O threads leave this peer's connections to it.
 *
 * It sleeps in a poller until bytes arrive, or until another thread that has ended requests calls
 * mce_tcp_wait_notify().  It also wakes periodically, because its batch may have received requests to other peers
 * meanwhile.
 *
 * Before it sleeps it polls, for as long as that has paid off before, as hypervisors do for a halted guest
 * (Linux, Documentation/virt/kvm/halt-polling.rst): a short wait makes the polling longer, a long wait
 * ends it.  On a busy machine polling takes processor time from the peer's thread, and was
 * measured three times as slow as sleeping: so the thread yields the processor between polls. */
#include <config.h>

#include <errno.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "engine/tcp/tcp_client.h"

/* With more bytes in flight, several I/O threads in parallel are faster. */
#define LITTLE (256u << 10)
/* Sleeps between checks of the batch. */
#define CHECK_MIN_MS 5
#define CHECK_MAX_MS 50
/* Polling does not pay for longer waits. */
#define POLL_MAX_NS (200 * 1000u)
#define POLL_MIN_NS (10 * 1000u)

static bool wait_is_little(struct mce_tcp *t)
{
	uint64_t bytes = 0;

	MC_LOCKED(&t->p->lock);
	if (mce_tcp_queued_locked(t) || !mc_list_empty(&t->retry) || t->up == 0)
		return false;
	for (unsigned i = 0; i < t->nconns; i++)
		bytes += t->conns[i].bytes;
	return bytes <= LITTLE;
}

static void wait_for_receivers(struct mce_tcp *t)
{
	for (unsigned i = 0; i < t->nconns; i++) {
		mc_mutex_lock(&t->conns[i].rx_lock);
		mc_mutex_unlock(&t->conns[i].rx_lock);
	}
}

/* Receive the bytes that have arrived, or arrive within @ms.  Level-triggered: unread bytes are reported again. */
static void wait_take(struct mce_tcp *t, uint64_t until, int ms)
{
	struct epoll_event ev[MCE_TCP_CONNS_MAX + 1];
	uint64_t end = ms ? mc_deadline_ms(ms) : 0;
	int n;

	n = t->waiter->ops->wait(t->waiter, ev, MCE_TCP_CONNS_MAX + 1, end < until ? end : until);
	for (int i = 0; i < n; i++)
		if (ev[i].data.ptr)
			mce_tcp_conn_drain(mc_container_of(ev[i].data.ptr, struct mce_tcp_conn, wait_ev));
	if (n > 0)
		mce_tcp_conns_pump(t);
}

/* ---- the poller: open while a connection is up or a thread uses it ------------------- */

static int wait_watch(struct mce_tcp *t, struct mce_tcp_conn *conn)
{
	int r = mc_fault("engine.tcp.look_at");

	return r < 0 ? r : t->waiter->ops->add(t->waiter, &conn->wait_ev);
}

/* False, for lack of descriptors or memory: a thread that slept would miss some connection. */
static bool wait_watch_all_locked(struct mce_tcp *t)
{
	bool all = true;

	if (!t->waiter && mc_poller_new(&t->waiter) < 0)
		return false;
	for (unsigned i = 0; i < t->nconns; i++) {
		struct mce_tcp_conn *conn = &t->conns[i];

		if (conn->wait_ev.stream && !conn->watched)
			conn->watched = wait_watch(t, conn) == 0;
		all = all && (!conn->wait_ev.stream || conn->watched);
	}
	return all;
}

void mce_tcp_wait_add_locked(struct mce_tcp_conn *conn)
{
	mc_evfd_stream(&conn->wait_ev, &conn->stream);
	conn->wait_ev.events = EPOLLIN | EPOLLRDHUP;
	/* If it fails, wait_enter() tries again. */
	(void)wait_watch_all_locked(conn->t);
}

/* Closing the stream is not enough: a forked child may still have it, and it would be reported forever. */
void mce_tcp_wait_del_locked(struct mce_tcp_conn *conn)
{
	if (conn->watched)
		conn->t->waiter->ops->del(conn->t->waiter, &conn->wait_ev);
	conn->watched = false;
	conn->wait_ev.stream = NULL;
}

void mce_tcp_wait_drop_locked(struct mce_tcp *t)
{
	if (t->up || t->wait_users || !t->waiter)
		return;
	t->waiter->ops->close(t->waiter);
	t->waiter = NULL;
	for (unsigned i = 0; i < t->nconns; i++)
		t->conns[i].watched = false;
}

void mce_tcp_wait_notify(struct mce_tcp *t)
{
	/* A thread that enters after this sees its batch as it is now. */
	MC_LOCKED(&t->p->lock);
	if (t->wait_users)
		t->waiter->ops->wake(t->waiter);
}

static bool wait_enter(struct mce_tcp *t)
{
	MC_LOCKED(&t->p->lock);
	if (!wait_watch_all_locked(t))
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

/* ---- leading ----------------------------------------------------------------------------------- */

static void wait_poll(struct mce_tcp *t, const struct mce_batch *b, uint64_t until)
{
	while (!mce_batch_done(b) && mc_now_ns() < until) {
		wait_take(t, until, 0);
		mc_thread_yield();
	}
}

/* A whole wait took @ns. */
static void wait_learn(struct mce_tcp *t, uint64_t ns)
{
	if (ns > POLL_MAX_NS)
		t->poll_ns = 0;
	else if (ns > t->poll_ns)
		t->poll_ns = t->poll_ns * 2 > POLL_MIN_NS ? t->poll_ns * 2 : POLL_MIN_NS;
}

static void wait_lead(struct mce_tcp *t, const struct mce_batch *b, uint64_t deadline)
{
	uint64_t begun = mc_now_ns(), until = begun + t->poll_ns;
	int ms = CHECK_MIN_MS;

	/* An I/O thread that is still receiving may end the batch without waking us. */
	wait_for_receivers(t);
	wait_poll(t, b, until < deadline ? until : deadline);
	/* When other threads submit much meanwhile, leave it to the I/O threads again. */
	while (!mce_batch_done(b) && mc_now_ns() < deadline && wait_is_little(t)) {
		wait_take(t, deadline, ms);
		ms = ms * 2 < CHECK_MAX_MS ? ms * 2 : CHECK_MAX_MS;
	}
	wait_learn(t, mc_now_ns() - begun);
	/* Events before this store were left to us; events after it are handled by the I/O threads. */
	__atomic_store_n(&t->led, false, __ATOMIC_SEQ_CST);
	wait_take(t, deadline, 0);
}

int mce_tcp_lead(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline)
{
	struct mce_tcp *t = mce_tcp_of(p);
	bool led = false;

	if (!wait_is_little(t) || !wait_enter(t))
		return -EAGAIN;
	if (__atomic_compare_exchange_n(&t->led, &led, true, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		wait_lead(t, b, deadline);
	wait_leave(t);
	return led ? -EAGAIN : 0;
}
