/* SPDX-License-Identifier: Apache-2.0
 * usrbio.c - transfers by USRBIO of 3FS, which moves bytes between its servers and memory that its daemon shares with
 * this process.
 *
 * A ring of 3FS has only reads or only writes, so there are two lanes (usrbio_lane.c).  Each has two threads: the
 * feeder puts transfers into the ring, the reaper waits for their ends.  The library wants one thread at a time for
 * each of these two calls.
 *
 * The shared memory has the pool, and bounce buffers for transfers from and to other memory, such as writes from the
 * owner's segment.  3FS may touch this memory until a transfer has ended, so a slow transfer is waited for without
 * limit.  Only when the kernel says that 3FS's daemon has ended, all transfers fail, now and later. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/err.h"
#include "tiers/ssd/usrbio_i.h"

static void usrbio_kick_locked(struct mct_io *io)
{
	struct mct_usrbio *u = io->part;

	while (!mc_list_empty(&io->queue)) {
		struct mct_io_op *op = mc_list_first(&io->queue, struct mct_io_op, node);

		mc_list_remove(&op->node);
		mc_list_push_back(&u->lane[op->write].queue, &op->node);
	}
	mct_usrbio_wake_locked(io);
}

static void usrbio_free(struct mct_io *io)
{
	struct mct_usrbio *u = io->part;

	for (unsigned i = 0; i < 2; i++) {
		if (u->lane[i].has_ring)
			u->lib.iordestroy(&u->lane[i].ring);
		mc_cond_destroy(&u->lane[i].fed);
		mc_cond_destroy(&u->lane[i].flew);
	}
	if (u->registered)
		u->lib.dereg_fd(u->fd);
	if (u->iov.base)
		u->lib.iovdestroy(&u->iov);
	free(u->flight);
	free(u);
}

static void usrbio_stop(struct mct_io *io)
{
	struct mct_usrbio *u = io->part;

	for (unsigned i = 0; i < 2; i++) {
		if (u->lane[i].feeds)
			mc_thread_join(u->lane[i].feeder);
		if (u->lane[i].reaps)
			mc_thread_join(u->lane[i].reaper);
	}
	usrbio_free(io);
}

/* The shared memory: pool and bounce buffers. */
static int usrbio_memory(struct mct_io *io, struct mct_usrbio *u, size_t pool_len)
{
	size_t len = pool_len + MCT_BOUNCES * (size_t)MCT_BOUNCE_LEN;
	int r = u->lib.iovcreate(&u->iov, u->mount_point, len, 0, -1);

	if (r < 0) {
		u->iov.base = NULL;
		return mc_fail(r, "3FS gives no %zu bytes of shared memory: %s", len, mc_strerror(r));
	}
	if ((uintptr_t)u->iov.base % MCT_IO_BLOCK)
		return mc_fail(-EINVAL, "3FS's shared memory does not begin at a page");
	/* Otherwise a full /dev/shm would end the process with SIGBUS later.  Linux before 5.14 cannot tell. */
	if (madvise(u->iov.base, len, MADV_POPULATE_WRITE) && errno != EINVAL)
		return mc_fail(-ENOMEM, "/dev/shm has no room for %zu bytes: enlarge it, or use fewer buffers", len);
	io->pool = (char *)u->iov.base;
	io->pool_len = pool_len;
	for (u->bounces = 0; u->bounces < MCT_BOUNCES; u->bounces++)
		u->bounce[u->bounces] = io->pool + pool_len + u->bounces * (size_t)MCT_BOUNCE_LEN;
	return 0;
}

static int usrbio_rings(struct mct_io *io, struct mct_usrbio *u)
{
	int r = u->lib.reg_fd(u->fd, 0);

	if (r > 0)
		return mc_fail(-r, "3FS does not register the file: %s", mc_strerror(-r));
	u->registered = true;
	for (unsigned i = 0; i < 2; i++) {
		/* An entry of a ring is free again only when those before it are, so there are more than flights. */
		r = u->lib.iorcreate4(&u->lane[i].ring, u->mount_point, 4 * (int)io->depth, i == 0, 0, 0, -1, 0);
		if (r < 0)
			return mc_fail(r, "3FS gives no ring: %s", mc_strerror(r));
		u->lane[i].has_ring = true;
	}
	return 0;
}

static int usrbio_threads(struct mct_io *io, struct mct_usrbio *u)
{
	int r = 0;

	for (unsigned i = 0; i < 2 && r == 0; i++) {
		struct mct_lane *l = &u->lane[i];

		r = mc_thread_start(&l->feeder, "mct-usrbio", mct_usrbio_feeder, l);
		l->feeds = r == 0;
		if (r == 0)
			r = mc_thread_start(&l->reaper, "mct-usrbio", mct_usrbio_reaper, l);
		l->reaps = r == 0 && l->feeds;
	}
	if (r == 0)
		return 0;
	mc_mutex_lock(&io->lock);
	io->stopping = true;
	mct_usrbio_wake_locked(io);
	mc_mutex_unlock(&io->lock);
	usrbio_stop(io);
	io->stopping = false;
	return mc_fail(r, "no thread for transfers: %s", mc_strerror(r));
}

static struct mct_usrbio *usrbio_new(struct mct_io *io, const struct mct_io_conf *conf)
{
	struct mct_usrbio *u = calloc(1, sizeof(*u));
	struct mct_flight *flight = calloc(conf->depth, sizeof(*flight));

	if (!u || !flight) {
		free(u);
		free(flight);
		return NULL;
	}
	u->fd = conf->fd;
	u->flight = flight;
	mc_list_init(&u->free);
	for (unsigned i = 0; i < conf->depth; i++)
		mc_list_push_back(&u->free, &flight[i].node);
	for (unsigned i = 0; i < 2; i++) {
		struct mct_lane *l = &u->lane[i];

		l->io = io;
		l->write = i == 1;
		mc_cond_init(&l->fed);
		mc_cond_init(&l->flew);
		mc_list_init(&l->queue);
		mc_list_init(&l->air);
	}
	return u;
}

static int usrbio_start(struct mct_io *io, const struct mct_io_conf *conf)
{
	char mount_point[MCT_HF3FS_PATH] = "";
	struct mct_hf3fs lib;
	struct mct_usrbio *u;
	int r = mct_hf3fs_open(conf->fd, conf->path, &lib, mount_point);

	if (r != 0)
		return r;
	u = usrbio_new(io, conf);
	if (!u)
		return -ENOMEM;
	u->lib = lib;
	memcpy(u->mount_point, mount_point, sizeof(u->mount_point));
	io->part = u;
	r = usrbio_memory(io, u, conf->pool_len);
	if (r == 0)
		r = usrbio_rings(io, u);
	if (r < 0)
		usrbio_free(io);
	return r < 0 ? r : usrbio_threads(io, u);
}

const struct mct_io_ops mct_io_usrbio = {
	.name = "usrbio",
	.start = usrbio_start,
	.kick_locked = usrbio_kick_locked,
	.stop = usrbio_stop,
};
