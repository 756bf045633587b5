/* SPDX-License-Identifier: Apache-2.0
 * tcp_connect.c - connecting to a peer, and accepting its requests from callers.  The functions that block run on the
 * peer's resolver. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "engine/tcp/tcp_client.h"
#include "engine/tcp/tcp_server.h"

/* A connection that cannot be made while others are up is tried again after this time. */
#define RETRY_MS 1000

MC_COUNTER(reconnects, "mooncake_transfer_reconnects_total", "",
	   "TCP connections made again after they were lost")
MC_COUNTER(connect_errors, "mooncake_transfer_connect_errors_total", "", "Failed attempts to connect to a peer")

/* ---- connections ------------------------------------------------------------------------------- */

struct conn_begin {
	struct mce_tcp_conn *conn;
	struct mce_greeting g;
	uint32_t epoch;
	uint64_t fence;
	struct mc_stream stream;
	int result;
};

/* The peer's lock is held: record the engine at the other end. */
static void conn_introduce_locked(struct mce_tcp *t, struct mce_tcp_conn *conn, const struct mce_greeting *g)
{
	struct mce_peer *p = t->p;

	/* Another engine has taken over the address; the connections to the old one are useless. */
	if (t->up && !mce_id_same_engine(&p->id, &g->id))
		for (unsigned i = 0; i < t->nconns; i++)
			if (&t->conns[i] != conn && t->conns[i].up)
				mce_tcp_conn_mark_broken(&t->conns[i]);
	p->id = g->id;
	p->features = g->features;
	p->introductions += !p->introduced;
	p->introduced = true;
	if (mce_id_same_engine(&g->id, &p->e->id))
		__atomic_store_n(&p->local, true, __ATOMIC_RELEASE);
}

/* Has the engine another fence number than that of the greeting? */
static bool conn_is_outdated(const struct mce_tcp *t, uint64_t fence)
{
	return t->proto->greets && fence != __atomic_load_n(&t->p->e->fence, __ATOMIC_SEQ_CST);
}

