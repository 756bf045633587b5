/* SPDX-License-Identifier: Apache-2.0
 * data.c - read, write and fallocate. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>

#include "common/metrics.h"
#include "mcfs/read/ahead.h"
#include "mcfs/handle.h"
#include "mcfs/ops/ops.h"
#include "mcfs/control/feed.h"

MC_COUNTER(bytes_written, "mcfs_written_bytes_total", "", "bytes taken from writers")

static void read_text(struct mcfs_op *op, const struct mcfs_handle *h, size_t size, uint64_t offset)
{
	size_t left = offset < h->text_len ? h->text_len - (size_t)offset : 0;

	(void)mcfs_reply_buf(op, h->text + (left ? offset : 0), size < left ? size : left);
}

/* Read in this thread, which blocks if necessary. */
static void read_here(struct mcfs_read *rd, struct mcfs_handle *h)
{
	void *buf = mcfs_compat_buffer();
	const void *data = buf;
	int64_t n = -ENOMEM;

	if (buf && h->writer)
		n = mcfs_writer_read(h->writer, rd->offset, buf, rd->len, rd->op.deadline);
	else if (buf)
		n = mcfs_object_get(h->object, rd->offset, rd->len, buf, rd->op.deadline, &data);
	if (n < 0) {
		(void)mcfs_reply_err(&rd->op, (int)n);
	} else {
		struct iovec iov = { (void *)(uintptr_t)data, (size_t)n };

		(void)mcfs_reply_read(&rd->op, &iov, 1, (size_t)n);
	}
	free(rd);
}

void mcfs_do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	struct mcfs_handle *h = mcfs_handle_of(fi);
	struct mcfs_read *rd = malloc(sizeof(*rd));
	int r;

	if (!rd) {
		(void)fuse_reply_err(req, ENOMEM);
		return;
	}
	if (!mcfs_op_begin(&rd->op, req, MCFS_OP_read, ino, fi)) {
		free(rd);
		return;
	}
	rd->offset = (uint64_t)offset;
	rd->len = size < MCFS_SLOT ? size : MCFS_SLOT;
	r = mcfs_handle_continue(rd->op.fs, h, rd->op.deadline);
	if (r < 0) {
		(void)mcfs_reply_err(&rd->op, r);
		free(rd);
		return;
	}
	if (h->type == MCFS_TEXT) {
		read_text(&rd->op, h, size, (uint64_t)offset);
		free(rd);
		return;
	}
	if (h->type == MCFS_LINES)
		mcfs_feed_read(h->feed, rd, h->nonblock);
	else if (!h->ahead || !mcfs_ahead_read(h->ahead, rd))
		read_here(rd, h);
}

/* O_APPEND: use the offset that the kernel chose. Parts of one large write may arrive out of order,
 * and a write answered with EINTR is resent, so appending at our own end of file would corrupt it.
 * Exception: the kernel's size may be that of another writer's version. */
static uint64_t write_offset(const struct mcfs_op *op, const struct fuse_file_info *fi, off_t offset)
{
	if ((fi->flags & O_APPEND) && !fi->writepage &&
	    mcfs_inode_is_kernel_size_stale(&op->fs->inodes, op->in))
		return MCFS_AT_THE_END;
	return (uint64_t)offset;
}

void mcfs_do_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
		   struct fuse_file_info *fi)
{
	struct mcfs_handle *h = mcfs_handle_of(fi);
	void **payload = mcfs_compat_payload();
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_write, ino, fi))
		return;
	if (h->type != MCFS_WRITE) {
		(void)mcfs_reply_err(&op, -EBADF);
		return;
	}
	r = mcfs_handle_continue(op.fs, h, op.deadline);
	if (r < 0) {
		(void)mcfs_reply_err(&op, r);
		return;
	}
	mcfs_handle_hide(op.fs, h);
	mcfs_handle_changed(h);
	r = mcfs_writer_write(h->writer, write_offset(&op, fi, offset), payload ? *payload : buf, size,
			      payload, fi->writepage ? 0 : op.ctx.pid, op.deadline, &op);
	if (r < 0) {
		(void)mcfs_reply_err(&op, r);
		return;
	}
	mcfs_handle_changed(h);
	mc_metric_add(&bytes_written, (int64_t)size);
	(void)mcfs_reply_write(&op, size);
}

void mcfs_do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		       struct fuse_file_info *fi)
{
	struct mcfs_handle *h = mcfs_handle_of(fi);
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_fallocate, ino, fi))
		return;
	if (h->type != MCFS_WRITE)
		r = -EBADF;
	else if (mode & ~FALLOC_FL_KEEP_SIZE)
		r = -EOPNOTSUPP;
	else
		r = mcfs_handle_continue(op.fs, h, op.deadline);
	if (r == 0 && !(mode & FALLOC_FL_KEEP_SIZE)) {
		mcfs_handle_hide(op.fs, h);
		mcfs_handle_changed(h);
	}
	if (r == 0)
		r = mcfs_writer_allocate(h->writer, (uint64_t)offset + (uint64_t)length,
					 mode & FALLOC_FL_KEEP_SIZE, op.ctx.pid, &op);
	if (r == 0 && !(mode & FALLOC_FL_KEEP_SIZE))
		mcfs_handle_changed(h);
	(void)mcfs_reply_err(&op, r);
}
