/* SPDX-License-Identifier: Apache-2.0
 * peer.c - the cache of peers, and the choice of a request's path.
 *
 * A request that a transport can take at once is taken in the caller's thread.  Otherwise it pends
 * and the peer's resolver, a thread that runs while there is work for it, connects.  So
 * submitting never blocks, whatever the state of the other side. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "engine/engine_i.h"

/* Offers of one request after connecting for it; more mean that the peer is lost again and again. */
#define TRIES_MAX 4
/* Regions that one round prepares before it offers the requests again. */
#define ROUND_KEYS 256u

MC_GAUGE(peers_open, "mooncake_transfer_peers", "", "Peers this process has a handle of")

/* ---- life -------------------------------------------------------------------------------------- */

static void peer_free(struct mce_peer *p)
{
	/* First those whose threads submit requests to the others. */
	mce_follow_transport.detach(p);
	mce_staged_transport.detach(p);
	for (const struct mce_transport *const *t = p->transports; *t; t++)
		(*t)->detach(p);
	mc_mutex_destroy(&p->lock);
	free(p);
	mc_metric_add(&peers_open, -1);
}

/* The engine's lock is held. */
static int peer_new(struct mce_engine *e, const char *endpoint, unsigned upstream, struct mce_peer **ret)
{
	char host[MC_ADDR_MAX];
	struct mce_peer *p;
	int port, r;

	if (strlen(endpoint) >= MC_ADDR_MAX)
		return mc_fail(-EINVAL, "endpoint is too long");
	r = mc_addr_split(endpoint, host, sizeof(host), -1, &port);
	if (r < 0)
		return r;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->e = e;
	strcpy(p->endpoint, endpoint);
	p->token = mc_random_u64();
	p->refs = 1;
	p->upstream = upstream;
	p->transports = upstream == MCE_UPSTREAM_RDMA ? mce_upstream_rdma_transports :
		upstream ? mce_upstream_transports : mce_transports;
	p->local = !upstream && !strcmp(endpoint, e->endpoint);
	mc_list_init(&p->pending);
	mc_list_init(&p->node);
	mc_list_init(&p->owed_node);
	mc_mutex_init(&p->lock);
	mc_metric_add(&peers_open, 1);
	for (const struct mce_transport *const *t = p->transports; *t; t++) {
		r = (*t)->attach(p);
		if (r < 0) {
			peer_free(p);
			return r;
		}
	}
	*ret = p;
	return 0;
}

static struct mce_peer *peer_find_locked(struct mce_engine *e, const char *endpoint, unsigned upstream)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &e->peers) {
		struct mce_peer *p = mc_container_of(pos, struct mce_peer, node);

		if (p->upstream == upstream && !strcmp(p->endpoint, endpoint))
			return p;
	}
	return NULL;
}

static int peer_get(struct mce_engine *e, const char *endpoint, unsigned upstream, struct mce_peer **ret)
{
	struct mce_peer *p;
	int r = mc_fork_check(e->fork_depth);

	if (r < 0)
		return r;
	MC_LOCKED(&e->lock);
	/* The record of its WRITEs in doubt (keep_doubts) is not written yet. */
	while ((p = peer_find_locked(e, endpoint, upstream)) && p->closing)
		mc_cond_wait(&e->idle, &e->lock);
	if (p) {
		p->refs++;
	} else {
		r = peer_new(e, endpoint, upstream, &p);
		if (r < 0)
			return r;
		mc_list_push_back(&e->peers, &p->node);
	}
	*ret = p;
	return 0;
}

int mce_peer_get(struct mce_engine *e, const char *endpoint, struct mce_peer **ret)
{
	return peer_get(e, endpoint, 0, ret);
}

int mce_peer_get_at(struct mce_engine *e, const char *host, int port, unsigned upstream, struct mce_peer **ret)
{
	char endpoint[MC_ADDR_MAX];
	int r;

	if (port < 1 || port > 65535)
		return mc_fail(-EINVAL, "port %d is out of range", port);
	r = mc_addr_join(host, port, endpoint);
	return r < 0 ? r : peer_get(e, endpoint, upstream, ret);
}

