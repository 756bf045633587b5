/* SPDX-License-Identifier: Apache-2.0
 * connect.c - the resolver's part: the control connection, endpoints, regions, and settling lost endpoints. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/net/net.h"
#include "engine/rdma/rdma_i.h"
#include "engine/tcp/tcp_client.h"
#include "engine/tcp/tcp_server.h"

/* A peer that cannot be reached over RDMA is tried again after this time, if there is traffic. */
#define OFF_MS 5000u
/* Pauses of a pair of NICs that failed: doubled each time. */
#define PAUSE_MS 100u
#define PAUSE_MAX_MS 10000u
/* The queue pairs of an endpoint that is not flushed by then are destroyed. */
#define FLUSH_MS 1000u
/* The time for an answer, also when connecting has taken long. */
#define ANSWER_MS 2000
/* Regions that one round asks for again. */
#define STALE_MAX 64u

void mce_rdma_kick_locked(struct mce_rdma_peer *rp)
{
	if (!rp->detaching)
		mce_peer_resolve_later_locked(rp->p);
}

/* ---- settling ---------------------------------------------------------------------------------- */

/* The next endpoint to settle or to free; NULL. */
static struct mce_rdma_ep *broken_next(struct mce_rdma_peer *rp, bool *ret_free)
{
	struct mc_list *pos;
	uint64_t now = mc_now_ms();

	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep->state != MCE_RDMA_EP_BROKEN)
			continue;
		*ret_free = ep->settled && (mce_rdma_ep_idle_locked(ep) || now - ep->broken_ms > FLUSH_MS);
		if (*ret_free || (!ep->settled && rp->fd >= 0))
			return ep;
	}
	return NULL;
}

static void pair_pause(struct mce_rdma_peer *rp, unsigned nic, unsigned remote)
{
	uint32_t *fails = &rp->pair_fails[nic][remote];
	uint64_t ms = PAUSE_MS << (*fails < 7 ? *fails : 7);

	(*fails)++;
	rp->pair_ms[nic][remote] = mc_now_ms() + (ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS);
}

/* Its queue pairs are destroyed, so the NIC does not use the memory of its slices any more. */
static void ep_end(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep)
{
	struct mc_list over;

	mc_list_init(&over);
	mce_rdma_ep_close(ep);
	pthread_mutex_lock(&rp->p->lock);
	for (unsigned i = 0; i < ep->nqps; i++)
		mce_rdma_qp_drain_locked(&ep->qp[i], &over);
	mc_list_remove(&ep->node);
	pthread_mutex_unlock(&rp->p->lock);
	if (ep->failed) {
		if (ep->broken_ms - ep->up_ms > PAUSE_MAX_MS)
			rp->pair_fails[ep->nic->index][ep->remote] = 0;
		pair_pause(rp, ep->nic->index, ep->remote);
	}
	mce_rdma_ep_free(ep);
	mce_rdma_over(&over);
}

/* All endpoints are lost; the peer destroys its end before it answers a new connection. */
static void control_lost(struct mce_rdma_peer *rp)
{
	struct mc_list *pos;

	if (rp->fd >= 0)
		close(rp->fd);
	rp->fd = -1;
	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps)
		mce_rdma_ep_break_locked(mc_container_of(pos, struct mce_rdma_ep, node));
}

static void ep_settled(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep)
{
	MC_LOCKED(&rp->p->lock);
	ep->settled = true;
	ep->doubt = false;
}

static int peer_call(struct mce_rdma_peer *rp, struct mce_rdma_msg *out, uint64_t deadline, struct mce_rdma_msg *in)
{
	int r = mce_rdma_call(rp->p->e, rp->fd, out, deadline, in);

	if (r < 0) {
		mc_info("rdma", "control connection lost: %s peer=%s", mc_strerror(r), rp->p->endpoint);
		control_lost(rp);
		return r;
	}
	return in->status ? mc_err_from_wire(in->status) : 0;
}

static void settle(struct mce_rdma_peer *rp, uint64_t deadline)
{
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_CLOSE };
	struct mce_rdma_ep *ep;
	bool frees;

	while ((ep = broken_next(rp, &frees))) {
		if (frees) {
			ep_end(rp, ep);
			continue;
		}
		out.id = ep->id;
		if (peer_call(rp, &out, deadline, &in) == 0)
			ep_settled(rp, ep);
	}
}

