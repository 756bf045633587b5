/* SPDX-License-Identifier: Apache-2.0
 * control.c - the control connection to one of our own nodes: over it endpoints are made and settled, and the keys of
 * regions are asked for. */
#include <config.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "engine/rdma/rdma_i.h"
#include "engine/tcp/tcp_client.h"
#include "engine/tcp/tcp_server.h"

/* Minimum time for an answer, even if connecting has taken long.  The peer's loop may be busy for seconds. */
#define ANSWER_MS 2000
/* The kernel of the peer's host confirms our bytes, or an attempt to connect, within this time; otherwise the host is
 * taken as lost, because no packet reports its end.  Its RDMA has been quiet for up to a second already then (STUCK_MS
 * in complete.c). */
#define HOST_MS 1500
#define HOST_CONNECT_MS 2000
/* A lost host is not tried again for a moment. */
#define SILENT_MS 1000

static void control_close(struct mce_rdma_peer *rp)
{
	mc_stream_close(&rp->stream);
	rp->open = false;
}

/* The control connection is lost: break all endpoints.  The peer destroys its end before it answers a new
 * connection. */
static void control_lost(struct mce_rdma_peer *rp)
{
	struct mc_list *pos;

	control_close(rp);
	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps)
		mce_rdma_ep_break_locked(mc_container_of(pos, struct mce_rdma_ep, node));
}

/* The kernel has ended the connection, before our own @deadline. */
static void silent_note(struct mce_rdma_peer *rp, int err, uint64_t deadline)
{
	if ((err == -ETIMEDOUT || err == -EHOSTUNREACH) && mc_now_ns() < deadline)
		rp->silent_ms = mc_now_ms() + SILENT_MS;
}

/* A call that times out ends the control connection. */
static int control_call(struct mce_rdma_peer *rp, struct mce_rdma_msg *out, uint64_t deadline, struct mce_rdma_msg *in)
{
	uint64_t least = mc_deadline_ms(ANSWER_MS);
	int r = mc_fault("engine.rdma.call");

	deadline = deadline > least ? deadline : least;
	if (r == 0)
		r = mce_rdma_call(rp->p->e, &rp->stream, out, deadline, in);

	if (r < 0) {
		silent_note(rp, r, deadline);
		mc_info("rdma", "control connection lost: %s peer=%s", mc_strerror(r), rp->p->endpoint);
		control_lost(rp);
		return r;
	}
	return in->status ? mc_err_from_wire(in->status) : 0;
}

static bool control_reachable_locked(const struct mce_rdma_peer *rp)
{
	const struct mce_peer *p = rp->p;

	return !p->local && (!mce_id_same_host(&p->id, &p->e->id) || p->e->conf.force_rdma) &&
		(p->features & MCE_FEATURE_RDMA);
}

static void control_recheck(struct mce_rdma_peer *rp)
{
	if (rp->open && rp->fence != __atomic_load_n(&rp->p->e->fence, __ATOMIC_SEQ_CST))
		control_lost(rp);
}

/* ---- opening ----------------------------------------------------------------------------------- */

static int control_greet(struct mce_rdma_peer *rp, struct mc_stream *s, uint64_t fence, uint64_t deadline)
{
	struct mce_greeting in, out = {
		.features = MCE_WIRE_FEATURES | MCE_FEATURE_RDMA, .token = rp->p->token, .conn = MCE_CONTROL_CONN,
		.epoch = ++rp->epoch, .fence = fence,
	};
	int r = mce_tcp_greet(rp->p->e, s, &out, deadline, &in);

	if (r < 0)
		return r;
	return in.features & MCE_FEATURE_RDMA ? 0 : -MC_ENOTSUP;
}

static int control_open(struct mce_rdma_peer *rp, uint64_t deadline)
{
	uint64_t most = mc_deadline_ms(HOST_CONNECT_MS), fence = __atomic_load_n(&rp->p->e->fence, __ATOMIC_SEQ_CST);
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_NICS };
	struct mc_stream s;
	struct mc_list *pos;
	int r = mc_fault("engine.rdma.control");

	if (r < 0)
		return r;
	r = mc_net_connect(rp->p->e->conf.control_net, rp->p->endpoint, deadline < most ? deadline : most, &s);
	if (r < 0) {
		silent_note(rp, r, MC_NEVER);
		return r;
	}
	mce_tcp_tune(&s, HOST_MS);
	r = control_greet(rp, &s, fence, deadline);
	if (r == 0)
		r = mce_rdma_call(rp->p->e, &s, &out, deadline, &in);
	if (r == 0 && in.naddrs == 0)
		r = -MC_ENOTSUP;
	if (r < 0) {
		silent_note(rp, r, deadline);
		mc_stream_close(&s);
		return r;
	}
	rp->stream = s;
	rp->open = true;
	MC_LOCKED(&rp->p->lock);
	rp->nremotes = in.naddrs;
	memcpy(rp->remote, in.addr, sizeof(rp->remote));
	rp->fence = fence;
	rp->read_only = in.read_only;
	/* The endpoints of the last connection are destroyed at the peer, which may be another process now. */
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

