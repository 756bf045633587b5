/* SPDX-License-Identifier: Apache-2.0
 * local.c - the path to this engine itself: the caller copies within its own memory. */
#include <config.h>

#include <errno.h>
#include <unistd.h>

#include "common/err.h"
#include "engine/engine_i.h"
#include "engine/gpu/gpu_i.h"
#include "engine/peers_bytes.h"

static bool peer_is_local(struct mce_peer *p)
{
	return __atomic_load_n(&p->local, __ATOMIC_ACQUIRE) && !p->e->conf.force_tcp;
}

static void flat_fill(struct mce_flat *f, struct mce_req *req, struct mce_mr *mr)
{
	bool host = mr->gpu < 0 && mr->base % (uint64_t)sysconf(_SC_PAGESIZE) == 0;

	*f = (struct mce_flat){
		.req = req, .remote = (char *)(uintptr_t)req->addr, .gpu = mr->gpu,
		.pins = host ? &mr->pins : NULL, .base = (void *)(uintptr_t)mr->base, .len = mr->len,
	};
}

static int local_copy(struct mce_req *req, struct mce_mr *mr)
{
	struct mce_flat f;

	if (!mce_reqx(req)->gpu && mr->gpu < 0) {
		/* Other requests to the region may run at the same time, as those of other processes do. */
		mce_peers_bytes_begin();
		mce_copy(req, (void *)(uintptr_t)req->addr);
		mce_peers_bytes_end();
		return 0;
	}
	flat_fill(&f, req, mr);
	mce_gpu_copy(mr->e, &f, 1);
	return f.status;
}

static int local_submit(struct mce_peer *p, struct mce_req *req)
{
	bool announce = req->op == MCE_WRITE && req->fence;
	struct mce_mr *mr;
	unsigned slot;
	int r;

	if (!peer_is_local(p))
		return -MC_ENOTSUP;
	r = mce_mr_get(p->e, req->rkey, req->addr, mce_req_span(req), mce_req_access(req), &mr);
	if (r == -EACCES && req->op == MCE_READ && mce_mr_is_medium(p->e, req->rkey))
		return -MC_ENOTSUP;
	if (r == 0) {
		r = announce ? mce_own_write_begin(p->e, req->fence, &slot) : 0;
		if (r == 0) {
			r = local_copy(req, mr);
			if (announce)
				mce_slot_clear(p->e->writers.copies, slot);
		}
		mce_mr_unref(mr);
	}
	mce_complete(req, MCE_PATH_LOCAL, r);
	return 0;
}

/* Requests with device memory for one region, in few copies of the GPU. */
static unsigned local_run(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	bool announce = reqs->op == MCE_WRITE && reqs->fence;
	struct mce_flat flat[MCE_GPU_RUN];
	struct mce_mr *mr;
	unsigned k = 0, slot;
	int r;

	if (!peer_is_local(p) || !mce_reqx(reqs)->gpu || mce_mr_find(p->e, reqs->rkey, &mr) < 0)
		return 0;
	while (!mr->medium && k < n && k < MCE_GPU_RUN && mce_gpu_alike(reqs, &reqs[k]) &&
	       (mr->access & mce_req_access(reqs)) == mce_req_access(reqs) &&
	       mce_range_check(mr->base, mr->len, reqs[k].addr, mce_req_span(&reqs[k])) == 0) {
		flat_fill(&flat[k], &reqs[k], mr);
		k++;
	}
	r = k && announce ? mce_own_write_begin(p->e, reqs->fence, &slot) : 0;
	if (r < 0)
		k = 0;
	if (k)
		mce_gpu_copy(p->e, flat, k);
	if (k && announce)
		mce_slot_clear(p->e->writers.copies, slot);
	mce_mr_unref(mr);
	for (unsigned i = 0; i < k; i++)
		mce_complete(&reqs[i], MCE_PATH_LOCAL, flat[i].status);
	return k;
}

static int local_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret)
{
	struct mce_mr *mr;
	int r;

	if (!peer_is_local(p))
		return -MC_ENOTSUP;
	r = mce_mr_get(p->e, rkey, addr, len, MCE_ACCESS_READ, &mr);
	if (r == -EACCES && mce_mr_is_medium(p->e, rkey))
		return -MC_ENOTSUP;
	if (r < 0)
		return mc_fail(r, "no registered memory to map");
	if (mr->gpu >= 0)
		r = -MC_ENOTSUP;
	mce_mr_unref(mr);
	if (r < 0)
		return r;
	*ret = (const void *)(uintptr_t)addr;
	return 0;
}

const struct mce_transport mce_local_transport = {
	.name = "local",
	.path = MCE_PATH_LOCAL,
	.distance = MCE_DISTANCE_OWN,
	.gpu = true,
	.attach = mce_no_attach,
	.detach = mce_no_detach,
	.connect = mce_no_connect,
	.prepare = mce_no_prepare,
	.submit = local_submit,
	.submit_run = local_run,
	.flush = mce_no_flush,
	.poll = mce_no_poll,
	.lead = mce_no_lead,
	.cancel = mce_no_cancel,
	.writes_in_doubt = mce_no_doubt,
	.note_doubts = mce_no_doubts,
	.keep_doubts = mce_no_doubts,
	.new_fence = mce_no_fence,
	.map = local_map,
};
