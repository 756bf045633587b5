/* SPDX-License-Identifier: Apache-2.0
 * complete.c - completions: polling for them, and their effect on slices and endpoints.
 *
 * A thread that waits for a few requests polls by itself for a while (mce_rdma_lead()); otherwise the completion queue
 * is armed, and the next completion wakes the I/O thread.  Arming for each request would cost more than a request, and
 * wake the I/O thread in vain.  So while other threads take the completions the queue is not armed but watched: the I/O
 * thread looks every few milliseconds, and arms the queue again as soon as it finds a completion itself, or none came.
 * A queue is always armed, watched or polled. */
#include <config.h>

#include <errno.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "engine/rdma/rdma_i.h"

#define POLL_MAX 32
/* The I/O thread polls on for this time after a completion. */
#define IO_SPIN_NS 20000u
/* A waiting thread polls for twice the average wait, between these limits; not at all when waits are longer. */
#define LEAD_MIN_NS 50000u
#define LEAD_MAX_NS 2000000u
#define STUCK_MS 400u
#define IWARP_STUCK_MS 4000u
#define LOOK_MIN_NS MC_NS_PER_MS
#define LOOK_MAX_NS (4 * MC_NS_PER_MS)

MC_COUNTER(rdma_errors, "mooncake_transfer_rdma_errors_total", "", "RDMA endpoints that were lost")

/* ---- endpoints --------------------------------------------------------------------------------- */

bool mce_rdma_ep_idle_locked(const struct mce_rdma_ep *ep)
{
	for (unsigned i = 0; i < ep->nqps; i++)
		if (ep->qp[i].head != ep->qp[i].tail)
			return false;
	return true;
}

void mce_rdma_ep_break_locked(struct mce_rdma_ep *ep)
{
	if (ep->state != MCE_RDMA_EP_UP)
		return;
	ep->state = MCE_RDMA_EP_BROKEN;
	ep->broken_ms = mc_now_ms();
	__atomic_store_n(&ep->rp->nup, ep->rp->nup - 1, __ATOMIC_RELAXED);
	mc_metric_add(&rdma_errors, 1);
	mc_metric_add(&ep->nic->metrics->endpoints, -1);
	mce_rdma_weigh_locked(ep->rp);
	for (unsigned i = 0; i < ep->nqps; i++) {
		struct mce_rdma_qp *qp = &ep->qp[i];

		if (qp->qp)
			mce_rdma_qp_fail(ep->nic, qp->qp);
		for (uint32_t at = qp->tail; at != qp->head; at++)
			ep->doubt |= qp->ring[at & (qp->depth - 1)]->write;
	}
	if (ep->doubt)
		ep->rp->p->doubts = true;
	mce_rdma_kick_locked(ep->rp);
}

/* ---- completions ------------------------------------------------------------------------------- */

static struct mce_rdma_slice *ring_pop(struct mce_rdma_qp *qp)
{
	struct mce_rdma_slice *s = qp->ring[qp->tail++ & (qp->depth - 1)];

	qp->ep->bytes -= s->len;
	return s;
}

static void slice_done(struct mce_rdma_qp *qp, struct mc_list *over)
{
	struct mce_rdma_slice *s = ring_pop(qp);

	mc_metric_add(&qp->ep->nic->metrics->carried[s->write], s->len);
	qp->ep->moved += s->len;
	mce_rdma_slice_end_locked(qp->ep->rp, s, 0, over);
}

static void slice_report(const struct mce_rdma_qp *qp, const struct mce_rdma_slice *s, enum ibv_wc_status status)
{
	const struct mce_rdma_ep *ep = qp->ep;

	mc_metric_add(&ep->nic->metrics->failed, 1);
	mc_warn("rdma", "%s failed: %s peer=%s nic=%s peer_nic=%s", s->write ? "write" : "read",
		ep->nic->r->v->wc_status_str(status), ep->rp->p->endpoint, ep->nic->addr.name,
		ep->rp->remote[ep->remote].name);
}

/* The event of our port may come later than the failures.  The endpoints that are left show that the peer is still the
 * same process; without any, the next one may reach another. */