/* ---- connecting -------------------------------------------------------------------------------- */

static int control_greet(struct mce_rdma_peer *rp, int fd, uint64_t fence, uint64_t deadline)
{
	struct mce_greeting in, out = {
		.features = MCE_WIRE_FEATURES | MCE_FEATURE_RDMA, .token = rp->p->token, .conn = MCE_CONTROL_CONN,
		.epoch = ++rp->epoch, .fence = fence,
	};
	int r = mce_tcp_greet(rp->p->e, fd, &out, deadline, &in);

	if (r < 0)
		return r;
	return in.features & MCE_FEATURE_RDMA ? 0 : -MC_ENOTSUP;
}

static int control_open(struct mce_rdma_peer *rp, uint64_t deadline)
{
	uint64_t fence = __atomic_load_n(&rp->p->e->fence, __ATOMIC_SEQ_CST);
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_NICS };
	auto_close int fd = -1;
	struct mc_list *pos;
	int r = mc_fault("engine.rdma.control");

	if (r < 0)
		return r;
	fd = mc_connect(rp->p->endpoint, deadline);
	if (fd < 0)
		return fd;
	mce_tcp_tune(fd, rp->p->e->conf.progress_timeout_ms);
	r = control_greet(rp, fd, fence, deadline);
	if (r == 0)
		r = mce_rdma_call(rp->p->e, fd, &out, deadline, &in);
	if (r == 0 && in.naddrs == 0)
		r = -MC_ENOTSUP;
	if (r < 0)
		return r;
	rp->nremotes = in.naddrs;
	rp->fd = TAKE_FD(fd);
	MC_LOCKED(&rp->p->lock);
	memcpy(rp->remote, in.addr, sizeof(rp->remote));
	rp->fence = fence;
	rp->read_only = in.read_only;
	/* Those of the last connection; and the peer may be another process now. */
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		ep->settled = true;
		ep->doubt = false;
	}
	for (unsigned i = 0; i < MCE_RDMA_BUCKETS; i++)
		for (struct mce_rdma_remote *rem = rp->bucket[i]; rem; rem = rem->next)
			rem->stale = true;
	return 0;
}

static int ep_connect(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep, uint64_t deadline)
{
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_OPEN, .nic = ep->remote };
	unsigned mtu;
	int gid_index, r;

	mce_nic_addr(ep->nic, &out.far.addr, &gid_index);
	out.far.nqps = ep->nqps;
	out.far.psn = (uint32_t)(mc_random_u64() & 0xffffff);
	for (unsigned i = 0; i < ep->nqps; i++)
		out.far.qpn[i] = ep->qp[i].qp->qp_num;
	r = peer_call(rp, &out, deadline, &in);
	if (r == 0 && in.far.nqps != ep->nqps)
		r = -MC_EPROTO;
	if (r < 0)
		return r;
	ep->id = in.id;
	mtu = in.far.addr.mtu < out.far.addr.mtu ? in.far.addr.mtu : out.far.addr.mtu;
	for (unsigned i = 0; i < ep->nqps && r == 0; i++)
		r = mce_rdma_qp_connect(ep->nic, ep->qp[i].qp, &in.far.addr, in.far.qpn[i], out.far.psn, mtu);
	if (r < 0 && rp->fd >= 0) {
		out = (struct mce_rdma_msg){ .op = MCE_RDMA_CLOSE, .id = ep->id };
		(void)peer_call(rp, &out, deadline, &in);
	}
	return r;
}

/* Has the NIC an endpoint that is up? */
static bool nic_serves(struct mce_rdma_peer *rp, const struct mce_nic *nic)
{
	struct mc_list *pos;

	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps) {
		const struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep->nic == nic && ep->state == MCE_RDMA_EP_UP)
			return true;
	}
	return false;
}