int mce_peer_get_upstream(struct mce_engine *e, const char *host, int port, unsigned proto_version,
			  struct mce_peer **ret)
{
	return mce_peer_get_at(e, host, port, proto_version >= 2 ? 2 : 1, ret);
}

/* Drop a reference; true: it is the last one, and peer_close_end() has to drop it. */
static bool peer_close_begin(struct mce_peer *p)
{
	MC_LOCKED(&p->e->lock);
	/* A resolver may take and drop references at any time. */
	if (p->refs > 1) {
		p->refs--;
		return false;
	}
	p->closing = true;
	return true;
}

static bool peer_close_end(struct mce_peer *p)
{
	MC_LOCKED(&p->e->lock);
	mc_cond_broadcast(&p->e->idle);
	p->closing = false;
	if (--p->refs > 0)
		return false;
	mc_list_remove(&p->node);
	mc_list_remove(&p->owed_node);
	for (const struct mce_transport *const *t = p->transports; *t; t++)
		(*t)->keep_doubts(p);
	return true;
}

void mce_peer_put(struct mce_peer *p)
{
	if (!p || mc_fork_check(p->e->fork_depth) < 0 || !peer_close_begin(p))
		return;
	for (const struct mce_transport *const *t = p->transports; *t; t++)
		(*t)->note_doubts(p);
	if (peer_close_end(p))
		peer_free(p);
}

void mce_peers_close(struct mce_engine *e)
{
	struct mc_list *pos, *next;

	mc_mutex_lock(&e->lock);
	while (e->resolvers)
		mc_cond_wait(&e->idle, &e->lock);
	if (e->has_resolved)
		mc_thread_join(e->resolved);
	e->has_resolved = false;
	while (!mc_list_empty(&e->owed))
		mc_list_remove(e->owed.next);
	mc_mutex_unlock(&e->lock);
	mc_list_for_each_safe(pos, next, &e->peers) {
		struct mce_peer *p = mc_container_of(pos, struct mce_peer, node);

		mc_list_remove(&p->node);
		mce_peer_fail_pending(p, -ECANCELED);
		peer_free(p);
	}
}

/* ---- statistics -------------------------------------------------------------------------------- */

const char *mce_peer_endpoint(const struct mce_peer *p)
{
	return p->endpoint;
}

static uint64_t sum_of(const uint64_t *sum)
{
	return __atomic_load_n(sum, __ATOMIC_RELAXED);
}

uint64_t mce_peer_on_numa_node(const struct mce_peer *p, unsigned numa)
{
	return numa < MCE_NUMA_MAX ? sum_of(&p->numa_bytes[numa]) : 0;
}

uint64_t mce_peer_paths(const struct mce_peer *p, struct mce_path_stats ret[MCE_PATHS])
{
	/* In this order: a request that begins and ends in between must not make the result negative. */
	uint64_t ended = sum_of(&p->ended), asked = sum_of(&p->asked);

	for (unsigned i = 0; i < MCE_PATHS; i++) {
		ret[i].requests = sum_of(&p->path[i].requests);
		ret[i].bytes = sum_of(&p->path[i].bytes);
		ret[i].errors = sum_of(&p->path[i].errors);
	}
	return asked - ended;
}

void mce_peers_each(struct mce_engine *e, void (*fn)(const struct mce_peer *p, void *arg), void *arg)
{
	struct mc_list *pos;

	MC_LOCKED(&e->lock);
	mc_list_for_each(pos, &e->peers)
		fn(mc_container_of(pos, struct mce_peer, node), arg);
}

struct mce_peer *mce_peer_next(struct mce_engine *e, struct mce_peer *p)
{
	struct mce_peer *next = NULL;
	struct mc_list *pos;

