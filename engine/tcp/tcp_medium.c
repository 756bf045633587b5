/* SPDX-License-Identifier: Apache-2.0
 * tcp_medium.c - READs of regions whose bytes are not addressable: on a medium, or in device memory.
 *
 * The answer gets its place in the ring when the bytes have been delivered, so it overtakes nothing and delays no other
 * answer.  Until then the READ counts as one of the answers under way. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "engine/tcp/tcp_server.h"
#include "tiers/tier.h"

struct mce_medium_read {
	struct mct_read read;		/* of a medium, */
	struct mce_gpu_read gpu;	/* or of device memory; read.status and read.at serve both */
	struct mce_serve_conn *c;	/* with a reference */
	struct mce_mr *mr;		/* with a reference */
	bool is_gpu;
	uint64_t id;
	struct mc_list node;		/* mce_medium_ready.list */
};

static void read_free(struct mce_medium_read *r)
{
	if (r->is_gpu) {
		r->c->gpu_reads--;
		if (r->read.status == 0)
			mce_gpu_read_end(&r->gpu);
	} else if (r->read.status == 0) {
		r->mr->medium->ops->read_end(r->mr->medium, &r->read);
	}
	if (r->mr)
		mce_mr_unref(r->mr);
	free(r);
}

/* The bytes of device memory are in a buffer: the region may end before the peer has received them. */
static void read_leave_region(struct mce_medium_read *r)
{
	if (!r->is_gpu)
		return;
	mce_mr_unref(r->mr);
	r->mr = NULL;
}

void mce_medium_read_end(struct mce_medium_read *r)
{
	read_free(r);
}

/* On the connection's loop. */
static void read_answer(struct mce_medium_read *r)
{
	struct mce_serve_conn *c = r->c;
	bool dead = mce_mr_dead(r->mr);

	c->reading--;
	read_leave_region(r);
	if (c->closed) {
		read_free(r);
	} else if (c->upstream) {
		mce_gpu_upstream_piece(c, r->read.status < 0 || dead ? -EIO : 0, r->read.at, r->read.len, r);
		mce_serve_conn_resume(c);
	} else if (r->read.status < 0 || dead) {
		mce_serve_answer_read(c, r->id, r->read.status < 0 ? -EIO : -ESTALE, NULL, 0, NULL);
		read_free(r);
		mce_serve_conn_resume(c);
	} else {
		mce_serve_answer_read(c, r->id, 0, r->read.at, r->read.len, r);
		mce_serve_conn_resume(c);
	}
	mce_serve_conn_unref(c);
}

static void reads_ready(void *arg)
{
	struct mce_medium_ready *y = arg;
	struct mc_list *pos;

	do {
		mc_mutex_lock(&y->lock);
		y->posted = false;
		pos = mc_list_empty(&y->list) ? NULL : y->list.next;
		if (pos)
			mc_list_remove(pos);
		mc_mutex_unlock(&y->lock);
		if (pos)
			read_answer(mc_container_of(pos, struct mce_medium_read, node));
	} while (pos);
}

/* On a thread of the medium, or of the GPU's copies. */
static void read_ready(struct mce_medium_read *r)
{
	struct mce_medium_ready *y = mce_serve_medium_ready(r->c);
	struct mce_io *io = r->c->io;

	MC_LOCKED(&y->lock);
	mc_list_push_back(&y->list, &r->node);
	if (y->posted)
		return;
	/* The answer must not be lost, so wait until there is memory. */
	while (mc_evloop_post(io->loop, reads_ready, y) == -ENOMEM)
		mc_sleep_ms(1);
	y->posted = true;
}

static void medium_done(struct mct_read *read)
{
	read_ready(mc_container_of(read, struct mce_medium_read, read));
}

static void gpu_done(struct mce_gpu_read *gpu, int status)
{
	struct mce_medium_read *r = mc_container_of(gpu, struct mce_medium_read, gpu);

	r->read.status = status;
	r->read.at = gpu->at;
	read_ready(r);
}

int mce_serve_medium(struct mce_serve_conn *c, struct mce_mr *mr, uint64_t id, uint64_t off, uint64_t len)
{
	struct mce_medium_read *r;

	if (len == 0 || len > (mr->gpu >= 0 ? MCE_GPU_READ_MAX : MCT_PIECE_MAX))
		return -ERANGE;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->read = (struct mct_read){ .off = off, .len = (uint32_t)len, .done = medium_done };
	r->mr = mr;
	r->id = id;
	r->c = c;
	mc_list_init(&r->node);
	c->reading++;
	mce_serve_conn_ref(c);
	r->is_gpu = mr->gpu >= 0;
	if (r->is_gpu) {
		c->gpu_reads++;
		r->gpu = (struct mce_gpu_read){
			.from = (const void *)(uintptr_t)(mr->base + off), .len = (uint32_t)len, .done = gpu_done,
		};
		mce_gpu_read_start(c->io->e, mr->gpu, &r->gpu);
	} else {
		mr->medium->ops->read_start(mr->medium, &r->read);
	}
	return 0;
}
