/* SPDX-License-Identifier: Apache-2.0
 * follow.c - requests with device memory wait for the work that the program has given to the GPU before them.
 *
 * Only then another path takes them: nothing else of the engine waits for the program's work, neither a slot nor a
 * stream that other requests need.  So work of the program may itself wait for a transfer (te/stream.c).  All requests
 * of one submission wait together, by an event on the default stream of each GPU whose memory they have. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "engine/gpu/gpu_i.h"

struct waiting {
	struct mc_list node;	/* mce_follower.fresh, or group.list */
	struct mce_req *req;
	struct mce_peer *p;
	uint64_t gpus;
};

struct group {
	struct mce_follower *f;
	struct mc_list node;	/* mce_follower.groups */
	struct mc_list list;	/* guarded by the follower's lock */
	uint64_t gpus;		/* bits of the GPUs whose work is not done yet */
	struct mc_gpu_job job;
};

static void group_step(struct group *g);

static void peer_flush(struct mce_peer *p)
{
	for (const struct mce_transport *const *t = p->transports; *t; t++)
		(*t)->flush(p);
}

/* Detach the first request of the group; NULL: it is being cancelled.  *@ret_p: its peer, which cannot be freed
 * before the group ends; NULL: no request is left. */
static struct mce_req *group_take(struct group *g, struct mce_peer **ret_p)
{
	struct mce_follower *f = g->f;
	struct mce_req *req = NULL;
	struct waiting *w;

	*ret_p = NULL;
	mc_mutex_lock(&f->lock);
	w = mc_list_empty(&g->list) ? NULL : mc_list_first(&g->list, struct waiting, node);
	if (w) {
		*ret_p = w->p;
		f->ending++;
	}
	mc_mutex_unlock(&f->lock);
	if (!w)
		return NULL;
	mc_mutex_lock(&(*ret_p)->lock);
	mc_mutex_lock(&f->lock);
	if (!mc_list_empty(&g->list) && mc_list_first(&g->list, struct waiting, node) == w && w->p == *ret_p) {
		req = w->req;
		mc_list_remove(&w->node);
		free(w);
		mce_req_move(req, MCE_AT_BUSY);
	}
	mc_mutex_unlock(&f->lock);
	mc_mutex_unlock(&(*ret_p)->lock);
	return req;
}

/* Offer the requests of the group to the other paths, or fail them. */
static void group_over(struct group *g, int status)
{
	struct mce_peer *p, *last = NULL;
	struct mce_follower *f = g->f;
	struct mce_req *req;
	unsigned n = 0;

	for (req = group_take(g, &p); p; req = group_take(g, &p)) {
		int r = req ? mce_reqx(req)->status : 0;

		n++;
		/* Flush once for all requests of a peer, so that they share copies. */
		if (last && last != p)
			peer_flush(last);
		last = p;

		if (r == 0)
			r = status;
		if (req && r < 0) {
			mce_req_move(req, MCE_AT_DONE);
			mce_complete(req, MCE_PATH_NONE, r);
		} else if (req) {
			mce_reqx(req)->followed = true;
			mce_peer_submit(p, req);
		}
	}
	if (last)
		peer_flush(last);
	mc_mutex_lock(&f->lock);
	mc_list_remove(&g->node);
	f->ending -= n;
	mc_cond_broadcast(&f->changed);
	mc_mutex_unlock(&f->lock);
	free(g);
}

static void group_followed(struct mc_gpu_job *job, int status)
{
	struct group *g = mc_container_of(job, struct group, job);

	if (status < 0)
		group_over(g, status);
	else
		group_step(g);
}

static struct mc_gpu_queue *queue_of(struct mce_follower *f, unsigned gpu)
{
	MC_LOCKED(&f->lock);
	if (!f->queue[gpu] && mc_gpu_queue_open((int)gpu, "mce-gpu-follow", &f->queue[gpu]) < 0)
		f->queue[gpu] = NULL;
	return f->queue[gpu];
}

/* Wait for the next GPU. */
static void group_step(struct group *g)
{
	struct mc_gpu_queue *q;

	if (!g->gpus) {
		group_over(g, 0);
		return;
	}
	q = queue_of(g->f, (unsigned)__builtin_ctzll(g->gpus));
	g->gpus &= g->gpus - 1;
	g->job = (struct mc_gpu_job){ .follow = true, .done = group_followed };
	if (q)
		mc_gpu_queue_add(q, &g->job);
	else
		group_over(g, -MC_ETRANSFER);
}

/* ---- the transport ----------------------------------------------------------------------------- */

static struct mce_follower *follower_of(const struct mce_peer *p)
{
	return &p->e->gpus->follower;
}

static int follow_submit(struct mce_peer *p, struct mce_req *req)
{
	struct mce_follower *f = follower_of(p);
	struct mce_reqx *x = mce_reqx(req);
	struct waiting *w;
	int r = 0;

	if (!x->gpu || req->ordered || x->followed)
		return -MC_ENOTSUP;
	w = malloc(sizeof(*w));
	mc_mutex_lock(&p->lock);
	if (x->status < 0)
		r = x->status;
	else if (!w)
		r = -ENOMEM;
	mce_req_move(req, r < 0 ? MCE_AT_DONE : MCE_AT_TRANSPORT);
	x->owner = &mce_follow_transport;
	if (r == 0) {
		*w = (struct waiting){ .req = req, .p = p, .gpus = mce_req_gpus(req) };
		mc_mutex_lock(&f->lock);
		mc_list_push_back(&f->fresh, &w->node);
		mc_mutex_unlock(&f->lock);
	}
	mc_mutex_unlock(&p->lock);
	if (r < 0) {
		free(w);
		mce_complete(req, MCE_PATH_NONE, r);
	}
	return 0;
}

