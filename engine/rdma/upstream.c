/* SPDX-License-Identifier: Apache-2.0
 * upstream.c - peers that are upstream's nodes: their NICs and regions come from their descriptor, and endpoints are
 * made by a message to their handshake service (upstream/setup.h).
 *
 * Both sides use the queue pairs of a pair of NICs, whichever of them asked for the connection; the newest connection
 * of a pair replaces the one before.  When both ask at one time, the message of the NIC whose path sorts first wins.
 *
 * The messages do not say which process answers.  So after a loss the regions count as unknown: their requests fail
 * with -ESTALE, and the caller fetches the descriptor anew.  But they stay known when our own NIC is down and endpoints
 * of other NICs are left. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "engine/rdma/upstream_i.h"
#include "engine/upstream/handshake.h"

/* No packet lives that long in a data center's network: a WRITE that was lost with its queue pair does not arrive
 * later than this. */
#define PACKET_MS 1000u
/* Time limit for the message of a peer that requests the same pair of NICs. */
#define OFFER_MS 1000

/* The content of a descriptor. */
struct node {
	char *name, *host;
	int port;
	unsigned nnics;
	struct mce_rdma_addr nic[MCE_NICS_MAX];
	struct mce_rdma_remote *regions;	/* linked by next */
};

struct mce_rdma_up {
	/* guarded by the peer's lock */
	struct node *fresh;	/* the newest descriptor, not in use yet because its NICs or address differ */
	uint32_t round;		/* number of descriptors that were used so far */
	uint64_t quiet_ms;	/* when no packet of a lost WRITE can arrive any more */
	/* owned by the resolver, which changes it with the peer's lock */
	struct node *node;
};

/* ---- descriptors ------------------------------------------------------------------------------- */

static void regions_free(struct mce_rdma_remote *list)
{
	while (list) {
		struct mce_rdma_remote *next = list->next;

		free(list);
		list = next;
	}
}

static void node_free(struct node *n)
{
	if (!n)
		return;
	regions_free(n->regions);
	free(n->name);
	free(n->host);
	free(n);
}

static int regions_new(struct node *n, const struct mce_upstream_node *from)
{
	for (size_t i = 0; i < from->nregions; i++) {
		const struct mce_upstream_region *u = &from->regions[i];
		struct mce_rdma_remote *rem = calloc(1, sizeof(*rem) + n->nnics * sizeof(rem->key[0]));

		if (!rem)
			return -ENOMEM;
		rem->rkey = rem->base = u->addr;
		rem->len = rem->part = u->len;
		rem->access = MCE_ACCESS_READ | MCE_ACCESS_WRITE;
		rem->nnics = n->nnics;
		rem->nparts = 1;
		memcpy(rem->key, u->rkeys, n->nnics * sizeof(rem->key[0]));
		rem->next = n->regions;
		n->regions = rem;
	}
	return 0;
}

static int node_new(const struct mce_upstream_node *from, struct node **ret)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->name = strdup(from->name);
	n->host = strdup(from->host);
	n->port = from->port;
	n->nnics = from->nnics < MCE_NICS_MAX ? from->nnics : MCE_NICS_MAX;
	for (unsigned i = 0; i < n->nnics; i++) {
		strcpy(n->nic[i].name, from->nics[i].name);
		memcpy(n->nic[i].gid.raw, from->nics[i].gid, 16);
		n->nic[i].lid = from->nics[i].lid;
	}
	if (!n->name || !n->host || regions_new(n, from) < 0) {
		node_free(n);
		return -ENOMEM;
	}
	*ret = n;
	return 0;
}

static bool node_same_place(const struct node *a, const struct node *b)
{
	bool same = a->port == b->port && a->nnics == b->nnics && !strcmp(a->host, b->host) &&
		!strcmp(a->name, b->name);

	for (unsigned i = 0; same && i < a->nnics; i++)
		same = !strcmp(a->nic[i].name, b->nic[i].name) &&
			!memcmp(&a->nic[i].gid, &b->nic[i].gid, sizeof(a->nic[i].gid)) &&
			a->nic[i].lid == b->nic[i].lid;
	return same;
}