static void conn_begin_run(void *arg)
{
	struct conn_begin *b = arg;
	struct mce_tcp_conn *conn = b->conn;
	struct mce_tcp *t = conn->t;
	bool outdated;

	mc_mutex_lock(&conn->tx_lock);
	mc_mutex_lock(&conn->rx_lock);
	b->result = conn_is_outdated(t, b->fence) ? -EAGAIN :
		mce_rx_init(&conn->rx, &conn->stream, t->proto->answer_len);
	if (b->result == 0) {
		conn->stream = b->stream;
		mc_evfd_stream(&conn->evfd, &conn->stream);
		b->result = mc_evloop_add(conn->io->loop, &conn->evfd,
					  EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
		if (b->result < 0)
			conn->stream.ops = NULL;
	}
	if (b->result == 0) {
		conn->tx_moved = conn->seen_moved = conn->seen_received = 0;
		conn->since_ms = conn->owes_ms = mc_now_ms();
		__atomic_store_n(&conn->blocked, false, __ATOMIC_RELEASE);
		__atomic_store_n(&conn->broken, false, __ATOMIC_RELEASE);
		__atomic_store_n(&conn->draining, false, __ATOMIC_RELEASE);
		conn->refused = false;
		conn->acks_upto = b->g.features & MCE_FEATURE_ACK_UPTO;
		mce_io_watch(conn->io, &conn->watcher);
		mc_mutex_lock(&t->p->lock);
		/* The fence number has changed since the greeting: the connection is made again. */
		outdated = conn_is_outdated(t, b->fence);
		if (t->proto->greets && !outdated)
			conn_introduce_locked(t, conn, &b->g);
		conn->caps = b->g.features & MCE_FEATURE_CAPS && mce_proves_identities(t->p->e);
		conn->up = true;
		/* Reconnect at once when it is lost: fragments that wait for its greeting depend on that alone. */
		conn->retry_ms = 0;
		conn->greeted = b->epoch;
		conn->fence = b->fence;
		conn->window = b->g.window < MCE_WIRE_WINDOW ? b->g.window : MCE_WIRE_WINDOW;
		conn->len_max = b->g.len_max & ~(MC_CRC_CHUNK - 1);
		t->up++;
		mce_tcp_wait_add_locked(conn);
		mc_mutex_unlock(&t->p->lock);
		if (outdated)
			mce_tcp_conn_break(conn);
	}
	mc_mutex_unlock(&conn->rx_lock);
	mc_mutex_unlock(&conn->tx_lock);
}

/* -EAGAIN: the fence number changed meanwhile. */
static int conn_connect_once(struct mce_tcp_conn *conn, uint64_t deadline)
{
	struct mce_peer *p = conn->t->p;
	struct conn_begin b = { .conn = conn };
	int r;

	mc_mutex_lock(&p->lock);
	b.epoch = ++conn->epoch;
	b.fence = __atomic_load_n(&p->e->fence, __ATOMIC_SEQ_CST);
	mc_mutex_unlock(&p->lock);
	r = mc_fault("engine.tcp.connect");
	if (r < 0)
		return mc_fail(r, "fault point");
	r = mc_net_connect(conn->t->net, p->endpoint, deadline, &b.stream);
	if (r < 0)
		return r;
	mce_tcp_tune(&b.stream, p->e->conf.progress_timeout_ms);
	r = conn->t->proto->greet(conn, &b.stream, b.epoch, b.fence, deadline, &b.g);
	if (r == 0) {
		mce_io_call(conn->io, conn_begin_run, &b);
		r = b.result;
	}
	if (r < 0) {
		mc_stream_close(&b.stream);
		return r;
	}
	mce_tcp_conn_count(1);
	if (b.epoch > 1)
		mc_metric_add(&reconnects, 1);
	return 0;
}

static int conn_connect(struct mce_tcp_conn *conn, uint64_t deadline)
{
	int r;

	do
		r = conn_connect_once(conn, deadline);
	while (r == -EAGAIN && mc_now_ns() < deadline);
	return r;
}

static bool conn_wanted(struct mce_tcp_conn *conn)
{
	struct mce_tcp *t = conn->t;

	MC_LOCKED(&t->p->lock);
	if (conn->up || conn->idx >= t->wanted)
		return false;
	return t->up == 0 || mce_tcp_conn_in_doubt_locked(conn) || mc_now_ms() >= conn->retry_ms;
}

static unsigned conns_up(struct mce_tcp *t)
{
	MC_LOCKED(&t->p->lock);
	return t->up;
}

/* The request's status says only that the peer is unreachable; the log has the reason. */
static int conn_connect_failed(struct mce_tcp_conn *conn, int err)
{
	struct mce_tcp *t = conn->t;

	mc_metric_add(&connect_errors, 1);
	if (err != -ECANCELED)
		mc_warn("engine", "cannot reach peer: %s peer=%s conn=%u", mc_err_detail(err),
			t->p->endpoint, conn->idx);
	mc_mutex_lock(&t->p->lock);
	conn->retry_ms = mc_now_ms() + RETRY_MS;
	mc_mutex_unlock(&t->p->lock);
	return err == -MC_EVERSION ? err : -MC_ETRANSFER;
}

/* A wanted connection that is not in @tried. */
static struct mce_tcp_conn *conn_next(struct mce_tcp *t, uint32_t tried)
{
	for (unsigned i = 0; i < t->nconns; i++)
		if (!(tried & 1u << i) && conn_wanted(&t->conns[i]))
			return &t->conns[i];
	return NULL;
}

int mce_tcp_connect(struct mce_peer *p, uint64_t deadline)
{
	struct mce_tcp *t = mce_tcp_of(p);
	struct mce_tcp_conn *conn;
	uint32_t tried = 0;
	int r, err = 0;

	/* A connection that was up when it was checked may be lost now, hence the second search. */
	for (;;) {
		conn = conn_next(t, tried);
		if (!conn && !conns_up(t))
			conn = conn_next(t, tried);
		if (!conn || mce_closing(p->e))
			break;
		tried |= 1u << conn->idx;
		r = conn_connect(conn, deadline);
		if (r == 0) {
			mce_tcp_conns_pump(t);
			continue;
		}
		err = conn_connect_failed(conn, r);
		mce_queue_fail(t, conn, err);
	}
	if (mce_closing(p->e))
		err = -ECANCELED;
	/* A connection that is lost again was no failure to connect: the requests count their tries. */
	if (err == 0 || conns_up(t))
		return 0;
	mce_queue_fail(t, NULL, err);
	return err;
}

/* ---- slots of the transport --------------------------------------------------------------------- */

static void conn_init(struct mce_tcp *t, unsigned i)
{
	struct mce_tcp_conn *conn = &t->conns[i];

	conn->t = t;
	conn->idx = i;
	/* Peers begin at different I/O threads; a peer's connections are spread over all of them. */
	conn->io = &t->p->e->io[(t->p->token + i) % t->p->e->nio];
	conn->evfd.ready = mce_tcp_conn_ready;
	conn->watcher.tick = mce_tcp_conn_tick;
	conn->watcher.resume = mce_tcp_conn_resume;
	mc_mutex_init(&conn->tx_lock);
	mc_mutex_init(&conn->rx_lock);
	mc_list_init(&conn->fragments);
	mc_list_init(&conn->txq);
}

int mce_tcp_attach(struct mce_peer *p, const struct mce_tcp_proto *proto, const struct mc_net *net)
{
	struct mce_tcp *t;

	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->p = p;
	t->proto = proto;
	t->net = net;
	t->nconns = p->e->conf.conns;
	t->conn_bytes = 2 * p->e->conf.stripe_bytes;
	if (t->conn_bytes < MCE_TCP_CONN_BYTES)
		t->conn_bytes = MCE_TCP_CONN_BYTES;
	t->wanted = 1;
	for (unsigned i = 0; i <= MCE_NUMA_MAX; i++)
		mc_list_init(&t->queue[i]);
	mc_list_init(&t->retry);
	mc_list_init(&t->free);
	t->conns = calloc(t->nconns, sizeof(*t->conns));
	t->fence = mce_fence_new();
	/* With the first fragments allocated, a lack of memory can slow the peer down but not stop it. */
	if (!t->conns || !t->fence || !mce_fragments_grow_locked(t)) {
		free(t->fence);
		free(t->conns);
		free(t);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < t->nconns; i++)
		conn_init(t, i);
	p->tp[MCE_PATH_TCP] = t;
	return 0;
}

static void detach_run(void *arg)
{
	mce_tcp_conn_down(arg, -ECANCELED);
}

static void empty_run(void *arg)
{
	(void)arg;
}

void mce_tcp_detach(struct mce_peer *p)
{
	struct mce_tcp *t = mce_tcp_of(p);

	if (!t)
		return;
	for (unsigned i = 0; i < t->nconns; i++)
		mce_io_call(t->conns[i].io, detach_run, &t->conns[i]);
	/* Another connection's thread may have posted to the first one's after that had run detach_run()
	 * (mce_tcp_conns_pump()). */
	mce_io_call(t->conns[0].io, empty_run, NULL);
	mce_queue_fail(t, NULL, -ECANCELED);
	for (unsigned i = 0; i < t->nconns; i++) {
		mce_rx_done(&t->conns[i].rx);
		mc_mutex_destroy(&t->conns[i].tx_lock);
		mc_mutex_destroy(&t->conns[i].rx_lock);
	}
	free(t->fence);
	free(t->conns);
	for (unsigned i = 0; i < t->nchunks; i++)
		free(t->chunk[i]);
	if (t->waiter)
		t->waiter->ops->close(t->waiter);
	free(t);
	p->tp[MCE_PATH_TCP] = NULL;
}

/* A WRITE has to wait for connections in doubt, so connect these at once for it. */
static void conns_want_locked(struct mce_tcp *t, bool write)
{
	bool kick = t->wanted < t->nconns;
	uint64_t now;

	t->wanted = t->nconns;
	if (t->up == t->nconns)
		return;
	now = mc_now_ms();
	for (unsigned i = 0; i < t->nconns; i++)
		kick = kick || (!t->conns[i].up && (now >= t->conns[i].retry_ms ||
						    (write && mce_tcp_conn_in_doubt_locked(&t->conns[i]))));
	/* Until then the other connections carry the requests, except those that wait for a connection in doubt. */
	if (kick)
		mce_peer_resolve_later_locked(t->p);
}

int mce_tcp_submit(struct mce_peer *p, struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);
	struct mce_tcp *t = mce_tcp_of(p);
	int status = 0;

	x->numa = (int8_t)(req->iovcnt ? mce_mr_numa_node(p->e, (uintptr_t)req->iov[0].iov_base) :
					  MCE_NUMA_ANY);
	mc_mutex_lock(&p->lock);
	if (x->status == 0 && mce_tcp_outdated(t, req))
		x->status = -ESTALE;
	if (x->status < 0 || x->total == 0) {
		status = x->status;
		mce_req_move(req, MCE_AT_DONE);
	} else if (t->up == 0) {
		status = -EAGAIN;
	} else {
		x->tail_left = mce_tail_len(req) > 0;
		x->crc_left = req->crc ? req->crc_len : 0;
		mce_tcp_queue_locked(t, req, false);
		mce_req_move(req, MCE_AT_TRANSPORT);
		__atomic_store_n(&t->fresh, true, __ATOMIC_RELAXED);
		conns_want_locked(t, req->op == MCE_WRITE);
		status = 1;
	}
	mc_mutex_unlock(&p->lock);
	if (status == -EAGAIN)
		return status;
	if (status <= 0)
		mce_complete(req, t->proto->path, status);
	return 0;
}

void mce_tcp_flush(struct mce_peer *p)
{
	struct mce_tcp *t = mce_tcp_of(p);

	/* A thread that clears the flag before us sees our requests: it is set under the lock that it takes next. */
	if (__atomic_load_n(&t->fresh, __ATOMIC_RELAXED)) {
		__atomic_store_n(&t->fresh, false, __ATOMIC_RELAXED);
		mce_tcp_conns_pump(t);
	}
}
