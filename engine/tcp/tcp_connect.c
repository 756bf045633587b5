/* SPDX-License-Identifier: Apache-2.0
 * tcp_connect.c - connecting lanes, and taking requests.  What blocks here runs on the peer's resolver. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/tcp/tcp_client.h"

/* A lane that cannot be connected while others live is tried again after this. */
#define RETRY_MS 1000

MC_COUNTER(reconnects, "mooncake_transfer_reconnects_total", "",
	   "Lanes connected again after they were lost")
MC_COUNTER(connect_errors, "mooncake_transfer_connect_errors_total", "", "Lanes not connected")

/* ---- lanes ------------------------------------------------------------------------------------- */

struct begin {
	struct mce_tcp_conn *l;
	struct mce_greeting g;
	uint32_t epoch;
	int fd;
	int result;
};

/* The peer's lock is held: who is at the other end now. */
static void introduce_locked(struct mce_tcp *t, struct mce_tcp_conn *l, const struct mce_greeting *g)
{
	struct mce_peer *p = t->p;

	/* Another engine has taken the address over; the lanes to the old one are of no use. */
	if (t->up && !mce_id_same_engine(&p->id, &g->id))
		for (unsigned i = 0; i < t->nlanes; i++)
			if (&t->lanes[i] != l && t->lanes[i].up)
				mce_tcp_conn_mark_broken(&t->lanes[i]);
	p->id = g->id;
	p->introduced = true;
	if (mce_id_same_engine(&g->id, &p->e->id))
		__atomic_store_n(&p->local, true, __ATOMIC_RELEASE);
}

