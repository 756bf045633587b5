/* SPDX-License-Identifier: Apache-2.0
 * health.c - does the device of a medium work?  One bad sector costs one copy, a device that is gone costs none.
 *
 * A thread examines each failed read before its readers get an answer.  It reads the header, and blocks that were
 * readable before.  If these fail too, it pauses the disk: all reads and writes fail at once with -MC_EUNAVAILABLE,
 * which says nothing about the copies.  Else it reads the failed range once more and looks at the device again; only
 * then the range is bad, and its readers get -EIO.
 *
 * The thread also pauses the disk when transfers run and none of them ends.  A paused disk is tried until it works
 * again, by the open descriptor and by the path: a device on a network that was disconnected comes back as another one.
 * Each time the header is compared before anything else is read or written, so a foreign or blank medium at the path is
 * left alone. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "tiers/ssd/ssd_i.h"

#define TRIES 4u		/* reads of each block before the device counts as gone */
#define TICK_MS 1000u
/* Ten times a slow answer, and less than the kernel needs to give up a command (30 s). */
#define STALL_MS 10000u
#define RETRY_MS 250u

MC_COUNTER(pauses, "mooncake_ssd_pauses_total", "", "How often an SSD was paused because its device did not work")
MC_GAUGE(paused, "mooncake_ssd_paused", "", "SSDs of this process that are paused because their device does not work")

/* ---- seen from other threads ------------------------------------------------------------------- */

void mct_ssd_health_begin_locked(struct mct_ssd *d)
{
	struct mct_health *h = &d->health;

	h->running++;
	if (h->watched)
		return;
	h->watched = true;
	h->moved_ns = mc_now_ns();
	mc_cond_signal(&h->wake);
}

void mct_ssd_health_end_locked(struct mct_ssd *d)
{
	d->health.running--;
	d->health.ended++;
}

void mct_ssd_health_doubt(struct mct_ssd *d, struct mct_ssd_buffer *b)
{
	struct mct_health *h = &d->health;
	bool examine;

	mc_mutex_lock(&d->lock);
	examine = !h->paused && !h->stopping;
	if (examine) {
		mc_list_push_back(&h->doubtful, &b->op.node);
		mc_cond_signal(&h->wake);
	}
	mc_mutex_unlock(&d->lock);
	if (!examine)
		mct_ssd_read_over(d, b, -MC_EUNAVAILABLE);
}

void mct_ssd_health_write_failed(struct mct_ssd *d, int status)
{
	MC_LOCKED(&d->lock);
	d->health.write_error = status;
	mc_cond_signal(&d->health.wake);
}

int mct_ssd_health_paused(const struct mct_ssd *d)
{
	return mc_fail(-MC_EUNAVAILABLE, "the disk %s is paused, because its device does not work", d->path);
}

bool mct_ssd_health_is_paused(struct mct_ssd *d)
{
	MC_LOCKED(&d->lock);
	return d->health.paused;
}

int mct_ssd_health_check(struct mct_ssd *d)
{
	return mct_ssd_health_is_paused(d) ? mct_ssd_health_paused(d) : 0;
}

/* ---- pause and return -------------------------------------------------------------------------- */

/* Only the thread changes it. */
static bool health_is_paused(const struct mct_ssd *d)
{
	return d->health.paused;
}

static void health_set(struct mct_ssd *d, bool paused_now)
{
	MC_LOCKED(&d->lock);
	d->health.paused = paused_now;
}

static void health_pause(struct mct_ssd *d, const char *why)
{
	health_set(d, true);
	d->health.paused_ns = mc_now_ns();
	d->health.said = 0;
	mc_metric_add(&pauses, 1);
	mc_metric_add(&paused, 1);
	mc_warn("ssd", "%s: the device does not work, pausing the disk: %s.  Its objects stay, and can be read again "
		"when it works; check the device and its connection", d->path, why);
	mct_ssd_reads_give_up(d);
}

