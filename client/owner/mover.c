/* SPDX-License-Identifier: Apache-2.0
 * mover.c - copy objects of this process's segment for the master.
 *
 * The source is pinned memory of this process, so the engine sends it in place.  The engine
 * computes the CRCs on the way, and the master compares them with those of the object.
 *
 * The destination range belongs to this connection until the report.  When the connection ends, the transfer is
 * cancelled; ranges that the master granted in a lost reply are freed with the connection. */
#include <config.h>

#include "client/owner/mover.h"

#include <errno.h>
#include <stdlib.h>

#include "client/layout.h"
#include "client/direct/capability.h"
#include "client/direct/put_i.h"
#include "client/owner/confirm.h"
#include "client/owner/copies.h"
#include "client/owner/offloader.h"
#include "client/owner/owner.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/thread.h"

#define FETCH 16
#define CALL_MS 5000
#define TRANSFER_MS 5000		/* plus 1 ms for each BYTES_PER_MS */
#define BYTES_PER_MS 50000
#define IDLE_MS 3600000

MC_COUNTER(moved, "mooncake_client_moved_bytes_total", "", "bytes copied to other segments for the "
	   "master")
MC_COUNTER(failed, "mooncake_client_move_failures_total", "", "copies for the master that failed")

struct mcs_mover {
	/* constant after start */
	struct mcs_direct *s;
	struct mc_thread thread;
	struct mc_stop stop;
};

/* One running copy. */
struct job {
	uint64_t put, size;
	struct mcp_replica from, to;
	struct mcs_seg *dst;
	struct iovec iov;
	uint32_t *crc;
	int status;
	bool submitted;
	bool whole;		/* it came from a disk, and is copied */
	uint32_t whole_crc;
	uint64_t epoch;
	struct mce_req req;
	struct mc_capability cap;
};

static bool mover_inside(const struct mcs_seg *seg, const struct mcp_replica *r, uint64_t size)
{
	return r->offset <= seg->size && mcs_stored_size(size) <= seg->size - r->offset;
}

/* Copy an object of a disk at once; the request is as if it had been carried out. */
static int mover_from_disk(struct mcs_direct *s, struct job *j, uint64_t fence)
{
	uint64_t deadline = mc_deadline_ms(TRANSFER_MS + (int64_t)(j->size / BYTES_PER_MS));

	j->whole = true;
	return mcs_disk_to_memory(s, &j->from, &j->to, j->size, j->put, j->epoch, fence, deadline, &j->whole_crc,
				  &j->dst);
}

/* Find source and destination, and build the transfer request. */
static int mover_prepare(struct mcs_direct *s, struct job *j, uint64_t fence, uint64_t deadline)
{
	uint64_t chunks = mc_crc_chunks(j->size);
	const void *data;
	int r;

	if (mcp_medium_is(j->from.medium, MCP_TRAIT_BLOCKS))
		return mover_from_disk(s, j, fence);
	data = mcs_segments_at(mcs_owner_of(s)->segments, j->from.segment, j->from.offset, j->size);
	if (!data)
		return mc_fail(-MC_EPROTO, "protocol error: the source of a copy is not in this process's segment");
	r = mcs_segmap_get(s->segmap, j->to.segment, deadline, &j->dst);
	if (r < 0)
		return r;
	if (!mover_inside(j->dst, &j->to, j->size))
		return mc_fail(-MC_EPROTO, "protocol error: the destination of a copy is outside of its segment");
	j->crc = calloc(chunks ? chunks : 1, sizeof(*j->crc));
	if (!j->crc)
		return -ENOMEM;
	j->iov = (struct iovec){ (void *)(uintptr_t)data, j->size };
	j->req = (struct mce_req){
		.op = MCE_WRITE, .peer = j->dst->peer, .addr = j->dst->base + j->to.offset,
		.rkey = j->dst->rkey, .fence = fence,
		.cap = mcs_capability(&j->to, j->size, j->put, MC_CAPABILITY_WRITE, &j->cap),
		.iov = &j->iov, .iovcnt = 1, .crc = j->crc,
		.crc_len = j->size, .crc_tail = chunks > 1,
	};
	return mc_fault("client.mover.write");
}

/* May the copy be reported? */
static bool mover_settled(struct mcs_direct *s, const struct job *j)
{
	bool doubt = j->whole || (j->submitted && j->req.status < 0);

	return mcs_copies_settled(s, doubt ? j->dst : NULL);
}

