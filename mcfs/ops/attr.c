/* SPDX-License-Identifier: Apache-2.0
 * attr.c - attributes: readable; the size can be set, other changes are accepted and ignored. */
#include <config.h>

#include <errno.h>

#include "common/err.h"
#include "mcfs/control/control.h"
#include "mcfs/handle.h"
#include "mcfs/ops/ops.h"

static void reply_attr(struct mcfs_op *op, struct mcfs_inode *in, const struct mcfs_handle *h)
{
	struct mcfs *fs = op->fs;
	uint64_t timeout = mcfs_live(&fs->conf.attr_timeout);
	struct mcfs_writer *w = NULL;
	struct stat st;

	if (h && h->writer) {
		mcfs_stat_writer(fs, in, h->writer, &st);
		timeout = 0;
	} else if ((w = mcfs_handle_writer_seen(fs, in))) {
		mcfs_stat_writer(fs, in, w, &st);
		timeout = 0;
	} else {
		mcfs_stat_inode(fs, in, &st);
	}
	mcfs_writer_unref(w);
	(void)mcfs_reply_attr(op, &st, timeout);
}

static void control_attr(struct mcfs_op *op, fuse_ino_t ino)
{
	struct stat st;
	int r = mcfs_control_stat(op->fs, ino, &st);

	if (r < 0)
		(void)mcfs_reply_err(op, r);
	else
		(void)mcfs_reply_attr(op, &st, 0);
}

void mcfs_do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mcfs_op op;

	if (!mcfs_op_begin(&op, req, MCFS_OP_getattr, ino, fi))
		return;
	if (!op.in)
		control_attr(&op, ino);
	else
		reply_attr(&op, op.in, op.handle);
}

/* truncate(2) of a path: publish a truncated version before the call returns. */
static int truncate_version(struct mcfs_op *op, struct mcfs_inode *in, uint64_t size)
{
	struct mcfs *fs = op->fs;
	struct mcfs_writer_args args = { .tid = op->ctx.pid };
	struct mcfs_writer *w = NULL;
	struct mcfs_key key;
	int r = 0;

	if (mcfs_live(&fs->conf.immutable))
		return -EPERM;
	if (in->info.generation && size == in->info.size)
		return 0;
	mcfs_refresh_limit(op);
	mcfs_inode_key(&fs->inodes, in, &key);
	args.key = key.data;
	args.len = key.len;
	if (size)
		r = mcfs_object_open(fs->store, mcfs_key_of(&key), op->deadline, &args.base);
	else
		args.flags = MCFS_WRITER_FRESH;
	if (r == 0)
		r = mcfs_writer_new(&fs->versions, &args, &w);
	if (r == 0)
		r = mcfs_writer_truncate(w, size, op->ctx.pid, NULL);
	if (r == 0 && mcfs_op_claim(op, MCFS_UNLESS_KILLED))
		r = mcfs_writer_sync(w, op->deadline);
	mcfs_writer_unref(w);
	mcfs_object_unref(args.base);
	return r;
}

/* Check that the inode is still the file of its name. A path lookup guarantees that; a descriptor's
 * path such as /proc/self/fd/3 may have been renamed, replaced or removed. */
static int check_shown(struct mcfs_op *op, const struct mcfs_inode *in)
{
	struct mcfs_key key;
	struct mcs_info info;
	int r;

	mcfs_inode_key(&op->fs->inodes, in, &key);
	r = mcs_stat(op->fs->store, mcfs_key_of(&key), &info, mcfs_op_left_ms(op));
	if (mcs_errno(r) == ENOENT || (r == 0 && info.generation != in->info.generation))
		return mc_fail(-ESTALE, "the file was replaced, renamed or removed since it was opened");
	return r;
}

static int set_size(struct mcfs_op *op, struct mcfs_inode *in, struct mcfs_handle *h, uint64_t size)
{
	struct mcfs_writer *w;
	int r;

	if (in->kind != MCS_OBJECT)
		return in->kind == MCS_DIR ? -EISDIR : -EINVAL;
	if (h && h->type == MCFS_WRITE) {
		r = mcfs_handle_continue(op->fs, h, op->deadline);
		if (r < 0)
			return r;
		mcfs_handle_hide(op->fs, h);
		mcfs_handle_changed(h);
		r = mcfs_writer_truncate(h->writer, size, op->ctx.pid, op);
		mcfs_handle_changed(h);
		return r;
	}
	w = mcfs_handle_writer_seen(op->fs, in);
	if (w && in->info.generation) {
		/* Another descriptor is writing the file: its staged bytes belong to another version. */
		mcfs_writer_unref(w);
		w = NULL;
		r = check_shown(op, in);
		if (r < 0)
			return r;
	}
	if (!w)
		return truncate_version(op, in, size);
	mcfs_handle_changes(op->fs, w);
	r = mcfs_writer_truncate(w, size, op->ctx.pid, op);
	mcfs_handle_changes(op->fs, w);
	mcfs_writer_unref(w);
	return r;
}

void mcfs_do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		     struct fuse_file_info *fi)
{
	struct mcfs_op op;
	int r = 0;

	if (!mcfs_op_begin(&op, req, MCFS_OP_setattr, ino, fi))
		return;
	if (!op.in) {
		/* Shells truncate before an open that will fail with its own error. */
		if (to_set & FUSE_SET_ATTR_SIZE)
			control_attr(&op, ino);
		else
			(void)mcfs_reply_err(&op, -EPERM);
		return;
	}
	if (to_set & FUSE_SET_ATTR_SIZE)
		r = set_size(&op, op.in, op.handle, (uint64_t)attr->st_size);
	/* A version truncated by path is a new version with a new inode. Keep this inode's size:
	 * the file may be open and mapped, and the kernel would cut it off for its readers. */
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else
		reply_attr(&op, op.in, op.handle);
}