static void health_resume(struct mct_ssd *d)
{
	int r = 0;

	/* A write of the header that failed may have stored an identity that its caller does not use. */
	mc_mutex_lock(&d->header_lock);
	if (d->torn)
		r = d->form->mark(d, d->size, d->words);
	if (r == 0)
		d->torn = false;
	mc_mutex_unlock(&d->header_lock);
	if (r < 0)
		return;
	health_set(d, false);
	mc_metric_add(&paused, -1);
	mc_info("ssd", "%s: the device works again after %llu ms", d->path,
		(unsigned long long)((mc_now_ns() - d->health.paused_ns) / MC_NS_PER_MS));
}

/* Pause if transfers run and none has ended for a while. */
static void health_tick(struct mct_ssd *d)
{
	struct mct_health *h = &d->health;
	uint64_t now = mc_now_ns();
	bool stuck;

	mc_mutex_lock(&d->lock);
	if (!h->running || h->ended != h->seen) {
		h->seen = h->ended;
		h->moved_ns = now;
	}
	h->watched = h->running;
	stuck = now - h->moved_ns >= STALL_MS * MC_NS_PER_MS;
	mc_mutex_unlock(&d->lock);
	if (stuck && !health_is_paused(d))
		health_pause(d, "no transfer has ended for 10 s");
}

/* ---- tries ------------------------------------------------------------------------------------- */

static void health_io_ended(struct mct_io_op *op)
{
	struct mct_ssd *d = mc_container_of(op, struct mct_ssd, health.op);

	MC_LOCKED(&d->lock);
	mct_ssd_health_end_locked(d);
	d->health.op_ended = true;
	mc_cond_signal(&d->health.wake);
}

/* Read now, however long it takes: meanwhile the disk may be paused. */
static int health_read(struct mct_ssd *d, int fd, uint64_t off, uint32_t len, void *buf)
{
	struct mct_health *h = &d->health;
	bool ended = false;

	h->op = (struct mct_io_op){ .fd = fd, .off = off, .len = len, .buf = buf, .done = health_io_ended };
	mc_mutex_lock(&d->lock);
	h->op_ended = false;
	mct_ssd_health_begin_locked(d);
	mc_mutex_unlock(&d->lock);
	mct_io_submit(d->io, &h->op);
	while (!ended) {
		uint64_t deadline = mc_deadline_ms(TICK_MS);

		mc_mutex_lock(&d->lock);
		while (!h->op_ended && mc_cond_wait_until(&h->wake, &d->lock, deadline) == 0)
			;
		ended = h->op_ended;
		mc_mutex_unlock(&d->lock);
		if (!ended)
			health_tick(d);
	}
	return h->op.status;
}

static uint64_t health_good_off(struct mct_ssd *d)
{
	MC_LOCKED(&d->lock);
	return d->health.good_off;
}

/* 0: the device of the open descriptor works, and is ours. */
static int health_try(struct mct_ssd *d)
{
	uint64_t good = health_good_off(d);
	int r = 0;

	for (unsigned i = 0; i < TRIES; i++) {
		r = health_read(d, d->fd, 0, MCT_BLOCK, d->health.buf);
		if (r == 0) {
			r = mct_ssd_file_same(d, d->health.buf);
			if (r == 0)
				return 0;
			/* It may have been read while it was being written. */
			continue;
		}
		if (good && health_read(d, d->fd, good, MCT_BLOCK, d->health.buf) == 0)
			return 0;
	}
	return r;
}

static void health_pause_for(struct mct_ssd *d, int r)
{
	if (!health_is_paused(d))
		health_pause(d, r == -ENOMEDIUM || r == -ESTALE ? mc_err_detail(r) : mc_strerror(r));
}

/* Continue with the medium that is at the path now, if it is ours. */
static int health_open_again(struct mct_ssd *d)
{
	int fd = mct_ssd_file_again(d), r;

	MC_FAULT_POINT("tiers.ssd.again");
	if (fd < 0)
		return fd;
	r = health_read(d, fd, 0, MCT_BLOCK, d->health.buf);
	if (r == 0)
		r = mct_ssd_file_same(d, d->health.buf);
	/* Transfers that have not begun continue there. */
	if (r == 0 && dup3(fd, d->fd, O_CLOEXEC) < 0)
		r = -errno;
	close(fd);
	return r;
}