static int pair_connect(struct mce_rdma_peer *rp, struct mce_nic *nic, unsigned remote, uint64_t deadline)
{
	struct mce_rdma_ep *ep;
	int r = mce_rdma_ep_new(rp, nic, remote, &ep);

	if (r < 0)
		return r;
	r = ep_connect(rp, ep, deadline);
	if (r < 0) {
		pair_pause(rp, nic->index, remote);
		mce_rdma_ep_close(ep);
		mce_rdma_ep_free(ep);
		return r;
	}
	mc_debug("rdma", "connected peer=%s nic=%s peer_nic=%s", rp->p->endpoint, nic->addr.name,
		 rp->remote[remote].name);
	ep->up_ms = mc_now_ms();
	MC_LOCKED(&rp->p->lock);
	mc_list_push_back(&rp->eps, &ep->node);
	__atomic_store_n(&rp->nup, rp->nup + 1, __ATOMIC_RELAXED);
	/* The port may have gone down before it was on the list. */
	if (!mce_nic_up(nic))
		mce_rdma_ep_break_locked(ep);
	return 0;
}

/* The peer's NIC of the same name and number comes first: rail to rail. */
static unsigned rail(const struct mce_rdma_peer *rp, const struct mce_nic *nic)
{
	for (unsigned k = 0; k < rp->nremotes; k++)
		if (!strcmp(rp->remote[k].name, nic->addr.name))
			return k;
	return nic->index % rp->nremotes;
}

/* 0, or the last error. */
static int nic_connect(struct mce_rdma_peer *rp, struct mce_nic *nic, uint64_t deadline)
{
	unsigned first = rail(rp, nic);
	int r = -ENETUNREACH;

	for (unsigned i = 0; i < rp->nremotes && rp->fd >= 0 && r < 0; i++) {
		unsigned remote = (first + i) % rp->nremotes;

		if (mc_now_ms() >= rp->pair_ms[nic->index][remote] && mc_now_ns() < deadline)
			r = pair_connect(rp, nic, remote, deadline);
	}
	return r;
}

/* When the first pair of NICs may be tried again. */
static uint64_t pairs_again(const struct mce_rdma_peer *rp)
{
	uint64_t at = mc_now_ms() + PAUSE_MAX_MS;

	for (unsigned i = 0; i < rp->r->nnics; i++)
		for (unsigned k = 0; k < rp->nremotes; k++)
			if (mce_nic_up(&rp->r->nic[i]) && rp->pair_ms[i][k] < at)
				at = rp->pair_ms[i][k];
	return at;
}

static int eps_open(struct mce_rdma_peer *rp, uint64_t deadline)
{
	uint64_t now = mc_now_ns(), half = deadline > now ? now + (deadline - now) / 2 : now;
	int r, err = -ENETDOWN;
	bool back, lacking = false, first, later = false;

	pthread_mutex_lock(&rp->p->lock);
	back = rp->nic_back;
	rp->nic_back = false;
	first = rp->nup == 0;
	pthread_mutex_unlock(&rp->p->lock);
	if (back)
		memset(rp->pair_ms, 0, sizeof(rp->pair_ms));
	for (unsigned i = 0; i < rp->r->nnics && rp->fd >= 0; i++) {
		struct mce_nic *nic = &rp->r->nic[i];

		if (!mce_nic_up(nic) || nic_serves(rp, nic))
			continue;
		if (later || mc_now_ns() > half) {
			lacking = later = true;
			break;
		}
		r = nic_connect(rp, nic, deadline);
		err = r < 0 ? r : err;
		lacking |= r < 0;
		/* Requests that wait need one endpoint; the others are made in the next round. */
		later = first && r == 0;
	}
	MC_LOCKED(&rp->p->lock);
	if (later)
		mce_rdma_kick_locked(rp);
	rp->again_ms = lacking ? pairs_again(rp) : 0;
	return err;
}

/* ---- regions ----------------------------------------------------------------------------------- */

static int region_fetch(struct mce_rdma_peer *rp, uint64_t rkey, uint64_t deadline)
{
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_REGION, .rkey = rkey };
	uint64_t least = mc_deadline_ms(ANSWER_MS);
	int r;

	/* A wait that is given up ends the control connection. */
	r = peer_call(rp, &out, deadline > least ? deadline : least, &in);

	if (r == 0 && !in.remote)
		r = -MC_EPROTO;
	if (r < 0)
		return r;
	MC_LOCKED(&rp->p->lock);
	mce_rdma_remote_put_locked(rp, in.remote);
	return 0;
}