static void path_failed(struct mce_rdma_ep *ep)
{
	ep->failed = !mce_nic_failed(ep->nic);
	if (ep->failed || ep->rp->nup == 0)
		ep->rp->proto->lost_locked(ep->rp);
}

static void slice_failed(struct mce_rdma_qp *qp, enum ibv_wc_status status, struct mc_list *over)
{
	struct mce_rdma_peer *rp = qp->ep->rp;
	struct mce_rdma_slice *s;
	struct mce_rdma_remote *rem;

	/* Break the endpoint first, so that a failed WRITE puts it in doubt. */
	mce_rdma_ep_break_locked(qp->ep);
	s = ring_pop(qp);
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
		/* Another slice has failed, or the endpoint is being closed. */
		mce_rdma_slice_lost_locked(rp, s, false, over);
		break;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		/* The region may be unregistered: fetch it again before the next use. */
		slice_report(qp, s, status);
		rem = mce_rdma_remote_find_locked(rp, s->req->rkey);
		if (rem)
			rem->stale = true;
		mce_rdma_slice_lost_locked(rp, s, true, over);
		break;
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_MW_BIND_ERR:
		/* The request's own memory or form is at fault, so another path would fail too. */
		slice_report(qp, s, status);
		mce_rdma_slice_end_locked(rp, s, -MC_ETRANSFER, over);
		break;
	default:
		slice_report(qp, s, status);
		path_failed(qp->ep);
		mce_rdma_slice_lost_locked(rp, s, qp->ep->failed, over);
		break;
	}
}

/* An error on iWARP says nothing about the slices before it, whose bytes may not be stored (post.c).  When the peer
 * ends the connection, perhaps because it refuses a key, NICs report that for any slice in flight, so all are suspects.
 * Only errors of the slice's own memory are those of the slice. */
static void iwarp_failed(struct mce_rdma_qp *qp, uint32_t seq, enum ibv_wc_status status, struct mc_list *over)
{
	struct mce_rdma_ep *ep = qp->ep;
	bool own = status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_LOC_PROT_ERR ||
		status == IBV_WC_LOC_ACCESS_ERR;
	bool ended = ep->state == MCE_RDMA_EP_UP && !own;
	struct mce_rdma_remote *rem;
	struct mce_rdma_slice *s;

	mce_rdma_ep_break_locked(ep);
	if (ended) {
		slice_report(qp, qp->ring[qp->tail & (qp->depth - 1)], status);
		path_failed(ep);
	}
	while (qp->tail != (ended ? seq + 1 : seq)) {
		s = ring_pop(qp);
		rem = ended ? mce_rdma_remote_find_locked(ep->rp, s->req->rkey) : NULL;
		if (rem)
			rem->stale = true;
		mce_rdma_slice_lost_locked(ep->rp, s, ended && ep->failed, over);
	}
	if (!ended)
		slice_failed(qp, status, over);
}

void mce_rdma_qp_drain_locked(struct mce_rdma_qp *qp, struct mc_list *over)
{
	while (qp->head != qp->tail)
		mce_rdma_slice_lost_locked(qp->ep->rp, ring_pop(qp), false, over);
}

/* The peer's lock is held.  Completions have the order of posting, so one completion ends all slices before it too. */
static void wc_take(struct mce_rdma_qp *qp, const struct ibv_wc *wc, struct mc_list *over)
{
	struct mce_rdma_ep *ep = qp->ep;
	uint32_t seq = (uint32_t)wc->wr_id;

	if ((int32_t)(seq - qp->tail) < 0 || (int32_t)(qp->head - seq) <= 0)
		return;
	if (ep->nic->iwarp && wc->status != IBV_WC_SUCCESS) {
		iwarp_failed(qp, seq, wc->status, over);
	} else {
		while (qp->tail != seq)
			slice_done(qp, over);
		if (wc->status == IBV_WC_SUCCESS)
			slice_done(qp, over);
		else
			slice_failed(qp, wc->status, over);
	}
	/* The resolver frees the endpoint. */
	if (ep->state == MCE_RDMA_EP_BROKEN && mce_rdma_ep_idle_locked(ep))
		mce_rdma_kick_locked(ep->rp);
}

