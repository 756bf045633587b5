/* SPDX-License-Identifier: Apache-2.0
 * ssd.c - the table of the tier "ssd". */
#include <config.h>

#include "tiers/ssd/ssd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/thread.h"
#include "tiers/ssd/ssd_i.h"

#define DEPTH 64u

static struct mct_ssd *ssd_of(const struct mct_medium *m)
{
	return (struct mct_ssd *)m;
}

static int ssd_start(struct mct_ssd *d, const struct mct_conf *conf)
{
	struct mct_io_conf io = {
		.depth = DEPTH, .threads = conf->kind && !strcmp(conf->kind, "threads"),
	};
	unsigned n = mct_ssd_buffers_for(conf->buffers);
	int r;

	r = mct_ssd_seal_open(d, conf);
	if (r == 0)
		r = mct_ssd_file_open(d, conf);
	if (r < 0)
		return r;
	io.fd = d->fd;
	io.path = d->path;
	io.pool_len = n * (size_t)MCT_SSD_BUF + d->form->bounces * (size_t)MCT_PIECE_MAX;
	r = mct_io_open(&io, &d->io);
	if (r == 0)
		r = mct_ssd_seal_start(d, (char *)mct_io_pool(d->io) + n * (size_t)MCT_SSD_BUF);
	if (r == 0)
		r = mct_ssd_buffers_open(d, n, mct_io_pool(d->io));
	return r < 0 ? r : mct_ssd_health_start(d);
}

static void ssd_close(struct mct_medium *m)
{
	struct mct_ssd *d = ssd_of(m);

	mct_ssd_health_stop(d);
	mct_ssd_seal_stop(d);
	mct_io_close(d->io);
	mct_ssd_buffers_close(d);
	mct_ssd_seal_close(d);
	/* The lock of the file ends here. */
	if (d->fd >= 0)
		close(d->fd);
	mc_cond_destroy(&d->health.wake);
	mc_cond_destroy(&d->held);
	mc_cond_destroy(&d->freed);
	mc_mutex_destroy(&d->header_lock);
	mc_mutex_destroy(&d->lock);
	free(d->path);
	free(d);
}

static int ssd_open(const struct mct_conf *conf, struct mct_medium **ret)
{
	struct mct_ssd *d;
	int r;

	if (!conf->path || conf->reserve > conf->size || conf->adopt_fd || conf->path_offset)
		return mc_fail(-EINVAL, "an SSD needs a path, and has no reserve, adopted file or offset");
	if (conf->kind && strcmp(conf->kind, "auto") && strcmp(conf->kind, "threads"))
		return mc_fail(-EINVAL, "unknown kind '%s' of an SSD: auto or threads", conf->kind);
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->medium.ops = &mct_ssd_tier;
	d->fd = -1;
	mc_mutex_init(&d->lock);
	mc_mutex_init(&d->header_lock);
	(void)mc_cond_init(&d->freed);
	(void)mc_cond_init(&d->held);
	(void)mc_cond_init(&d->health.wake);
	mc_list_init(&d->health.doubtful);
	mc_list_init(&d->free);
	mc_list_init(&d->waiting);
	for (unsigned i = 0; i < MCT_SSD_BUCKETS; i++)
		mc_list_init(&d->bucket[i]);
	r = ssd_start(d, conf);
	if (r < 0) {
		ssd_close(&d->medium);
		return r;
	}
	mc_log("ssd", conf->share == MCT_SHARE_READ ? MC_LOG_DEBUG : MC_LOG_INFO, "%s: size=%llu MiB, by %s%s%s",
	       d->path, (unsigned long long)(d->size >> 20), mct_io_kind(d->io), conf->seal ? ", encrypted" : "",
	       d->direct ? "" : ", through the page cache: the filesystem has no O_DIRECT");
	*ret = &d->medium;
	return 0;
}

static int ssd_memory(const struct mct_medium *m, struct mct_memory *ret)
{
	return mc_fail(-MC_ENOTSUP, "the bytes of an SSD are not addressable");
}

static void ssd_status(const struct mct_medium *m, struct mct_status *ret)
{
	struct mct_ssd *d = ssd_of(m);
	uint64_t size = __atomic_load_n(&d->size, __ATOMIC_RELAXED);

	*ret = (struct mct_status){
		.size = size, .limit = UINT64_MAX, .ready = size, .kind = mct_io_kind(d->io),
		.paused = mct_ssd_health_is_paused(d), .path = d->holder && d->form->readable ? d->path : NULL,
	};
}

