/* SPDX-License-Identifier: Apache-2.0
 * symlink.c - symbolic links: objects of kind MCS_SYMLINK, whose bytes are the target. */
#include <config.h>

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "common/err.h"
#include "mcfs/control/control.h"
#include "mcfs/handle.h"
#include "mcfs/ops/ops.h"

void mcfs_do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct mcs_attrs attrs;
	struct mcs_put_opts opts = { .flags = MCS_PUT_EXCL, .kind = MCS_SYMLINK, .attrs = &attrs };
	struct iovec iov = { (void *)(uintptr_t)target, strlen(target) };
	struct mcfs_key key;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_symlink, parent, NULL))
		return;
	r = mcfs_op_share_tree(&op);
	if (r == 0)
		r = mcfs_child_key(op.fs, op.in, name, &key);
	if (r == 0 && !mcfs_key_is_object(&key))
		r = mc_fail(-EINVAL, "an object's key is not empty and does not end in '/'");
	if (r == 0) {
		mcfs_attrs_new(&op, op.in, MCS_SYMLINK, 0, &attrs);
		r = mcs_put(op.fs->store, mcfs_key_of(&key), &iov, 1, &opts, mcfs_op_left_ms(&op));
	}
	mcfs_reply_created(&op, &key, r);
}

static int read_target(struct mcfs_op *op, const struct mcfs_key *key, char ret[PATH_MAX])
{
	struct mcfs_object *o;
	int64_t n;
	int r;

	r = mcfs_object_open(op->fs->store, mcfs_key_of(key), op->deadline, &o);
	if (r < 0)
		return r;
	n = (int64_t)mcfs_object_info(o)->size;
	if (mcfs_object_info(o)->kind != MCS_SYMLINK)
		r = -ESTALE;
	else if (n >= PATH_MAX)
		r = -ENAMETOOLONG;
	else
		r = mcfs_object_copy(o, 0, ret, (size_t)n, op->deadline);
	mcfs_object_unref(o);
	if (r < 0)
		return r;
	ret[n] = '\0';
	return 0;
}

void mcfs_do_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX];
	const char *text = target;
	struct mcfs_key key;
	struct mcfs_op op;
	int r = -EINVAL;

	if (!mcfs_op_begin(&op, req, MCFS_OP_readlink, ino, NULL))
		return;
	if (op.in) {
		mcfs_inode_key(&op.fs->inodes, op.in, &key);
		r = read_target(&op, &key, target);
	} else if (ino == MCFS_CONTROL_SOCK && mcfs_control_socket(op.fs)) {
		text = mcfs_control_socket(op.fs);
		r = 0;
	}
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else
		(void)mcfs_reply_text(&op, text);
}