/* Replace all regions by those of the descriptor; requests of regions that it does not name fail. */
static void regions_use_locked(struct mce_rdma_peer *rp, struct node *n, struct mc_list *over)
{
	uint32_t round = ++rp->up->round;
	struct mce_rdma_remote *rem, *next;

	while ((rem = n->regions)) {
		n->regions = rem->next;
		rem->round = round;
		mce_rdma_remote_put_locked(rp, rem);
	}
	for (unsigned i = 0; i < MCE_RDMA_BUCKETS; i++)
		for (rem = rp->bucket[i]; rem; rem = next) {
			next = rem->next;
			if (rem->round == round)
				continue;
			mce_rdma_fail_region_locked(rp, rem->rkey, -ESTALE, over);
			mce_rdma_remote_drop_locked(rp, rem->rkey);
		}
}

/* A descriptor was fetched. */
static void node_learn(struct mce_rdma_peer *rp, struct node *n)
{
	struct mc_list over;

	mc_list_init(&over);
	mc_mutex_lock(&rp->p->lock);
	if (rp->up->node && !rp->up->fresh && node_same_place(rp->up->node, n)) {
		regions_use_locked(rp, n, &over);
		/* The peer has just answered, so no pause is needed. */
		rp->retry_ms = 0;
	} else {
		struct node *old = rp->up->fresh;

		rp->up->fresh = n;
		n = old;
		rp->state = MCE_RDMA_NEW;
	}
	mc_mutex_unlock(&rp->p->lock);
	node_free(n);
	mce_rdma_over(&over);
}

int mce_peer_get_upstream_rdma(struct mce_engine *e, const struct mce_upstream_node *from, struct mce_peer **ret)
{
	const struct mce_rdma *r = mce_rdma_of(e);
	struct mce_peer *p;
	struct node *n;
	int err;

	if (!r || !mce_engine_has_upstream_rdma(e) || !r->name)
		return mc_fail(-MC_ENOTSUP, "segment %s is reached over RDMA only, and this engine has no NIC for that",
			       from->name);
	if (from->nnics == 0)
		return mc_fail(-EINVAL, "segment %s names no RDMA device", from->name);
	err = mce_peer_get_at(e, from->host, from->port, MCE_UPSTREAM_RDMA, &p);
	if (err < 0)
		return err;
	err = node_new(from, &n);
	if (err < 0) {
		mce_peer_put(p);
		return err;
	}
	node_learn(mce_rdma_peer_of(p), n);
	*ret = p;
	return 0;
}

/* ---- slots ------------------------------------------------------------------------------------- */

static bool up_reachable_locked(const struct mce_rdma_peer *rp)
{
	return rp->up->node || rp->up->fresh;
}

static int up_open(struct mce_rdma_peer *rp, uint64_t deadline)
{
	(void)deadline;
	rp->open = rp->up->node;
	return rp->open ? 0 : -ENOENT;
}

/* There is no connection to ask over. */
static void up_ask(struct mce_rdma_peer *rp, uint64_t deadline)
{
	(void)rp;
	(void)deadline;
}

static void up_recheck(struct mce_rdma_peer *rp)
{
	struct mc_list over, *pos;
	struct node *n, *old;

	mc_list_init(&over);
	mc_mutex_lock(&rp->p->lock);
	n = rp->up->fresh;
	if (!n) {
		mc_mutex_unlock(&rp->p->lock);
		return;
	}
	rp->up->fresh = NULL;
	old = rp->up->node;
	rp->up->node = n;
	rp->nremotes = n->nnics;
	memcpy(rp->remote, n->nic, sizeof(rp->remote));
	mc_list_for_each(pos, &rp->eps)
		mce_rdma_ep_break_locked(mc_container_of(pos, struct mce_rdma_ep, node));
	regions_use_locked(rp, n, &over);
	mc_mutex_unlock(&rp->p->lock);
	memset(rp->pair_ms, 0, sizeof(rp->pair_ms));
	node_free(old);
	mce_rdma_over(&over);
}

