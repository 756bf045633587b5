/* SPDX-License-Identifier: Apache-2.0
 * direct.c - copies between device memory and memory of this process, with checksums.
 *
 * The GPU makes copies in groups, and the caller's thread computes the checksums of one group while the next ones are
 * being copied.  They are computed from the host memory after the copy.  For a READ that is as good as during the
 * copy: a range that is reused does not return to its old contents, so bytes that match afterwards matched when they
 * were copied. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "engine/gpu/gpu_i.h"

/* Limits of a group: bytes and spans. */
#define GROUP_BYTES (1u << 20)
#define GROUP_SPANS 256u

struct group {
	/* the bytes from @pos of the transfer @first up to @end of @last */
	unsigned first, last;
	uint64_t pos, end;
	bool unsure;		/* its event is not recorded */
};

struct run {
	struct mce_engine *e;
	struct mce_copier *c;
	struct mce_flat *flats;
	struct group open, ring[MCE_COPIER_EVENTS];
	unsigned head, n;		/* first entry of ring, and number of groups that are being copied */
	uint64_t bytes;			/* bytes of the open group */
	unsigned nspans;
	struct mc_gpu_span span[GROUP_SPANS];
};

static void flat_fail(struct mce_flat *f, int status)
{
	if (f->status == 0)
		f->status = status;
}

/* Wait for the oldest group. */
static void group_finish(struct run *run)
{
	struct group *g = &run->ring[run->head];
	int r = mc_gpu()->event_wait(run->c->event[run->head]);

	/* Without a proof by the event, the copies may still go on. */
	if (r < 0 || g->unsure)
		mc_gpu()->drain(run->c->stream);
	run->head = (run->head + 1) % MCE_COPIER_EVENTS;
	run->n--;
	for (unsigned i = g->first; i <= g->last; i++) {
		struct mce_flat *f = &run->flats[i];
		uint64_t pos = i == g->first ? g->pos : 0;
		uint64_t end = i == g->last ? g->end : mce_reqx(f->req)->total;

		if (r < 0)
			flat_fail(f, r);
		else if (f->gpu < 0)
			mce_crc_feed(f->req, pos, f->remote + pos, end - pos);
	}
}

/* Start the copies of the open group, whose last byte is before @end of transfer @last. */
static void group_start(struct run *run, unsigned last, uint64_t end)
{
	unsigned at = (run->head + run->n) % MCE_COPIER_EVENTS;
	int r = mc_fault("engine.gpu.direct"), err;
	bool refused;

	if (r == 0 && run->nspans)
		r = mc_gpu()->copy(run->c->stream, run->span, run->nspans);
	err = mc_gpu()->event_record(run->c->event[at], run->c->stream);
	refused = r < 0 && err == 0;
	r = r < 0 ? r : err;
	run->open.unsure = err < 0;
	for (unsigned i = run->open.first; i <= last && r < 0; i++) {
		flat_fail(&run->flats[i], r);
		run->flats[i].refused |= refused;
	}
	run->open.last = last;
	run->open.end = end;
	run->ring[at] = run->open;
	run->n++;
	run->open = (struct group){ .first = last, .pos = end };
	run->bytes = 0;
	run->nspans = 0;
	if (run->n == MCE_COPIER_EVENTS)
		group_finish(run);
}

/* Add @n bytes at @pos of transfer @i, all in one buffer and one window, to the open group. */
static void group_add(struct run *run, unsigned i, uint64_t pos, char *local, uint64_t n)
{
	struct mce_flat *f = &run->flats[i];
	bool write = f->req->op == MCE_WRITE;
	char *dst = write ? f->remote + pos : local, *src = write ? local : f->remote + pos;

	/* The request has buffers of the GPU too. */
	if (f->gpu < 0 && mce_gpu_of(run->e, local) < 0)
		memcpy(dst, src, n);
	else
		run->span[run->nspans++] = (struct mc_gpu_span){ dst, src, n };
	run->bytes += n;
	if (run->bytes >= GROUP_BYTES || run->nspans == GROUP_SPANS)
		group_start(run, i, pos + n);
}

/* How many of the @left bytes of a buffer, from @pos of the transfer on, can be added at once? */
static uint64_t group_room(const struct run *run, struct mce_flat *f, uint64_t pos, uint64_t left)
{
	uint64_t room = GROUP_BYTES - run->bytes;

	if (f->pins) {
		uint64_t reach = mce_pins_reach(f->pins, f->base, f->len, f->read_only, f->remote + pos);

		room = reach < room ? reach : room;
	}
	return left < room ? left : room;
}

