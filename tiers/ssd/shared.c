/* SPDX-License-Identifier: Apache-2.0
 * shared.c - files in a directory that several machines use: <id of the segment>.data, with the header of file.c.
 *
 * One process writes to a file: the one that holds its lock (flock(2); NFS, CephFS and others lock on the server) and
 * whose number is in the header.  A process that finds a lock free continues with the file and writes its own number.
 * So a process that has lost its lock, because it was cut off from the server for long, reads the other number before
 * it writes again.  It may have begun a write before that; then checksums find the mixture of the two.
 *
 * Readers take no lock.  The header tells them whether the file is the one that they look for. */
#include <config.h>

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "tiers/ssd/ssd_i.h"

#define ID_DIGITS 32u
#define POOL_WORD 3u
#define CREATE_MAX 16u	/* attempts: another process may lock a file between its creation and the lock */
#define HOLD_MS 5000	/* more than a slow answer; then the server is silent */
#define HOLD_TRIES 5u	/* reads of a header that is not whole */
#define HOLD_NAP_MS 20

bool mct_ssd_shared_name(const char *name)
{
	size_t n = 0;

	while (n < ID_DIGITS && isxdigit((unsigned char)name[n]))
		n++;
	return n == ID_DIGITS && !strcmp(name + n, ".data");
}

static void shared_close(struct mct_ssd *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
	free(TAKE_PTR(d->path));
}