static void mover_finish(struct mcs_direct *s, struct job *j, struct mcp_copied *ret)
{
	if (j->status == 0 && !j->whole && j->req.status < 0) {
		j->status = mcs_transfer_error(j->req.status);
		mcs_segmap_forget(s->segmap, j->to.segment);
	}
	*ret = (struct mcp_copied){ .put = j->put, .status = mc_err_to_wire(j->status) };
	if (j->status == 0)
		ret->crc = j->whole ? j->whole_crc : mcs_crc_of_chunks(j->crc, j->size);
	mc_metric_add(j->status < 0 ? &failed : &moved, j->status < 0 ? 1 : (int64_t)j->size);
	free(j->crc);
	mcs_seg_put(j->dst);
}

/* Run the jobs that can be prepared, all at the same time, into ranges of connection @epoch with its fence number. */
static void mover_transfer(struct mcs_direct *s, struct job *jobs, unsigned n, uint64_t epoch, uint64_t fence)
{
	uint64_t bytes = 0, deadline, prepare_until = mc_deadline_ms(CALL_MS);
	struct mce_batch batch[FETCH];
	unsigned i;

	for (i = 0; i < n; i++) {
		jobs[i].epoch = epoch;
		jobs[i].status = mover_prepare(s, &jobs[i], fence, prepare_until);
		bytes += jobs[i].size;
	}
	for (i = 0; i < n; i++) {
		mce_batch_init(&batch[i]);
		if (jobs[i].status == 0 && !mcs_put_owned(s, epoch, 0))
			jobs[i].status = mc_fail(-MC_ESTALE_PUT, "the connection is gone");
		jobs[i].submitted = jobs[i].status == 0 && !jobs[i].whole;
		if (jobs[i].submitted)
			mce_submit(s->engine, &batch[i], &jobs[i].req, 1);
	}
	deadline = mc_deadline_ms(TRANSFER_MS + (int64_t)(bytes / BYTES_PER_MS));
	for (i = 0; i < n; i++)
		if (jobs[i].submitted && jobs[i].status == 0)
			(void)mcs_put_wait(s, &batch[i], &jobs[i].req, 1, epoch, deadline);
}

/* Fetch some copy tasks and carry them out.  Their number; 0: none. */
static int mover_round(struct mcs_direct *s)
{
	const struct mcp_task_fetch msg = { .max = FETCH };
	struct mcp_copied done[FETCH] = { 0 };
	struct job jobs[FETCH] = { 0 };
	struct mcs_copies fetched;
	unsigned n = 0, n_done = 0, i;
	struct mcp_copy c;
	int r;

	r = mcs_copies_fetch(s, &msg, &fetched);
	if (r < 0)
		return r;
	for (; n < FETCH && mcs_copies_next(&fetched, &c, &jobs[n].from, &jobs[n].to); n++) {
		jobs[n].put = c.put;
		jobs[n].size = c.size;
	}
	mcp_reply_done(&fetched.mem);
	mover_transfer(s, jobs, n, fetched.epoch, fetched.fence);
	MC_FAULT_POINT("client.mover.before_report");
	for (i = 0; i < n; i++) {
		bool settled = mover_settled(s, &jobs[i]);

		mover_finish(s, &jobs[i], &done[n_done]);
		n_done += settled;
	}
	r = mcs_copies_report(s, done, n_done);
	return r < 0 ? r : (int)n;
}

static void *mover_main(void *arg)
{
	struct mcs_mover *m = arg;
	int r;

	while (!mc_stop_wait(&m->stop, IDLE_MS)) {
		r = mcs_confirm(m->s, &m->stop);
		if (r == -ECANCELED)
			break;
		if (r < 0)
			mc_warn("client", "comparing our memory with the objects of a snapshot failed, will retry "
				"error=\"%s\"", mc_err_detail(r));
		do {
			r = mover_round(m->s);
		} while (r > 0 && !mc_stop_wait(&m->stop, 0));
		if (r < 0)
			mc_warn("client", "copying for the master failed, will retry when it asks "
				"again error=\"%s\"", mc_err_detail(r));
	}
	return NULL;
}

int mcs_mover_start(struct mcs_direct *s, struct mcs_mover **ret)
{
	struct mcs_mover *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->s = s;
	r = mc_stop_start(&m->stop, &m->thread, "mcs-mover", mover_main, m);
	if (r < 0) {
		free(m);
		return r;
	}
	*ret = m;
	return 0;
}

void mcs_mover_stop(struct mcs_mover *m)
{
	if (!m)
		return;
	mc_stop_join(&m->stop, m->thread);
	free(m);
}

void mcs_mover_kick(struct mcs_mover *m)
{
	if (m)
		mc_stop_kick(&m->stop);
}