static void begin_run(void *arg)
{
	struct begin *b = arg;
	struct mce_tcp_conn *l = b->l;
	struct mce_tcp *t = l->t;

	pthread_mutex_lock(&l->tx_lock);
	pthread_mutex_lock(&l->rx_lock);
	b->result = mce_rx_init(&l->rx, b->fd, t->proto->answer_len);
	if (b->result == 0) {
		l->evfd.fd = b->fd;
		b->result = mc_evloop_add(l->io->loop, &l->evfd,
					  EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
	}
	if (b->result == 0) {
		l->fd = b->fd;
		l->tx_moved = l->seen_moved = l->seen_received = 0;
		l->since_ms = l->owes_ms = mc_now_ms();
		__atomic_store_n(&l->blocked, false, __ATOMIC_RELEASE);
		__atomic_store_n(&l->broken, false, __ATOMIC_RELEASE);
		__atomic_store_n(&l->draining, false, __ATOMIC_RELEASE);
		l->refused = false;
		l->acks_upto = b->g.features & MCE_FEATURE_ACK_UPTO;
		mce_io_watch(l->io, &l->watcher);
		pthread_mutex_lock(&t->p->lock);
		if (!t->p->upstream)
			introduce_locked(t, l, &b->g);
		l->up = true;
		/* When it is lost it is tried at once: what waits for its greeting has nobody else to ask for that. */
		l->retry_ms = 0;
		l->greeted = b->epoch;
		l->window = b->g.window < MCE_WIRE_WINDOW ? b->g.window : MCE_WIRE_WINDOW;
		l->len_max = b->g.len_max & ~(MC_CRC_CHUNK - 1);
		t->up++;
		mce_tcp_wait_add_locked(l, b->fd);
		pthread_mutex_unlock(&t->p->lock);
	}
	pthread_mutex_unlock(&l->rx_lock);
	pthread_mutex_unlock(&l->tx_lock);
}

static int lane_connect(struct mce_tcp_conn *l, uint64_t deadline)
{
	struct mce_peer *p = l->t->p;
	struct begin b = { .l = l };
	auto_close int fd = -1;
	int r;

	pthread_mutex_lock(&p->lock);
	b.epoch = ++l->epoch;
	pthread_mutex_unlock(&p->lock);
	r = mc_fault("engine.tcp.connect");
	if (r < 0)
		return mc_fail(r, "fault point");
	fd = mc_connect(p->endpoint, deadline);
	if (fd < 0)
		return fd;
	mce_tcp_tune(fd, p->e->conf.progress_timeout_ms);
	r = l->t->proto->greet(l, fd, b.epoch, deadline, &b.g);
	if (r < 0)
		return r;
	b.fd = fd;
	mce_io_call(l->io, begin_run, &b);
	if (b.result < 0)
		return b.result;
	(void)TAKE_FD(fd);
	mce_tcp_conn_count(1);
	if (b.epoch > 1)
		mc_metric_add(&reconnects, 1);
	return 0;
}

static bool lane_wanted(struct mce_tcp_conn *l)
{
	struct mce_tcp *t = l->t;

	MC_LOCKED(&t->p->lock);
	if (l->up || l->idx >= t->wanted)
		return false;
	return t->up == 0 || mce_tcp_conn_in_doubt_locked(l) || mc_now_ms() >= l->retry_ms;
}

static unsigned lanes_up(struct mce_tcp *t)
{
	MC_LOCKED(&t->p->lock);
	return t->up;
}

/* A request's status tells that the peer cannot be reached, the log tells why. */
static int connect_failed(struct mce_tcp_conn *l, int err)
{
	struct mce_tcp *t = l->t;

	mc_metric_add(&connect_errors, 1);
	if (err != -ECANCELED)
		mc_warn("engine", "cannot reach peer: %s peer=%s lane=%u", mc_err_detail(err),
			t->p->endpoint, l->idx);
	pthread_mutex_lock(&t->p->lock);
	l->retry_ms = mc_now_ms() + RETRY_MS;
	pthread_mutex_unlock(&t->p->lock);
	return err == -MC_EVERSION ? err : -MC_ETRANSFER;
}

/* A wanted lane that is not among @tried. */
static struct mce_tcp_conn *next_lane(struct mce_tcp *t, uint32_t tried)
{
	for (unsigned i = 0; i < t->nlanes; i++)
		if (!(tried & 1u << i) && lane_wanted(&t->lanes[i]))
			return &t->lanes[i];
	return NULL;
}

int mce_tcp_connect(struct mce_peer *p, uint64_t deadline)
{
	struct mce_tcp *t = p->tcp;
	struct mce_tcp_conn *l;
	uint32_t tried = 0;
	int r, err = 0;

	/* A lane that was up when it was looked at may be lost now, hence the second look. */
	for (;;) {
		l = next_lane(t, tried);
		if (!l && !lanes_up(t))
			l = next_lane(t, tried);
		if (!l || mce_closing(p->e))
			break;
		tried |= 1u << l->idx;
		r = lane_connect(l, deadline);
		if (r == 0) {
			mce_tcp_conns_pump(t);
			continue;
		}
		err = connect_failed(l, r);
		mce_queue_fail(t, l, err);
	}
	if (mce_closing(p->e))
		err = -ECANCELED;
	/* Connected and lost again is no failure to connect: the requests count their tries. */
	if (err == 0 || lanes_up(t))
		return 0;
	mce_queue_fail(t, NULL, err);
	return err;
}

/* ---- for the table of transports --------------------------------------------------------------------------------- */

static void lane_init(struct mce_tcp *t, unsigned i)
{
	struct mce_tcp_conn *l = &t->lanes[i];

	l->t = t;
	l->idx = i;
	/* Peers begin on different threads, a peer's lanes are on as many as there are. */
	l->io = &t->p->e->io[(t->p->token + i) % t->p->e->nio];
	l->fd = l->look_fd = -1;
	l->evfd.ready = mce_tcp_conn_ready;
	l->watcher.tick = mce_tcp_conn_tick;
	l->watcher.resume = mce_tcp_conn_resume;
	pthread_mutex_init(&l->tx_lock, NULL);
	pthread_mutex_init(&l->rx_lock, NULL);
	mc_list_init(&l->pieces);
	mc_list_init(&l->txq);
}

int mce_tcp_attach(struct mce_peer *p, const struct mce_tcp_proto *proto)
{
	struct mce_tcp *t;

	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->p = p;
	t->proto = proto;
	t->nlanes = p->e->conf.lanes;
	t->lane_bytes = 2 * p->e->conf.stripe_bytes;
	if (t->lane_bytes < MCE_TCP_CONN_BYTES)
		t->lane_bytes = MCE_TCP_CONN_BYTES;
	t->wanted = 1;
	t->wait_fd = -1;
	for (unsigned i = 0; i <= MCE_NUMA_MAX; i++)
		mc_list_init(&t->queue[i]);
	mc_list_init(&t->retry);
	mc_list_init(&t->free);
	t->lanes = calloc(t->nlanes, sizeof(*t->lanes));
	t->fence = mce_fence_new();
	/* With the first pieces there a lack of memory can slow it down but not stop it. */
	if (!t->lanes || !t->fence || !mce_fragments_grow_locked(t)) {
		free(t->fence);
		free(t->lanes);
		free(t);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < t->nlanes; i++)
		lane_init(t, i);
	p->tcp = t;
	return 0;
}

static void detach_run(void *arg)
{
	mce_tcp_conn_down(arg, -ECANCELED);
}

static void nothing_run(void *arg)
{
	(void)arg;
}

void mce_tcp_detach(struct mce_peer *p)
{
	struct mce_tcp *t = p->tcp;

	if (!t)
		return;
	for (unsigned i = 0; i < t->nlanes; i++)
		mce_io_call(t->lanes[i].io, detach_run, &t->lanes[i]);
	/* Threads of the other lanes may have posted to the first's after it had its turn (mce_tcp_conns_pump()). */
	mce_io_call(t->lanes[0].io, nothing_run, NULL);
	mce_queue_fail(t, NULL, -ECANCELED);
	for (unsigned i = 0; i < t->nlanes; i++) {
		mce_rx_done(&t->lanes[i].rx);
		pthread_mutex_destroy(&t->lanes[i].tx_lock);
		pthread_mutex_destroy(&t->lanes[i].rx_lock);
	}
	free(t->fence);
	free(t->lanes);
	for (unsigned i = 0; i < t->nchunks; i++)
		free(t->chunk[i]);
	if (t->wait_fd >= 0)
		close(t->wait_fd);
	free(t);
	p->tcp = NULL;
}

/* A WRITE has to wait for lanes in doubt, so these are tried at once for it. */
static void want_lanes_locked(struct mce_tcp *t, bool write)
{
	bool kick = t->wanted < t->nlanes;
	uint64_t now;

	t->wanted = t->nlanes;
	if (t->up == t->nlanes)
		return;
	now = mc_now_ms();
	for (unsigned i = 0; i < t->nlanes; i++)
		kick = kick || (!t->lanes[i].up && (now >= t->lanes[i].retry_ms ||
						    (write && mce_tcp_conn_in_doubt_locked(&t->lanes[i]))));
	/* Until then the living lanes carry it alone, but for what waits for a lane in doubt. */
	if (kick)
		mce_peer_resolve_later_locked(t->p);
}

int mce_tcp_submit(struct mce_peer *p, struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);
	struct mce_tcp *t = p->tcp;
	int status = 0;

	x->place = (int8_t)(req->iovcnt ? mce_mr_numa_node(p->e, (uintptr_t)req->iov[0].iov_base) :
					  MCE_NUMA_ANY);
	pthread_mutex_lock(&p->lock);
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
		want_lanes_locked(t, req->op == MCE_WRITE);
		status = 1;
	}
	pthread_mutex_unlock(&p->lock);
	if (status == -EAGAIN)
		return status;
	if (status <= 0)
		mce_complete(req, t->proto->path, status);
	return 0;
}

void mce_tcp_flush(struct mce_peer *p)
{
	struct mce_tcp *t = p->tcp;

	/* Who took the flag before us sees what we have queued: it is set under the lock that he takes next. */
	if (__atomic_load_n(&t->fresh, __ATOMIC_RELAXED)) {
		__atomic_store_n(&t->fresh, false, __ATOMIC_RELAXED);
		mce_tcp_conns_pump(t);
	}
}