	mc_mutex_lock(&e->lock);
	for (pos = p ? p->node.next : e->peers.next; pos != &e->peers && !next; pos = pos->next) {
		next = mc_container_of(pos, struct mce_peer, node);
		if (next->closing)
			next = NULL;
	}
	if (next)
		next->refs++;
	mc_mutex_unlock(&e->lock);
	mce_peer_put(p);
	return next;
}

bool mce_peer_settle(struct mce_peer *p)
{
	MC_LOCKED(&p->lock);
	if (!mce_peer_in_doubt_locked(p, MCE_PATH_NONE))
		return true;
	mce_peer_resolve_later_locked(p);
	return false;
}

/* ---- choosing a path --------------------------------------------------------------------------- */

bool mce_peer_in_doubt_locked(struct mce_peer *p, enum mce_path path)
{
	bool any = false, other = false;

	for (const struct mce_transport *const *t = p->transports; p->doubts && *t; t++) {
		bool is = (*t)->writes_in_doubt(p);

		any |= is;
		other |= is && (*t)->path != path;
	}
	p->doubts = any;
	return other;
}

/* The hint of the request; none with device memory, whose copies have to follow the program's work on the GPU. */
static enum mce_path req_prefer(struct mce_req *req)
{
	return mce_reqx(req)->gpu ? MCE_PATH_NONE : req->prefer;
}

/* @prefer is not MCE_PATH_NONE. */
static bool transport_is(const struct mce_transport *t, enum mce_path prefer)
{
	switch (t->path) {
	case MCE_PATH_UPSTREAM:
		return prefer == MCE_PATH_TCP;
	case MCE_PATH_LOCAL:
	case MCE_PATH_PROCESS_VM:
		return prefer == MCE_PATH_MAPPED;
	default:
		return prefer == t->path;
	}
}

/* Offer it to the transports of the path @prefer only (MCE_PATH_NONE: to all). */
static int req_offer_to(struct mce_peer *p, struct mce_req *req, enum mce_path prefer)
{
	int r = -MC_ENOTSUP;

	for (const struct mce_transport *const *t = p->transports; *t && r == -MC_ENOTSUP; t++) {
		if ((mce_reqx(req)->gpu && !(*t)->gpu) || (prefer && !transport_is(*t, prefer)))
			continue;
		mce_reqx(req)->owner = *t;
		r = (*t)->submit(p, req);
	}
	return r;
}

/* 0: taken.  -EAGAIN: the peer has to be connected, or the region prepared, first. */
static int req_offer(struct mce_peer *p, struct mce_req *req)
{
	enum mce_path prefer = req_prefer(req);
	int r = prefer ? req_offer_to(p, req, prefer) : -MC_ENOTSUP;

	if (r == -MC_ENOTSUP)
		r = req_offer_to(p, req, MCE_PATH_NONE);
	if (r != -MC_ENOTSUP)
		return r;
	mce_complete(req, MCE_PATH_NONE, -MC_ETRANSFER);
	return 0;
}

void mce_peer_fail_pending(struct mce_peer *p, int status)
{
	struct mc_list failed, *pos, *next;

	mc_list_init(&failed);
	mc_mutex_lock(&p->lock);
	mc_list_for_each_safe(pos, next, &p->pending) {
		mc_list_remove(pos);
		mc_list_push_back(&failed, pos);
		mce_req_move(mce_req_of(pos), MCE_AT_DONE);
	}
	mc_mutex_unlock(&p->lock);
	mc_list_for_each_safe(pos, next, &failed)
		mce_complete(mce_req_of(pos), MCE_PATH_NONE, status);
}

void mce_peer_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
	struct mce_reqx *x = mce_reqx(req);
	const struct mce_transport *owner = NULL;
	bool mine = false;

	mc_mutex_lock(&p->lock);
	switch (mce_req_at(req)) {
	case MCE_AT_PENDING:
		mc_list_remove(&x->node);
		mce_req_move(req, MCE_AT_DONE);
		mine = true;
		break;
	case MCE_AT_BUSY:	/* the resolver checks the status before it queues the request again */
		x->status = status;
		break;
	case MCE_AT_TRANSPORT:
		owner = x->owner;
		break;
	default:
		break;
	}
	mc_mutex_unlock(&p->lock);
	if (mine)
		mce_complete(req, MCE_PATH_NONE, status);
	else if (owner)
		owner->cancel(p, req, status);
}