static unsigned stale_list(struct mce_rdma_peer *rp, uint64_t keys[STALE_MAX])
{
	unsigned n = 0;

	MC_LOCKED(&rp->p->lock);
	for (unsigned i = 0; i < MCE_RDMA_BUCKETS; i++)
		for (struct mce_rdma_remote *rem = rp->bucket[i]; rem && n < STALE_MAX; rem = rem->next)
			if (rem->stale)
				keys[n++] = rem->rkey;
	return n;
}

static void region_gone(struct mce_rdma_peer *rp, uint64_t rkey, int status)
{
	struct mc_list over;

	mc_list_init(&over);
	pthread_mutex_lock(&rp->p->lock);
	mce_rdma_fail_region_locked(rp, rkey, status, &over);
	mce_rdma_remote_drop_locked(rp, rkey);
	pthread_mutex_unlock(&rp->p->lock);
	mce_rdma_over(&over);
}

static void stale_fetch(struct mce_rdma_peer *rp, uint64_t deadline)
{
	uint64_t keys[STALE_MAX];
	unsigned n;
	int r;

	while (rp->fd >= 0 && (n = stale_list(rp, keys)) > 0)
		for (unsigned i = 0; i < n && rp->fd >= 0; i++) {
			r = region_fetch(rp, keys[i], deadline);
			if (r < 0 && rp->fd >= 0)
				region_gone(rp, keys[i], r);
		}
}

int mce_rdma_prepare(struct mce_peer *p, uint64_t rkey, uint64_t deadline)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	bool known;
	int r;

	if (!rp || rp->fd < 0)
		return 0;
	pthread_mutex_lock(&p->lock);
	known = rp->state != MCE_RDMA_UP || mce_rdma_remote_find_locked(rp, rkey);
	pthread_mutex_unlock(&p->lock);
	if (known)
		return 0;
	r = region_fetch(rp, rkey, deadline);
	/* Without the connection it goes over another path. */
	return rp->fd < 0 ? 0 : r;
}

/* ---- slots of the transport --------------------------------------------------------------------- */

/* Is there any reason to connect?  Sets the state otherwise. */
static bool wanted(struct mce_rdma_peer *rp)
{
	struct mce_peer *p = rp->p;

	MC_LOCKED(&p->lock);
	/* Something is to be settled, or waits for it. */
	if (!mc_list_empty(&rp->eps) || !mc_list_empty(&rp->retry) || !mc_list_empty(&rp->queue))
		return true;
	if (!p->introduced)
		return false;
	if (p->local || (mce_id_same_host(&p->id, &p->e->id) && !p->e->conf.force_rdma) ||
	    !(p->features & MCE_FEATURE_RDMA)) {
		rp->state = MCE_RDMA_OFF;
		rp->retry_ms = mc_now_ms() + OFF_MS;
		return false;
	}
	return rp->state != MCE_RDMA_OFF || mc_now_ms() >= rp->retry_ms;
}

static void list_once(struct mce_rdma_peer *rp)
{
	MC_LOCKED(&rp->r->lock);
	if (mc_list_empty(&rp->node))
		mc_list_push_back(&rp->r->peers, &rp->node);
}

/* Take note of the outcome.  Without an endpoint the other transports carry the requests, once nothing is in doubt. */
static void conclude(struct mce_rdma_peer *rp, int err)
{
	struct mc_list over;
	bool doubt, flushing = false;
	struct mc_list *pos;

	mc_list_init(&over);
	pthread_mutex_lock(&rp->p->lock);
	doubt = mce_rdma_writes_in_doubt(rp->p);
	mc_list_for_each(pos, &rp->eps)
		flushing |= !mce_rdma_ep_idle_locked(mc_container_of(pos, struct mce_rdma_ep, node));
	if (rp->nup) {
		rp->state = MCE_RDMA_UP;
	} else if (!flushing) {
		if (rp->state != MCE_RDMA_OFF)
			mc_warn("rdma", "peer is not reachable over RDMA, using tcp: %s peer=%s", mc_err_detail(err),
				rp->p->endpoint);
		rp->state = MCE_RDMA_OFF;
		rp->retry_ms = rp->fd >= 0 && rp->again_ms ? rp->again_ms : mc_now_ms() + OFF_MS;
		if (!doubt)
			mce_rdma_return_locked(rp, &over);
		else
			mce_rdma_fail_locked(rp, -MC_ETRANSFER, false, &over);
	}
	mce_rdma_pump_locked(rp, &over);
	pthread_mutex_unlock(&rp->p->lock);
	mce_rdma_over(&over);
}

