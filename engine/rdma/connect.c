/* SPDX-License-Identifier: Apache-2.0
 * connect.c - the resolver's part: connecting pairs of NICs, fetching regions, and freeing lost endpoints. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "engine/rdma/rdma_i.h"

/* A peer that cannot be reached over RDMA is tried again after this time, if there is traffic. */
#define OFF_MS 5000u
/* Pause before a failed pair of NICs is tried again; each failure doubles it. */
#define PAUSE_MS 100u
#define PAUSE_MAX_MS 10000u
#define LACKING_MS 1000u
/* Requests without another path wait for the end of a pause that is not longer than this. */
#define WAIT_MS 1000u
/* An endpoint that is not flushed after this time loses its queue pairs. */
#define FLUSH_MS 1000u
/* Maximum number of regions that one round fetches again. */
#define STALE_MAX 64u

void mce_rdma_kick_locked(struct mce_rdma_peer *rp)
{
	if (!rp->detaching)
		mce_peer_resolve_later_locked(rp->p);
}

/* ---- settling ---------------------------------------------------------------------------------- */

/* Find the next endpoint to free; NULL: there is none. */
static struct mce_rdma_ep *ep_over(struct mce_rdma_peer *rp)
{
	struct mc_list *pos;
	uint64_t now = mc_now_ms();

	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep->state == MCE_RDMA_EP_BROKEN && ep->settled &&
		    (mce_rdma_ep_idle_locked(ep) || now - ep->broken_ms > FLUSH_MS))
			return ep;
	}
	return NULL;
}

struct mce_rdma_ep *mce_rdma_ep_unsettled(struct mce_rdma_peer *rp)
{
	struct mc_list *pos;

	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep->state == MCE_RDMA_EP_BROKEN && !ep->settled)
			return ep;
	}
	return NULL;
}

/* Find a broken endpoint whose slices the NIC does not flush; NULL: there is none. */
static struct mce_rdma_ep *ep_unflushed(struct mce_rdma_peer *rp)
{
	struct mc_list *pos;
	uint64_t now = mc_now_ms();

	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep->state == MCE_RDMA_EP_BROKEN && !mce_rdma_ep_idle_locked(ep) && now - ep->broken_ms > FLUSH_MS)
			return ep;
	}
	return NULL;
}

/* Destroy the queue pairs, so that the NIC uses the memory of the slices no more, and mark these lost.  The endpoint
 * stays until the owner has destroyed its end.  (siw flushes nothing after the peer has ended the connection.) */
static void ep_flush(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep)
{
	struct mc_list over;

	mc_list_init(&over);
	mce_rdma_ep_close(ep);
	mc_mutex_lock(&rp->p->lock);
	for (unsigned i = 0; i < ep->nqps; i++)
		mce_rdma_qp_drain_locked(&ep->qp[i], &over);
	mc_mutex_unlock(&rp->p->lock);
	mce_rdma_over(&over);
}

static void pair_pause(struct mce_rdma_peer *rp, unsigned nic, unsigned remote)
{
	uint32_t *fails = &rp->pair_fails[nic][remote];
	uint64_t ms = PAUSE_MS << (*fails < 7 ? *fails : 7);

	(*fails)++;
	rp->pair_ms[nic][remote] = mc_now_ms() + (ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS);
}

/* Destroy the queue pairs of the endpoint, so that the NIC uses the memory of its slices no more, and free it. */
static void ep_end(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep)
{
	ep_flush(rp, ep);
	mc_mutex_lock(&rp->p->lock);
	mc_list_remove(&ep->node);
	mc_mutex_unlock(&rp->p->lock);
	if (ep->failed) {
		if (ep->broken_ms - ep->up_ms > PAUSE_MAX_MS)
			rp->pair_fails[ep->nic->index][ep->remote] = 0;
		pair_pause(rp, ep->nic->index, ep->remote);
	}
	mce_rdma_ep_free(ep);
}

