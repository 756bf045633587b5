/* SPDX-License-Identifier: Apache-2.0
 * names.c - creating directories and removing names. A created directory is a marker key that ends in '/', so
 * that all nodes see it while it is empty. A directory that other clients' keys imply needs no marker. */
#include <config.h>

#include <errno.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "mcfs/handle.h"
#include "mcfs/write/hold.h"
#include "mcfs/ops/ops.h"

/* The key stays valid until the end of @op. */
static int child_dir_key(struct mcfs_op *op, const char *name, struct mcfs_key *ret)
{
	int r = mcfs_op_share_tree(op);

	if (r == 0)
		r = mcfs_child_key(op->fs, op->in, name, ret);
	if (r < 0)
		return r;
	if (op->fs->flat)
		return mc_fail(-EPERM, "keymap=flat has no directories");
	if (ret->len == MCFS_KEY_MAX)
		return -ENAMETOOLONG;
	ret->data[ret->len++] = '/';
	return 0;
}

void mcfs_do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct mcfs_found found = { .info = { .kind = MCS_DIR } };
	struct mcs_attrs attrs;
	struct mcs_put_opts opts = { .flags = MCS_PUT_EXCL, .kind = MCS_DIR, .attrs = &attrs };
	struct fuse_entry_param e;
	struct mcfs_inode *in;
	struct mcfs_key key;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_mkdir, parent, NULL))
		return;
	r = child_dir_key(&op, name, &key);
	if (r == 0) {
		mcfs_attrs_new(&op, op.in, MCS_DIR, mode, &attrs);
		r = mcs_put(op.fs->store, mcfs_key_of(&key), NULL, 0, &opts, mcfs_op_left_ms(&op));
	}
	found.info.attrs = attrs;
	found.info.attrs.nlink = 2;
	found.info.mtime_ms = mc_wall_ms();
	if (r == 0)
		r = mcfs_fill_entry(&op, &key, &found, false, &e, &in);
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else if (mcfs_reply_entry(&op, &e) < 0)
		mcfs_inode_forget(&op.fs->inodes, in, 1);
}

static int remove_dir(struct mcfs_op *op, const struct mcfs_key *key)
{
	struct mcfs_found found;
	int r;

	if (mcfs_writers_below(&op->fs->versions, key->data, key->len))
		return -ENOTEMPTY;
	r = mcs_remove(op->fs->store, mcfs_key_of(key), MCS_REMOVE_FORCE, mcfs_op_left_ms(op));
	if (mcs_errno(r) != ENOENT)
		return r;
	/* No marker: the directory vanished with the last key below it, or still has keys. */
	r = mcfs_find_dir(op, key, &found);
	if (r == 0)
		return -ENOTEMPTY;
	return mcs_errno(r) == ENOENT ? 0 : r;
}

void mcfs_do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mcfs_key key;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_rmdir, parent, NULL))
		return;
	r = child_dir_key(&op, name, &key);
	if (r == 0)
		r = remove_dir(&op, &key);
	(void)mcfs_reply_err(&op, r);
}

static int remove_file(struct mcfs_op *op, const struct mcfs_key *key)
{
	const unsigned flags = op->fs->rm == MCFS_RM_FORCE ? MCS_REMOVE_FORCE : 0;
	const struct mcs_key name = mcfs_key_of(key);
	struct mcfs_key shared;
	struct mcfs_hold hold;
	bool pending, linked;
	int r;

	if (op->fs->rm == MCFS_RM_DENY)
		return mc_fail(-EPERM, "removing is disabled: rm=deny");
	linked = mcfs_link_find(op, key, &shared);
	r = mcfs_hold_begin(&hold, &op->fs->versions, (struct mcs_key[]){ name, mcfs_key_of(&shared) }, 1u + linked,
			    op->deadline);
	if (r < 0)
		return r;
	pending = mcfs_hold_pending(&hold, name, false);
	r = mc_fault("mcfs.names.remove");
	if (r == 0)
		r = mcs_remove(op->fs->store, name, flags, mcfs_op_left_ms(op));
	/* After any other error, keep the writers: a close that publishes nothing would lose data silently. */
	if (r == 0 || mcs_errno(r) == ENOENT)
		mcfs_hold_unlink(&hold, name);
	if (r == 0 && linked)
		mcfs_link_lost(op, &hold, &shared);
	mcfs_hold_end(&hold);
	if (pending)
		mcfs_handles_unlinked(op->fs, name);
	return pending && mcs_errno(r) == ENOENT ? 0 : r;
}

void mcfs_do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mcfs_key key;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_unlink, parent, NULL))
		return;
	r = mcfs_op_share_tree(&op);
	if (r == 0)
		r = mcfs_child_key(op.fs, op.in, name, &key);
	if (r == 0)
		r = remove_file(&op, &key);
	(void)mcfs_reply_err(&op, r);
}

/* A special file is an object without bytes: only its name and its attributes matter. */
static int make_node(struct mcfs_op *op, const struct mcfs_key *key, mode_t mode, dev_t rdev)
{
	struct mcs_attrs attrs;
	struct mcs_put_opts opts = {
		.flags = MCS_PUT_EXCL, .kind = S_ISREG(mode) ? MCS_OBJECT : MCS_SPECIAL, .attrs = &attrs,
	};

	mcfs_attrs_new(op, op->in, opts.kind, mode, &attrs);
	if (opts.kind == MCS_SPECIAL && !attrs.set)
		return mc_fail(-EPERM, "special files are attributes, and the mount has the option noattrs");
	if (S_ISCHR(mode) || S_ISBLK(mode)) {
		attrs.set |= MCS_ATTR_RDEV;
		attrs.rdev = (uint32_t)rdev;
	}
	return mcs_put(op->fs->store, mcfs_key_of(key), NULL, 0, &opts, mcfs_op_left_ms(op));
}

void mcfs_do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct mcfs_key key;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_mknod, parent, NULL))
		return;
	r = mcfs_op_share_tree(&op);
	if (r == 0)
		r = mcfs_child_key(op.fs, op.in, name, &key);
	if (r == 0 && !mcfs_key_is_object(&key))
		r = mc_fail(-EINVAL, "an object's key is not empty and does not end in '/'");
	if (r == 0)
		r = make_node(&op, &key, mode, rdev);
	mcfs_reply_created(&op, &key, r);
}