/* The lock of the completion queue is held. */
static void wcs_take(struct mce_rdma_cq *cq, const struct ibv_wc *wc, int n, struct mc_list *over)
{
	struct mce_rdma_peer *rp = NULL;

	for (int i = 0; i < n; i++) {
		uint32_t id = (uint32_t)(wc[i].wr_id >> 32);
		struct mce_rdma_qp *qp = id < cq->nqp ? cq->qp[id] : NULL;

		if (!qp || !qp->ep->rp)
			continue;
		if (rp != qp->ep->rp) {
			if (rp) {
				mce_rdma_pump_locked(rp, over);
				mc_mutex_unlock(&rp->p->lock);
			}
			rp = qp->ep->rp;
			mc_mutex_lock(&rp->p->lock);
		}
		wc_take(qp, &wc[i], over);
	}
	if (rp) {
		mce_rdma_pump_locked(rp, over);
		mc_mutex_unlock(&rp->p->lock);
	}
}

static int cq_poll_locked(struct mce_rdma_cq *cq, struct mc_list *over)
{
	struct ibv_wc wc[POLL_MAX];
	int n = cq->nic->r->v->poll_cq(cq->cq, POLL_MAX, wc);

	if (n > 0)
		wcs_take(cq, wc, n, over);
	return n < 0 ? 0 : n;
}

/* @wait: the caller is the I/O thread, which waits for the lock. */
static int cq_poll(struct mce_rdma_cq *cq, bool wait)
{
	struct mc_list over;
	int n;

	mc_list_init(&over);
	if (wait)
		mc_mutex_lock(&cq->lock);
	else if (mc_mutex_trylock(&cq->lock))
		return 0;	/* another thread is polling */
	n = cq_poll_locked(cq, &over);
	if (!wait)
		cq->taken += (unsigned)n;
	mc_mutex_unlock(&cq->lock);
	mce_rdma_over(&over);
	return n;
}

static unsigned nic_cqs(const struct mce_nic *nic)
{
	return __atomic_load_n(&nic->ncqs, __ATOMIC_ACQUIRE);
}

static int poll_all(struct mce_rdma *r)
{
	int n = 0;

	for (unsigned i = 0; i < r->nnics; i++)
		for (unsigned k = 0; k < nic_cqs(&r->nic[i]); k++)
			n += cq_poll(r->nic[i].cq[k], false);
	return n;
}

void mce_rdma_poll(struct mce_peer *p)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);

	if (rp)
		(void)poll_all(rp->r);
}

/* ---- arming ------------------------------------------------------------------------------------ */

/* Arm the queue unless it is armed or watched (@now: even if it is watched), and take completions that arrived just
 * before.  True: there were some. */
static bool cq_arm(struct mce_rdma_cq *cq, bool now)
{
	struct mc_list over;
	int n = 0;

	mc_list_init(&over);
	mc_mutex_lock(&cq->lock);
	cq->watched &= !now;
	if (!cq->watched) {
		if (!cq->armed)
			cq->armed = cq->nic->r->v->req_notify_cq(cq->cq, 0) == 0;
		n = cq_poll_locked(cq, &over);
	}
	mc_mutex_unlock(&cq->lock);
	mce_rdma_over(&over);
	return n > 0;
}

static bool rdma_led(const struct mce_rdma *r)
{
	return __atomic_load_n(&r->leaders, __ATOMIC_SEQ_CST) > 0;
}

static void cq_serve(struct mce_rdma_cq *cq)
{
	uint64_t until = mc_now_ns() + IO_SPIN_NS;

	while (!rdma_led(cq->nic->r) && mc_now_ns() < until)
		if (cq_poll(cq, true) > 0)
			until = mc_now_ns() + IO_SPIN_NS;
	/* A thread that polls arms the queue when it stops. */
	while (!rdma_led(cq->nic->r) && cq_arm(cq, false))
		;
}

