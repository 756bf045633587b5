/* SPDX-License-Identifier: Apache-2.0
 * statfs.c - how large and how full the pool is.
 * What can be evicted is used and available at the same time: a put may take it. */
#include <config.h>

#include <sys/statvfs.h>

#include "mcfs/ops/ops.h"

#define BLOCK 4096u

void mcfs_do_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st = { 0 };
	uint64_t unused, available;
	struct mcs_pool pool;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_statfs, 0, NULL))
		return;
	r = mcs_pool_stat(op.fs->store, &pool, mcfs_op_left_ms(&op));
	if (r < 0) {
		(void)mcfs_reply_err(&op, r);
		return;
	}
	unused = pool.capacity > pool.used ? pool.capacity - pool.used : 0;
	available = unused + pool.evictable;
	if (available > pool.capacity)
		available = pool.capacity;
	st.f_bsize = st.f_frsize = BLOCK;
	st.f_blocks = pool.capacity / BLOCK;
	st.f_bfree = unused / BLOCK;
	st.f_bavail = available / BLOCK;
	st.f_files = pool.objects;
	/* The number of objects has no limit of its own. */
	st.f_ffree = st.f_favail = INT32_MAX;
	st.f_files += st.f_ffree;
	st.f_namemax = op.fs->name_max;
	(void)mcfs_reply_statfs(&op, &st);
}