/* The peer does not say when it has destroyed its end: a new connection of the two NICs shows it, or time. */
static void up_settle(struct mce_rdma_peer *rp, uint64_t deadline)
{
	uint64_t now = mc_now_ms();
	struct mc_list *pos;

	(void)deadline;
	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);
		uint64_t quiet = ep->broken_ms + PACKET_MS;

		if (ep->state != MCE_RDMA_EP_BROKEN || ep->settled)
			continue;
		if (ep->doubt && quiet > rp->up->quiet_ms)
			rp->up->quiet_ms = quiet;
		if (ep->doubt && now < quiet)
			continue;
		ep->settled = true;
		ep->doubt = false;
	}
}

static void up_close(struct mce_rdma_peer *rp)
{
	uint64_t now = mc_now_ms();

	if (now < rp->up->quiet_ms)
		mc_sleep_ms(rp->up->quiet_ms - now);
	node_free(rp->up->node);
	node_free(rp->up->fresh);
	free(rp->up);
}

static int up_region(struct mce_rdma_peer *rp, uint64_t rkey, uint64_t deadline)
{
	const struct mce_rdma_remote *rem;

	(void)deadline;
	MC_LOCKED(&rp->p->lock);
	rem = mce_rdma_remote_find_locked(rp, rkey);
	return rem && !rem->stale ? 0 : -ESTALE;
}

static void up_lost_locked(struct mce_rdma_peer *rp)
{
	for (unsigned i = 0; i < MCE_RDMA_BUCKETS; i++)
		for (struct mce_rdma_remote *rem = rp->bucket[i]; rem; rem = rem->next)
			rem->stale = true;
}

int mce_rdma_up_attach(struct mce_rdma_peer *rp)
{
	rp->proto = &mce_rdma_upstream;
	rp->up = calloc(1, sizeof(*rp->up));
	return rp->up ? 0 : -ENOMEM;
}

/* ---- connecting -------------------------------------------------------------------------------- */

/* Break the older endpoints of the pair.  @settled: the peer has destroyed their other end. */
static void pair_replace(struct mce_rdma_peer *rp, const struct mce_rdma_ep *newest, bool settled)
{
	struct mc_list *pos;

	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep->nic != newest->nic || ep->remote != newest->remote)
			continue;
		mce_rdma_ep_break_locked(ep);
		ep->settled |= settled;
		ep->doubt &= !settled;
	}
}

static void trying_set(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep)
{
	MC_LOCKED(&rp->r->lock);
	rp->trying = ep;
	rp->try = MCE_TRY_ASKED;
	rp->try_ready = false;
}

/* Wait until no message of the peer is connecting the endpoint; with @accept, wait for such a message.  At
 * @deadline: MCE_TRY_FAILED. */
static enum mce_rdma_try trying_wait(struct mce_rdma_peer *rp, bool accept, uint64_t deadline, uint32_t *ret_qpn)
{
	enum mce_rdma_try try;
	bool ready;

	for (;;) {
		mc_mutex_lock(&rp->r->lock);
		try = rp->try;
		ready = rp->try_ready;
		*ret_qpn = rp->try_qpn;
		mc_mutex_unlock(&rp->r->lock);
		if (try == MCE_TRY_FAILED || (try == MCE_TRY_ASKED && !accept) ||
		    (try == MCE_TRY_ACCEPTED && (ready || !accept)))
			return try;
		if (mc_now_ns() >= deadline || mce_closing(rp->p->e))
			return MCE_TRY_FAILED;
		mc_sleep_ms(1);
	}
}