/* ---- the resolver ------------------------------------------------------------------------------ */

/* Queue the request again, unless it was cancelled or was offered too often; a round that did not prepare its region
 * does not count. */
static void req_requeue(struct mce_peer *p, struct mce_req *req, int why, bool counts)
{
	struct mce_reqx *x = mce_reqx(req);
	int status = 0;

	mc_mutex_lock(&p->lock);
	if (x->status < 0)
		status = x->status;
	else if (mce_closing(p->e))
		status = -ECANCELED;
	else if (why < 0 && x->seen)
		status = why;
	else if (counts && ++x->tries > TRIES_MAX)
		status = -MC_ETRANSFER;
	else
		status = mce_peer_resolve_locked(p);
	mce_req_move(req, status < 0 ? MCE_AT_DONE : MCE_AT_PENDING);
	if (status == 0)
		mc_list_push_back(&p->pending, &x->node);
	mc_mutex_unlock(&p->lock);
	if (status < 0)
		mce_complete(req, MCE_PATH_NONE, status);
}

bool mce_peer_submit(struct mce_peer *p, struct mce_req *req)
{
	mce_req_move(req, MCE_AT_BUSY);
	if (req_offer(p, req) != -EAGAIN)
		return false;
	req_requeue(p, req, 0, true);
	return true;
}

void mce_peer_pend(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	int status;

	mc_mutex_lock(&p->lock);
	status = mce_closing(p->e) ? -ECANCELED : mce_peer_resolve_locked(p);
	for (unsigned i = 0; i < n; i++) {
		struct mce_reqx *x = mce_reqx(&reqs[i]);

		x->tries = 1;
		mce_req_move(&reqs[i], status < 0 ? MCE_AT_DONE : MCE_AT_PENDING);
		if (status == 0)
			mc_list_push_back(&p->pending, &x->node);
	}
	mc_mutex_unlock(&p->lock);
	for (unsigned i = 0; status < 0 && i < n; i++)
		mce_complete(&reqs[i], MCE_PATH_NONE, status);
}

/* Take the first pending request and, up to @max, those that follow it both in the queue and in memory: an array. */
static unsigned pending_take(struct mce_peer *p, unsigned max, struct mce_req **ret)
{
	struct mce_req *req;
	unsigned n = 0;

	MC_LOCKED(&p->lock);
	while (n < max && !mc_list_empty(&p->pending)) {
		req = mce_req_of(p->pending.next);
		if (n == 0)
			*ret = req;
		else if (req != *ret + n)
			break;
		mc_list_remove(p->pending.next);
		mce_req_move(req, MCE_AT_BUSY);
		n++;
	}
	return n;
}

unsigned mce_peer_offer_run(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	enum mce_path prefer = n ? req_prefer(reqs) : MCE_PATH_NONE;
	bool gpu = n && mce_reqx(reqs)->gpu;
	unsigned took = 0, alike = 1;

	if (mc_fault("engine.peer.run") < 0)
		return 0;
	while (alike < n && (mce_reqx(&reqs[alike])->gpu > 0) == gpu && req_prefer(&reqs[alike]) == prefer)
		alike++;
	/* Requests that no preferred transport takes together are offered singly, to all. */
	for (const struct mce_transport *const *t = p->transports; n > 1 && *t && !took; t++)
		if ((!gpu || (*t)->gpu) && (!prefer || transport_is(*t, prefer)))
			took = (*t)->submit_run(p, reqs, alike);
	return took;
}

/* Only requests that were pending from the beginning fail when this round cannot connect. */
static void round_begin(struct mce_peer *p)
{
	struct mc_list *pos;

	MC_LOCKED(&p->lock);
	mc_list_for_each(pos, &p->pending)
		mce_reqx(mce_req_of(pos))->seen = true;
}

