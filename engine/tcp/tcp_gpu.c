/* SPDX-License-Identifier: Apache-2.0
 * tcp_gpu.c - the bytes of a region of device memory.
 *
 * WRITEs are received into a slot of pinned memory, many one after another, and copied to the GPU together when there
 * is nothing more to receive; then all are answered in their order.  The I/O thread waits for the copy, so a connection
 * has no copy under way when it is closed or a region ends.  In an in-order protocol each WRITE is copied when its last
 * byte has been received.  READs are copied to one of a few buffers first. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "engine/gpu/gpu_i.h"
#include "engine/tcp/tcp_server.h"

/* WRITEs of one connection that wait for a flush. */
#define HELD_MAX MCE_WIRE_WINDOW

struct mce_held {
	struct mce_gpu_inbox *inbox;
	struct {
		struct mce_mr *mr;	/* with a reference */
		uint64_t id, seq;
	} write[HELD_MAX];		/* c->nheld WRITEs that are wholly in the inbox */
};

/* ---- reads ------------------------------------------------------------------------------------- */

struct gpu_read {
	struct mce_late_read late;
	struct mce_gpu_read gpu;
};

static void gpu_end(struct mce_late_read *late)
{
	struct gpu_read *r = mc_container_of(late, struct gpu_read, late);

	late->c->buffers--;
	if (late->status == 0)
		mce_gpu_read_end(&r->gpu);
	free(r);
}

static void gpu_done(struct mce_gpu_read *gpu, int status)
{
	struct gpu_read *r = mc_container_of(gpu, struct gpu_read, gpu);

	mce_late_arrived(&r->late, status, gpu->at);
}

static int gpu_read_start(struct mce_serve_conn *c, struct mce_mr *mr, uint64_t id, uint64_t addr, uint64_t len)
{
	struct gpu_read *r;

	if (len == 0 || len > MCE_GPU_READ_MAX)
		return -ERANGE;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->late.copied = true;
	r->late.end = gpu_end;
	mce_late_begin(&r->late, c, mr, id, (uint32_t)len);
	c->buffers++;
	r->gpu = (struct mce_gpu_read){ .from = (const void *)(uintptr_t)addr, .len = (uint32_t)len, .done = gpu_done };
	mce_gpu_read_start(c->io->e, mr->gpu, &r->gpu);
	return 0;
}

/* ---- writes ------------------------------------------------------------------------------------ */

static struct mce_held *held_new(struct mce_engine *e)
{
	struct mce_held *h = malloc(sizeof(*h));

	if (!h)
		return NULL;
	h->inbox = mce_gpu_inbox_new(e);
	if (h->inbox)
		return h;
	free(h);
	return NULL;
}

/* Answer the WRITEs that were held back. */
static void held_answer(struct mce_serve_conn *c, int r)
{
	unsigned n = c->nheld;

	if (r < 0)
		mc_warn("engine", "a peer's write to GPU memory failed: %s", mc_err_detail(r));
	c->nheld = 0;
	for (unsigned i = 0; i < n; i++) {
		mce_mr_unref(c->held->write[i].mr);
		c->proto->write_answer(c, c->held->write[i].id, c->held->write[i].seq, r < 0 ? -MC_ETRANSFER : 0);
	}
}

/* The bytes of a WRITE that is being received may be among them: its status is then the caller's business. */
static int held_flush(struct mce_serve_conn *c)
{
	int r = mc_fault("engine.gpu.serve");

	if (r == 0)
		r = mce_gpu_inbox_flush(c->held->inbox);
	held_answer(c, r);
	return r;
}

/* An in-order protocol holds back no WRITE; the one that is being received is flushed at its end. */
static void gpu_flush(struct mce_serve_conn *c)
{
	size_t room;

	if (!c->held || c->proto->in_order)
		return;
	(void)mce_gpu_inbox_at(c->held->inbox, &room);
	if (room == MCE_GPU_SLOT && c->nheld == 0)
		return;
	if (held_flush(c) < 0 && c->to == &mce_bytes_gpu)
		mce_serve_refuse(c, -MC_ETRANSFER);
}

static int gpu_write_begin(struct mce_serve_conn *c)
{
	c->holds = &mce_bytes_gpu;
	if (!c->held)
		c->held = held_new(c->io->e);
	if (!c->held)
		return -ENOMEM;
	if (!c->proto->in_order && mce_gpu_inbox_overlaps(c->held->inbox, c->dst, c->left))
		(void)held_flush(c);
	return 0;
}

static ssize_t gpu_write_take(struct mce_serve_conn *c)
{
	struct iovec iov;
	size_t room, n;
	ssize_t got;

	iov.iov_base = mce_gpu_inbox_at(c->held->inbox, &room);
	if (room == 0) {
		if (held_flush(c) < 0)
			return -EFAULT;
		iov.iov_base = mce_gpu_inbox_at(c->held->inbox, &room);
	}
	n = room < c->left ? room : (size_t)c->left;
	iov.iov_len = n;
	if (mce_rx_have(&c->rx))
		got = (ssize_t)mce_rx_copy(&c->rx, iov.iov_base, n);
	else
		got = mce_rx_payload(&c->rx, &iov, 1, n);
	if (got > 0) {
		mce_gpu_inbox_put(c->held->inbox, c->mr, c->dst, (size_t)got);
		c->dst += got;
	}
	return got;
}

static int gpu_write_end(struct mce_serve_conn *c)
{
	struct mce_mr *mr = TAKE_PTR(c->mr);
	int r;

	c->to = &mce_bytes_none;
	if (c->proto->in_order) {
		r = mce_gpu_inbox_flush(c->held->inbox);
		mce_mr_unref(mr);
		return r;
	}
	c->held->write[c->nheld].mr = mr;
	c->held->write[c->nheld].id = c->req.id;
	c->held->write[c->nheld++].seq = c->req.seq;
	if (c->nheld == HELD_MAX)
		gpu_flush(c);
	return MCE_BYTES_HELD;
}

static void gpu_drop(struct mce_serve_conn *c)
{
	for (unsigned i = 0; i < c->nheld; i++)
		mce_mr_unref(c->held->write[i].mr);
	c->nheld = 0;
	if (c->held)
		mce_gpu_inbox_free(c->held->inbox);
	free(c->held);
	c->held = NULL;
}

const struct mce_bytes_ops mce_bytes_gpu = {
	.piece = MCE_GPU_SLOT,
	.read_start = gpu_read_start,
	.read_lost = mce_bytes_not_lost,
	.write_begin = gpu_write_begin,
	.write_take = gpu_write_take,
	.write_end = gpu_write_end,
	.flush = gpu_flush,
	.drop = gpu_drop,
};
