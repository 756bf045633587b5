/* SPDX-License-Identifier: Apache-2.0
 * peer.c - the cache of peers, and how a request finds its path.
 *
 * A request that a transport can take at once is taken in the caller's thread.  Otherwise it pends
 * and the peer's resolver, a thread that lives as long as there is something to resolve, connects.  So
 * submitting never blocks, whatever the state of the other side. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/fork.h"
#include "common/hash.h"
#include "common/metrics.h"
#include "common/thread.h"
#include "engine/engine_i.h"

/* Offers of one request after connecting for it; more mean that the peer keeps coming and going. */
#define TRIES_MAX 4
/* Regions that are asked for before requests are offered again. */
#define ROUND_KEYS 256u

MC_GAUGE(peers_open, "mooncake_transfer_peers", "", "Peers this process has a handle of")

/* ---- life -------------------------------------------------------------------------------------- */

static void peer_free(struct mce_peer *p)
{
	for (const struct mce_transport *const *t = p->transports; *t; t++)
		(*t)->detach(p);
	pthread_mutex_destroy(&p->lock);
	free(p);
	mc_metric_add(&peers_open, -1);
}

/* The engine's lock is held. */
static int peer_new(struct mce_engine *e, const char *endpoint, unsigned upstream,
		    struct mce_peer **ret)
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
	p->transports = upstream ? mce_upstream_transports : mce_transports;
	p->local = !upstream && !strcmp(endpoint, e->endpoint);
	mc_list_init(&p->pending);
	mc_list_init(&p->node);
	mc_list_init(&p->owed_node);
	pthread_mutex_init(&p->lock, NULL);
	mc_metric_add(&peers_open, 1);
	for (const struct mce_transport *const *t = p->transports; *t; t++) {
		r = (*t)->attach(p);
		if (r < 0) {
			peer_free(p);
			return r;
		}
	}
	mce_fence_take_locked(p);
	*ret = p;
	return 0;
}

static struct mce_peer *find_locked(struct mce_engine *e, const char *endpoint, unsigned upstream)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &e->peers) {
		struct mce_peer *p = mc_container_of(pos, struct mce_peer, node);

		if (p->upstream == upstream && !strcmp(p->endpoint, endpoint))
			return p;
	}
	return NULL;
}

static int peer_get(struct mce_engine *e, const char *endpoint, unsigned upstream,
		    struct mce_peer **ret)
{
	struct mce_peer *p;
	int r = mc_fork_check(e->fork_depth);

	if (r < 0)
		return r;
	MC_LOCKED(&e->lock);
	/* What it leaves behind is not written down yet. */
	while ((p = find_locked(e, endpoint, upstream)) && p->going)
		pthread_cond_wait(&e->idle, &e->lock);
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

int mce_peer_get_upstream(struct mce_engine *e, const char *host, int port, unsigned proto_version,
			  struct mce_peer **ret)
{
	char endpoint[MC_ADDR_MAX];