void mce_rdma_ep_settled(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep)
{
	MC_LOCKED(&rp->p->lock);
	ep->settled = true;
	ep->doubt = false;
}

void mce_rdma_ep_discard(struct mce_rdma_ep *ep)
{
	mce_rdma_ep_close(ep);
	mce_rdma_ep_free(ep);
}

static void eps_settle(struct mce_rdma_peer *rp, uint64_t deadline)
{
	struct mce_rdma_ep *ep;

	rp->proto->settle(rp, deadline);
	while ((ep = ep_over(rp)))
		ep_end(rp, ep);
	while ((ep = ep_unflushed(rp)))
		ep_flush(rp, ep);
}

/* ---- connecting -------------------------------------------------------------------------------- */

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

/* Put a connected endpoint on the list.  False: it has been replaced already. */
static bool ep_list(struct mce_rdma_peer *rp, struct mce_rdma_ep *ep)
{
	bool replaced;

	ep->up_ms = ep->seen_ms = mc_now_ms();
	MC_LOCKED(&rp->r->lock);
	replaced = rp->trying && rp->try == MCE_TRY_REPLACED;
	rp->trying = NULL;
	mc_mutex_lock(&rp->p->lock);
	mc_list_push_back(&rp->eps, &ep->node);
	__atomic_store_n(&rp->nup, rp->nup + 1, __ATOMIC_RELAXED);
	mc_metric_add(&ep->nic->metrics->endpoints, 1);
	mce_rdma_weigh_locked(rp);
	/* The port may have failed before the endpoint was on the list. */
	if (!mce_nic_up(ep->nic) || replaced)
		mce_rdma_ep_break_locked(ep);
	mc_mutex_unlock(&rp->p->lock);
	return !replaced;
}

static int pair_connect(struct mce_rdma_peer *rp, struct mce_nic *nic, unsigned remote, uint64_t deadline)
{
	struct mce_rdma_ep *ep;
	int r;

	do {
		r = rp->proto->ep_open(rp, nic, remote, deadline, &ep);
		if (r < 0) {
			pair_pause(rp, nic->index, remote);
			return r;
		}
	} while (!ep_list(rp, ep) && mc_now_ns() < deadline);
	mc_debug("rdma", "connected peer=%s nic=%s peer_nic=%s", rp->p->endpoint, nic->addr.name,
		 rp->remote[remote].name);
	return 0;
}

/* The @i-th of the peer's NICs that MC_NIC_PEER_AFFINITY, "mine=p1,p2;...", names for this one; -1: there are fewer. */
static int nic_affine(const struct mce_rdma_peer *rp, const struct mce_nic *nic, unsigned i)
{
	const char *at = rp->r->affinity;
	size_t len = strlen(nic->addr.name), n;

	while (at && (strncmp(at, nic->addr.name, len) != 0 || at[len] != '=')) {
		at = strchr(at, ';');
		at = at ? at + 1 : NULL;
	}
	for (at = at ? at + len : NULL; at && *at && *at != ';'; at += n) {
		at++;
		n = strcspn(at, ",;");
		for (unsigned k = 0; k < rp->nremotes; k++)
			if (strlen(rp->remote[k].name) == n && !memcmp(rp->remote[k].name, at, n) && i-- == 0)
				return (int)k;
	}
	return -1;
}

/* The peer's NIC of the same name and number comes first: rail to rail. */
static unsigned nic_rail(const struct mce_rdma_peer *rp, const struct mce_nic *nic)
{
	for (unsigned k = 0; k < rp->nremotes; k++)
		if (!strcmp(rp->remote[k].name, nic->addr.name))
			return k;
	return nic->index % rp->nremotes;
}

