/* SPDX-License-Identifier: Apache-2.0
 * flush.c - close, fsync and the last close. */
#include <config.h>

#include <errno.h>

#include "common/err.h"
#include "mcfs/handle.h"
#include "mcfs/ops/ops.h"

static void flush_unlock(struct mcfs_op *op, const struct mcfs_handle *released, uint64_t owner)
{
	struct mcfs_locks *l = &op->fs->locks;
	struct mcfs_key key;

	if (!mcfs_locks_any(l) || !op->in)
		return;
	mcfs_inode_key(&op->fs->inodes, op->in, &key);
	if (released)
		mcfs_lock_released(l, mcfs_key_of(&key), released);
	else
		mcfs_lock_flushed(l, mcfs_key_of(&key), owner);
}

/* The process's uncommitted bytes are dropped, which is unexpected if it ended successfully. */
static void report_hidden_exit(struct mcfs_op *op)
{
	struct mcfs_version_env *env = &op->fs->versions;
	struct mcfs_key key;

	mcfs_inode_key(&op->fs->inodes, op->in, &key);
	env->failed(env, key.data, key.len,
		    mc_fail(-EACCES, "the process ended without closing it, and its exit status is hidden "
			    "from mcfs"), "exit", op->ctx.pid);
}

void mcfs_do_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mcfs_handle *h = mcfs_handle_of(fi);
	struct mcfs_op op;
	int r = 0;

	if (!mcfs_op_begin(&op, req, MCFS_OP_flush, ino, fi))
		return;
	if (h->type == MCFS_WRITE && h->lost) {
		r = h->unsaved ? mcfs_handle_continue(op.fs, h, op.deadline) : 0;
	} else if (h->type == MCFS_WRITE) {
		const enum mcfs_fate fate = mcfs_caller_fate(op.ctx.pid);
		const bool pending = mcfs_writer_pending(h->writer);

		r = mcfs_writer_flush(h->writer, op.ctx.pid, fate, op.deadline);
		if (fate == MCFS_DIED && r == 0 && pending && !mcfs_writer_pending(h->writer) &&
		    mcfs_caller_hides_end(op.ctx.pid))
			report_hidden_exit(&op);
		mcfs_handle_saved(h);
	}
	/* Unlock after the flush: the next lock owner must see the flushed file. */
	flush_unlock(&op, NULL, fi->lock_owner);
	(void)mcfs_reply_err(&op, r);
}

void mcfs_do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct mcfs_handle *h = mcfs_handle_of(fi);
	struct mcfs_op op;
	int r = 0;

	if (!mcfs_op_begin(&op, req, MCFS_OP_fsync, ino, fi))
		return;
	if (h->type == MCFS_WRITE && h->lost) {
		r = h->unsaved ? mcfs_handle_continue(op.fs, h, op.deadline) : 0;
	} else if (h->type == MCFS_WRITE) {
		r = mcfs_writer_sync(h->writer, op.deadline);
		mcfs_handle_saved(h);
	}
	(void)mcfs_reply_err(&op, r);
}

void mcfs_do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mcfs_handle *h = mcfs_handle_of(fi);
	struct mcfs_op op;
	enum mcfs_fate fate = MCFS_ALIVE;
	int r = 0;

	if (!mcfs_op_begin(&op, req, MCFS_OP_release, ino, fi))
		return;
	if (h->type == MCFS_WRITE && h->writer) {
		/* The fate matters only if something is left to publish. */
		if (mcfs_writer_pending(h->writer))
			fate = mcfs_caller_fate(h->writer->pid);
		r = mcfs_writer_release(h->writer, fate, op.deadline);
	}
	flush_unlock(&op, h, 0);
	mcfs_handle_closed(h);
	mcfs_handle_unref(op.fs, h);
	(void)mcfs_reply_err(&op, r);
}
