/* SPDX-License-Identifier: Apache-2.0
 * io.c - the queue of transfers, and the choice of the way that carries them out. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/lock.h"
#include "tiers/ssd/io_i.h"

static int io_start(struct mct_io *io, const struct mct_io_conf *conf)
{
	int r;

	if (!conf->threads) {
		io->ops = &mct_io_usrbio;
		r = io->ops->start(io, conf);
		if (r < 0)
			mc_warn("ssd", "no USRBIO for %s: %s", conf->path, mc_err_detail(r));
		if (r == 0)
			return 0;
		io->ops = &mct_io_uring;
		r = io->ops->start(io, conf);
		if (r == 0)
			return 0;
		mc_warn("ssd", "no io_uring, using threads: %s", mc_err_detail(r));
	}
	io->ops = &mct_io_threads;
	return io->ops->start(io, conf);
}

int mct_io_open(const struct mct_io_conf *conf, struct mct_io **ret)
{
	struct mct_io *io;
	int r;

	if (conf->depth < 1 || conf->depth > 1024)
		return mc_fail(-EINVAL, "a depth of %u transfers is not between 1 and 1024", conf->depth);
	io = calloc(1, sizeof(*io));
	if (!io)
		return -ENOMEM;
	io->depth = conf->depth;
	mc_mutex_init(&io->lock);
	mc_list_init(&io->queue);
	r = io_start(io, conf);
	if (r < 0) {
		mc_mutex_destroy(&io->lock);
		free(io);
		return r;
	}
	*ret = io;
	return 0;
}

void mct_io_close(struct mct_io *io)
{
	if (!io)
		return;
	mc_mutex_lock(&io->lock);
	io->stopping = true;
	io->ops->kick_locked(io);
	mc_mutex_unlock(&io->lock);
	io->ops->stop(io);
	mc_mutex_destroy(&io->lock);
	free(io);
}

const char *mct_io_kind(const struct mct_io *io)
{
	return io->ops->name;
}

void *mct_io_pool(const struct mct_io *io)
{
	return io->pool;
}

int mct_io_pool_new(struct mct_io *io, const struct mct_io_conf *conf)
{
	void *p = mmap(NULL, conf->pool_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return mc_fail(-ENOMEM, "no memory for %zu bytes of buffers", conf->pool_len);
	io->pool = p;
	io->pool_len = conf->pool_len;
	return 0;
}

void mct_io_pool_free(struct mct_io *io)
{
	munmap(io->pool, io->pool_len);
}

void mct_io_submit(struct mct_io *io, struct mct_io_op *op)
{
	op->moved = 0;
	MC_LOCKED(&io->lock);
	mc_list_push_back(&io->queue, &op->node);
	io->ops->kick_locked(io);
}

struct mct_io_op *mct_io_next(struct mct_io *io)
{
	struct mct_io_op *op;

	MC_LOCKED(&io->lock);
	if (mc_list_empty(&io->queue))
		return NULL;
	op = mc_list_first(&io->queue, struct mct_io_op, node);
	mc_list_remove(&op->node);
	return op;
}

bool mct_io_moved(struct mct_io_op *op, int n)
{
	if (n == -EINTR || n == -EAGAIN)
		return true;
	if (n > 0) {
		op->moved += (uint32_t)n;
		if (op->moved < op->len)
			return true;
	}
	if (n == 0 && !op->write && mct_io_is_hole(op->fd, op->off + op->moved, op->len - op->moved)) {
		memset((char *)op->buf + op->moved, 0, op->len - op->moved);
		n = 1;
	}
	op->status = op->write ? mc_fault("tiers.ssd.write") : mc_fault("tiers.ssd.read");
	if (op->status == 0)
		op->status = n > 0 ? 0 : n < 0 ? n : -EIO;
	op->done(op);
	return false;
}

/* ---- files ------------------------------------------------------------------------------------- */

int mct_io_file(int dirfd, const char *name, int flags, bool *ret_direct)
{
	int fd = openat(dirfd, name, flags | O_CLOEXEC | O_DIRECT, 0600);

	*ret_direct = fd >= 0;
	/* tmpfs and some network filesystems have no direct access. */
	if (fd < 0 && errno == EINVAL)
		fd = openat(dirfd, name, flags | O_CLOEXEC, 0600);
	return fd < 0 ? mc_fail(-errno, "cannot open %s: %m", name) : fd;
}

bool mct_io_is_hole(int fd, uint64_t off, uint64_t len)
{
	struct stat st;

	return !fstat(fd, &st) && (uint64_t)st.st_size >= len && off <= (uint64_t)st.st_size - len;
}
