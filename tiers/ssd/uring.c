/* SPDX-License-Identifier: Apache-2.0
 * uring.c - transfers by io_uring: one thread owns the ring, takes transfers from the queue and ends those that are
 * complete.  An event file wakes it, which the ring itself watches. */
#include <config.h>

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/thread.h"
#include "tiers/ssd/io_i.h"

struct ring {
	struct io_uring ring;
	struct mc_thread thread;
	int wake_fd;
	bool pool;		/* the pool is registered */
	/* owned by the thread */
	unsigned flying;
	bool watched;		/* the ring polls wake_fd */
	struct mc_list again;	/* ops whose rest is to be submitted */
	/* guarded by mct_io.lock */
	bool kicked;
};

static bool in_pool(const struct mct_io *io, const struct mct_io_op *op)
{
	const struct ring *g = io->part;
	const char *at = op->buf;

	return g->pool && at >= io->pool && at + op->len <= io->pool + io->pool_len;
}

static void op_prepare(struct mct_io *io, struct io_uring_sqe *sqe, struct mct_io_op *op)
{
	struct ring *g = io->part;
	char *at = (char *)op->buf + op->moved;
	uint32_t left = op->len - op->moved;
	uint64_t off = op->off + op->moved;

	if (in_pool(io, op) && op->write)
		io_uring_prep_write_fixed(sqe, op->fd, at, left, off, 0);
	else if (in_pool(io, op))
		io_uring_prep_read_fixed(sqe, op->fd, at, left, off, 0);
	else if (op->write)
		io_uring_prep_write(sqe, op->fd, at, left, off);
	else
		io_uring_prep_read(sqe, op->fd, at, left, off);
	io_uring_sqe_set_data(sqe, op);
	g->flying++;
}

static void ring_watch(struct ring *g)
{
	struct io_uring_sqe *sqe = g->watched ? NULL : io_uring_get_sqe(&g->ring);

	if (!sqe)
		return;
	io_uring_prep_poll_add(sqe, g->wake_fd, POLLIN);
	io_uring_sqe_set_data(sqe, NULL);
	g->watched = true;
}

/* Begin as many ops as the depth allows. */
static void ring_fill(struct mct_io *io, struct ring *g)
{
	struct mct_io_op *op;

	while (g->flying < io->depth) {
		if (!mc_list_empty(&g->again)) {
			op = mc_list_first(&g->again, struct mct_io_op, node);
			mc_list_remove(&op->node);
		} else {
			op = mct_io_next(io);
		}
		if (!op)
			return;
		/* There are entries for the whole depth and the poll. */
		op_prepare(io, io_uring_get_sqe(&g->ring), op);
	}
}

static void ring_reap(struct ring *g)
{
	struct io_uring_cqe *cqe;

	while (io_uring_peek_cqe(&g->ring, &cqe) == 0) {
		struct mct_io_op *op = io_uring_cqe_get_data(cqe);
		int n = cqe->res;

		io_uring_cqe_seen(&g->ring, cqe);
		if (!op) {
			g->watched = false;
			(void)!read(g->wake_fd, &(uint64_t){ 0 }, 8);
			continue;
		}
		g->flying--;
		if (mct_io_moved(op, n))
			mc_list_push_back(&g->again, &op->node);
	}
}

/* Nothing is left, and the I/O is being closed. */
static bool ring_over(struct mct_io *io, struct ring *g)
{
	bool over;

	mc_mutex_lock(&io->lock);
	g->kicked = false;
	over = io->stopping && mc_list_empty(&io->queue) && !g->flying && mc_list_empty(&g->again);
	mc_mutex_unlock(&io->lock);
	return over;
}

static void *ring_main(void *arg)
{
	struct mct_io *io = arg;
	struct ring *g = io->part;
	int r;

	while (!ring_over(io, g)) {
		ring_watch(g);
		ring_fill(io, g);
		r = io_uring_submit_and_wait(&g->ring, 1);
		if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY)
			mc_err("ssd", "io_uring: %s", mc_strerror(r));
		ring_reap(g);
	}
	return NULL;
}

static void ring_free(struct mct_io *io)
{
	struct ring *g = io->part;

	io_uring_queue_exit(&g->ring);
	mct_io_pool_free(io);
	close(g->wake_fd);
	free(g);
}

static void ring_stop(struct mct_io *io)
{
	struct ring *g = io->part;

	mc_thread_join(g->thread);
	ring_free(io);
}

static void ring_kick_locked(struct mct_io *io)
{
	struct ring *g = io->part;

	if (g->kicked)
		return;
	g->kicked = true;
	(void)!write(g->wake_fd, &(uint64_t){ 1 }, 8);
}

/* Registered memory is locked; without the permission for that transfers work too. */
static void ring_register(struct mct_io *io)
{
	struct iovec iov = { io->pool, io->pool_len };
	struct ring *g = io->part;
	int r = io_uring_register_buffers(&g->ring, &iov, 1);

	g->pool = r == 0;
	if (r < 0)
		mc_info("ssd", "buffers are not registered with io_uring: %s", mc_strerror(r));
}

static int ring_start(struct mct_io *io, const struct mct_io_conf *conf)
{
	struct ring *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	mc_list_init(&g->again);
	g->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = g->wake_fd < 0 ? -errno : io_uring_queue_init(conf->depth + 1, &g->ring, 0);
	if (r < 0) {
		if (g->wake_fd >= 0)
			close(g->wake_fd);
		free(g);
		return mc_fail(r, "%s", mc_strerror(r));
	}
	io->part = g;
	r = mct_io_pool_new(io, conf);
	if (r < 0) {
		io_uring_queue_exit(&g->ring);
		close(g->wake_fd);
		free(g);
		return r;
	}
	ring_register(io);
	r = mc_thread_start(&g->thread, "mct-uring", ring_main, io);
	if (r < 0)
		ring_free(io);
	return r;
}

const struct mct_io_ops mct_io_uring = {
	.name = "uring",
	.start = ring_start,
	.kick_locked = ring_kick_locked,
	.stop = ring_stop,
};