static void setup_fill(struct mce_setup *s, struct mce_rdma_peer *rp, const struct mce_rdma_ep *ep)
{
	mce_rdma_setup_own(s, ep);
	snprintf(s->local, sizeof(s->local), "%s@%s", rp->r->name, ep->nic->addr.name);
	snprintf(s->peer, sizeof(s->peer), "%s@%s", rp->up->node->name, rp->remote[ep->remote].name);
}

static int setup_call(struct mce_rdma_peer *rp, const struct mce_setup *out, uint64_t deadline, struct mce_setup *in)
{
	auto_free char *text = NULL, *reply = NULL;
	const struct node *n = rp->up->node;
	int r = mc_fault("engine.rdma.setup");

	if (r == 0)
		r = mce_setup_encode(out, &text);
	if (r == 0)
		r = rp->r->setup(n->host, n->port, text, deadline, &reply);
	if (r == 0)
		r = mce_setup_decode(reply, strlen(reply), in);
	return r;
}

/* Connect the endpoint to the queue pairs in the peer's answer. */
static int answer_take(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep, const struct mce_setup *out,
		       const struct mce_setup *in)
{
	struct mce_rdma_addr to = rp->remote[ep->remote];
	unsigned mtu = out->mtu;
	int r = 0;

	if (*in->reply)
		return mc_fail(-ECONNREFUSED, "%s refuses: %s", out->peer, in->reply);
	if (in->nqps != ep->nqps || strcmp(in->local, out->peer) != 0 || strcmp(in->peer, out->local) != 0)
		return mc_fail(-MC_EPROTO, "%s does not answer for the connection to it", out->peer);
	if (in->has_gid) {
		memcpy(to.gid.raw, in->gid, sizeof(in->gid));
		to.lid = in->lid;
	}
	if (in->mtu && in->mtu < mtu)
		mtu = in->mtu;
	for (unsigned i = 0; i < ep->nqps && r == 0; i++)
		r = mce_rdma_qp_connect(ep->nic, ep->qp[i].qp, &to, in->qpn[i], 0, mtu);
	return r;
}

/* The peer has answered.  It may also have sent its own message for the pair, which has connected the endpoint. */
static int answer_join(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep, const struct mce_setup *out,
		       const struct mce_setup *in, int r, uint64_t deadline)
{
	bool loses = strcmp(out->local, out->peer) > 0;
	uint64_t soon = mc_deadline_ms(OFFER_MS);
	enum mce_rdma_try try;
	uint32_t qpn;

	/* The peer refuses because it requests the pair too: wait for its message. */
	try = trying_wait(rp, r == 0 && *in->reply && loses, soon < deadline ? soon : deadline, &qpn);
	if (try == MCE_TRY_ASKED && r == 0) {
		mc_mutex_lock(&rp->r->lock);
		try = rp->try;
		if (try == MCE_TRY_ASKED)
			rp->try = MCE_TRY_ANSWERED;
		mc_mutex_unlock(&rp->r->lock);
		if (try == MCE_TRY_ASKED)
			return answer_take(rp, ep, out, in);
		try = trying_wait(rp, false, deadline, &qpn);
	}
	if (try != MCE_TRY_ACCEPTED)
		return r < 0 ? r : mc_fail(-ECONNREFUSED, "%s refuses: %s", out->peer, in->reply);
	/* An answer with other queue pairs belongs to another connection. */
	if (r == 0 && !*in->reply)
		return in->nqps && in->qpn[0] == qpn ? 0 : -MC_EPROTO;
	return trying_wait(rp, true, deadline, &qpn) == MCE_TRY_ACCEPTED ? 0 : -ETIMEDOUT;
}