int mce_rdma_connect(struct mce_peer *p, uint64_t deadline)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	int r = 0;

	if (!rp || !wanted(rp))
		return 0;
	list_once(rp);
	if (rp->fd >= 0 && rp->fence != __atomic_load_n(&p->e->fence, __ATOMIC_SEQ_CST))
		control_lost(rp);
	settle(rp, deadline);
	if (rp->fd < 0) {
		r = control_open(rp, deadline);
		settle(rp, deadline);
	}
	if (rp->fd >= 0) {
		stale_fetch(rp, deadline);
		r = eps_open(rp, deadline);
	}
	conclude(rp, r);
	return 0;
}

void mce_rdma_new_fence(struct mce_peer *p)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	struct mc_list over, *pos;

	if (!rp)
		return;
	mc_list_init(&over);
	pthread_mutex_lock(&p->lock);
	mce_rdma_fail_locked(rp, -ESTALE, true, &over);
	mc_list_for_each(pos, &rp->eps)
		mce_rdma_ep_break_locked(mc_container_of(pos, struct mce_rdma_ep, node));
	pthread_mutex_unlock(&p->lock);
	mce_rdma_over(&over);
}

bool mce_rdma_writes_in_doubt(struct mce_peer *p)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	struct mc_list *pos;

	if (rp)
		mc_list_for_each(pos, &rp->eps)
			if (mc_container_of(pos, struct mce_rdma_ep, node)->doubt)
				return true;
	return false;
}

int mce_rdma_attach(struct mce_peer *p)
{
	struct mce_rdma *r = mce_rdma_of(p->e);
	struct mce_rdma_peer *rp;

	if (!r || r->nnics == 0)
		return 0;
	rp = calloc(1, sizeof(*rp));
	if (!rp)
		return -ENOMEM;
	rp->r = r;
	rp->p = p;
	rp->fd = -1;
	mc_list_init(&rp->node);
	mc_list_init(&rp->queue);
	mc_list_init(&rp->retry);
	mc_list_init(&rp->free);
	mc_list_init(&rp->eps);
	p->tp[MCE_PATH_RDMA] = rp;
	return 0;
}

void mce_rdma_detach(struct mce_peer *p)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	struct mc_list over, *pos, *next;

	if (!rp)
		return;
	mc_list_init(&over);
	if (!mc_list_empty(&rp->node)) {
		pthread_mutex_lock(&rp->r->lock);
		mc_list_remove(&rp->node);
		pthread_mutex_unlock(&rp->r->lock);
	}
	pthread_mutex_lock(&p->lock);
	rp->detaching = true;
	mc_list_for_each(pos, &rp->eps)
		mce_rdma_ep_break_locked(mc_container_of(pos, struct mce_rdma_ep, node));
	pthread_mutex_unlock(&p->lock);
	/* The next handle of this peer must not write before the owner has ended the WRITEs in doubt of this one. */
	settle(rp, mc_deadline_ms(FLUSH_MS));
	mc_list_for_each_safe(pos, next, &rp->eps)
		ep_end(rp, mc_container_of(pos, struct mce_rdma_ep, node));
	if (rp->fd >= 0)
		close(rp->fd);
	pthread_mutex_lock(&p->lock);
	mce_rdma_fail_locked(rp, -ECANCELED, false, &over);
	pthread_mutex_unlock(&p->lock);
	mce_rdma_over(&over);
	mce_rdma_remotes_free(rp);
	for (unsigned i = 0; i < rp->nchunks; i++)
		free(rp->chunk[i]);
	free(rp->chunk);
	free(rp);
	p->tp[MCE_PATH_RDMA] = NULL;
}
