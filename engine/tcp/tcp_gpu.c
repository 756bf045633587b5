/* SPDX-License-Identifier: Apache-2.0
 * tcp_gpu.c - requests of peers for device memory.
 *
 * WRITEs are received into a slot of pinned memory, many one after another, and copied to the GPU together when there
 * is nothing more to receive; then all are answered in their order.  The I/O thread waits for the copy, so a connection
 * has no copy under way when it is closed or a region ends.  READs are in tcp_medium.c; those of upstream's protocol,
 * which have any length, are answered in pieces. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "engine/tcp/tcp_server.h"

int mce_gpu_write_begin(struct mce_serve_conn *c, uint64_t addr, uint64_t len)
{
	if (!c->held)
		c->held = calloc(MCE_HELD_MAX, sizeof(*c->held));
	if (!c->inbox)
		c->inbox = mce_gpu_inbox_new(c->io->e);
	if (!c->held || !c->inbox)
		return -ENOMEM;
	if (mce_gpu_inbox_overlaps(c->inbox, (const void *)(uintptr_t)addr, len))
		mce_gpu_flush(c);
	c->gpu_dst = (uint8_t *)(uintptr_t)addr;
	return 0;
}

/* Answer the WRITEs that were held back. */
static void held_answer(struct mce_serve_conn *c, int r)
{
	unsigned n = c->nheld;

	if (r < 0)
		mc_warn("engine", "a peer's write to GPU memory failed: %s", mc_err_detail(r));
	c->nheld = 0;
	for (unsigned i = 0; i < n; i++) {
		struct mce_held *h = &c->held[i];

		mce_mr_unref(h->mr);
		if (r == 0 && c->acks_upto && h->seq)
			mce_serve_acknowledge(c, h->seq);
		else
			mce_serve_answer_write(c, h->id, r < 0 ? -MC_ETRANSFER : 0);
	}
}

/* The bytes of a WRITE that is being received may be among them: its @status is then the caller's business. */
static int inbox_flush(struct mce_serve_conn *c)
{
	int r = mc_fault("engine.gpu.serve");

	if (r == 0)
		r = mce_gpu_inbox_flush(c->inbox);
	held_answer(c, r);
	return r;
}

void mce_gpu_flush(struct mce_serve_conn *c)
{
	size_t room;

	if (!c->inbox || c->upstream)
		return;
	(void)mce_gpu_inbox_at(c->inbox, &room);
	if (room == MCE_GPU_SLOT && c->nheld == 0)
		return;
	if (inbox_flush(c) < 0 && c->mr && c->gpu_dst) {
		mce_mr_unref(c->mr);
		c->mr = NULL;
		c->gpu_dst = NULL;
		c->status = -MC_ETRANSFER;
	}
}

ssize_t mce_gpu_write_payload(struct mce_serve_conn *c)
{
	struct iovec iov;
	size_t room, n;
	ssize_t got;

	iov.iov_base = mce_gpu_inbox_at(c->inbox, &room);
	if (room == 0) {
		if (inbox_flush(c) < 0)
			return -EFAULT;
		iov.iov_base = mce_gpu_inbox_at(c->inbox, &room);
	}
	n = room < c->left ? room : (size_t)c->left;
	iov.iov_len = n;
	if (mce_rx_have(&c->rx))
		got = (ssize_t)mce_rx_copy(&c->rx, iov.iov_base, n);
	else
		got = mce_rx_payload(&c->rx, &iov, 1, n);
	if (got > 0) {
		mce_gpu_inbox_put(c->inbox, c->mr, c->gpu_dst, (size_t)got);
		c->gpu_dst += got;
	}
	return got;
}

void mce_gpu_write_end(struct mce_serve_conn *c)
{
	c->held[c->nheld++] = (struct mce_held){ .mr = c->mr, .id = c->req.id, .seq = c->req.seq };
	c->mr = NULL;
	c->gpu_dst = NULL;
	c->writing = false;
	if (c->nheld == MCE_HELD_MAX)
		mce_gpu_flush(c);
}

void mce_gpu_drop(struct mce_serve_conn *c)
{
	for (unsigned i = 0; i < c->nheld; i++)
		mce_mr_unref(c->held[i].mr);
	c->nheld = 0;
	c->gpu_dst = NULL;
	free(c->held);
	c->held = NULL;
	mce_gpu_inbox_free(c->inbox);
	c->inbox = NULL;
	if (c->gpu_mr)
		mce_mr_unref(c->gpu_mr);
	c->gpu_mr = NULL;
}

/* ---- READs in upstream's protocol -------------------------------------------------------------- */

static void upstream_read_over(struct mce_serve_conn *c, int r)
{
	mce_mr_unref(c->gpu_mr);
	c->gpu_mr = NULL;
	if (r < 0 && c->gpu_begun)
		c->broken = true;
	else if (r < 0)
		mce_upstream_refuse(c);
}

/* Begin the next piece.  The reference of c->gpu_mr lasts until the last one. */
static int upstream_read_next(struct mce_serve_conn *c)
{
	uint64_t n = c->gpu_left < MCE_GPU_SLOT ? c->gpu_left : MCE_GPU_SLOT, at = c->gpu_at;
	int r;

	c->gpu_at += n;
	c->gpu_left -= n;
	__atomic_fetch_add(&c->gpu_mr->refs, 1, __ATOMIC_RELAXED);
	r = mce_serve_medium(c, c->gpu_mr, 0, at, n);
	if (r < 0)
		mce_mr_unref(c->gpu_mr);
	return r;
}

/* The next piece, if none is under way and the ring has room for its answer. */
void mce_gpu_upstream_next(struct mce_serve_conn *c)
{
	int r;

	if (!c->gpu_mr || c->reading || c->gpu_left == 0 || mce_serve_full(c))
		return;
	r = upstream_read_next(c);
	if (r < 0)
		upstream_read_over(c, r);
}

void mce_gpu_upstream_read(struct mce_serve_conn *c, struct mce_mr *mr)
{
	int r;

	c->gpu_mr = mr;
	c->gpu_at = c->up.addr - mr->base;
	c->gpu_left = c->up.size;
	c->gpu_begun = false;
	r = upstream_read_next(c);
	if (r < 0)
		upstream_read_over(c, r);
}

void mce_gpu_upstream_piece(struct mce_serve_conn *c, int status, const void *at, uint32_t len,
			    struct mce_medium_read *read)
{
	struct mce_answer *a;

	if (status < 0) {
		mce_medium_read_end(read);
		upstream_read_over(c, status);
		return;
	}
	a = mce_serve_answer(c);
	a->id = 0;
	a->at = at;
	a->len = len;
	a->mr = NULL;
	a->read = read;
	a->hlen = !c->gpu_begun && c->up.v2 ? MCE_UP_STATUS_SIZE : 0;
	mce_up_status_pack(a->hdr, MCE_UP_OK);
	c->gpu_begun = true;
	if (c->gpu_left == 0)
		upstream_read_over(c, 0);
	else
		mce_gpu_upstream_next(c);
}
