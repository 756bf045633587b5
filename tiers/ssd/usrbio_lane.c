/* SPDX-License-Identifier: Apache-2.0
 * usrbio_lane.c - the feeder and the reaper of a lane of USRBIO. */
#include <config.h>

#include <errno.h>
#include <string.h>
#include <sys/vfs.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "tiers/ssd/usrbio_i.h"

#define REAP 32			/* results of one call */
#define SILENT_MS 250u		/* without results for this time, the reaper examines the daemon */
#define REFUSED_MAX 3u		/* refusals of an empty ring */

/* ---- with the lock ----------------------------------------------------------------------------- */

static bool usrbio_over_locked(const struct mct_io *io)
{
	const struct mct_usrbio *u = io->part;

	return io->stopping && !u->flying && mc_list_empty(&u->lane[0].queue) && mc_list_empty(&u->lane[1].queue);
}

void mct_usrbio_wake_locked(struct mct_io *io)
{
	struct mct_usrbio *u = io->part;
	bool over = usrbio_over_locked(io);

	for (unsigned i = 0; i < 2; i++) {
		if (over || !mc_list_empty(&u->lane[i].queue))
			mc_cond_signal(&u->lane[i].fed);
		if (over || !mc_list_empty(&u->lane[i].air))
			mc_cond_signal(&u->lane[i].flew);
	}
}

static bool op_in_pool(const struct mct_io *io, const struct mct_io_op *op)
{
	const char *at = op->buf;

	return at >= io->pool && at + op->len <= io->pool + io->pool_len;
}

/* Can the first op of the queue be put into the ring? */
static bool lane_ready_locked(const struct mct_lane *l)
{
	const struct mct_usrbio *u = l->io->part;

	if (mc_list_empty(&l->queue) || mc_list_empty(&u->free) || l->full)
		return false;
	return u->bounces || op_in_pool(l->io, mc_list_first(&l->queue, struct mct_io_op, node));
}

/* @op is set back to the head of the queue, NULL: it has ended. */
static void flight_free_locked(struct mct_lane *l, struct mct_flight *f, struct mct_io_op *op)
{
	struct mct_usrbio *u = l->io->part;

	if (f->bounce)
		u->bounce[u->bounces++] = f->bounce;
	mc_list_push_front(&u->free, &f->node);
	u->flying--;
	if (op)
		mc_list_push_front(&l->queue, &op->node);
	mct_usrbio_wake_locked(l->io);
}

/* ---- the feeder -------------------------------------------------------------------------------- */

/* The next flight; waits for one.  NULL: there is none, and the I/O is being closed. */
static struct mct_flight *flight_wait(struct mct_lane *l)
{
	struct mct_io *io = l->io;
	struct mct_usrbio *u = io->part;
	struct mct_io_op *op;
	struct mct_flight *f;
	uint32_t left;

	MC_LOCKED(&io->lock);
	while (!lane_ready_locked(l)) {
		if (usrbio_over_locked(io))
			return NULL;
		mc_cond_wait(&l->fed, &io->lock);
	}
	op = mc_list_first(&l->queue, struct mct_io_op, node);
	f = mc_list_first(&u->free, struct mct_flight, node);
	mc_list_remove(&op->node);
	mc_list_remove(&f->node);
	u->flying++;
	left = op->len - op->moved;
	f->op = op;
	f->bounce = op_in_pool(io, op) ? NULL : u->bounce[--u->bounces];
	f->at = f->bounce ? f->bounce : (char *)op->buf + op->moved;
	f->len = f->bounce && left > MCT_BOUNCE_LEN ? MCT_BOUNCE_LEN : left;
	return f;
}

/* The flight, which is in no ring, has moved @n bytes (negative: an error). */
static void flight_end(struct mct_lane *l, struct mct_flight *f, int64_t n)
{
	struct mct_io_op *op = f->op;
	bool rest;

	if (n > f->len || n < -4095) {
		mc_err("ssd", "3FS: a transfer of %u bytes has the result %lld", f->len, (long long)n);
		n = -EIO;
	}
	if (n > 0 && f->bounce && !l->write)
		memcpy((char *)op->buf + op->moved, f->bounce, (size_t)n);
	rest = mct_io_moved(op, (int)n);
	MC_LOCKED(&l->io->lock);
	flight_free_locked(l, f, rest ? op : NULL);
}