/* Returns 0, or the last error. */
static int nic_connect(struct mce_rdma_peer *rp, struct mce_nic *nic, uint64_t deadline)
{
	unsigned first = nic_rail(rp, nic), named = 0;
	int r = -ENETUNREACH, remote;
	bool fits = false;

	while (nic_affine(rp, nic, named) >= 0)
		named++;
	for (unsigned i = 0; i < named + rp->nremotes && rp->open && r < 0; i++) {
		remote = i < named ? nic_affine(rp, nic, i) : (int)((first + i - named) % rp->nremotes);
		if (!mce_rdma_pair_fits(nic, &rp->remote[remote]))
			continue;
		fits = true;
		if (mc_now_ms() >= rp->pair_ms[nic->index][remote] && mc_now_ns() < deadline)
			r = pair_connect(rp, nic, (unsigned)remote, deadline);
	}
	return fits || !rp->open ? r : mc_fail(r, "%s fits none of the peer's NICs", nic->addr.name);
}

/* Earliest time at which a pair of NICs may be tried again. */
static uint64_t pairs_again(const struct mce_rdma_peer *rp)
{
	uint64_t at = mc_now_ms() + PAUSE_MAX_MS;

	for (unsigned i = 0; i < rp->r->nnics; i++)
		for (unsigned k = 0; k < rp->nremotes; k++)
			if (mce_nic_up(&rp->r->nic[i]) && mce_rdma_pair_fits(&rp->r->nic[i], &rp->remote[k]) &&
			    rp->pair_ms[i][k] < at)
				at = rp->pair_ms[i][k];
	return at;
}

/* When the resolver tries again to connect a NIC.  A pair that is connected, or was not tried for lack of time, may be
 * tried at any time, which says nothing about the others. */
static uint64_t lacking_again(const struct mce_rdma_peer *rp)
{
	uint64_t at = pairs_again(rp), least = mc_now_ms() + LACKING_MS;

	return at > least - LACKING_MS ? at : least;
}

/* There is no endpoint and no other path: wait until a pair of NICs may be tried. */
static void pairs_wait(struct mce_rdma_peer *rp, uint64_t deadline)
{
	uint64_t at = pairs_again(rp);

	if (at > mc_now_ms() + WAIT_MS)
		return;
	while (mc_now_ms() < at && mc_now_ns() < deadline && !mce_closing(rp->p->e))
		mc_sleep_ms(5);
}

/* Connect further pairs of NICs where ours is faster than the peer's, for at most half of the time.  Returns when one
 * that failed is tried again; 0: none failed. */
static uint64_t extras_open(struct mce_rdma_peer *rp, uint64_t half, uint64_t deadline)
{
	uint64_t again = 0, at;
	struct mce_nic *nic;
	unsigned remote;

	while (rp->open && mc_now_ns() < half && mce_rdma_extra_wanted(rp, &nic, &remote)) {
		if (pair_connect(rp, nic, remote, deadline) == 0)
			continue;
		at = mce_rdma_extra_at(rp, nic, remote);
		again = again && again < at ? again : at;
	}
	return again;
}

static int eps_open(struct mce_rdma_peer *rp, uint64_t deadline)
{
	uint64_t now = mc_now_ns(), half = deadline > now ? now + (deadline - now) / 2 : now, extra_ms;
	int r, err = -ENETDOWN;
	bool back, lacking = false, first, later = false;

	mc_mutex_lock(&rp->p->lock);
	back = rp->nic_back;
	rp->nic_back = false;
	first = rp->nup == 0;
	mc_mutex_unlock(&rp->p->lock);
	if (back)
		memset(rp->pair_ms, 0, sizeof(rp->pair_ms));
	if (first && rp->proto->only_path)
		pairs_wait(rp, deadline);
	for (unsigned i = 0; i < rp->r->nnics && rp->open; i++) {
		struct mce_nic *nic = &rp->r->nic[i];

		if (nic_serves(rp, nic) || !mce_nic_active(nic))
			continue;
		if (later || mc_now_ns() > half) {
			lacking = later = true;
			break;
		}
		r = nic_connect(rp, nic, deadline);
		err = r < 0 ? r : err;
		lacking |= r < 0;
		/* Waiting requests need one endpoint; the next round makes the others. */
		later = first && r == 0;
	}
	extra_ms = later ? 0 : extras_open(rp, half, deadline);
	MC_LOCKED(&rp->p->lock);
	if (later)
		mce_rdma_kick_locked(rp);
	rp->again_ms = lacking ? lacking_again(rp) : extra_ms;
	return err;
}

