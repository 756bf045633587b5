/* SPDX-License-Identifier: Apache-2.0
 * serve.c - the owner's side of device memory: buffers for bytes that peers read, slots for those that they write. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "engine/gpu/gpu_i.h"

/* Maximum number of copies of one flush. */
#define SPANS 256u

/* ---- reads ------------------------------------------------------------------------------------- */

static void read_done(struct mc_gpu_job *job, int status)
{
	struct mce_gpu_read *r = mc_container_of(job, struct mce_gpu_read, job);

	if (status < 0)
		mce_gpu_read_end(r);
	r->done(r, status);
}

/* Take a free buffer of at least @len bytes.  False: all buffers are in use.  *@ret is NULL when there is no memory. */
static bool buffer_take_locked(struct mce_gpu_buffers *b, size_t len, void **ret)
{
	*ret = NULL;
	for (unsigned i = 0; i < MCE_GPU_READS; i++) {
		if (b->buf[i].used)
			continue;
		if (b->buf[i].len < len) {
			mce_pinned_free(b->buf[i].mem, b->buf[i].len);
			b->buf[i].len = len < MCE_GPU_SLOT ? MCE_GPU_SLOT : len;
			b->buf[i].mem = mce_pinned_new(b->buf[i].len);
		}
		*ret = b->buf[i].mem;
		b->buf[i].used = *ret != NULL;
		b->buf[i].len = *ret ? b->buf[i].len : 0;
		return true;
	}
	return false;
}

static int read_queue_locked(struct mce_gpu_buffers *b, int gpu)
{
	return b->queue[gpu] ? 0 : mc_gpu_queue_open(gpu, "mce-gpu-serve", &b->queue[gpu]);
}

/* Start the read, or queue it until a buffer is free.  After an error the caller ends the read. */
static int read_begin(struct mce_gpu_read *r)
{
	struct mce_gpu_buffers *b = &r->gpus->reads;
	struct mc_gpu_queue *q;
	int err;

	mc_mutex_lock(&r->gpus->lock);
	err = read_queue_locked(b, r->gpu);
	q = b->queue[r->gpu];
	if (err == 0 && !buffer_take_locked(b, r->len, &r->at)) {
		mc_list_push_back(&b->waiting, &r->node);
		q = NULL;
	} else if (err == 0 && !r->at) {
		err = -ENOMEM;
	}
	mc_mutex_unlock(&r->gpus->lock);
	if (err < 0 || !q)
		return err;
	r->span = (struct mc_gpu_span){ r->at, r->from, r->len };
	r->job = (struct mc_gpu_job){ .spans = &r->span, .n = 1, .done = read_done };
	mc_gpu_queue_add(q, &r->job);
	return 0;
}

void mce_gpu_read_start(struct mce_engine *e, int gpu, struct mce_gpu_read *r)
{
	int err;

	r->gpus = e->gpus;
	r->gpu = gpu;
	r->at = NULL;
	mc_list_init(&r->node);
	err = read_begin(r);
	if (err < 0)
		r->done(r, err);
}

void mce_gpu_read_end(struct mce_gpu_read *r)
{
	struct mce_gpu_buffers *b = &r->gpus->reads;
	struct mce_gpus *g = r->gpus;
	struct mce_gpu_read *next;
	int err = -ENOMEM;

	mc_mutex_lock(&g->lock);
	for (unsigned i = 0; i < MCE_GPU_READS; i++)
		if (b->buf[i].mem == r->at)
			b->buf[i].used = false;
	mc_mutex_unlock(&g->lock);
	r->at = NULL;
	/* A waiting read may fail to start; then the next one gets the buffer. */
	while (err < 0) {
		mc_mutex_lock(&g->lock);
		next = mc_list_empty(&b->waiting) ? NULL : mc_list_first(&b->waiting, struct mce_gpu_read, node);
		if (next)
			mc_list_remove(&next->node);
		mc_mutex_unlock(&g->lock);
		if (!next)
			return;
		err = read_begin(next);
		if (err < 0)
			next->done(next, err);
	}
}

void mce_gpu_reads_close(struct mce_gpus *g)
{
	for (unsigned i = 0; i < MCE_GPUS_MAX; i++)
		mc_gpu_queue_close(g->reads.queue[i]);
	for (unsigned i = 0; i < MCE_GPU_READS; i++)
		mce_pinned_free(g->reads.buf[i].mem, g->reads.buf[i].len);
}

/* ---- writes ------------------------------------------------------------------------------------ */

struct mce_gpu_inbox {
	struct mce_engine *e;
	uint8_t *slot;
	size_t used;
	int gpu;		/* the GPU of the first span */
	const struct mce_mr *last;	/* region of the last span; only compared */
	unsigned n;
	struct mc_gpu_span span[SPANS];
};

struct mce_gpu_inbox *mce_gpu_inbox_new(struct mce_engine *e)
{
	struct mce_gpu_inbox *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->e = e;
	in->slot = mce_pinned_new(MCE_GPU_SLOT);
	if (in->slot)
		return in;
	free(in);
	return NULL;
}

void mce_gpu_inbox_free(struct mce_gpu_inbox *in)
{
	if (!in)
		return;
	mce_pinned_free(in->slot, MCE_GPU_SLOT);
	free(in);
}

uint8_t *mce_gpu_inbox_at(struct mce_gpu_inbox *in, size_t *ret_room)
{
	*ret_room = in->n == SPANS ? 0 : MCE_GPU_SLOT - in->used;
	return in->slot + in->used;
}

void mce_gpu_inbox_put(struct mce_gpu_inbox *in, const struct mce_mr *mr, void *to, size_t n)
{
	struct mc_gpu_span *last = in->n ? &in->span[in->n - 1] : NULL;

	/* Any stream can copy to any GPU; this one is the nearest for the first. */
	if (!last)
		in->gpu = mr->gpu;
	/* One copy does not cross the border of two allocations. */
	if (last && in->last == mr && (char *)last->dst + last->len == (char *)to)
		last->len += n;
	else
		in->span[in->n++] = (struct mc_gpu_span){ to, in->slot + in->used, n };
	in->last = mr;
	in->used += n;
}

bool mce_gpu_inbox_overlaps(const struct mce_gpu_inbox *in, const void *to, uint64_t n)
{
	for (unsigned i = 0; i < in->n; i++) {
		uintptr_t at = (uintptr_t)in->span[i].dst;

		if (at < (uintptr_t)to + n && (uintptr_t)to < at + in->span[i].len)
			return true;
	}
	return false;
}

int mce_gpu_inbox_flush(struct mce_gpu_inbox *in)
{
	struct mce_copier *c = NULL;
	int r;

	if (in->n == 0)
		return 0;
	r = mce_copier_take(in->e, in->gpu, &c);
	if (r == 0)
		r = mce_copier_run(c, in->span, in->n);
	if (c)
		mce_copier_give(in->e, c);
	in->n = 0;
	in->used = 0;
	return r;
}