static void health_revive(struct mct_ssd *d)
{
	int r = health_try(d);

	if (r < 0)
		r = health_open_again(d);
	if (r == 0) {
		health_resume(d);
		return;
	}
	if ((r == -ENOMEDIUM || r == -ESTALE) && r != d->health.said) {
		d->health.said = r;
		mc_warn("ssd", "%s: a medium is there, but it is not used: %s", d->path, mc_err_detail(r));
	}
}

/* ---- the thread -------------------------------------------------------------------------------- */

/* Errors that a device has for one range; others say nothing about its bytes. */
static bool range_is_bad(int status)
{
	return status == -EIO || status == -ENODATA || status == -EILSEQ || status == -EREMOTEIO;
}

static void health_examine(struct mct_ssd *d, struct mct_ssd_buffer *b)
{
	int status = 0, r = health_is_paused(d) ? 0 : health_try(d);

	if (r == 0 && !health_is_paused(d)) {
		status = health_read(d, d->fd, b->op.off, b->op.len, b->mem);
		if (status < 0)
			r = health_try(d);
	}
	if (r < 0)
		health_pause_for(d, r);
	if (health_is_paused(d) || (status < 0 && !range_is_bad(status)))
		status = -MC_EUNAVAILABLE;
	else if (status < 0)
		status = -EIO;
	if (status == 0)
		d->form->loaded(d, b);
	else
		mct_ssd_read_over(d, b, status);
}

static struct mct_ssd_buffer *health_next(struct mct_ssd *d)
{
	struct mct_io_op *op;

	MC_LOCKED(&d->lock);
	if (mc_list_empty(&d->health.doubtful))
		return NULL;
	op = mc_list_first(&d->health.doubtful, struct mct_io_op, node);
	mc_list_remove(&op->node);
	return mc_container_of(op, struct mct_ssd_buffer, op);
}

static int health_write_error(struct mct_ssd *d)
{
	int r;

	MC_LOCKED(&d->lock);
	r = d->health.write_error;
	d->health.write_error = 0;
	return r;
}

/* Wait for work.  False: the medium is being closed. */
static bool health_wait(struct mct_ssd *d)
{
	struct mct_health *h = &d->health;
	uint64_t begun = mc_now_ns(), ms;

	MC_LOCKED(&d->lock);
	while (!h->stopping && mc_list_empty(&h->doubtful) && !h->write_error) {
		ms = h->paused ? RETRY_MS : h->watched ? TICK_MS : 0;
		if (!ms)
			mc_cond_wait(&h->wake, &d->lock);
		else if (mc_cond_wait_until(&h->wake, &d->lock, begun + ms * MC_NS_PER_MS) < 0)
			break;
	}
	return !h->stopping || !mc_list_empty(&h->doubtful);
}

static void *health_main(void *arg)
{
	struct mct_ssd *d = arg;
	struct mct_ssd_buffer *b;
	int r;

	while (health_wait(d)) {
		while ((b = health_next(d)))
			health_examine(d, b);
		r = health_write_error(d) && !health_is_paused(d) ? health_try(d) : 0;
		if (r < 0)
			health_pause_for(d, r);
		if (health_is_paused(d))
			health_revive(d);
		else
			health_tick(d);
	}
	return NULL;
}

int mct_ssd_health_start(struct mct_ssd *d)
{
	struct mct_health *h = &d->health;
	int r = -posix_memalign((void **)&h->buf, MCT_BLOCK, MCT_BLOCK);

	if (r == 0)
		r = mc_thread_start(&h->thread, "mct-health", health_main, d);
	h->runs = r == 0;
	return r;
}

void mct_ssd_health_stop(struct mct_ssd *d)
{
	struct mct_health *h = &d->health;

	mc_mutex_lock(&d->lock);
	h->stopping = true;
	mc_cond_signal(&h->wake);
	mc_mutex_unlock(&d->lock);
	if (h->runs)
		mc_thread_join(h->thread);
	if (h->paused)
		mc_metric_add(&paused, -1);
	free(h->buf);
}