static unsigned follow_run(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	unsigned i = 0;

	while (i < n && mce_reqx(&reqs[i])->status == 0 && mce_reqx(&reqs[i])->total && follow_submit(p, &reqs[i]) == 0)
		i++;
	return i;
}

static void follow_flush(struct mce_peer *p)
{
	struct mce_follower *f = follower_of(p);
	struct group *g;
	bool any;

	mc_mutex_lock(&f->lock);
	any = !mc_list_empty(&f->fresh);
	mc_mutex_unlock(&f->lock);
	if (!any)
		return;
	/* The requests are taken, so wait until there is memory. */
	while (!(g = calloc(1, sizeof(*g))))
		mc_sleep_ms(1);
	g->f = f;
	mc_list_init(&g->list);
	mc_mutex_lock(&f->lock);
	while (!mc_list_empty(&f->fresh)) {
		struct waiting *w = mc_list_first(&f->fresh, struct waiting, node);

		mc_list_remove(&w->node);
		mc_list_push_back(&g->list, &w->node);
		g->gpus |= w->gpus;
	}
	mc_list_push_back(&f->groups, &g->node);
	mc_mutex_unlock(&f->lock);
	group_step(g);
}

/* The peer's lock and the follower's are held: remove the request from @list. */
static bool list_drop_locked(struct mc_list *list, const struct mce_req *req)
{
	struct mc_list *pos;

	mc_list_for_each(pos, list) {
		struct waiting *w = mc_container_of(pos, struct waiting, node);

		if (w->req != req)
			continue;
		mc_list_remove(pos);
		free(w);
		return true;
	}
	return false;
}

static void follow_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
	struct mce_follower *f = follower_of(p);
	struct mc_list *pos;
	bool found;

	mc_mutex_lock(&p->lock);
	mc_mutex_lock(&f->lock);
	found = list_drop_locked(&f->fresh, req);
	mc_list_for_each(pos, &f->groups)
		if (!found)
			found = list_drop_locked(&mc_container_of(pos, struct group, node)->list, req);
	mc_mutex_unlock(&f->lock);
	if (found)
		mce_req_move(req, MCE_AT_DONE);
	mc_mutex_unlock(&p->lock);
	if (found)
		mce_complete(req, MCE_PATH_NONE, status);
}

static struct mce_req *list_find_locked(const struct mc_list *list, const struct mce_peer *p)
{
	struct mc_list *pos;

	mc_list_for_each(pos, list)
		if (mc_container_of(pos, struct waiting, node)->p == p)
			return mc_container_of(pos, struct waiting, node)->req;
	return NULL;
}

/* Find a request of the peer that waits. */
static struct mce_req *peer_first(struct mce_follower *f, const struct mce_peer *p)
{
	struct mce_req *req;
	struct mc_list *pos;

	MC_LOCKED(&f->lock);
	req = list_find_locked(&f->fresh, p);
	mc_list_for_each(pos, &f->groups)
		if (!req)
			req = list_find_locked(&mc_container_of(pos, struct group, node)->list, p);
	return req;
}

static void follow_detach(struct mce_peer *p)
{
	struct mce_follower *f = follower_of(p);
	struct mce_req *req;

	while ((req = peer_first(f, p)))
		follow_cancel(p, req, -ECANCELED);
	MC_LOCKED(&f->lock);
	while (f->ending)
		mc_cond_wait(&f->changed, &f->lock);
}

void mce_follower_init(struct mce_follower *f)
{
	mc_mutex_init(&f->lock);
	mc_cond_init(&f->changed);
	mc_list_init(&f->fresh);
	mc_list_init(&f->groups);
}

void mce_follower_stop(struct mce_follower *f)
{
	for (unsigned i = 0; i < MCE_GPUS_MAX; i++) {
		mc_gpu_queue_close(f->queue[i]);
		f->queue[i] = NULL;
	}
}

void mce_follower_done(struct mce_follower *f)
{
	mc_cond_destroy(&f->changed);
	mc_mutex_destroy(&f->lock);
}

const struct mce_transport mce_follow_transport = {
	.name = "staged",
	.path = MCE_PATH_STAGED,
	.distance = MCE_DISTANCE_NETWORK,
	.gpu = true,
	.attach = mce_no_attach,
	.detach = follow_detach,
	.connect = mce_no_connect,
	.prepare = mce_no_prepare,
	.submit = follow_submit,
	.submit_run = follow_run,
	.flush = follow_flush,
	.poll = mce_no_poll,
	.lead = mce_no_lead,
	.cancel = follow_cancel,
	.writes_in_doubt = mce_no_doubt,
	.note_doubts = mce_no_doubts,
	.keep_doubts = mce_no_doubts,
	.new_fence = mce_no_fence,
	.map = mce_no_map,
};