static int ep_ask(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep, uint64_t deadline)
{
	struct mce_setup in = { 0 }, out = { 0 };
	int r;

	setup_fill(&out, rp, ep);
	out.has_ready_ack = true;
	r = setup_call(rp, &out, deadline, &in);
	r = answer_join(rp, ep, &out, &in, r, deadline);
	if (r < 0 || !in.has_ready_ack || *in.reply)
		return r;
	/* If this message is lost, the peer does not use the connection for its own requests, but serves ours. */
	out.ready_ack = true;
	(void)setup_call(rp, &out, deadline, &in);
	return 0;
}

/* If the peer has requested an endpoint for this pair, use that endpoint instead of @own. */
static bool ep_offered(struct mce_rdma_peer *rp, struct mce_rdma_ep *own, uint64_t deadline, struct mce_rdma_ep **ret)
{
	char path[MCE_SETUP_PATH_MAX];
	struct mce_rdma_ep *ep;
	bool newer;

	snprintf(path, sizeof(path), "%s@%s", rp->up->node->name, rp->remote[own->remote].name);
	ep = mce_rdma_stranger_take(rp->r, own->nic, path, deadline);
	if (!ep)
		return false;
	mc_mutex_lock(&rp->r->lock);
	/* A newer message has connected @own. */
	newer = rp->try != MCE_TRY_ASKED;
	if (!newer) {
		rp->trying = ep;
		rp->try = MCE_TRY_ANSWERED;
	}
	mc_mutex_unlock(&rp->r->lock);
	if (newer) {
		mce_rdma_ep_discard(ep);
		return false;
	}
	ep->remote = own->remote;
	mc_mutex_lock(&rp->p->lock);
	ep->rp = rp;
	mc_mutex_unlock(&rp->p->lock);
	mce_rdma_ep_discard(own);
	pair_replace(rp, ep, false);
	*ret = ep;
	return true;
}

/* The attempt has failed.  After return no message is connecting the endpoint. */
static void trying_end(struct mce_rdma_peer *rp)
{
	mc_mutex_lock(&rp->r->lock);
	while (rp->try == MCE_TRY_ACCEPTING) {
		mc_mutex_unlock(&rp->r->lock);
		mc_sleep_ms(1);
		mc_mutex_lock(&rp->r->lock);
	}
	rp->trying = NULL;
	mc_mutex_unlock(&rp->r->lock);
}

/* One attempt; -ECONNREFUSED when the peer refuses. */
static int ep_try(struct mce_rdma_peer *rp, struct mce_nic *nic, unsigned remote, uint64_t deadline,
		  struct mce_rdma_ep **ret)
{
	struct mce_rdma_ep *ep;
	int r = mce_rdma_ep_new(rp, nic, nic->r->tune.qps, true, &ep);

	if (r < 0)
		return r;
	ep->remote = remote;
	/* A message of the peer for this pair is from now on taken for this endpoint, or refused. */
	trying_set(rp, ep);
	if (ep_offered(rp, ep, deadline, ret))
		return 0;
	r = ep_ask(rp, ep, deadline);
	if (r < 0) {
		trying_end(rp);
		mce_rdma_ep_discard(ep);
		return r;
	}
	pair_replace(rp, ep, true);
	*ret = ep;
	return 0;
}

static int up_ep_open(struct mce_rdma_peer *rp, struct mce_nic *nic, unsigned remote, uint64_t deadline,
		      struct mce_rdma_ep **ret)
{
	uint64_t ms = rp->p->e->conf.progress_timeout_ms, end;
	int r;

	/* The peer has no other path, so no request is delayed by a longer round. */
	end = mc_deadline_ms(ms < MCE_HANDSHAKE_SETUP_MS ? (int64_t)ms : MCE_HANDSHAKE_SETUP_MS);
	deadline = deadline > end ? deadline : end;
	r = ep_try(rp, nic, remote, deadline, ret);
	/* A node that still had an older connection of the pair has dropped it with its refusal. */
	return r == -ECONNREFUSED ? ep_try(rp, nic, remote, deadline, ret) : r;
}

/* ---- messages of the peer (strangers.c) --------------------------------------------------------- */

