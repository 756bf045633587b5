/* SPDX-License-Identifier: Apache-2.0
 * statfs.c - size and usage of the pool.
 * Evictable bytes count as used and as available, because a put may evict them.  Disks count with memory: an object
 * that is on both counts twice. */
#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/cleanup.h"
#include "mcfs/ops/ops.h"

#define BLOCK 4096u

/* A disk is named HOST:PORT/ssd-ID. */
static bool is_local(const struct mcfs_op *op, const struct mcs_segment *s)
{
	const char *host = mcs_hostname(op->fs->store);
	size_t n = strlen(host);

	return strncmp(s->name, host, n) == 0 && (!s->name[n] || s->name[n] == '/');
}

/* Figures of this node only; the evictable share of its memory is unknown. */
static int local_figures(struct mcfs_op *op, struct mcs_pool *ret)
{
	auto_free struct mcs_segment *segments = NULL;
	int n = mcs_segments(op->fs->store, &segments, mcfs_op_left_ms(op));

	memset(ret, 0, sizeof(*ret));
	for (int i = 0; i < n; i++) {
		if (!is_local(op, &segments[i]))
			continue;
		if (segments[i].on_disk) {
			ret->disk_capacity += segments[i].size;
			ret->disk_used += segments[i].used;
			continue;
		}
		ret->capacity += segments[i].size;
		ret->used += segments[i].used;
		ret->objects += segments[i].objects;
	}
	return n < 0 ? n : 0;
}

void mcfs_do_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st = { 0 };
	uint64_t unused, available, disk_free;
	struct mcs_pool pool;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_statfs, 0, NULL))
		return;
	r = op.fs->df_local ? local_figures(&op, &pool) :
		mcs_pool_stat(op.fs->store, &pool, mcfs_op_left_ms(&op));
	if (r < 0) {
		(void)mcfs_reply_err(&op, r);
		return;
	}
	unused = pool.capacity > pool.used ? pool.capacity - pool.used : 0;
	available = unused + pool.evictable;
	if (available > pool.capacity)
		available = pool.capacity;
	disk_free = pool.disk_capacity > pool.disk_used ? pool.disk_capacity - pool.disk_used : 0;
	pool.capacity += pool.disk_capacity;
	unused += disk_free;
	available += disk_free;
	st.f_bsize = st.f_frsize = BLOCK;
	st.f_blocks = pool.capacity / BLOCK;
	st.f_bfree = unused / BLOCK;
	st.f_bavail = available / BLOCK;
	st.f_files = pool.objects;
	/* The number of objects is not limited separately. */
	st.f_ffree = st.f_favail = INT32_MAX;
	st.f_files += st.f_ffree;
	st.f_namemax = op.fs->new_name_max;
	(void)mcfs_reply_statfs(&op, &st);
}
