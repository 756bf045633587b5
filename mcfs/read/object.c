/* SPDX-License-Identifier: Apache-2.0
 * object.c - reading a committed version. */
#include <config.h>
#include "mcfs/read/object.h"

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/sys/clock.h"

struct mcfs_object {
	unsigned refs;		/* atomic */
	mcs_object_t *o;	/* constant */
	struct mcs_info info;	/* constant */
};

int mcfs_object_open(mcs_t *store, struct mcs_key key, uint64_t deadline, struct mcfs_object **ret)
{
	struct mcfs_object *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	r = mcs_object_open(store, key, &o->o, mc_deadline_left_ms(deadline));
	if (r < 0) {
		free(o);
		return r;
	}
	o->refs = 1;
	o->info = *mcs_object_info(o->o);
	*ret = o;
	return 0;
}

int mcfs_object_stat(mcs_t *store, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
		     int *results, uint64_t deadline, struct mcfs_object **ret)
{
	struct mcfs_object *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	r = mcs_stat_open(store, keys, n, infos, results, &o->o, mc_deadline_left_ms(deadline));
	if (r < 0 || !o->o) {
		free(o);
		o = NULL;
	} else {
		o->refs = 1;
		o->info = *mcs_object_info(o->o);
	}
	*ret = o;
	return r;
}

struct mcfs_object *mcfs_object_ref(struct mcfs_object *o)
{
	__atomic_fetch_add(&o->refs, 1, __ATOMIC_RELAXED);
	return o;
}

void mcfs_object_unref(struct mcfs_object *o)
{
	if (!o || __atomic_sub_fetch(&o->refs, 1, __ATOMIC_ACQ_REL))
		return;
	mcs_object_close(o->o);
	free(o);
}

const struct mcs_info *mcfs_object_info(const struct mcfs_object *o)
{
	return &o->info;
}

int mcfs_object_offset(struct mcfs_object *o, uint64_t *ret)
{
	return mcs_object_offset(o->o, ret);
}

int64_t mcfs_object_get(struct mcfs_object *o, uint64_t offset, size_t len, void *buf,
			uint64_t deadline, const void **ret)
{
	struct iovec iov = { buf, len };
	int64_t n;

	if (offset >= o->info.size) {
		*ret = buf;
		return 0;
	}
	if (iov.iov_len > o->info.size - offset)
		iov.iov_len = (size_t)(o->info.size - offset);
	n = mcs_object_read(o->o, offset, &iov, 1, mc_deadline_left_ms(deadline));
	if (n < 0)
		return n;
	/* The size is part of the version, so a short read is an error. */
	if ((uint64_t)n != iov.iov_len)
		return mc_fail(-EIO, "short read of an object");
	*ret = buf;
	return n;
}

int mcfs_object_start(struct mcfs_object *o, uint64_t offset, void *buf, size_t len,
		      uint64_t deadline, mcs_read_done_fn done, void *arg)
{
	return mcs_object_read_start(o->o, offset, buf, len, mc_deadline_left_ms(deadline), done, arg);
}

int mcfs_object_copy(struct mcfs_object *o, uint64_t offset, void *buf, size_t len, uint64_t deadline)
{
	struct iovec iov = { buf, len };
	int64_t n = mcs_object_read(o->o, offset, &iov, 1, mc_deadline_left_ms(deadline));

	if (n < 0)
		return (int)n;
	return (uint64_t)n == len ? 0 : mc_fail(-EIO, "short read of an object");
}