/* Do other threads still poll the queue? */
static bool cq_look(struct mce_rdma_cq *cq)
{
	struct mc_list over;
	bool was, is;

	mc_list_init(&over);
	mc_mutex_lock(&cq->lock);
	was = cq->watched;
	is = was && cq->taken && cq_poll_locked(cq, &over) == 0;
	cq->taken = 0;
	cq->watched = is;
	mc_mutex_unlock(&cq->lock);
	mce_rdma_over(&over);
	if (was && !is)
		cq_serve(cq);
	return is;
}

void mce_rdma_look(struct mc_evtimer *t)
{
	struct mce_rdma *r = mc_container_of(t, struct mce_rdma, look);
	bool again = false;

	for (unsigned i = 0; i < r->nnics; i++)
		for (unsigned k = 0; k < nic_cqs(&r->nic[i]); k++)
			again |= cq_look(r->nic[i].cq[k]);
	r->look_ns = r->look_ns * 2 < LOOK_MAX_NS ? r->look_ns * 2 : LOOK_MAX_NS;
	if (again)
		mc_evtimer_arm(r->io.loop, t, mc_now_ns() + r->look_ns);
}

void mce_rdma_channel_ready(struct mc_evfd *evfd, uint32_t events)
{
	struct mce_nic *nic = mc_container_of(evfd, struct mce_nic, channel_evfd);
	const struct mce_verbs *v = nic->r->v;
	struct ibv_cq *ib;
	bool polled;
	void *context;

	(void)events;
	while (v->get_cq_event(nic->channel, &ib, &context) == 0) {
		struct mce_rdma_cq *cq = context;

		v->ack_cq_events(ib, 1);
		mc_mutex_lock(&cq->lock);
		cq->armed = false;
		polled = rdma_led(nic->r) || cq->taken;
		cq->watched |= polled;
		cq->taken = 0;
		mc_mutex_unlock(&cq->lock);
		if (polled) {
			nic->r->look_ns = LOOK_MIN_NS;
			mc_evtimer_arm(nic->r->io.loop, &nic->r->look, mc_now_ns() + LOOK_MIN_NS);
			continue;
		}
		/* No other thread takes the completions. */
		cq_serve(cq);
	}
}

static bool peer_has_work(struct mce_rdma_peer *rp)
{
	struct mc_list *pos;

	MC_LOCKED(&rp->p->lock);
	if (!mc_list_empty(&rp->queue) || !mc_list_empty(&rp->retry))
		return true;
	mc_list_for_each(pos, &rp->eps)
		if (mc_container_of(pos, struct mce_rdma_ep, node)->bytes)
			return true;
	return false;
}

static uint64_t lead_spin(const struct mce_rdma *r)
{
	uint64_t ns = 2 * __atomic_load_n(&r->wait_ns, __ATOMIC_RELAXED);

	return ns < LEAD_MIN_NS ? LEAD_MIN_NS : ns > LEAD_MAX_NS ? LEAD_MAX_NS : ns;
}

/* A wait took @ns, or longer than @spin: the next wait polls for twice that time, up to the limit. */
static void lead_learn(struct mce_rdma *r, bool done, uint64_t ns, uint64_t spin)
{
	uint64_t avg = __atomic_load_n(&r->wait_ns, __ATOMIC_RELAXED);

	if (!done)
		avg = spin < LEAD_MAX_NS ? spin : 0;
	else
		avg = avg - avg / 8 + ns / 8;
	__atomic_store_n(&r->wait_ns, avg, __ATOMIC_RELAXED);
}

int mce_rdma_lead(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	struct mce_rdma *r;
	uint64_t begin, now, spin;

	if (!rp || __atomic_load_n(&rp->nup, __ATOMIC_RELAXED) == 0 || !peer_has_work(rp))
		return -EAGAIN;
	r = rp->r;
	__atomic_fetch_add(&r->leaders, 1, __ATOMIC_SEQ_CST);
	begin = now = mc_now_ns();
	spin = lead_spin(r);
	while (!mce_batch_done(b) && now - begin < spin && now < deadline) {
		(void)poll_all(r);
		now = mc_now_ns();
	}
	if (__atomic_sub_fetch(&r->leaders, 1, __ATOMIC_SEQ_CST) == 0)
		for (unsigned i = 0; i < r->nnics; i++)
			for (unsigned k = 0; k < nic_cqs(&r->nic[i]); k++)
				(void)cq_arm(r->nic[i].cq[k], !mce_batch_done(b));
	lead_learn(r, mce_batch_done(b), now - begin, spin);
	return 0;
}

