/* SPDX-License-Identifier: Apache-2.0
 * disk.c - the path to a medium of this engine that is not addressable: the medium's threads read pieces into buffers
 * and copy them to the request's memory.
 *
 * All pieces of a request are begun at once; the medium orders them.  A cancelled request leaves its job, whose
 * remaining pieces are dropped as they arrive. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/lock.h"
#include "engine/engine_i.h"
#include "tiers/tier.h"

struct disk_piece {
	struct mct_read read;
	struct disk_job *job;
};

struct disk_job {
	struct mce_mr *mr;
	uint64_t off, total;	/* offset in the region, bytes of the request */
	struct mc_mutex lock;
	/* guarded by lock */
	struct mce_req *req;	/* NULL: cancelled; changed with mce_disk.lock too */
	int status;
	size_t left;		/* pieces */
	struct mc_list node;	/* mce_disk.jobs, while it has a request */
	struct disk_piece piece[];
};

/* mce_disk.lock held.  Detach the request so that the caller can complete it.  NULL: the request was cancelled. */
static struct mce_req *disk_take_locked(struct disk_job *job)
{
	struct mce_req *req;

	/* Waits for a piece that is being copied. */
	mc_mutex_lock(&job->lock);
	req = TAKE_PTR(job->req);
	mc_mutex_unlock(&job->lock);
	if (req) {
		mc_list_remove(&job->node);
		mce_req_move(req, MCE_AT_DONE);
	}
	return req;
}

/* The last piece has arrived. */
static void disk_end(struct disk_job *job)
{
	struct mce_disk *d = &job->mr->e->disk;
	struct mce_req *req;

	mc_mutex_lock(&d->lock);
	req = disk_take_locked(job);
	mc_mutex_unlock(&d->lock);
	mce_mr_unref(job->mr);
	if (req)
		mce_complete(req, MCE_PATH_DISK, job->status);
	mc_mutex_destroy(&job->lock);
	free(job);
}

static void disk_arrived(struct mct_read *r)
{
	struct disk_piece *piece = mc_container_of(r, struct disk_piece, read);
	struct disk_job *job = piece->job;
	struct mct_medium *m = job->mr->medium;
	uint64_t pos = r->off - job->off;
	bool last;

	mc_mutex_lock(&job->lock);
	if (r->status < 0 && job->status == 0)
		job->status = r->status;
	if (r->status == 0 && job->req && job->status == 0)
		mce_copy_part(job->req, pos, r->at, r->len);
	mc_mutex_unlock(&job->lock);
	/* Before the piece is counted: another thread may end the job then, and @r is in it. */
	if (r->status == 0)
		m->ops->read_end(m, r);
	mc_mutex_lock(&job->lock);
	last = --job->left == 0;
	mc_mutex_unlock(&job->lock);
	if (last)
		disk_end(job);
}

static int disk_begin(struct mce_peer *p, struct mce_req *req, struct mce_mr *mr)
{
	uint64_t total = mce_reqx(req)->total;
	size_t n = (size_t)((total + MCT_PIECE_MAX - 1) / MCT_PIECE_MAX);
	struct disk_job *job = calloc(1, sizeof(*job) + n * sizeof(job->piece[0]));

	if (!job)
		return -ENOMEM;
	job->mr = mr;
	job->off = req->addr - mr->base;
	job->total = total;
	job->req = req;
	/* One more than the pieces: the job must not end while they are being begun. */
	job->left = n + 1;
	mc_mutex_init(&job->lock);
	mc_mutex_lock(&p->e->disk.lock);
	mc_list_push_back(&p->e->disk.jobs, &job->node);
	mc_mutex_unlock(&p->e->disk.lock);
	/* Then it can be cancelled. */
	mc_mutex_lock(&p->lock);
	mce_reqx(req)->owner = &mce_disk_transport;
	mce_req_move(req, MCE_AT_TRANSPORT);
	mc_mutex_unlock(&p->lock);
	for (size_t i = 0; i < n; i++) {
		uint64_t pos = i * MCT_PIECE_MAX;

		job->piece[i].job = job;
		job->piece[i].read = (struct mct_read){
			.off = job->off + pos,
			.len = (uint32_t)(total - pos < MCT_PIECE_MAX ? total - pos : MCT_PIECE_MAX),
			.done = disk_arrived,
		};
		mr->medium->ops->read_start(mr->medium, &job->piece[i].read);
	}
	mc_mutex_lock(&job->lock);
	n = --job->left;
	mc_mutex_unlock(&job->lock);
	if (n == 0)
		disk_end(job);
	return 0;
}

static int disk_submit(struct mce_peer *p, struct mce_req *req)
{
	struct mce_mr *mr;
	int r;

	/* The local path has taken all but READs of media. */
	if (!__atomic_load_n(&p->local, __ATOMIC_ACQUIRE) || p->e->conf.force_tcp)
		return -MC_ENOTSUP;
	r = mce_mr_get(p->e, req->rkey, req->addr, mce_reqx(req)->total, MCE_ACCESS_MEDIUM, &mr);
	if (r == 0) {
		r = disk_begin(p, req, mr);
		if (r == 0)
			return 0;
		mce_mr_unref(mr);
	}
	mce_complete(req, MCE_PATH_DISK, r);
	return 0;
}

static void disk_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
	struct mce_disk *d = &p->e->disk;
	struct disk_job *job = NULL;
	struct mc_list *pos;

	mc_mutex_lock(&d->lock);
	mc_list_for_each(pos, &d->jobs) {
		job = mc_container_of(pos, struct disk_job, node);
		if (job->req == req)
			break;
		job = NULL;
	}
	if (job)
		(void)disk_take_locked(job);
	mc_mutex_unlock(&d->lock);
	if (job)
		mce_complete(req, MCE_PATH_DISK, status);
}

const struct mce_transport mce_disk_transport = {
	.name = "disk",
	.path = MCE_PATH_DISK,
	.distance = MCE_DISTANCE_HOST,
	.attach = mce_no_attach,
	.detach = mce_no_detach,
	.connect = mce_no_connect,
	.prepare = mce_no_prepare,
	.submit = disk_submit,
	.submit_run = mce_no_run,
	.flush = mce_no_flush,
	.poll = mce_no_poll,
	.lead = mce_no_lead,
	.cancel = disk_cancel,
	.writes_in_doubt = mce_no_doubt,
	.note_doubts = mce_no_doubts,
	.keep_doubts = mce_no_doubts,
	.new_fence = mce_no_fence,
	.map = mce_no_map,
};