/* Regions that one round prepares, and the results. */
struct round {
	unsigned n, nkeys;	/* pending requests, regions of them */
	uint64_t rkey[ROUND_KEYS];
	int err[ROUND_KEYS];
};

static unsigned round_find(const struct round *r, uint64_t rkey)
{
	unsigned i = 0;

	while (i < r->nkeys && r->rkey[i] != rkey)
		i++;
	return i;
}

static void round_gather(struct mce_peer *p, struct round *r)
{
	struct mc_list *pos;

	r->n = r->nkeys = 0;
	MC_LOCKED(&p->lock);
	mc_list_for_each(pos, &p->pending) {
		uint64_t rkey = mce_req_of(pos)->rkey;

		r->n++;
		if (r->nkeys < ROUND_KEYS && round_find(r, rkey) == r->nkeys)
			r->rkey[r->nkeys++] = rkey;
	}
}

static int region_prepare(struct mce_peer *p, uint64_t rkey, uint64_t deadline)
{
	int r = 0;

	for (unsigned i = 0; p->transports[i] && r == 0; i++)
		r = p->transports[i]->prepare(p, rkey, deadline);
	return r;
}

/* How many of the first of @reqs are not cancelled. */
static unsigned reqs_live(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	unsigned i = 0;

	MC_LOCKED(&p->lock);
	while (i < n && mce_reqx(&reqs[i])->status == 0)
		i++;
	return i;
}

/* Offer requests that were taken from the queue: together where a transport does that, else singly. */
static void round_offer(struct mce_peer *p, struct mce_req *reqs, unsigned n, const struct round *round,
		      int connect_err)
{
	unsigned took, i;
	int r;

	for (; n > 0; reqs += took, n -= took) {
		i = round_find(round, reqs->rkey);
		r = i < round->nkeys ? round->err[i] : 0;
		took = r == 0 ? mce_peer_offer_run(p, reqs, reqs_live(p, reqs, n)) : 0;
		if (took)
			continue;
		took = 1;
		if (r < 0 || reqs_live(p, reqs, 1) == 0 || req_offer(p, reqs) < 0)
			req_requeue(p, reqs, r ? r : connect_err, i < round->nkeys);
	}
}

/* Connect the peer's transports, make the regions of pending requests reachable, and offer each of these requests
 * once. */
static void round_run(struct mce_peer *p)
{
	uint64_t ms = p->e->conf.progress_timeout_ms;
	uint64_t deadline = mc_deadline_ms(ms < MCE_CONNECT_MS ? (int64_t)ms : MCE_CONNECT_MS);
	int connect_err = 0, r;
	struct round round;
	struct mce_req *reqs = NULL;
	unsigned i = 0, n;

	round_begin(p);
	while (p->transports[i])
		i++;
	/* Begin with the last transport: its greeting shows whether the better ones are possible. */
	while (i-- > 0) {
		r = p->transports[i]->connect(p, deadline);
		if (r < 0 && connect_err == 0)
			connect_err = r;
	}
	round_gather(p, &round);
	for (i = 0; i < round.nkeys; i++)
		round.err[i] = region_prepare(p, round.rkey[i], deadline);
	for (; round.n > 0; round.n -= n) {
		n = pending_take(p, round.n < MCE_RUN_MAX ? round.n : MCE_RUN_MAX, &reqs);
		if (n == 0)
			break;
		round_offer(p, reqs, n, &round, connect_err);
	}
	for (i = 0; p->transports[i]; i++)
		p->transports[i]->flush(p);
}

static bool resolver_continues(struct mce_peer *p)
{
	MC_LOCKED(&p->lock);
	if (!p->kicked || mce_closing(p->e)) {
		p->resolving = false;
		return false;
	}
	p->kicked = false;
	return true;
}