	if (port < 1 || port > 65535)
		return mc_fail(-EINVAL, "port %d is out of range", port);
	mce_join_address(endpoint, host, port);
	if (!endpoint[0])
		return mc_fail(-EINVAL, "host name is too long");
	return peer_get(e, endpoint, proto_version >= 2 ? 2 : 1, ret);
}

/* False: others use it still. */
static bool begin_going(struct mce_peer *p)
{
	MC_LOCKED(&p->e->lock);
	/* The resolver comes and goes without being asked for. */
	if (p->refs > 1) {
		p->refs--;
		return false;
	}
	p->going = true;
	return true;
}

static bool end_going(struct mce_peer *p, bool fence)
{
	MC_LOCKED(&p->e->lock);
	pthread_cond_broadcast(&p->e->idle);
	p->going = false;
	if (--p->refs > 0)
		return false;
	mc_list_remove(&p->node);
	mc_list_remove(&p->owed_node);
	if (fence)
		mce_fence_keep_locked(p);
	return true;
}

void mce_peer_put(struct mce_peer *p)
{
	if (p && mc_fork_check(p->e->fork_depth) == 0 && begin_going(p) && end_going(p, mce_fence_fill(p)))
		peer_free(p);
}

void mce_peers_close(struct mce_engine *e)
{
	struct mc_list *pos, *next;

	pthread_mutex_lock(&e->lock);
	while (e->resolvers)
		pthread_cond_wait(&e->idle, &e->lock);
	while (!mc_list_empty(&e->owed))
		mc_list_remove(e->owed.next);
	pthread_mutex_unlock(&e->lock);
	mc_list_for_each_safe(pos, next, &e->peers) {
		struct mce_peer *p = mc_container_of(pos, struct mce_peer, node);

		mc_list_remove(&p->node);
		mce_peer_fail_pending(p, -ECANCELED);
		peer_free(p);
	}
}

/* ---- what there is to see ---------------------------------------------------------------------- */

static const char *const path_names[MCE_PATHS] = {
	[MCE_PATH_NONE] = "none", [MCE_PATH_LOCAL] = "local", [MCE_PATH_MAPPED] = "mapped",
	[MCE_PATH_TCP] = "tcp", [MCE_PATH_UPSTREAM] = "upstream", [MCE_PATH_PROCESS_VM] = "process_vm",
};

const char *mce_path_name(enum mce_path path)
{
	return path_names[path];
}

const char *mce_peer_endpoint(const struct mce_peer *p)
{
	return p->endpoint;
}

static uint64_t sum_of(const uint64_t *sum)
{
	return __atomic_load_n(sum, __ATOMIC_RELAXED);
}

uint64_t mce_peer_on_numa_node(const struct mce_peer *p, unsigned place)
{
	return place < MCE_NUMA_MAX ? sum_of(&p->placed[place]) : 0;
}

uint64_t mce_peer_paths(const struct mce_peer *p, struct mce_path_stats ret[MCE_PATHS])
{
	/* In this order: a request that comes and ends in between must not make it negative. */
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

/* ---- finding a path ---------------------------------------------------------------------------- */

/* 0: taken.  -EAGAIN: something has to be connected or prepared first. */
static int offer(struct mce_peer *p, struct mce_req *req)
{
	int r;

	for (const struct mce_transport *const *t = p->transports; *t; t++) {
		mce_reqx(req)->owner = *t;
		r = (*t)->submit(p, req);
		if (r != -MC_ENOTSUP)
			return r;
	}
	mce_complete(req, MCE_PATH_NONE, -MC_ETRANSFER);
	return 0;
}

void mce_peer_fail_pending(struct mce_peer *p, int status)
{
	struct mc_list failed, *pos, *next;

	mc_list_init(&failed);
	pthread_mutex_lock(&p->lock);
	mc_list_for_each_safe(pos, next, &p->pending) {
		mc_list_remove(pos);
		mc_list_push_back(&failed, pos);
		mce_req_move(mce_req_of(pos), MCE_AT_DONE);
	}
	pthread_mutex_unlock(&p->lock);
	mc_list_for_each_safe(pos, next, &failed)
		mce_complete(mce_req_of(pos), MCE_PATH_NONE, status);
}

void mce_peer_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
	struct mce_reqx *x = mce_reqx(req);
	const struct mce_transport *owner = NULL;
	bool mine = false;

	pthread_mutex_lock(&p->lock);
	switch (mce_req_at(req)) {
	case MCE_AT_PENDING:
		mc_list_remove(&x->node);
		mce_req_move(req, MCE_AT_DONE);
		mine = true;
		break;
	case MCE_AT_BUSY:	/* the resolver looks at it when it puts it back */
		x->status = status;
		break;
	case MCE_AT_TRANSPORT:
		owner = x->owner;
		break;
	default:
		break;
	}
	pthread_mutex_unlock(&p->lock);
	if (mine)
		mce_complete(req, MCE_PATH_NONE, status);
	else if (owner)
		owner->cancel(p, req, status);
}

/* ---- the resolver ------------------------------------------------------------------------------ */

/* Wait in line again, unless it was cancelled or has been here too often; a round that did nothing for it
 * does not count. */
static void put_back(struct mce_peer *p, struct mce_req *req, int why, bool counts)
{
	struct mce_reqx *x = mce_reqx(req);
	int status = 0;

	pthread_mutex_lock(&p->lock);
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
	pthread_mutex_unlock(&p->lock);
	if (status < 0)
		mce_complete(req, MCE_PATH_NONE, status);
}

bool mce_peer_submit(struct mce_peer *p, struct mce_req *req)
{
	mce_req_move(req, MCE_AT_BUSY);
	if (offer(p, req) != -EAGAIN)
		return false;
	put_back(p, req, 0, true);
	return true;
}

void mce_peer_pend(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	int status;

	pthread_mutex_lock(&p->lock);
	status = mce_closing(p->e) ? -ECANCELED : mce_peer_resolve_locked(p);
	for (unsigned i = 0; i < n; i++) {
		struct mce_reqx *x = mce_reqx(&reqs[i]);

		x->tries = 1;
		mce_req_move(&reqs[i], status < 0 ? MCE_AT_DONE : MCE_AT_PENDING);
		if (status == 0)
			mc_list_push_back(&p->pending, &x->node);
	}
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; status < 0 && i < n; i++)
		mce_complete(&reqs[i], MCE_PATH_NONE, status);
}

