/* SPDX-License-Identifier: Apache-2.0
 * threads.c - transfers by threads that call pread(2) and pwrite(2). */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/thread.h"
#include "tiers/ssd/io_i.h"

/* A thread for each transfer up to this number. */
#define THREADS_MAX 16u

struct threads {
	struct mc_cond added;
	struct mc_thread thread[THREADS_MAX];
	unsigned n;
};

/* The next op; waits for one.  NULL: there is none, and the I/O is being closed. */
static struct mct_io_op *op_wait(struct mct_io *io)
{
	struct threads *t = io->part;
	struct mct_io_op *op;

	MC_LOCKED(&io->lock);
	while (mc_list_empty(&io->queue) && !io->stopping)
		mc_cond_wait(&t->added, &io->lock);
	if (mc_list_empty(&io->queue))
		return NULL;
	op = mc_list_first(&io->queue, struct mct_io_op, node);
	mc_list_remove(&op->node);
	return op;
}

static void *thread_main(void *arg)
{
	struct mct_io *io = arg;
	struct mct_io_op *op;
	ssize_t n;

	while ((op = op_wait(io))) {
		do {
			char *at = (char *)op->buf + op->moved;
			off_t off = (off_t)(op->off + op->moved);
			uint32_t left = op->len - op->moved;

			n = op->write ? pwrite(op->fd, at, left, off) : pread(op->fd, at, left, off);
		} while (mct_io_moved(op, n < 0 ? -errno : (int)n));
	}
	return NULL;
}

static void threads_stop(struct mct_io *io)
{
	struct threads *t = io->part;

	for (unsigned i = 0; i < t->n; i++)
		mc_thread_join(t->thread[i]);
	mc_cond_destroy(&t->added);
	free(t);
	mct_io_pool_free(io);
}

static void threads_kick_locked(struct mct_io *io)
{
	struct threads *t = io->part;

	if (io->stopping)
		mc_cond_broadcast(&t->added);
	else
		mc_cond_signal(&t->added);
}

static int threads_start(struct mct_io *io, const struct mct_io_conf *conf)
{
	struct threads *t = calloc(1, sizeof(*t));
	unsigned n = conf->depth < THREADS_MAX ? conf->depth : THREADS_MAX;
	int r;

	if (!t)
		return -ENOMEM;
	r = mct_io_pool_new(io, conf);
	if (r < 0) {
		free(t);
		return r;
	}
	mc_cond_init(&t->added);
	io->part = t;
	while (t->n < n && r == 0) {
		r = mc_thread_start(&t->thread[t->n], "mct-io", thread_main, io);
		t->n += r == 0;
	}
	if (t->n > 0)
		return 0;
	mc_cond_destroy(&t->added);
	free(t);
	mct_io_pool_free(io);
	return mc_fail(r, "no thread for transfers: %s", mc_strerror(r));
}

const struct mct_io_ops mct_io_threads = {
	.name = "threads",
	.start = threads_start,
	.kick_locked = threads_kick_locked,
	.stop = threads_stop,
};