static void *resolver_main(void *arg)
{
	struct mce_peer *p = arg;
	struct mce_engine *e = p->e;
	struct mc_thread before;
	bool joins;

	while (resolver_continues(p))
		round_run(p);
	if (mce_closing(e))
		mce_peer_fail_pending(p, -ECANCELED);
	mce_peer_put(p);
	/* Each one joins the one before, and the engine the last: libraries free a thread's memory at its end. */
	mc_mutex_lock(&e->lock);
	before = e->resolved;
	joins = e->has_resolved;
	e->resolved = mc_thread_self();
	e->has_resolved = true;
	if (--e->resolvers == 0)
		mc_cond_broadcast(&e->idle);
	mc_mutex_unlock(&e->lock);
	if (joins)
		mc_thread_join(before);
	return NULL;
}

/* With the peer's lock and the engine's. */
static int resolver_start_locked(struct mce_peer *p)
{
	struct mce_engine *e = p->e;
	struct mc_thread thread;
	int r = mc_fault("engine.peer.resolver");

	if (e->closing)
		r = -ECANCELED;
	else if (e->resolvers >= MCE_RESOLVERS_MAX)
		r = -MC_ELIMIT;
	else if (r == 0)
		r = mc_thread_start(&thread, "mce-connect", resolver_main, p);
	if (r < 0)
		return r;
	p->refs++;
	p->resolving = true;
	e->resolvers++;
	return 0;
}

int mce_peer_resolve_locked(struct mce_peer *p)
{
	p->kicked = true;
	if (p->resolving)
		return 0;
	MC_LOCKED(&p->e->lock);
	return resolver_start_locked(p);
}

void mce_peer_resolve_later_locked(struct mce_peer *p)
{
	struct mce_engine *e = p->e;

	if (mce_peer_resolve_locked(p) == 0)
		return;
	MC_LOCKED(&e->lock);
	if (!e->closing && mc_list_empty(&p->owed_node))
		mc_list_push_back(&e->owed, &p->owed_node);
}

void mce_peers_resolve_owed(struct mce_engine *e)
{
	struct mc_list *pos, *next;
	int r = 0;

	MC_LOCKED(&e->lock);
	mc_list_for_each_safe(pos, next, &e->owed) {
		struct mce_peer *p = mc_container_of(pos, struct mce_peer, owed_node);

		/* Against the lock order, so a peer whose lock is taken has to wait for the next tick. */
		if (mc_mutex_trylock(&p->lock))
			continue;
		r = p->resolving ? 0 : resolver_start_locked(p);
		if (r == 0)
			mc_list_remove(&p->owed_node);
		mc_mutex_unlock(&p->lock);
		if (r < 0)
			break;
	}
}

/* ---- direct pointers --------------------------------------------------------------------------- */

static int region_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret)
{
	int r = -MC_ENOTSUP;

	for (const struct mce_transport *const *t = p->transports; *t && r == -MC_ENOTSUP; t++)
		r = (*t)->map(p, addr, rkey, len, ret);
	return r;
}

const void *mce_peer_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len,
			 uint64_t deadline, int *ret_err)
{
	/* An empty READ: it has the region fetched like any other request, and transfers nothing. */
	struct mce_req probe = { .op = MCE_READ, .peer = p, .addr = addr, .rkey = rkey };
	const void *at = NULL;
	struct mce_batch b;
	int r = mc_fork_check(p->e->fork_depth);

	if (r < 0) {
		*ret_err = r;
		return NULL;
	}
	for (unsigned i = 0; i < TRIES_MAX; i++) {
		r = region_map(p, addr, rkey, len, &at);
		if (r != -EAGAIN)
			break;
		mce_batch_init(&b);
		b.left = 1;
		probe.batch = &b;
		memset(probe.priv, 0, sizeof(probe.priv));
		mce_peer_submit(p, &probe);
		r = mce_batch_wait(p->e, &b, &probe, 1, deadline);
		if (r == 0)
			r = probe.status;
		if (r < 0)
			break;
		r = -MC_ETRANSFER;
	}
	if (r < 0)
		*ret_err = r;
	return at;
}