/* The first that waits and those that wait behind it and lie behind it, up to @max: an array. */
static unsigned take_pending(struct mce_peer *p, unsigned max, struct mce_req **ret)
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
	unsigned took = 0;

	if (mc_fault("engine.peer.run") < 0)
		return 0;
	for (const struct mce_transport *const *t = p->transports; n > 1 && *t && !took; t++)
		took = (*t)->submit_run(p, reqs, n);
	return took;
}

/* Only who waited from the beginning shares the fate of this round's connecting. */
static void begin_round(struct mce_peer *p)
{
	struct mc_list *pos;

	MC_LOCKED(&p->lock);
	mc_list_for_each(pos, &p->pending)
		mce_reqx(mce_req_of(pos))->seen = true;
}

/* Regions that one round prepares, and what came of it. */
struct round {
	unsigned n, nkeys;	/* requests that waited, regions of theirs */
	uint64_t rkey[ROUND_KEYS];
	int err[ROUND_KEYS];
};

static unsigned key_at(const struct round *r, uint64_t rkey)
{
	unsigned i = 0;

	while (i < r->nkeys && r->rkey[i] != rkey)
		i++;
	return i;
}

static void gather_keys(struct mce_peer *p, struct round *r)
{
	struct mc_list *pos;

	r->n = r->nkeys = 0;
	MC_LOCKED(&p->lock);
	mc_list_for_each(pos, &p->pending) {
		uint64_t rkey = mce_req_of(pos)->rkey;

		r->n++;
		if (r->nkeys < ROUND_KEYS && key_at(r, rkey) == r->nkeys)
			r->rkey[r->nkeys++] = rkey;
	}
}

static int prepare(struct mce_peer *p, uint64_t rkey, uint64_t deadline)
{
	int r = 0;

	for (unsigned i = 0; p->transports[i] && r == 0; i++)
		r = p->transports[i]->prepare(p, rkey, deadline);
	return r;
}

/* How many of the first of @reqs nobody has cancelled. */
static unsigned not_cancelled(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	unsigned i = 0;

	MC_LOCKED(&p->lock);
	while (i < n && mce_reqx(&reqs[i])->status == 0)
		i++;
	return i;
}

