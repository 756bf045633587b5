/* SPDX-License-Identifier: Apache-2.0
 * view.c - directories below .mcfs in which names are whole keys: by-key has all objects, also those hidden by
 * a directory; local those with a copy on this node; prefix/P those whose keys begin with P. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "mcfs/control/control.h"
#include "mcfs/handle.h"
#include "mcfs/read/local_objects.h"
#include "mcfs/ops/ops.h"

bool mcfs_is_view(const struct mcfs_op *op, fuse_ino_t ino)
{
	return op->in ? mcfs_inode_is_view(op->in) : ino == MCFS_CONTROL_BY_KEY ||
		ino == MCFS_CONTROL_LOCAL || ino == MCFS_CONTROL_PREFIX;
}

static int view_decode(const char *name, struct mcfs_key *ret)
{
	int n = mcfs_flat_decode(name, false, ret->data, MCFS_KEY_MAX);

	if (n < 0)
		return n;
	ret->len = (size_t)n;
	return 0;
}

/* Is the object listed in the directory? */
static int view_contains(struct mcfs_op *op, fuse_ino_t parent, const struct mcfs_key *key)
{
	struct mcs_key k = mcfs_key_of(key);
	struct mcfs_key prefix;
	bool here;
	int r;

	if (!mcfs_key_is_object(key))
		return -ENOENT;
	if (op->in) {
		mcfs_inode_key(&op->fs->inodes, op->in, &prefix);
		return key->len >= prefix.len && memcmp(key->data, prefix.data, prefix.len) == 0 ? 0 : -ENOENT;
	}
	if (parent != MCFS_CONTROL_LOCAL)
		return 0;
	r = mcfs_local_objects(op->fs->store, &k, 1, &here, mcfs_op_left_ms(op));
	return r < 0 ? r : here ? 0 : -ENOENT;
}

static int find_object(struct mcfs_op *op, fuse_ino_t parent, const char *name, struct fuse_entry_param *ret,
		       struct mcfs_inode **ret_inode)
{
	struct mcfs_found found = { .implied = false };
	struct mcfs_object *o = NULL;
	struct mcfs *fs = op->fs;
	struct mcfs_key key;
	struct mcs_key k;
	int r = view_decode(name, &key), result;
	bool retry;

	if (r == 0)
		r = view_contains(op, parent, &key);
	if (r < 0)
		return r;
	k = mcfs_key_of(&key);
	(void)mcfs_open_pins_lookup(&fs->open_pins, k, op->ctx.pid, &retry);
	r = retry ? mcfs_object_stat(fs->store, &k, 1, &found.info, &result, op->deadline, &o) :
		mcs_stat_batch(fs->store, &k, 1, &found.info, &result, mcfs_op_left_ms(op));
	if (r >= 0)
		r = result;
	if (r == 0)
		r = mcfs_fill_entry(op, &key, &found, retry, ret, ret_inode);
	if (r < 0)
		mcfs_object_unref(o);
	else if (retry && mcfs_open_pins_keep(&fs->open_pins, k, op->ctx.pid, o))
		mcfs_reply_attend();
	return r;
}

/* Every prefix has a directory, which may be empty. */
static int find_prefix(struct mcfs_op *op, const char *name, struct fuse_entry_param *ret,
		       struct mcfs_inode **ret_inode)
{
	struct mcfs_inodes *inodes = &op->fs->inodes;
	struct mcfs_key key;
	int r = view_decode(name, &key);

	if (r < 0)
		return r;
	*ret_inode = mcfs_inode_view(inodes, mcfs_key_of(&key));
	if (!*ret_inode)
		return -ENOMEM;
	memset(ret, 0, sizeof(*ret));
	ret->ino = mcfs_inode_nodeid(inodes, *ret_inode);
	ret->entry_timeout = (double)mcfs_live(&op->fs->conf.entry_timeout) / 1000;
	ret->attr_timeout = (double)mcfs_live(&op->fs->conf.attr_timeout) / 1000;
	mcfs_stat_inode(op->fs, *ret_inode, &ret->attr);
	return 0;
}

void mcfs_view_lookup(struct mcfs_op *op, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	struct mcfs_inode *in;
	int r = !op->in && parent == MCFS_CONTROL_PREFIX ? find_prefix(op, name, &e, &in) :
		find_object(op, parent, name, &e, &in);

	if (r < 0)
		(void)mcfs_reply_err(op, r);
	else if (mcfs_reply_entry(op, &e) < 0)
		mcfs_inode_forget(&op->fs->inodes, in, 1);
}