static int ssd_grow(struct mct_medium *m, uint64_t size)
{
	return mct_ssd_file_grow(ssd_of(m), size);
}

static int ssd_identity(struct mct_medium *m, uint64_t ret[MCT_IDENTITY])
{
	struct mct_ssd *d = ssd_of(m);

	MC_LOCKED(&d->lock);
	memcpy(ret, d->words, sizeof(d->words));
	return 0;
}

static void words_set(struct mct_ssd *d, uint64_t to[MCT_IDENTITY], const uint64_t words[MCT_IDENTITY], bool torn)
{
	MC_LOCKED(&d->lock);
	memcpy(to, words, MCT_IDENTITY * sizeof(*words));
	d->torn = torn;
}

static int ssd_set_identity(struct mct_medium *m, const uint64_t words[MCT_IDENTITY])
{
	struct mct_ssd *d = ssd_of(m);
	int r = mct_ssd_health_check(d);

	if (r == 0)
		r = mct_ssd_shared_hold(d);
	if (r < 0)
		return r;
	mc_mutex_lock(&d->header_lock);
	words_set(d, d->tried, words, true);
	r = d->form->mark(d, d->size, words);
	/* A write that fails may have stored them. */
	if (r == 0)
		words_set(d, d->words, words, false);
	mc_mutex_unlock(&d->header_lock);
	if (r < 0)
		mct_ssd_health_write_failed(d, r);
	return r;
}

static int ssd_unlock(struct mct_medium *m, mct_keys_fn keys, void *arg)
{
	struct mct_ssd *d = ssd_of(m);

	return d->form->unlock(d, keys, arg);
}

static int ssd_hold(struct mct_medium *m)
{
	return mct_ssd_shared_hold(ssd_of(m));
}

static int ssd_leave(struct mct_medium *m, bool foreign)
{
	return mct_ssd_file_leave(ssd_of(m), foreign);
}

static uint64_t ssd_data_next(const struct mct_medium *m, uint64_t off, uint64_t *ret_end)
{
	const struct mct_ssd *d = ssd_of(m);
	uint64_t size = __atomic_load_n(&d->size, __ATOMIC_RELAXED);
	off_t at = lseek(d->fd, (off_t)(MCT_SSD_DATA_AT + off), SEEK_DATA);

	*ret_end = size;
	/* The file or device may have lost its end: then reads say so. */
	if (at < 0)
		return errno == ENXIO && !d->device && mct_ssd_file_whole(d) ? size : off;
	return (uint64_t)at - MCT_SSD_DATA_AT < size ? (uint64_t)at - MCT_SSD_DATA_AT : size;
}

static int ssd_note(struct mct_medium *m, unsigned nth, void *buf, bool write)
{
	struct mct_ssd *d = ssd_of(m);
	off_t at = (off_t)(1 + nth) * MCT_BLOCK;
	int r = mct_ssd_health_check(d);
	ssize_t n;

	if (r == 0 && write)
		r = mct_ssd_shared_hold(d);
	if (r < 0)
		return r;
	n = write ? pwrite(d->fd, buf, MCT_BLOCK, at) : pread(d->fd, buf, MCT_BLOCK, at);
	if (!write && n >= 0 && n < MCT_BLOCK &&
	    mct_io_is_hole(d->fd, (uint64_t)(at + n), MCT_BLOCK - (uint64_t)n)) {
		memset((char *)buf + n, 0, MCT_BLOCK - (size_t)n);
		n = MCT_BLOCK;
	}
	if (n == MCT_BLOCK)
		return 0;
	r = n < 0 ? -errno : -EIO;
	if (write)
		mct_ssd_health_write_failed(d, r);
	return mc_fail(r, "cannot %s the notes of %s: %s", write ? "write" : "read", d->path, mc_strerror(r));
}

const struct mct_tier_ops mct_ssd_tier = {
	.name = "ssd",
	.open = ssd_open,
	.memory = ssd_memory,
	.status = ssd_status,
	.grow = ssd_grow,
	.identity = ssd_identity,
	.set_identity = ssd_set_identity,
	.hold = ssd_hold,
	.leave = ssd_leave,
	.unlock = ssd_unlock,
	.read_start = mct_ssd_read_start,
	.read_end = mct_ssd_read_end,
	.buffer_get = mct_ssd_buffer_get,
	.buffer_put = mct_ssd_buffer_put,
	.write_start = mct_ssd_write_start,
	.data_next = ssd_data_next,
	.note = ssd_note,
	.sweep = mct_no_sweep,
	.sweep_stop = mct_no_sweep_stop,
	.close = ssd_close,
};