/* Requests that were taken from those that wait: together where a transport does that, else each by itself. */
static void offer_all(struct mce_peer *p, struct mce_req *reqs, unsigned n, const struct round *round,
		      int connect_err)
{
	unsigned took, i;
	int r;

	for (; n > 0; reqs += took, n -= took) {
		i = key_at(round, reqs->rkey);
		r = i < round->nkeys ? round->err[i] : 0;
		took = r == 0 ? mce_peer_offer_run(p, reqs, not_cancelled(p, reqs, n)) : 0;
		if (took)
			continue;
		took = 1;
		if (r < 0 || not_cancelled(p, reqs, 1) == 0 || offer(p, reqs) < 0)
			put_back(p, reqs, r ? r : connect_err, i < round->nkeys);
	}
}

static unsigned at_once(unsigned n)
{
	return n < MCE_RUN_MAX ? n : MCE_RUN_MAX;
}

/* Connect what is wanted, make the waiting requests' regions reachable, and offer each that waited by then
 * once. */
static void resolve_round(struct mce_peer *p)
{
	uint64_t ms = p->e->conf.progress_timeout_ms;
	uint64_t deadline = mc_deadline_ms(ms < MCE_CONNECT_MS ? (int64_t)ms : MCE_CONNECT_MS);
	int connect_err = 0, r;
	struct round round;
	struct mce_req *reqs = NULL;
	unsigned i = 0, n;

	begin_round(p);
	while (p->transports[i])
		i++;
	/* From the last: its greeting tells whether the better ones are possible. */
	while (i-- > 0) {
		r = p->transports[i]->connect(p, deadline);
		if (r < 0 && connect_err == 0)
			connect_err = r;
	}
	gather_keys(p, &round);
	for (i = 0; i < round.nkeys; i++)
		round.err[i] = prepare(p, round.rkey[i], deadline);
	for (; round.n > 0 && (n = take_pending(p, at_once(round.n), &reqs)); round.n -= n)
		offer_all(p, reqs, n, &round, connect_err);
	for (i = 0; p->transports[i]; i++)
		p->transports[i]->flush(p);
}

static bool resolve_more(struct mce_peer *p)
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

	pthread_detach(pthread_self());
	while (resolve_more(p))
		resolve_round(p);
	if (mce_closing(e))
		mce_peer_fail_pending(p, -ECANCELED);
	mce_peer_put(p);
	pthread_mutex_lock(&e->lock);
	if (--e->resolvers == 0)
		pthread_cond_broadcast(&e->idle);
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

/* With the peer's lock and the engine's. */
static int start_resolver_locked(struct mce_peer *p)
{
	struct mce_engine *e = p->e;
	pthread_t thread;
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
	return start_resolver_locked(p);
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

		/* Against the order of the locks, so one that is busy has its turn at the next tick. */
		if (pthread_mutex_trylock(&p->lock))
			continue;
		r = p->resolving ? 0 : start_resolver_locked(p);
		if (r == 0)
			mc_list_remove(&p->owed_node);
		pthread_mutex_unlock(&p->lock);
		if (r < 0)
			break;
	}
}

/* ---- direct pointers --------------------------------------------------------------------------- */

static int try_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret)
{
	int r = -MC_ENOTSUP;

	for (const struct mce_transport *const *t = p->transports; *t && r == -MC_ENOTSUP; t++)
		r = (*t)->map(p, addr, rkey, len, ret);
	return r;
}

const void *mce_peer_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len,
			 uint64_t deadline, int *ret_err)
{
	/* An empty read: it has the region fetched like any other, and takes no path that copies. */
	struct mce_req probe = { .op = MCE_READ, .peer = p, .addr = addr, .rkey = rkey };
	const void *at = NULL;
	struct mce_batch b;
	int r = mc_fork_check(p->e->fork_depth);

	if (r < 0) {
		*ret_err = r;
		return NULL;
	}
	for (unsigned i = 0; i < TRIES_MAX; i++) {
		r = try_map(p, addr, rkey, len, &at);
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
