/* SPDX-License-Identifier: Apache-2.0
 * strangers.c - upstream's nodes that connect to our NICs.  Their messages come from the handshake service.
 *
 * They greet nowhere and do not say when they end, so an endpoint stays until the same pair of NICs connects again, or
 * until newer ones need its place.  When we have requests for the node, its endpoint carries them too (upstream.c takes
 * it from here).  The list belongs to the loop of mce_rdma.ctl. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "engine/rdma/upstream_i.h"

MC_GAUGE(strangers_now, "mooncake_transfer_rdma_upstream_in", "",
	 "Pairs of NICs through which upstream's nodes reach this process's memory over RDMA")

struct stranger {
	struct mc_list node;	/* mce_rdma.strangers, the oldest first */
	struct mce_rdma_ep *ep;
	bool ready;	/* the node has reported that its end is connected */
	char path[MCE_SETUP_PATH_MAX];	/* path of the node's NIC */
};

void mce_rdma_setup_own(struct mce_setup *s, const struct mce_rdma_ep *ep)
{
	struct mce_rdma_addr own;
	int gid_index;

	mce_nic_addr(ep->nic, &own, &gid_index);
	memset(s->reply, 0, sizeof(s->reply));
	memcpy(s->gid, own.gid.raw, sizeof(s->gid));
	s->has_gid = true;
	s->lid = own.lid;
	s->mtu = own.mtu;
	s->nqps = ep->nqps;
	for (unsigned i = 0; i < ep->nqps; i++)
		s->qpn[i] = ep->qp[i].qp->qp_num;
}

static struct mce_rdma_ep *stranger_remove(struct mce_rdma *r, struct stranger *s)
{
	struct mce_rdma_ep *ep = s->ep;

	mc_list_remove(&s->node);
	r->nstrangers--;
	free(s);
	mc_metric_add(&strangers_now, -1);
	return ep;
}

static void stranger_end(struct mce_rdma *r, struct stranger *s)
{
	mce_rdma_ep_discard(stranger_remove(r, s));
}

static struct stranger *stranger_find(struct mce_rdma *r, const struct mce_nic *nic, const char *path)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &r->strangers) {
		struct stranger *s = mc_container_of(pos, struct stranger, node);

		if (s->ep->nic == nic && !strcmp(s->path, path))
			return s;
	}
	return NULL;
}

void mce_rdma_strangers_end(struct mce_rdma *r)
{
	while (!mc_list_empty(&r->strangers))
		stranger_end(r, mc_list_first(&r->strangers, struct stranger, node));
}

/* ---- connecting -------------------------------------------------------------------------------- */

static int stranger_connect(struct mce_rdma_ep *ep, const struct mce_setup *in)
{
	struct mce_rdma_addr to = { .lid = in->lid }, own;
	int gid_index, r = 0;

	snprintf(to.name, sizeof(to.name), "%.*s", (int)sizeof(to.name) - 1, in->local);
	memcpy(to.gid.raw, in->gid, sizeof(in->gid));
	mce_nic_addr(ep->nic, &own, &gid_index);
	for (unsigned i = 0; i < ep->nqps && r == 0; i++)
		r = mce_rdma_qp_connect(ep->nic, ep->qp[i].qp, &to, in->qpn[i], 0,
					in->mtu && in->mtu < own.mtu ? in->mtu : own.mtu);
	return r;
}

static int stranger_new(struct mce_rdma *r, struct mce_nic *nic, const struct mce_setup *in, struct stranger **ret)
{
	struct stranger *s = calloc(1, sizeof(*s));
	int err = s ? mce_rdma_ep_new(NULL, nic, in->nqps, true, &s->ep) : -ENOMEM;

	/* There are no queue pairs left: end the oldest stranger. */
	while (err < 0 && s && !mc_list_empty(&r->strangers)) {
		stranger_end(r, mc_list_first(&r->strangers, struct stranger, node));
		err = mce_rdma_ep_new(NULL, nic, in->nqps, true, &s->ep);
	}
	if (err == 0)
		err = stranger_connect(s->ep, in);
	if (err < 0) {
		if (s && s->ep)
			mce_rdma_ep_discard(s->ep);
		free(s);
		return err;
	}
	strcpy(s->path, in->local);
	s->ready = !in->has_ready_ack;
	mc_list_push_back(&r->strangers, &s->node);
	r->nstrangers++;
	mc_metric_add(&strangers_now, 1);
	*ret = s;
	return 0;
}

struct setup_call {
	struct mce_rdma *r;
	struct mce_setup *msg;	/* the request, then the answer */
	struct mce_nic *nic;
};

static void setup_refuse(struct mce_setup *s, const char *why)
{
	mc_info("rdma", "connection refused: %s peer=%s", why, s->local);
	s->nqps = 0;
	s->has_gid = false;
	snprintf(s->reply, sizeof(s->reply), "%s", why);
}