/* Index of the peer's NIC with this path; -1: there is none. */
static int path_index_locked(const struct mce_rdma_peer *rp, const char *path)
{
	const struct node *n = rp->up->node;
	size_t len = n ? strlen(n->name) : 0;

	if (!n || strncmp(path, n->name, len) != 0 || path[len] != '@')
		return -1;
	for (unsigned i = 0; i < n->nnics; i++)
		if (!strcmp(path + len + 1, n->nic[i].name))
			return (int)i;
	return -1;
}

/* With mce_rdma.lock: does the peer request a pair for which we are making an endpoint?  If so, the message connects
 * that endpoint, or is refused. */
static enum mce_rdma_claim peer_claim(struct mce_rdma_peer *rp, const struct mce_nic *nic, const struct mce_setup *in)
{
	struct mce_rdma_ep *trying = rp->trying;
	struct mc_list *pos;
	int remote;
	bool same;

	MC_LOCKED(&rp->p->lock);
	remote = path_index_locked(rp, in->local);
	if (remote < 0)
		return MCE_CLAIM_NONE;
	same = trying && trying->nic == nic && (int)trying->remote == remote;
	if (same && rp->try == MCE_TRY_ASKED) {
		if (strcmp(in->peer, in->local) < 0 || in->nqps != trying->nqps)
			return MCE_CLAIM_LOSES;
		rp->try = MCE_TRY_ACCEPTING;
		return MCE_CLAIM_TRYING;
	}
	if (same)
		rp->try = MCE_TRY_REPLACED;
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep->nic == nic && (int)ep->remote == remote)
			mce_rdma_ep_break_locked(ep);
	}
	return MCE_CLAIM_NONE;
}

enum mce_rdma_claim mce_rdma_up_claim(struct mce_rdma *r, const struct mce_nic *nic, const struct mce_setup *in,
				      struct mce_setup *answer, struct mce_rdma_peer **ret)
{
	enum mce_rdma_claim claim = MCE_CLAIM_NONE;
	struct mc_list *pos;

	MC_LOCKED(&r->lock);
	mc_list_for_each(pos, &r->peers) {
		struct mce_rdma_peer *rp = mc_container_of(pos, struct mce_rdma_peer, node);

		if (!rp->up || claim != MCE_CLAIM_NONE)
			continue;
		claim = peer_claim(rp, nic, in);
		*ret = rp;
		if (claim != MCE_CLAIM_NONE)
			mce_rdma_setup_own(answer, rp->trying);
	}
	return claim;
}

void mce_rdma_up_claimed(struct mce_rdma_peer *rp, const struct mce_setup *in, int status)
{
	MC_LOCKED(&rp->r->lock);
	rp->try = status < 0 ? MCE_TRY_FAILED : MCE_TRY_ACCEPTED;
	rp->try_qpn = in->qpn[0];
	rp->try_ready = !in->has_ready_ack;
}

void mce_rdma_up_ready(struct mce_rdma *r, const struct mce_nic *nic, const struct mce_setup *in)
{
	struct mc_list *pos;

	MC_LOCKED(&r->lock);
	mc_list_for_each(pos, &r->peers) {
		struct mce_rdma_peer *rp = mc_container_of(pos, struct mce_rdma_peer, node);

		if (!rp->up || !rp->trying || rp->trying->nic != nic)
			continue;
		mc_mutex_lock(&rp->p->lock);
		if (path_index_locked(rp, in->local) == (int)rp->trying->remote)
			rp->try_ready = true;
		mc_mutex_unlock(&rp->p->lock);
	}
}

const struct mce_rdma_proto mce_rdma_upstream = {
	.reachable_locked = up_reachable_locked,
	.open = up_open,
	.close = up_close,
	.recheck = up_recheck,
	.ask = up_ask,
	.settle = up_settle,
	.ep_open = up_ep_open,
	.region = up_region,
	.lost_locked = up_lost_locked,
	.only_path = true,
};