/* Open and lock one file.  -EWOULDBLOCK: another process has the lock. */
static int shared_lock(struct mct_ssd *d, const char *dir, const char *name, int flags)
{
	if (asprintf(&d->path, "%s/%s", dir, name) < 0) {
		d->path = NULL;
		return -ENOMEM;
	}
	d->fd = mct_io_file(AT_FDCWD, d->path, O_RDWR | O_NOFOLLOW | flags, &d->direct);
	if (d->fd < 0)
		return d->fd;
	if (flock(d->fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno == EWOULDBLOCK)
		return -EWOULDBLOCK;
	return mc_fail(-errno, "cannot lock %s: %m (the filesystem needs locks between its machines)", d->path);
}

/* May this process continue with the locked file?  Not if it is of another pool.  One without a header, whose creator
 * was killed, gets the id in its name. */
static int shared_check(struct mct_ssd *d, const struct mct_conf *conf, const char *name)
{
	const uint64_t *pool = conf->expect + POOL_WORD;
	struct mct_ssd_header h;
	int r = mct_ssd_file_header(d, &h);

	if (r < 0)
		return r;
	if (h.none && sscanf(name, "%16" SCNx64 "%16" SCNx64, &d->words[0], &d->words[1]) == 2)
		return 0;
	if (!h.size)
		return mc_fail(-EIO, "its header is damaged; if it is not needed, remove it");
	r = mct_ssd_seal_found(d, &h);
	if (r < 0)
		return r;
	if (!(pool[0] | pool[1]) || !(h.words[POOL_WORD] | h.words[POOL_WORD + 1]))
		return 0;
	if (memcmp(pool, h.words + POOL_WORD, 2 * sizeof(*pool)))
		return mc_fail(-EPERM, "it belongs to another pool; if that pool is gone, remove the file");
	return 0;
}

static int name_order(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int name_filter(const struct dirent *e)
{
	return mct_ssd_shared_name(e->d_name);
}

/* Lock the first file of the directory that this process may continue with.  -ENOENT: there is none. */
static int shared_adopt(struct mct_ssd *d, const struct mct_conf *conf)
{
	struct dirent **e = NULL;
	int n = scandir(conf->path, &e, name_filter, name_order), r = -ENOENT;

	if (n < 0)
		return mc_fail(-errno, "cannot list the shared directory %s: %m", conf->path);
	for (int i = 0; i < n; i++) {
		if (r < 0) {
			r = shared_lock(d, conf->path, e[i]->d_name, 0);
			if (r == 0)
				r = shared_check(d, conf, e[i]->d_name);
			if (r < 0 && r != -EWOULDBLOCK && r != -ENOENT)
				mc_warn("ssd", "%s/%s is left alone: %s", conf->path, e[i]->d_name, mc_err_detail(r));
			if (r < 0)
				shared_close(d);
		}
		free(e[i]);
	}
	free(e);
	return r < 0 ? -ENOENT : 0;
}

static int shared_create(struct mct_ssd *d, const struct mct_conf *conf)
{
	char name[ID_DIGITS + sizeof(".data")];
	int r;

	d->words[0] = mc_random_u64();
	d->words[1] = mc_random_u64();
	snprintf(name, sizeof(name), "%016" PRIx64 "%016" PRIx64 ".data", d->words[0], d->words[1]);
	r = shared_lock(d, conf->path, name, O_CREAT | O_EXCL);
	if (r == -EWOULDBLOCK)
		shared_close(d);
	return r;
}

/* Lock the file of the expected segment.  The epoch in its header proves that it has the objects that the master knows
 * there. */
static int shared_expected(struct mct_ssd *d, const struct mct_conf *conf)
{
	char name[ID_DIGITS + sizeof(".data")];
	struct mct_ssd_header h;
	int r;

	snprintf(name, sizeof(name), "%016" PRIx64 "%016" PRIx64 ".data", conf->expect[0], conf->expect[1]);
	r = shared_lock(d, conf->path, name, 0);
	if (r == -EWOULDBLOCK)
		return mc_fail(-EWOULDBLOCK, "another process has locked %s", d->path);
	if (r == 0)
		r = mct_ssd_file_header(d, &h);
	if (r == 0 && (h.none || !h.size || memcmp(h.words, conf->expect, sizeof(conf->expect))))
		r = mc_fail(-ESTALE, "%s is not the file of the segment that the master knows", d->path);
	return r;
}

int mct_ssd_shared_open(struct mct_ssd *d, const struct mct_conf *conf)
{
	int r = conf->expect[0] | conf->expect[1] ? shared_expected(d, conf) : shared_adopt(d, conf);

	if (r == -ENOENT && !(conf->expect[0] | conf->expect[1])) {
		r = -EWOULDBLOCK;
		for (unsigned i = 0; r == -EWOULDBLOCK && i < CREATE_MAX; i++)
			r = shared_create(d, conf);
	}
	if (r < 0)
		return r;
	do
		d->holder = mc_random_u64();
	while (!d->holder);
	return r;
}

/* A read of the header.  Freed by the later of its caller and its end. */
struct header_read {
	struct mct_io_op op;
	struct mct_ssd *d;
	void *block;
	/* guarded by the medium's lock */
	bool ended, left;
};

static void header_read_free(struct header_read *r)
{
	free(r->block);
	free(r);
}

/* On a thread of the I/O. */
static void header_read_ended(struct mct_io_op *op)
{
	struct header_read *r = mc_container_of(op, struct header_read, op);
	bool left;

	mc_mutex_lock(&r->d->lock);
	mct_ssd_health_end_locked(r->d);
	left = r->left;
	r->ended = true;
	mc_cond_broadcast(&r->d->held);
	mc_mutex_unlock(&r->d->lock);
	if (left)
		header_read_free(r);
}

static int header_read_wait(struct header_read *r, uint64_t deadline)
{
	MC_LOCKED(&r->d->lock);
	while (!r->ended && mc_cond_wait_until(&r->d->held, &r->d->lock, deadline) == 0)
		;
	r->left = !r->ended;
	return r->ended ? 0 : -MC_EUNAVAILABLE;
}

/* As mct_ssd_file_header(), but a server that does not answer costs HOLD_MS, and nothing once health.c has noticed. */
static int header_read(struct mct_ssd *d, struct mct_ssd_header *ret)
{
	struct header_read *r = calloc(1, sizeof(*r));
	int e = r && !posix_memalign(&r->block, MCT_BLOCK, MCT_BLOCK) ? mct_ssd_health_check(d) : -ENOMEM;

	if (e < 0)
		goto out;
	r->d = d;
	r->op = (struct mct_io_op){ .fd = d->fd, .len = MCT_BLOCK, .buf = r->block, .done = header_read_ended };
	mc_mutex_lock(&d->lock);
	mct_ssd_health_begin_locked(d);
	mc_mutex_unlock(&d->lock);
	mct_io_submit(d->io, &r->op);
	e = header_read_wait(r, mc_deadline_ms(HOLD_MS));
	if (e < 0)
		return mc_fail(e, "%s: the filesystem does not answer", d->path);
	e = r->op.status;
	if (e == 0)
		e = mct_ssd_file_parse(d, r->block, ret);
	else
		e = mc_fail(e, "cannot read %s: %s", d->path, mc_strerror(e));
out:
	if (r)
		header_read_free(r);
	return e;
}

int mct_ssd_shared_hold(struct mct_ssd *d)
{
	struct mct_ssd_header h = { .size = 0 };
	int r = 0;

	if (__atomic_load_n(&d->left, __ATOMIC_RELAXED))
		return mc_fail(-ESTALE, "%s was left to its owner", d->path);
	/* It may be read while another thread of this process writes it. */
	for (unsigned i = 0; d->holder && r == 0 && !h.holder && i < HOLD_TRIES; i++) {
		if (i)
			mc_sleep_ms(HOLD_NAP_MS);
		r = header_read(d, &h);
	}
	/* Only another number says that another process has the file.  A server that was restarted may not know our
	 * descriptor any more. */
	if (r == 0 && d->holder && !h.holder)
		r = mc_fail(-EIO, "%s: its header is damaged", d->path);
	if (r == -EIO || r == -ESTALE)
		mct_ssd_health_write_failed(d, r);
	if (r < 0)
		return r != -ESTALE ? r :
			mc_fail(-MC_EUNAVAILABLE, "%s: the filesystem has lost the open file", d->path);
	return h.holder == d->holder ? 0 : mc_fail(-ESTALE, "another process has taken over %s", d->path);
}

int mct_ssd_shared_read(struct mct_ssd *d, const struct mct_conf *conf)
{
	const char *name = strrchr(conf->path, '/');
	struct mct_ssd_header h;
	struct stat st;
	int r;

	d->path = strdup(conf->path);
	if (!d->path)
		return -ENOMEM;
	/* The path is from another process: opening a device could have an effect. */
	if (!name || !mct_ssd_shared_name(name + 1))
		return mc_fail(-EINVAL, "%s is not the name of a file in a shared directory", d->path);
	if (lstat(d->path, &st))
		return mc_fail(-errno, "cannot open %s: %m", d->path);
	if (!S_ISREG(st.st_mode))
		return mc_fail(-EINVAL, "%s is not a regular file", d->path);
	d->fd = mct_io_file(AT_FDCWD, d->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, &d->direct);
	if (d->fd < 0)
		return d->fd;
	r = mct_ssd_file_header(d, &h);
	if (r < 0)
		return r;
	if (h.none || !h.size || h.size % MCT_BLOCK || h.size > (uint64_t)st.st_size ||
	    memcmp(h.words, conf->expect, sizeof(conf->expect)))
		return mc_fail(-ESTALE, "%s is not the file of this segment", d->path);
	/* Only its owner has the key. */
	r = mct_ssd_seal_found(d, &h);
	if (r < 0)
		return r;
	memcpy(d->words, h.words, sizeof(d->words));
	d->size = h.size;
	d->reads_only = true;
	return 0;
}