/* ---- endpoints --------------------------------------------------------------------------------- */

/* The list of the peer's NICs is a short answer that every version has. */
static void control_ask(struct mce_rdma_peer *rp, uint64_t deadline)
{
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_NICS };

	if (rp->open)
		(void)control_call(rp, &out, deadline, &in);
}

static void control_settle(struct mce_rdma_peer *rp, uint64_t deadline)
{
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_CLOSE };
	struct mce_rdma_ep *ep;

	while (rp->open && (ep = mce_rdma_ep_unsettled(rp))) {
		out.id = ep->id;
		if (control_call(rp, &out, deadline, &in) == 0)
			mce_rdma_ep_settled(rp, ep);
	}
}

/* Connect the queue pairs to those that the owner's answer names. */
static int qps_connect(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep, const struct mce_rdma_msg *out,
		       const struct mce_rdma_msg *in, uint64_t deadline)
{
	unsigned mtu = in->far.addr.mtu < out->far.addr.mtu ? in->far.addr.mtu : out->far.addr.mtu;
	int r = 0;

	for (unsigned i = 0; i < ep->nqps && r == 0; i++)
		r = out->cm ? mce_rdma_cm_dial(ep->nic, &ep->qp[i], &rp->remote[ep->remote], in->id, in->token, i,
					       deadline) :
			mce_rdma_qp_connect(ep->nic, ep->qp[i].qp, &in->far.addr, in->far.qpn[i], out->far.psn, mtu);
	return r;
}

static int ep_connect(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep, uint64_t deadline)
{
	struct mce_rdma_msg in, out = {
		.op = MCE_RDMA_OPEN, .nic = ep->remote, .cm = ep->nic->cm_listener && rp->remote[ep->remote].cm[0],
	};
	int gid_index, r;

	mce_nic_addr(ep->nic, &out.far.addr, &gid_index);
	out.far.nqps = ep->nqps;
	out.far.psn = (uint32_t)(mc_random_u64() & 0xffffff);
	for (unsigned i = 0; i < ep->nqps; i++)
		out.far.qpn[i] = ep->qp[i].qp->qp_num;
	r = control_call(rp, &out, deadline, &in);
	if (r == 0 && in.far.nqps != ep->nqps)
		r = -MC_EPROTO;
	if (r < 0)
		return r;
	ep->id = in.id;
	r = qps_connect(rp, ep, &out, &in, deadline);
	if (r < 0 && rp->open) {
		out = (struct mce_rdma_msg){ .op = MCE_RDMA_CLOSE, .id = ep->id };
		(void)control_call(rp, &out, deadline, &in);
	}
	return r;
}

static int control_ep_open(struct mce_rdma_peer *rp, struct mce_nic *nic, unsigned remote, uint64_t deadline,
			   struct mce_rdma_ep **ret)
{
	struct mce_rdma_ep *ep;
	int r = mce_rdma_ep_new(rp, nic, nic->r->tune.qps, false, &ep);

	if (r < 0)
		return r;
	ep->remote = remote;
	r = ep_connect(rp, ep, deadline);
	if (r < 0)
		mce_rdma_ep_discard(ep);
	else
		*ret = ep;
	return r;
}

/* ---- regions ----------------------------------------------------------------------------------- */

static int control_region(struct mce_rdma_peer *rp, uint64_t rkey, uint64_t deadline)
{
	struct mce_rdma_msg in, out = { .op = MCE_RDMA_REGION, .rkey = rkey };
	int r;

	r = control_call(rp, &out, deadline, &in);
	if (r == 0 && !in.remote)
		r = -MC_EPROTO;
	if (r < 0)
		return r;
	MC_LOCKED(&rp->p->lock);
	mce_rdma_remote_put_locked(rp, in.remote);
	return 0;
}

static void control_lost_locked(struct mce_rdma_peer *rp)
{
	/* The end of the control connection shows that the peer is another process. */
	(void)rp;
}

const struct mce_rdma_proto mce_rdma_control = {
	.reachable_locked = control_reachable_locked,
	.open = control_open,
	.close = control_close,
	.recheck = control_recheck,
	.ask = control_ask,
	.settle = control_settle,
	.ep_open = control_ep_open,
	.region = control_region,
	.lost_locked = control_lost_locked,
};