/* ---- ticks ------------------------------------------------------------------------------------- */

void mce_rdma_unstarve(struct mce_rdma *r)
{
	struct mc_list over, *pos;
	bool starved;

	mc_mutex_lock(&r->stage.lock);
	starved = r->stage.starved;
	r->stage.starved = r->stage.told = false;
	mc_mutex_unlock(&r->stage.lock);
	if (!starved)
		return;
	mc_list_init(&over);
	mc_mutex_lock(&r->lock);
	mc_list_for_each(pos, &r->peers) {
		struct mce_rdma_peer *rp = mc_container_of(pos, struct mce_rdma_peer, node);

		mc_mutex_lock(&rp->p->lock);
		mce_rdma_pump_locked(rp, &over);
		mc_mutex_unlock(&rp->p->lock);
	}
	mc_mutex_unlock(&r->lock);
	mce_rdma_over(&over);
}

/* An iWARP NIC repeats its packets for minutes, as TCP does, and knows no number of attempts. */
static void iwarp_check_locked(struct mce_rdma_ep *ep, uint64_t now_ms)
{
	if (!ep->bytes || ep->moved != ep->seen) {
		ep->seen = ep->moved;
		ep->seen_ms = now_ms;
	} else if (ep->nic->iwarp && ep->state == MCE_RDMA_EP_UP && now_ms > ep->seen_ms + IWARP_STUCK_MS) {
		mc_warn("rdma", "no bytes arrive between two NICs peer=%s nic=%s peer_nic=%s", ep->rp->p->endpoint,
			ep->nic->addr.name, ep->rp->remote[ep->remote].name);
		ep->failed = true;
		mce_rdma_ep_break_locked(ep);
	}
}

/* Bytes are in flight, and none has arrived for a while.  A NIC may repeat its packets for a long time, so the control
 * connection decides whether the peer is there. */
static bool peer_is_stuck_locked(struct mce_rdma_peer *rp, uint64_t now_ms)
{
	uint64_t moved = 0, left = 0;
	struct mc_list *at;

	mc_list_for_each(at, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(at, struct mce_rdma_ep, node);

		moved += ep->moved;
		left += ep->bytes;
		iwarp_check_locked(ep, now_ms);
	}
	if (left == 0 || moved != rp->moved) {
		rp->moved = moved;
		rp->moved_ms = now_ms;
		return false;
	}
	if (now_ms < rp->moved_ms + STUCK_MS)
		return false;
	rp->moved_ms = now_ms;
	return rp->suspect = true;
}

/* Wake the resolvers of peers with lost endpoints or slices, or that may have ended. */
void mce_rdma_tick(struct mce_watcher *w, uint64_t now_ms)
{
	struct mce_rdma *r = mc_container_of(w, struct mce_rdma, watcher);
	struct mc_list *pos, *at;
	bool kick;

	mce_rdma_unstarve(r);
	MC_LOCKED(&r->lock);
	mc_list_for_each(pos, &r->peers) {
		struct mce_rdma_peer *rp = mc_container_of(pos, struct mce_rdma_peer, node);

		mc_mutex_lock(&rp->p->lock);
		kick = peer_is_stuck_locked(rp, now_ms) || !mc_list_empty(&rp->retry) ||
			(rp->again_ms && now_ms >= rp->again_ms);
		mc_list_for_each(at, &rp->eps)
			kick |= mc_container_of(at, struct mce_rdma_ep, node)->state == MCE_RDMA_EP_BROKEN;
		if (kick)
			mce_rdma_kick_locked(rp);
		mc_mutex_unlock(&rp->p->lock);
	}
}