/* Put the flight into the ring.  Negative: it has to end with this error. */
static int flight_begin(struct mct_lane *l, struct mct_flight *f)
{
	struct mct_usrbio *u = l->io->part;
	struct mct_io_op *op = f->op;
	int r;

	/* The call only accesses memory.  The lock is held because the flight may end before it returns. */
	MC_LOCKED(&l->io->lock);
	if (u->gone)
		return u->gone;
	r = u->lib.prep_io(&l->ring, &u->iov, !l->write, f->at, u->fd, op->off + op->moved, f->len, f);
	if (r >= 0) {
		mc_list_push_back(&l->air, &f->node);
		l->refused = 0;
		mc_cond_signal(&l->flew);
		return 0;
	}
	if (r != -EAGAIN)
		return r;
	l->full = !mc_list_empty(&l->air);
	if (!l->full && ++l->refused > REFUSED_MAX)
		return -EIO;
	flight_free_locked(l, f, op);
	return 0;
}

void *mct_usrbio_feeder(void *arg)
{
	struct mct_lane *l = arg;
	const struct mct_usrbio *u = l->io->part;
	struct mct_flight *f;
	int r;

	while ((f = flight_wait(l))) {
		if (f->bounce && l->write)
			memcpy(f->bounce, (const char *)f->op->buf + f->op->moved, f->len);
		r = flight_begin(l, f);
		if (r < 0) {
			flight_end(l, f, r);
			continue;
		}
		/* The transfer may run nevertheless; the reaper calls again. */
		r = u->lib.submit_ios(&l->ring);
		if (r < 0)
			mc_warn("ssd", "3FS was not woken for a transfer: %s", mc_strerror(r));
	}
	return NULL;
}

/* ---- the reaper -------------------------------------------------------------------------------- */

/* Wait for flights in the ring.  False: there are none, and the I/O is being closed. */
static bool reaper_wait(struct mct_lane *l)
{
	MC_LOCKED(&l->io->lock);
	while (mc_list_empty(&l->air)) {
		if (usrbio_over_locked(l->io))
			return false;
		mc_cond_wait(&l->flew, &l->io->lock);
	}
	return true;
}

static void reaper_land(struct mct_lane *l, struct mct_flight *f, int64_t n)
{
	mc_mutex_lock(&l->io->lock);
	mc_list_remove(&f->node);
	l->full = false;
	mc_mutex_unlock(&l->io->lock);
	flight_end(l, f, n);
}

/* The error of all transfers if 3FS's daemon has ended, else 0. */
static int reaper_examine(struct mct_lane *l)
{
	struct mct_io *io = l->io;
	struct mct_usrbio *u = io->part;
	struct statfs fs;
	int e = fstatfs(u->fd, &fs) ? errno : 0;

	MC_LOCKED(&io->lock);
	/* Other errors do not prove that the daemon touches the memory no more. */
	if ((e == ENOTCONN || e == ECONNABORTED) && !u->gone)
		u->gone = -e;
	return u->gone;
}

static struct mct_flight *reaper_oldest(struct mct_lane *l)
{
	MC_LOCKED(&l->io->lock);
	return mc_list_empty(&l->air) ? NULL : mc_list_first(&l->air, struct mct_flight, node);
}

/* No result came for a while. */
static void reaper_doubt(struct mct_lane *l, int n)
{
	const struct mct_usrbio *u = l->io->part;
	struct mct_flight *f;
	int r = reaper_examine(l);

	if (r < 0) {
		mc_err("ssd", "3FS at %s has ended, so its transfers fail until this process starts again: %s",
		       u->mount_point, mc_strerror(r));
		while ((f = reaper_oldest(l)))
			reaper_land(l, f, r);
		return;
	}
	if (n < 0) {
		mc_err("ssd", "3FS tells no results of transfers: %s", mc_strerror(n));
		mc_sleep_ms(SILENT_MS / 10);
	}
	(void)u->lib.submit_ios(&l->ring);
}

void *mct_usrbio_reaper(void *arg)
{
	struct mct_lane *l = arg;
	const struct mct_usrbio *u = l->io->part;
	struct mct_hf3fs_cqe cqe[REAP];
	int n;

	while (reaper_wait(l)) {
		struct timespec deadline = mc_timespec(mc_wall_ns() + SILENT_MS * MC_NS_PER_MS);

		n = u->lib.wait_for_ios(&l->ring, cqe, REAP, 1, &deadline);
		for (int i = 0; i < n; i++)
			reaper_land(l, (struct mct_flight *)(uintptr_t)cqe[i].userdata, cqe[i].result);
		if (n <= 0)
			reaper_doubt(l, n == -ETIMEDOUT || n == -EINTR || n == -EAGAIN ? 0 : n);
	}
	return NULL;
}