/* The answer is written over the request. */
static void setup_run(void *arg)
{
	struct setup_call *c = arg;
	struct mce_setup *msg = c->msg, in = *msg;
	struct mce_rdma_peer *rp = NULL;
	enum mce_rdma_claim claim;
	struct stranger *s;
	int err = mc_fault("engine.rdma.stranger");

	claim = mce_rdma_up_claim(c->r, c->nic, &in, msg, &rp);
	if (claim == MCE_CLAIM_LOSES) {
		snprintf(msg->reply, sizeof(msg->reply),
			 "both nodes connect at one time, and the other message counts");
		return;
	}
	/* A new connection of the pair replaces the older one. */
	s = stranger_find(c->r, c->nic, in.local);
	if (s)
		stranger_end(c->r, s);
	if (claim == MCE_CLAIM_TRYING) {
		err = stranger_connect(rp->trying, &in);
		mce_rdma_up_claimed(rp, &in, err);
		if (err < 0)
			setup_refuse(msg, mc_err_detail(err));
		return;
	}
	while (c->r->nstrangers >= c->r->tune.max_eps)
		stranger_end(c->r, mc_list_first(&c->r->strangers, struct stranger, node));
	if (err == 0)
		err = stranger_new(c->r, c->nic, msg, &s);
	if (err < 0)
		setup_refuse(msg, mc_err_detail(err));
	else
		mce_rdma_setup_own(msg, s->ep);
}

static struct mce_nic *nic_of_path(struct mce_rdma *r, const char *path)
{
	size_t len = strlen(r->name);

	if (strncmp(path, r->name, len) != 0 || path[len] != '@')
		return NULL;
	for (unsigned i = 0; i < r->nnics; i++)
		if (!r->nic[i].iwarp && !strcmp(path + len + 1, r->nic[i].addr.name))
			return &r->nic[i];
	return NULL;
}

static void setup_answer(struct mce_rdma *r, struct mce_setup *msg)
{
	struct setup_call c = { .r = r, .msg = msg };
	char path[MCE_SETUP_PATH_MAX];

	c.nic = nic_of_path(r, msg->peer);
	if (!c.nic)
		setup_refuse(msg, "no such NIC at this node");
	else if (!mce_nic_active(c.nic))
		setup_refuse(msg, "the NIC is down");
	else if (!msg->has_gid || msg->nqps == 0)
		setup_refuse(msg, "the message has no GID or no queue pair, upstream's release is too old");
	else
		mce_io_call(&r->ctl, setup_run, &c);
	strcpy(path, msg->local);
	strcpy(msg->local, msg->peer);
	strcpy(msg->peer, path);
}

static void ready_run(void *arg)
{
	struct setup_call *c = arg;
	struct stranger *s = stranger_find(c->r, c->nic, c->msg->local);

	if (s)
		s->ready = true;
	mce_rdma_up_ready(c->r, c->nic, c->msg);
}

/* The sender reports that its end is connected.  The answer is empty. */
static void ready_take(struct mce_rdma *r, struct mce_setup *msg)
{
	struct setup_call c = { .r = r, .msg = msg, .nic = nic_of_path(r, msg->peer) };

	if (c.nic)
		mce_io_call(&r->ctl, ready_run, &c);
	memset(msg, 0, sizeof(*msg));
}

int mce_engine_upstream_setup(struct mce_engine *e, const char *text, size_t len, char **ret_reply)
{
	struct mce_rdma *r = mce_rdma_of(e);
	struct mce_setup msg;
	int err = mce_setup_decode(text, len, &msg);

	if (err < 0)
		return err;
	if (!r || r->nnics == 0 || !r->name)
		setup_refuse(&msg, "this node has no RDMA, use TCP");
	else if (msg.ready_ack)
		ready_take(r, &msg);
	else
		setup_answer(r, &msg);
	return mce_setup_encode(&msg, ret_reply);
}

/* ---- giving endpoints to our own requests ------------------------------------------------------- */

struct take_call {
	struct mce_rdma *r;
	const struct mce_nic *nic;
	const char *path;
	struct mce_rdma_ep *ep;
	bool waits;		/* the endpoint exists, but its other end is not connected yet */
};

static void take_run(void *arg)
{
	struct take_call *t = arg;
	struct stranger *s = stranger_find(t->r, t->nic, t->path);

	t->waits = s && !s->ready;
	t->ep = s && s->ready ? stranger_remove(t->r, s) : NULL;
}

struct mce_rdma_ep *mce_rdma_stranger_take(struct mce_rdma *r, struct mce_nic *nic, const char *path,
					   uint64_t deadline)
{
	struct take_call t = { .r = r, .nic = nic, .path = path };

	for (;;) {
		mce_io_call(&r->ctl, take_run, &t);
		if (!t.waits || mc_now_ns() >= deadline || mce_closing(r->e))
			return t.ep;
		mc_sleep_ms(1);
	}
}
