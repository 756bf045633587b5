/* SPDX-License-Identifier: Apache-2.0
 * local.c - the path to this engine itself: the caller copies within its own memory. */
#include <config.h>

#include <errno.h>

#include "common/err.h"
#include "engine/engine_i.h"

static bool peer_is_local(struct mce_peer *p)
{
	return __atomic_load_n(&p->local, __ATOMIC_ACQUIRE) && !p->e->conf.force_tcp;
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
		if (r == 0)
			mce_copy(req, (void *)(uintptr_t)req->addr);
		if (r == 0 && announce)
			mce_slot_clear(p->e->writers.copies, slot);
		mce_mr_unref(mr);
	}
	mce_complete(req, MCE_PATH_LOCAL, r);
	return 0;
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
	mce_mr_unref(mr);
	*ret = (const void *)(uintptr_t)addr;
	return 0;
}

const struct mce_transport mce_local_transport = {
	.name = "local",
	.path = MCE_PATH_LOCAL,
	.distance = MCE_DISTANCE_OWN,
	.attach = mce_no_attach,
	.detach = mce_no_detach,
	.connect = mce_no_connect,
	.prepare = mce_no_prepare,
	.submit = local_submit,
	.submit_run = mce_no_run,
	.flush = mce_no_flush,
	.poll = mce_no_poll,
	.lead = mce_no_lead,
	.cancel = mce_no_cancel,
	.writes_in_doubt = mce_no_doubt,
	.new_fence = mce_no_fence,
	.map = local_map,
};