/* ---- regions ----------------------------------------------------------------------------------- */

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
	mc_mutex_lock(&rp->p->lock);
	mce_rdma_fail_region_locked(rp, rkey, status, &over);
	mce_rdma_remote_drop_locked(rp, rkey);
	mc_mutex_unlock(&rp->p->lock);
	mce_rdma_over(&over);
}

static void stale_fetch(struct mce_rdma_peer *rp, uint64_t deadline)
{
	uint64_t keys[STALE_MAX];
	unsigned n;
	int r;

	while (rp->open && (n = stale_list(rp, keys)) > 0)
		for (unsigned i = 0; i < n && rp->open; i++) {
			r = rp->proto->region(rp, keys[i], deadline);
			if (r < 0 && rp->open)
				region_gone(rp, keys[i], r);
		}
}

int mce_rdma_prepare(struct mce_peer *p, uint64_t rkey, uint64_t deadline)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	bool known;
	int r;

	if (!rp || !rp->open)
		return 0;
	mc_mutex_lock(&p->lock);
	known = rp->state != MCE_RDMA_UP || mce_rdma_remote_find_locked(rp, rkey);
	mc_mutex_unlock(&p->lock);
	if (known)
		return 0;
	r = rp->proto->region(rp, rkey, deadline);
	/* Without a control connection the request takes another path. */
	return !rp->open ? 0 : r;
}

/* ---- slots of the transport --------------------------------------------------------------------- */