static void flat_add(struct run *run, unsigned i)
{
	struct mce_flat *f = &run->flats[i];
	uint64_t pos = 0;

	for (unsigned k = 0; k < f->req->iovcnt; k++) {
		const struct iovec *iov = &f->req->iov[k];

		for (uint64_t off = 0, n; off < iov->iov_len; off += n, pos += n) {
			n = group_room(run, f, pos, iov->iov_len - off);
			group_add(run, i, pos, (char *)iov->iov_base + off, n);
		}
	}
}

/* Copy through a slot, because the checksums need the bytes in host memory, or the driver refuses the caller's host
 * memory. */
static int copy_through_slot(struct mce_flat *f)
{
	void *slot = mce_pinned_new(MCE_GPU_SLOT);
	struct mce_req *req = f->req;
	uint64_t pos = 0;
	int r = slot ? 0 : -ENOMEM;

	for (unsigned k = 0; k < req->iovcnt && r == 0; k++) {
		char *local = req->iov[k].iov_base;

		for (uint64_t left = req->iov[k].iov_len, n; left && r == 0; left -= n, pos += n, local += n) {
			bool write = req->op == MCE_WRITE;

			n = left < MCE_GPU_SLOT ? left : MCE_GPU_SLOT;
			r = mc_gpu_memcpy(slot, write ? local : f->remote + pos, n);
			if (r == 0)
				r = mc_gpu_memcpy(write ? f->remote + pos : local, slot, n);
			mce_crc_feed(req, pos, slot, n);
		}
	}
	mce_pinned_free(slot, MCE_GPU_SLOT);
	return r;
}

bool mce_gpu_alike(const struct mce_req *first, struct mce_req *req)
{
	const struct mce_reqx *x = mce_reqx(req);

	return x->status == 0 && x->total && x->gpu && req->op == first->op && req->rkey == first->rkey &&
	       req->fence == first->fence && req->ordered == first->ordered;
}

/* Copy the trailer of checksums. */
static void flat_end(struct mce_flat *f)
{
	uint64_t tail = mce_tail_len(f->req);
	int r = 0;

	if (f->status == 0 && tail)
		r = mc_gpu_memcpy(f->remote + mce_tail_off(f->req), f->req->crc, tail);
	if (r < 0)
		flat_fail(f, r);
}

/* Bits of the GPUs whose earlier work the copies have to follow. */
static uint64_t flat_begin(struct mce_flat *f)
{
	uint64_t gpus = 0;

	f->status = 0;
	f->refused = false;
	if (f->req->ordered)
		return 0;
	if (mce_reqx(f->req)->gpu)
		gpus = mce_req_gpus(f->req);
	return f->gpu >= 0 ? gpus | 1ull << f->gpu : gpus;
}

void mce_gpu_copy(struct mce_engine *e, struct mce_flat *flats, unsigned n)
{
	int gpu = mce_reqx(flats->req)->gpu - 1, r;
	struct run run = { .e = e, .flats = flats };
	uint64_t gpus = 0;

	for (unsigned i = 0; i < n; i++)
		gpus |= flat_begin(&flats[i]);
	if (gpu < 0)
		gpu = flats->gpu;
	r = mce_copier_take(e, gpu, &run.c);
	if (r == 0 && gpus & 1ull << gpu)
		r = mc_gpu()->follow(run.c->stream);
	gpus &= ~(1ull << gpu);
	for (int i = 0; r == 0 && gpus; i++, gpus >>= 1)
		if (gpus & 1)
			r = mce_gpu_wait_for_caller(e, i);
	for (unsigned i = 0; i < n; i++) {
		if (r < 0)
			flat_fail(&flats[i], r);
		else if (flats[i].gpu >= 0 && flats[i].req->crc)
			flat_fail(&flats[i], copy_through_slot(&flats[i]));
		else
			flat_add(&run, i);
	}
	if (r == 0 && (run.nspans || run.bytes))
		group_start(&run, n - 1, mce_reqx(flats[n - 1].req)->total);
	while (run.n)
		group_finish(&run);
	if (run.c)
		mce_copier_give(e, run.c);
	for (unsigned i = 0; i < n; i++) {
		/* Host memory of which the program has pinned a part cannot be copied by one span. */
		if (flats[i].refused)
			flats[i].status = copy_through_slot(&flats[i]);
		flat_end(&flats[i]);
	}
}