/* Is there a reason to connect?  If not, set the peer's state. */
static bool connect_wanted(struct mce_rdma_peer *rp)
{
	struct mce_peer *p = rp->p;

	MC_LOCKED(&p->lock);
	/* Endpoints have to be settled, or requests wait for that. */
	if (!mc_list_empty(&rp->eps) || !mc_list_empty(&rp->retry) || !mc_list_empty(&rp->queue))
		return true;
	if (!rp->up && !p->introduced)
		return false;
	if (!rp->proto->reachable_locked(rp)) {
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

/* The control connection uses TCP and failed because the peer's host does not answer, so the TCP path would wait in
 * vain too. */
static bool host_is_silent(const struct mce_rdma_peer *rp, int err)
{
	return !rp->open && (mc_now_ms() < rp->silent_ms || err == -ETIMEDOUT || err == -MC_ETIMEDOUT ||
			     err == -EHOSTUNREACH || err == -ENETUNREACH || err == -ECONNREFUSED);
}

/* Set the state after a round.  Without an endpoint the other transports carry the requests, once no WRITE is in
 * doubt. */
static void connect_conclude(struct mce_rdma_peer *rp, int err)
{
	struct mc_list over;
	bool doubt, flushing = false;
	struct mc_list *pos;

	mc_list_init(&over);
	mc_mutex_lock(&rp->p->lock);
	doubt = mce_rdma_writes_in_doubt(rp->p);
	mc_list_for_each(pos, &rp->eps)
		flushing |= !mce_rdma_ep_idle_locked(mc_container_of(pos, struct mce_rdma_ep, node));
	if (rp->nup) {
		rp->state = MCE_RDMA_UP;
		mce_rdma_return_stranded_locked(rp, &over);
	} else if (!flushing) {
		if (rp->state != MCE_RDMA_OFF)
			mc_warn("rdma", "peer is not reachable over RDMA%s: %s peer=%s",
				rp->proto->only_path ? "" : ", using tcp", mc_err_detail(err), rp->p->endpoint);
		rp->state = MCE_RDMA_OFF;
		rp->retry_ms = rp->open && rp->again_ms ? rp->again_ms : mc_now_ms() + OFF_MS;
		if (!doubt && !host_is_silent(rp, err))
			mce_rdma_return_locked(rp, &over);
		else
			mce_rdma_fail_locked(rp, -MC_ETRANSFER, false, &over);
	}
	mce_rdma_pump_locked(rp, &over);
	mc_mutex_unlock(&rp->p->lock);
	mce_rdma_over(&over);
}

/* Ask the peer whether it is there, if bytes in flight do not move. */
static void suspect_ask(struct mce_rdma_peer *rp, uint64_t deadline)
{
	bool suspect;

	mc_mutex_lock(&rp->p->lock);
	suspect = rp->suspect;
	rp->suspect = false;
	mc_mutex_unlock(&rp->p->lock);
	if (suspect && rp->open)
		rp->proto->ask(rp, deadline);
}

static int peer_open(struct mce_rdma_peer *rp, uint64_t deadline)
{
	return mc_now_ms() < rp->silent_ms ? -ETIMEDOUT : rp->proto->open(rp, deadline);
}

int mce_rdma_connect(struct mce_peer *p, uint64_t deadline)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	int r = 0;

	if (!rp || !connect_wanted(rp))
		return 0;
	list_once(rp);
	rp->proto->recheck(rp);
	suspect_ask(rp, deadline);
	eps_settle(rp, deadline);
	if (!rp->open) {
		r = peer_open(rp, deadline);
		eps_settle(rp, deadline);
	}
	if (rp->open) {
		stale_fetch(rp, deadline);
		r = eps_open(rp, deadline);
		/* The other paths would wait in vain too. */
		if (r < 0 && rp->open && __atomic_load_n(&rp->nup, __ATOMIC_RELAXED) == 0) {
			rp->proto->ask(rp, deadline);
			r = rp->open ? r : -ETIMEDOUT;
		}
	}
	connect_conclude(rp, r);
	return rp->proto->only_path && rp->state == MCE_RDMA_OFF ? r : 0;
}

void mce_rdma_new_fence(struct mce_peer *p)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	struct mc_list over, *pos;

	if (!rp)
		return;
	mc_list_init(&over);
	mc_mutex_lock(&p->lock);
	mce_rdma_fail_locked(rp, -ESTALE, true, &over);
	mc_list_for_each(pos, &rp->eps)
		mce_rdma_ep_break_locked(mc_container_of(pos, struct mce_rdma_ep, node));
	mc_mutex_unlock(&p->lock);
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
	rp->proto = &mce_rdma_control;
	mc_list_init(&rp->node);
	mc_list_init(&rp->queue);
	mc_list_init(&rp->retry);
	mc_list_init(&rp->free);
	mc_list_init(&rp->eps);
	if (p->upstream && mce_rdma_up_attach(rp) < 0) {
		free(rp);
		return -ENOMEM;
	}
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
		mc_mutex_lock(&rp->r->lock);
		mc_list_remove(&rp->node);
		mc_mutex_unlock(&rp->r->lock);
	}
	mc_mutex_lock(&p->lock);
	rp->detaching = true;
	mc_list_for_each(pos, &rp->eps)
		mce_rdma_ep_break_locked(mc_container_of(pos, struct mce_rdma_ep, node));
	mc_mutex_unlock(&p->lock);
	/* The next handle of the peer must not write before the owner has ended this handle's WRITEs in doubt. */
	eps_settle(rp, mc_deadline_ms(FLUSH_MS));
	mc_list_for_each_safe(pos, next, &rp->eps)
		ep_end(rp, mc_container_of(pos, struct mce_rdma_ep, node));
	rp->proto->close(rp);
	mc_mutex_lock(&p->lock);
	mce_rdma_fail_locked(rp, -ECANCELED, false, &over);
	mc_mutex_unlock(&p->lock);
	mce_rdma_over(&over);
	mce_rdma_remotes_free(rp);
	for (unsigned i = 0; i < rp->nchunks; i++)
		free(rp->chunk[i]);
	free(rp->chunk);
	free(rp);
	p->tp[MCE_PATH_RDMA] = NULL;
}
